// AVX2, FMA and AVX-VNNI: Intel since Alder Lake, which has no AVX-512.
#include "avx2.h"
// What is built on these registers.
#include "../kernel_set.h"
#include "../quantised_conv.h"

namespace bitfactor {
namespace {
bool supported() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("avxvnni");
}
}  // namespace

extern const KernelSet avxvnni;
const KernelSet avxvnni =
    kernel_set("avxvnni", supported, &avx2_common, &avx2_binary, &quantised_kernels<Simd>);

}  // namespace bitfactor
