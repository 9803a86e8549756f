// WebAssembly with vectors of 128 bits, and with its relaxed ones where RELAXED is defined: two modules, as a
// browser takes none with an instruction that it does not know.
//
// Convolutions of signs look up counts (lookup_conv.h); a plain swizzle, which must give 0 for an index
// beyond 15, takes two instructions of an x86 CPU, the relaxed one takes one. WebAssembly has no fused
// multiply-add: without the relaxed one, which is fused where the CPU has it, each rounds twice, and sums of
// real numbers differ from the other sets' in the last digits.

#include <wasm_simd128.h>

#include "isa/maskless.h"
#include "isa/unroll.h"
#include "kernels/kernels.h"

namespace bitfactor {
namespace {

struct Simd : Maskless<Simd> {
    static constexpr int lanes = 4, tile = 4, conv_vectors = 2, binary_vectors = 2;
    using Float = v128_t;
    using Bits = v128_t;
    using Count = v128_t;
    using Int = v128_t;

    static Float load(const float* from) { return wasm_v128_load(from); }
    static void store(float* to, Float x) { wasm_v128_store(to, x); }
    static Float broadcast(float x) { return wasm_f32x4_splat(x); }
    static Float add(Float a, Float b) { return wasm_f32x4_add(a, b); }
    static Float multiply(Float a, Float b) { return wasm_f32x4_mul(a, b); }
    static Float divide(Float a, Float b) { return wasm_f32x4_div(a, b); }
    static Float fma(Float a, Float b, Float c) {
#ifdef RELAXED
        return wasm_f32x4_relaxed_madd(a, b, c);
#else
        return add(multiply(a, b), c);
#endif
    }
    // b < a ? a : b and b < a ? b : a, as wanted where one is NaN or both are zeros.
    static Float max(Float a, Float b) { return wasm_f32x4_pmax(b, a); }
    static Float min(Float a, Float b) { return wasm_f32x4_pmin(b, a); }
    static Float times_power_of_two(Float x, Float n) {
        const v128_t exponent = wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_const_splat(127));
        return multiply(x, wasm_i32x4_shl(exponent, 23));
    }
    static Float if_positive(Float x, Float a, Float b) {
        return wasm_v128_bitselect(a, b, wasm_f32x4_gt(x, wasm_f32x4_const_splat(0)));
    }
    static unsigned greater(Float a, Float b) { return wasm_i32x4_bitmask(wasm_f32x4_gt(a, b)); }

    static Bits load_bits(const uint32_t* from) { return wasm_v128_load(from); }
    static Bits broadcast_bits(const uint32_t* from) { return wasm_v128_load32_splat(from); }
    static void store_bits(uint32_t* to, Bits x) { wasm_v128_store(to, x); }
    static Bits add_pairs(Bits sum, Bits x, Bits weights) {
        return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(x, weights));
    }
    static constexpr bool counts_are_sums = false;
    static constexpr int count_steps = 31;
    static Count no_count() { return wasm_i32x4_const_splat(0); }
    static Count add_differing(Count count, Bits a, Bits b) {
        return wasm_i8x16_add(count, wasm_i8x16_popcnt(wasm_v128_xor(a, b)));
    }

    using Level = int16_t;
    using LevelSum = v128_t;
    static constexpr bool levels_are_cut = true;
    static constexpr int level_zero = 0, level_vectors = conv_vectors;
    static void store_levels(Level* to, Float x, int n) {
        int32_t levels[lanes];
        wasm_v128_store(levels, wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(x)));
        for (int i = 0; i < lanes && i < n; ++i) to[i] = static_cast<Level>(levels[i]);
    }
    static LevelSum level_sum(const int32_t* base) { return wasm_v128_load(base); }
    static LevelSum add_products(LevelSum sum, Bits levels, Bits weights) {
        return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(levels, weights));
    }
    static Float real_of(LevelSum sum) { return wasm_f32x4_convert_i32x4(sum); }

    static Int zero_int() { return wasm_i32x4_const_splat(0); }
    static void flush(Int& sum, Count& count) {
        finish(sum, count);
        count = no_count();
    }
    static void finish(Int& sum, Count count) {
        const v128_t pairs = wasm_u16x8_extadd_pairwise_u8x16(count);
        sum = wasm_i32x4_add(sum, wasm_u32x4_extadd_pairwise_u16x8(pairs));
    }
    static Float minus_twice(const int32_t* base, Int sum) {
        return wasm_f32x4_convert_i32x4(wasm_i32x4_sub(wasm_v128_load(base), wasm_i32x4_shl(sum, 1)));
    }
};

struct Lookup {
    static constexpr int lanes = 16, vectors = 2;
    using Bytes = v128_t;
    struct Sums {
        v128_t low, high;
    };

    static Bytes zero() { return wasm_i8x16_const_splat(0); }
    static Bytes load(const uint8_t* from) { return wasm_v128_load(from); }
    static Bytes row(const uint8_t* from) { return wasm_v128_load(from); }
    static Bytes choose(Bytes row, Bytes indices) {
#ifdef RELAXED
        return wasm_i8x16_relaxed_swizzle(row, indices);
#else
        return wasm_i8x16_swizzle(row, indices);
#endif
    }
    static Bytes add(Bytes a, Bytes b) { return wasm_i8x16_add(a, b); }
    static Bytes lower(Bytes x) { return wasm_v128_and(x, wasm_i8x16_const_splat(15)); }
    static Bytes upper(Bytes x) { return lower(wasm_u16x8_shr(x, 4)); }
    static Sums no_sums() { return {zero(), zero()}; }
    static void widen(Sums& sums, Bytes counts) {
        sums.low = wasm_i16x8_add(sums.low, wasm_u16x8_extend_low_u8x16(counts));
        sums.high = wasm_i16x8_add(sums.high, wasm_u16x8_extend_high_u8x16(counts));
    }
    static Simd::Int part(const Sums& sums, int k) {
        const v128_t eight = k < 2 ? sums.low : sums.high;
        return k % 2 ? wasm_u32x4_extend_high_u16x8(eight) : wasm_u32x4_extend_low_u16x8(eight);
    }
    static void add_upper(uint8_t* bytes, const uint8_t* next) {
        wasm_v128_store(bytes, wasm_v128_or(load(bytes), wasm_i16x8_shl(load(next), 4)));
    }
};

}  // namespace
}  // namespace bitfactor

#include "kernels/binary_conv.h"
#include "kernels/common_kernels.h"
#include "kernels/kernel_set.h"
#include "kernels/lookup_conv.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {

bool supported() { return true; }

#ifdef RELAXED
constexpr const char* name = "wasm-relaxed";
#else
constexpr const char* name = "wasm";
#endif

constexpr BinaryKernels binary = {binary_conv, &lookup_kernels};

}  // namespace

extern const KernelSet wasm;
const KernelSet wasm = kernel_set(name, supported, &common_kernels, &binary, &quantised_kernels<Simd>);

}  // namespace bitfactor
