#include "isa/scalar.h"

#include "kernels/binary_conv.h"
#include "kernels/common_kernels.h"
#include "kernels/kernel_set.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {

bool supported() { return true; }

constexpr BinaryKernels binary = {binary_conv, nullptr};

}  // namespace

extern const KernelSet scalar;
const KernelSet scalar = kernel_set("scalar", supported, &common_kernels, &binary, &quantised_kernels<Simd>);

}  // namespace bitfactor
