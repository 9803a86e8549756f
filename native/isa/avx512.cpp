// AVX-512 F, BW, VL, DQ, VNNI and VPOPCNTDQ: Intel since Ice Lake, AMD since Zen 4.

#include "isa/avx512.h"

#include "kernels/binary_conv.h"
#include "kernels/kernel_set.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {

// Numbers as bfloat16, by two at a time, in the place of levels.
struct Bfloat16Dots {
    static constexpr bool levels_are_cut = false;
    static constexpr int level_zero = 0, level_vectors = Simd::conv_vectors;
    using Level = uint16_t;
    using LevelSum = __m512;
    static void store_levels(Level* to, __m512 x, int n) {
        __m256i rounded;
        asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(x));
        if (n >= Simd::lanes) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
        _mm256_mask_storeu_epi16(to, Simd::first(n), rounded);
    }
    static LevelSum level_sum(const int32_t*) { return _mm512_setzero_ps(); }
    static LevelSum add_products(LevelSum sum, __m512i numbers, __m512i weights) {
        asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(numbers), "v"(weights));
        return sum;
    }
    static __m512 real_of(LevelSum sum) { return sum; }

    // Intel's CPUs take nearly twice as long for it as for the multiply-adds that it stands for.
    static bool supported() { return this_cpu().avx512bf16 && !this_cpu().intel; }
};

bool supported() { return avx512_supported(); }

const QuantisedKernels* bfloat16() {
    return Bfloat16Dots::supported() ? &quantised_kernels<Bfloat16Dots> : nullptr;
}

}  // namespace

const BinaryKernels avx512_popcounts = {binary_conv, nullptr};

extern const KernelSet avx512;
const KernelSet avx512 =
    kernel_set("avx512", supported, &avx512_common, &avx512_popcounts, &avx512_bytes, bfloat16);

}  // namespace bitfactor
