// NEON: every 64-bit ARM.

#include "isa/neon.h"

#include "kernels/binary_conv.h"
#include "kernels/common_kernels.h"
#include "kernels/kernel_set.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {
bool supported() { return true; }
}  // namespace

const CommonKernels neon_common = common_kernels;
const BinaryKernels neon_binary = {binary_conv, nullptr};

extern const KernelSet neon;
const KernelSet neon = kernel_set("neon", supported, &neon_common, &neon_binary, &quantised_kernels<Simd>);

}  // namespace bitfactor
