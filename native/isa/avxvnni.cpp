// AVX2, FMA and AVX-VNNI: Intel since Alder Lake, which has no AVX-512.
#include "isa/avx2.h"
// What is built on these registers.
#include "kernels/kernel_set.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {
bool supported() { return this_cpu().avxvnni; }
}  // namespace

extern const KernelSet avxvnni;
const KernelSet avxvnni =
    kernel_set("avxvnni", supported, &avx2_common, &avx2_binary, &quantised_kernels<Simd>);

}  // namespace bitfactor
