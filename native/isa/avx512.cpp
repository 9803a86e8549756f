// AVX-512 F, BW, VL, DQ and VPOPCNTDQ: Intel since Ice Lake, AMD since Zen 4.

#include "avx512.h"

#include "../kernel_set.h"

namespace bitfactor {
namespace {
bool supported() { return avx512_supported(); }

const QuantisedKernels* bfloat16() {
    static constexpr QuantisedKernels kernels = quantised_kernels<Bfloat16Dots>;
    return Bfloat16Dots::supported() ? &kernels : nullptr;
}
}  // namespace

extern const KernelSet avx512;
const KernelSet avx512 = kernel_set("avx512", supported, nullptr, nullptr, bfloat16);

}  // namespace bitfactor
