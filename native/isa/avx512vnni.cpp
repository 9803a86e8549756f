// AVX-512 F, BW, VL and DQ with VNNI, but without VPOPCNTDQ: Intel's Cascade Lake and Cooper Lake.

#include "avx512bw.h"

namespace bitfactor {
namespace {
bool supported() { return avx512vnni_supported(); }
}  // namespace

extern const KernelSet avx512vnni;
const KernelSet avx512vnni = kernel_set("avx512vnni", supported, nullptr, &lookup_kernels);

}  // namespace bitfactor
