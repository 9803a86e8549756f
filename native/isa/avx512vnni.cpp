// AVX-512 F, BW, VL and DQ with VNNI, but without VPOPCNTDQ: Intel's Cascade Lake and Cooper Lake.
#include "isa/avx512.h"
// What is built on these registers.
#include "kernels/kernel_set.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {
bool supported() { return this_cpu().avx512vnni; }
}  // namespace

const QuantisedKernels avx512_bytes = quantised_kernels<Simd>;

extern const KernelSet avx512vnni;
const KernelSet avx512vnni =
    kernel_set("avx512vnni", supported, &avx512_common, &avx512_lookups, &avx512_bytes);

}  // namespace bitfactor
