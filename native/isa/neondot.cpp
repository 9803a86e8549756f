// NEON with products of bytes (sdot): ARM since 2018 (Cortex-A76, Graviton2, Apple's M1).

#if defined(__linux__)
#include <sys/auxv.h>
#endif
#include "isa/neon.h"
// What is built on these registers.
#include "kernels/kernel_set.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {

bool supported() {
#if defined(__linux__)
    constexpr unsigned long dot_products = 1ul << 20;  // HWCAP_ASIMDDP
    return getauxval(AT_HWCAP) & dot_products;
#elif defined(__APPLE__)
    return true;
#else
    return false;
#endif
}

}  // namespace

extern const KernelSet neondot;
const KernelSet neondot =
    kernel_set("neondot", supported, &neon_common, &neon_binary, &quantised_kernels<Simd>);

}  // namespace bitfactor
