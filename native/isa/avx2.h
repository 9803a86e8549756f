// The registers of AVX2 and FMA: what avx2.cpp and avxvnni.cpp share.
//
// There is no vector population count: convolutions of signs look up counts (lookup_conv.h), two pixels' and
// 32 output channels' at a time. For layers that this does not suit, a nibble is looked up with
// vpshufb, which counts bytes. The counts of up to 31 steps (31 * 8 = 248) stay bytes; flushing adds the 4
// bytes of a 32-bit lane, that is of one output channel. Eight instructions for 256 products; 16 registers
// hold a tile of 4 pixels by 2 registers of counts, two of weights, the table, the mask and the temporaries.

#pragma once

#include <immintrin.h>

#include "isa/cpu.h"
#include "isa/unroll.h"
#include "kernels/kernels.h"

namespace bitfactor {
namespace {

struct Simd {
    static constexpr int lanes = 8, tile = 4, conv_vectors = 2, binary_vectors = 1;
    using Float = __m256;
    using Bits = __m256i;
    using Count = __m256i;
    using Int = __m256i;

    // All ones in the first n lanes; n may be below 0 or above 8.
    static __m256i first(int n) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }

    static Float load(const float* from) { return _mm256_loadu_ps(from); }
    static Float load_first(const float* from, int n) {
        return n >= lanes ? load(from) : _mm256_maskload_ps(from, first(n));
    }
    static void store(float* to, Float x) { _mm256_storeu_ps(to, x); }
    static void store_first(float* to, Float x, int n) {
        if (n >= lanes) return store(to, x);
        _mm256_maskstore_ps(to, first(n), x);
    }
    static Float broadcast(float x) { return _mm256_set1_ps(x); }
    static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
    static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
    static Float divide(Float a, Float b) { return _mm256_div_ps(a, b); }
    static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
    static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
    static Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
    static Float times_power_of_two(Float x, Float n) {
        const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
    }
    static Float if_positive(Float x, Float a, Float b) {
        return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ));
    }
    static void zip(Float a, Float b, Float& low, Float& high) {
        const __m256 even = _mm256_unpacklo_ps(a, b), odd = _mm256_unpackhi_ps(a, b);
        low = _mm256_permute2f128_ps(even, odd, 0x20);
        high = _mm256_permute2f128_ps(even, odd, 0x31);
    }
    static unsigned greater(Float a, Float b) {
        return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
    }

    static Bits load_bits(const uint32_t* from) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    }
    static Bits broadcast_bits(const uint32_t* from) { return _mm256_set1_epi32(static_cast<int>(*from)); }
    static void store_bits(uint32_t* to, Bits x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }
    static Bits add_pairs(Bits sum, Bits x, Bits weights) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(x, weights));
    }
    static constexpr bool counts_are_sums = false;
    static constexpr int count_steps = 31;
    static Count no_count() { return _mm256_setzero_si256(); }
    static Count add_differing(Count count, Bits a, Bits b) {
        const __m256i table =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
        const __m256i nibble = _mm256_set1_epi8(15);
        const __m256i bits = _mm256_xor_si256(a, b);
        const __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(bits, nibble));
        const __m256i high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi32(bits, 4), nibble));
        return _mm256_add_epi8(count, _mm256_add_epi8(low, high));
    }
    static Int zero_int() { return _mm256_setzero_si256(); }
    static void flush(Int& sum, Count& count) {
        finish(sum, count);
        count = no_count();
    }
    static void finish(Int& sum, Count count) {
        const __m256i pairs = _mm256_maddubs_epi16(count, _mm256_set1_epi8(1));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }

    static constexpr bool levels_are_cut = true;
    static constexpr int level_zero = 0, level_vectors = conv_vectors;
    using LevelSum = __m256i;
    static LevelSum level_sum(const int32_t* base) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(base));
    }
    static Float real_of(LevelSum sum) { return _mm256_cvtepi32_ps(sum); }
#if defined(__AVXVNNI__)
    using Level = uint8_t;
    static __m128i levels_of(Float x) {
        const __m128i words = words_of(x);
        return _mm_packus_epi16(words, words);
    }
    static void store_whole(Level* to, __m128i levels) {
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to), levels);
    }
    static LevelSum add_products(LevelSum sum, Bits levels, Bits weights) {
        asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(levels), "x"(weights));  // as in avx512.h
        return sum;
    }
#else
    // vpmaddubsw, which multiplies bytes, would cut their sums to 16 bits.
    using Level = int16_t;
    static __m128i levels_of(Float x) { return words_of(x); }
    static void store_whole(Level* to, __m128i levels) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), levels);
    }
    static LevelSum add_products(LevelSum sum, Bits levels, Bits weights) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(levels, weights));
    }
#endif
    static __m128i words_of(Float x) {
        const __m256i levels = _mm256_cvtps_epi32(x);
        return _mm_packs_epi32(_mm256_castsi256_si128(levels), _mm256_extracti128_si256(levels, 1));
    }
    static void store_levels(Level* to, Float x, int n) {
        if (n >= lanes) return store_whole(to, levels_of(x));
        Level all[lanes];
        store_whole(all, levels_of(x));
        for (int i = 0; i < n; ++i) to[i] = all[i];
    }

    static Float minus_twice(const int32_t* base, Int sum) {
        const __m256i from = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(base));
        return _mm256_cvtepi32_ps(_mm256_sub_epi32(from, _mm256_slli_epi32(sum, 1)));
    }
};

}  // namespace

extern const CommonKernels avx2_common;
extern const BinaryKernels avx2_binary;

}  // namespace bitfactor
