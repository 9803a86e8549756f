// The registers of NEON: what neon.cpp and neondot.cpp share.
//
// vcnt counts the bits of bytes. The counts of up to 31 steps (31 * 8 = 248) stay bytes; flushing adds the
// 4 bytes of a 32-bit lane, that is of one output channel, by two pairwise additions (vpaddl, vpadal). Three
// instructions (veor with the broadcast word, vcnt, vadd) for 128 products. Of the 32 registers a tile of 6
// pixels by 4 takes 24 for counts and 4 for weights, as it does for the sums of the real convolution.

#pragma once

#include <arm_neon.h>

#include "isa/maskless.h"
#include "isa/unroll.h"
#include "kernels/kernels.h"

namespace bitfactor {
namespace {

struct Simd : Maskless<Simd> {
    static constexpr int lanes = 4, tile = 6, conv_vectors = 4, binary_vectors = 4;
    using Float = float32x4_t;
    using Bits = uint32x4_t;
    using Count = uint8x16_t;
    using Int = uint32x4_t;

    static Float load(const float* from) { return vld1q_f32(from); }
    static void store(float* to, Float x) { vst1q_f32(to, x); }
    static Float broadcast(float x) { return vdupq_n_f32(x); }
    static Float add(Float a, Float b) { return vaddq_f32(a, b); }
    static Float multiply(Float a, Float b) { return vmulq_f32(a, b); }
    static Float divide(Float a, Float b) { return vdivq_f32(a, b); }
    static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
    // Not vmax and vmin: they order -0 before 0, and give NaN where one is NaN.
    static Float max(Float a, Float b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
    static Float min(Float a, Float b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
    static Float times_power_of_two(Float x, Float n) {
        const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
        return vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
    }
    static Float if_positive(Float x, Float a, Float b) { return vbslq_f32(vcgtzq_f32(x), a, b); }
    static void zip(Float a, Float b, Float& low, Float& high) {
        low = vzip1q_f32(a, b);
        high = vzip2q_f32(a, b);
    }
    static unsigned greater(Float a, Float b) {
        const uint32x4_t bit = {1, 2, 4, 8};
        return vaddvq_u32(vandq_u32(vcgtq_f32(a, b), bit));
    }

    static Bits load_bits(const uint32_t* from) { return vld1q_u32(from); }
    static Bits broadcast_bits(const uint32_t* from) { return vld1q_dup_u32(from); }
    static void store_bits(uint32_t* to, Bits x) { vst1q_u32(to, x); }
    static Bits add_pairs(Bits sum, Bits x, Bits weights) {
        const int16x8_t a = vreinterpretq_s16_u32(x), b = vreinterpretq_s16_u32(weights);
        const int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b)), high = vmull_high_s16(a, b);
        return vaddq_u32(sum, vreinterpretq_u32_s32(vpaddq_s32(low, high)));
    }
    static constexpr bool counts_are_sums = false;
    static constexpr int count_steps = 31;
    static Count no_count() { return vdupq_n_u8(0); }
    static Count add_differing(Count count, Bits a, Bits b) {
        return vaddq_u8(count, vcntq_u8(vreinterpretq_u8_u32(veorq_u32(a, b))));
    }
    static Int zero_int() { return vdupq_n_u32(0); }
    static void flush(Int& sum, Count& count) {
        finish(sum, count);
        count = no_count();
    }
    static void finish(Int& sum, Count count) { sum = vpadalq_u16(sum, vpaddlq_u8(count)); }

#if defined(__ARM_FEATURE_DOTPROD)
    using Level = int8_t;
    using LevelSum = int32x4_t;
    static constexpr bool levels_are_cut = true;
    static constexpr int level_zero = 128, level_vectors = conv_vectors;
    static LevelSum level_sum(const int32_t* base) { return vld1q_s32(base); }
    static LevelSum add_products(LevelSum sum, Bits levels, Bits weights) {
        return vdotq_s32(sum, vreinterpretq_s8_u32(weights), vreinterpretq_s8_u32(levels));
    }
    static Float real_of(LevelSum sum) { return vcvtq_f32_s32(sum); }
#else
    // Two of an output's sums side by side.
    using Level = int16_t;
    struct LevelSum {
        int32x4_t low, high;
    };
    static constexpr bool levels_are_cut = true;
    static constexpr int level_zero = 0, level_vectors = conv_vectors / 2;
    static LevelSum level_sum(const int32_t* base) {
        const int32x4_t from = vld1q_s32(base), zero = vdupq_n_s32(0);
        return {vzip1q_s32(from, zero), vzip2q_s32(from, zero)};
    }
    static LevelSum add_products(LevelSum sum, Bits levels, Bits weights) {
        const int16x8_t x = vreinterpretq_s16_u32(levels), w = vreinterpretq_s16_u32(weights);
        return {vmlal_s16(sum.low, vget_low_s16(x), vget_low_s16(w)), vmlal_high_s16(sum.high, x, w)};
    }
    static Float real_of(LevelSum sum) { return vcvtq_f32_s32(vpaddq_s32(sum.low, sum.high)); }
#endif
    static void store_levels(Level* to, Float x, int n) {
        int32_t levels[lanes];
        vst1q_s32(levels, vcvtnq_s32_f32(x));
        for (int i = 0; i < lanes && i < n; ++i) to[i] = static_cast<Level>(levels[i] - level_zero);
    }

    static Float minus_twice(const int32_t* base, Int sum) {
        return vcvtq_f32_s32(vsubq_s32(vld1q_s32(base), vreinterpretq_s32_u32(vshlq_n_u32(sum, 1))));
    }
};

}  // namespace

extern const CommonKernels neon_common;
extern const BinaryKernels neon_binary;

}  // namespace bitfactor
