// The registers of AVX-512 F, BW, VL and DQ: what avx512.cpp, avx512vnni.cpp, avx512bw.cpp and amx.cpp share.
//
// Where VPOPCNTDQ is, vpopcntd counts the bits of each 32-bit lane, that is of one output channel: three
// instructions (vpxord with the broadcast word, vpopcntd, vpaddd) for 512 products. Of the 32 registers a
// tile of 6 pixels by 4 takes 24 for sums and 4 for weights; the same tile serves the fused multiply-adds of
// the real convolution.

#pragma once

#include <immintrin.h>

#include "isa/cpu.h"
#include "isa/unroll.h"
#include "kernels/kernels.h"

namespace bitfactor {
namespace {

struct Simd {
    static constexpr int lanes = 16, tile = 6, conv_vectors = 4;
    using Float = __m512;
    using Bits = __m512i;
    using Count = __m512i;
    using Int = __m512i;

    // The first n lanes; n may be below 0 or above 16.
    static __mmask16 first(int n) {
        return static_cast<__mmask16>(n <= 0 ? 0u : n >= lanes ? 0xffffu : (1u << n) - 1u);
    }

    static Float load(const float* from) { return _mm512_loadu_ps(from); }
    static Float load_first(const float* from, int n) { return _mm512_maskz_loadu_ps(first(n), from); }
    static void store(float* to, Float x) { _mm512_storeu_ps(to, x); }
    static void store_first(float* to, Float x, int n) { _mm512_mask_storeu_ps(to, first(n), x); }
    static Float broadcast(float x) { return _mm512_set1_ps(x); }
    static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
    static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
    static Float divide(Float a, Float b) { return _mm512_div_ps(a, b); }
    static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
    static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
    static Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
    static Float times_power_of_two(Float x, Float n) { return _mm512_scalef_ps(x, n); }
    static Float if_positive(Float x, Float a, Float b) {
        return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ), b, a);
    }
#if defined(__AVX512BF16__)
    // Of two bfloat16 in each lane.
    static Float add_couples(Float sum, Float a, Float b) {
        return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
    }
#endif
    static void zip(Float a, Float b, Float& low, Float& high) {
        const __m512i index = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        low = _mm512_permutex2var_ps(a, index, b);
        high = _mm512_permutex2var_ps(a, _mm512_add_epi32(index, _mm512_set1_epi32(8)), b);
    }
    static unsigned greater(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }

    static Bits load_bits(const uint32_t* from) { return _mm512_loadu_si512(from); }
    static Bits broadcast_bits(const uint32_t* from) { return _mm512_set1_epi32(static_cast<int>(*from)); }
    static void store_bits(uint32_t* to, Bits x) { _mm512_storeu_si512(to, x); }
    static Bits add_pairs(Bits sum, Bits x, Bits weights) {
        return _mm512_add_epi32(sum, _mm512_madd_epi16(x, weights));
    }
    static Count no_count() { return _mm512_setzero_si512(); }
#if defined(__AVX512VPOPCNTDQ__)
    static constexpr bool counts_are_sums = true;
    static constexpr int binary_vectors = 4;
    static Count add_differing(Count count, Bits a, Bits b) {
        return _mm512_add_epi32(count, _mm512_popcnt_epi32(_mm512_xor_si512(a, b)));
    }
    static void finish(Int& sum, Count count) { sum = count; }
#else
    // As in avx2.cpp.
    static constexpr bool counts_are_sums = false;
    static constexpr int count_steps = 31, binary_vectors = 2;  // counts and sums take registers
    static Count add_differing(Count count, Bits a, Bits b) {
        const __m512i table =
            _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
        const __m512i nibble = _mm512_set1_epi8(15);
        const __m512i bits = _mm512_xor_si512(a, b);
        const __m512i low = _mm512_shuffle_epi8(table, _mm512_and_si512(bits, nibble));
        const __m512i high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi32(bits, 4), nibble));
        return _mm512_add_epi8(count, _mm512_add_epi8(low, high));
    }
    static Int zero_int() { return _mm512_setzero_si512(); }
    static void flush(Int& sum, Count& count) {
        finish(sum, count);
        count = no_count();
    }
    static void finish(Int& sum, Count count) {
        const __m512i pairs = _mm512_maddubs_epi16(count, _mm512_set1_epi8(1));
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    }
#endif

    static constexpr bool levels_are_cut = true;
    static constexpr int level_zero = 0, level_vectors = conv_vectors;
    using LevelSum = __m512i;
    static LevelSum level_sum(const int32_t* base) { return _mm512_loadu_si512(base); }
    static Float real_of(LevelSum sum) { return _mm512_cvtepi32_ps(sum); }
#if defined(__AVX512VNNI__)
    using Level = uint8_t;
    static void store_levels(Level* to, Float x, int n) {
        const __m128i levels = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x));
        if (n >= lanes) return _mm_storeu_si128(reinterpret_cast<__m128i*>(to), levels);
        _mm_mask_storeu_epi8(to, first(n), levels);
    }
    static LevelSum add_products(LevelSum sum, Bits levels, Bits weights) {
        // The intrinsic is the same, but GCC would keep each sum in memory besides.
        asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(levels), "v"(weights));
        return sum;
    }
#else
    // vpmaddubsw, which multiplies bytes, would cut their sums to 16 bits.
    using Level = int16_t;
    static void store_levels(Level* to, Float x, int n) {
        const __m256i levels = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(x));
        if (n >= lanes) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), levels);
        _mm256_mask_storeu_epi16(to, first(n), levels);
    }
    static LevelSum add_products(LevelSum sum, Bits levels, Bits weights) {
        return _mm512_add_epi32(sum, _mm512_madd_epi16(levels, weights));
    }
#endif

    static Float minus_twice(const int32_t* base, Int sum) {
        return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_epi32(base), _mm512_slli_epi32(sum, 1)));
    }
};

inline bool avx512_supported() { return this_cpu().avx512vnni && this_cpu().avx512vpopcntdq; }

}  // namespace

extern const CommonKernels avx512_common;
extern const BinaryKernels avx512_lookups, avx512_popcounts;
extern const QuantisedKernels avx512_bytes;  // with VNNI

}  // namespace bitfactor
