// AVX-512 F, BW, VL and DQ with neither VPOPCNTDQ nor VNNI: Intel's Skylake-X.

#include "avx512bw.h"

namespace bitfactor {
namespace {
bool supported() { return avx512bw_supported(); }
}  // namespace

extern const KernelSet avx512bw;
const KernelSet avx512bw = kernel_set("avx512bw", supported, nullptr, &lookup_kernels);

}  // namespace bitfactor
