// AVX-512 F, BW, VL, DQ and VPOPCNTDQ: Intel since Ice Lake, AMD since Zen 4.

#include "avx512.h"

#include "../kernel_set.h"

namespace bitfactor {
namespace {
bool supported() { return avx512_supported(); }
}  // namespace

extern const KernelSet avx512;
const KernelSet avx512 = kernel_set("avx512", supported);

}  // namespace bitfactor
