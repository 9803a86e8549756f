// Functions of a number. The arithmetic is stated step by step in
// bitfactor.format.operations.arithmetic.

#pragma once

#include <cstring>

#include "kernels/kernels.h"

namespace bitfactor {
namespace {

// p <- fma(p, x, c) for each of the coefficients.
template <class... Coefficients>
Simd::Float polynomial(Simd::Float x, float first, Coefficients... others) {
    Simd::Float p = Simd::broadcast(first);
    ((p = Simd::fma(p, x, Simd::broadcast(others))), ...);
    return p;
}

inline Simd::Float exponential(Simd::Float x) {
    constexpr float round_to_integer = 12582912.0f;  // 1.5 * 2^23: what is below one falls off
    const auto constant = [](float value) { return Simd::broadcast(value); };
    x = Simd::min(Simd::max(x, constant(-87.0f)), constant(88.0f));
    const Simd::Float n = Simd::add(Simd::fma(x, constant(1.44269504f), constant(round_to_integer)),
                                    constant(-round_to_integer));
    const Simd::Float r = Simd::fma(n, constant(2.12194440e-4f), Simd::fma(n, constant(-0.693359375f), x));
    const Simd::Float p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                     4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f);
    const Simd::Float mantissa = Simd::add(Simd::fma(p, Simd::multiply(r, r), r), constant(1.0f));
    return Simd::times_power_of_two(mantissa, n);
}

inline Simd::Float negative(Simd::Float x) { return Simd::multiply(x, Simd::broadcast(-1.0f)); }

inline Simd::Float reciprocal_of(Simd::Float x) { return Simd::divide(Simd::broadcast(1.0f), x); }

inline Simd::Float sigmoid_of(Simd::Float x) {
    return reciprocal_of(Simd::add(Simd::broadcast(1.0f), exponential(negative(x))));
}

inline Simd::Float gelu_of(Simd::Float x) {
    const Simd::Float one = Simd::broadcast(1.0f), size = Simd::if_positive(x, x, negative(x));
    const Simd::Float t = reciprocal_of(Simd::fma(size, Simd::broadcast(0.231641888f), one));
    const Simd::Float p =
        polynomial(t, 0.5307027145f, -0.7265760135f, 0.7107068705f, -0.142248368f, 0.127414796f);
    const Simd::Float square = Simd::multiply(Simd::multiply(x, x), Simd::broadcast(-0.5f));
    const Simd::Float beyond = Simd::multiply(Simd::multiply(p, t), exponential(square));
    return Simd::if_positive(x, Simd::fma(negative(x), beyond, x), Simd::multiply(x, beyond));
}

inline float logarithm(float x) {
    constexpr float smallest = 1.17549435e-38f;
    x = x > smallest ? x : smallest;
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    int n = static_cast<int>(bits >> 23) - 126;
    bits = (bits & 0x7fffff) | 0x3f000000;  // the mantissa, from 1/2 to 1
    float mantissa;
    std::memcpy(&mantissa, &bits, sizeof mantissa);
    const bool small = mantissa < 0.707106781f;
    const float f = (small ? mantissa + mantissa : mantissa) - 1.0f;
    n -= small;
    constexpr float coefficients[] = {-1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f,
                                      1.4249322787e-1f,  -1.6668057665e-1f, 2.0000714765e-1f,
                                      -2.4999993993e-1f, 3.3333331174e-1f};
    float p = 7.0376836292e-2f;
    for (const float c : coefficients) p = __builtin_fmaf(p, f, c);
    const float square = f * f, exponent = static_cast<float>(n);
    const float above = __builtin_fmaf(exponent, -2.12194440e-4f, p * f * square);
    return __builtin_fmaf(exponent, 0.693359375f, f + __builtin_fmaf(square, -0.5f, above));
}

inline float square_root(float x) { return __builtin_sqrtf(x > 0.0f ? x : 0.0f); }

}  // namespace
}  // namespace bitfactor
