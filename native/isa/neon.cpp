// NEON: every 64-bit ARM.

#include "neon.h"

#include "../binary_conv.h"
#include "../common_kernels.h"
#include "../kernel_set.h"
#include "../quantised_conv.h"

namespace bitfactor {
namespace {
bool supported() { return true; }
}  // namespace

const CommonKernels neon_common = common_kernels;
const BinaryKernels neon_binary = {binary_conv, nullptr};

extern const KernelSet neon;
const KernelSet neon = kernel_set("neon", supported, &neon_common, &neon_binary, &quantised_kernels<Simd>);

}  // namespace bitfactor
