// AVX2, FMA and AVX-VNNI: Intel since Alder Lake, which has no AVX-512.

#include "avx2.h"

namespace bitfactor {
namespace {
bool supported() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("avxvnni");
}
}  // namespace

extern const KernelSet avxvnni;
const KernelSet avxvnni = kernel_set("avxvnni", supported, nullptr, &lookup_kernels);

}  // namespace bitfactor
