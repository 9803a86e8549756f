// Any machine: one lane, plain C++. Slow, and the yardstick that the other sets must equal bit for bit.

#pragma once

#include <cmath>
#include <cstring>

#define UNROLL _Pragma("GCC unroll 4")  // 64 would make its code a fifth larger

#include "isa/maskless.h"
#include "isa/unroll.h"
#include "kernels/kernels.h"

namespace bitfactor {
namespace {

struct Simd : Maskless<Simd> {
    static constexpr int lanes = 1, tile = 2, conv_vectors = 2, binary_vectors = 4;
    using Float = float;
    using Bits = uint32_t;
    using Count = int32_t;
    using Int = int32_t;

    static Float load(const float* from) { return *from; }
    static void store(float* to, Float x) { *to = x; }
    static Float broadcast(float x) { return x; }
    static Float add(Float a, Float b) { return a + b; }
    static Float multiply(Float a, Float b) { return a * b; }
    static Float divide(Float a, Float b) { return a / b; }
    static Float max(Float a, Float b) { return a > b ? a : b; }
    static Float min(Float a, Float b) { return a < b ? a : b; }
    static Float times_power_of_two(Float x, Float n) {
        const uint32_t bits = static_cast<uint32_t>(static_cast<int>(n) + 127) << 23;
        float power;
        std::memcpy(&power, &bits, sizeof power);
        return x * power;
    }
    static Float if_positive(Float x, Float a, Float b) { return x > 0.0f ? a : b; }
    static void zip(Float, Float, Float&, Float&) {}
    static unsigned greater(Float a, Float b) { return a > b; }

    // The product of two floats is exact in double, so rounding the double sum to float is right but where
    // the sum lies half-way between two floats (its low 29 bits are 100...0) or below the normal floats.
    static Float fma(Float a, Float b, Float c) {
        const double sum = static_cast<double>(a) * b + c;
        uint64_t bits;
        std::memcpy(&bits, &sum, sizeof bits);
        const bool half_way = (bits & 0x1fffffff) == 0x10000000;
        return half_way || std::fabs(sum) < 0x1p-126 ? std::fma(a, b, c) : static_cast<float>(sum);
    }

    static Bits load_bits(const uint32_t* from) { return *from; }
    static Bits broadcast_bits(const uint32_t* from) { return *from; }
    static void store_bits(uint32_t* to, Bits x) { *to = x; }
    static Bits add_pairs(Bits sum, Bits x, Bits weights) {
        const auto product = [&](int half) {
            return static_cast<int16_t>(x >> half) * static_cast<int16_t>(weights >> half);
        };
        return sum + static_cast<uint32_t>(product(0)) + static_cast<uint32_t>(product(16));
    }
    static constexpr bool counts_are_sums = true;
    static Count no_count() { return 0; }
    static Count add_differing(Count count, Bits a, Bits b) { return count + __builtin_popcount(a ^ b); }
    static void finish(Int& sum, Count count) { sum = count; }

    using Level = uint8_t;
    using LevelSum = int32_t;
    static constexpr bool levels_are_cut = true;
    static constexpr int level_zero = 0, level_vectors = conv_vectors;
    static void store_levels(Level* to, Float x, int n) {
        if (n > 0) *to = static_cast<Level>(std::nearbyint(x));
    }
    static LevelSum level_sum(const int32_t* base) { return *base; }
    static LevelSum add_products(LevelSum sum, Bits levels, Bits weights) {
        for (int i = 0; i < 32; i += 8) {
            sum += static_cast<int32_t>(levels >> i & 255) * static_cast<int8_t>(weights >> i & 255);
        }
        return sum;
    }
    static Float real_of(LevelSum sum) { return static_cast<float>(sum); }

    static Float minus_twice(const int32_t* base, Int sum) { return static_cast<float>(*base - 2 * sum); }
};

}  // namespace
}  // namespace bitfactor
