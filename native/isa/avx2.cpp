// AVX2 and FMA: x86 since 2013 (Intel Haswell, AMD Zen).

#include "avx2.h"

namespace bitfactor {
namespace {
bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
}  // namespace

extern const KernelSet avx2;
const KernelSet avx2 = kernel_set("avx2", supported, nullptr, &lookup_kernels);

}  // namespace bitfactor
