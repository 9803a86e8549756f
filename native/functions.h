// Functions of a number, and softmax. The arithmetic is stated step by step in
// bitfactor.format.operations.arithmetic.

#pragma once

#include <cstring>
#include <initializer_list>

#include "kernels.h"

namespace bitfactor {
namespace {

inline float exponential(float x) {
    constexpr float round_to_integer = 12582912.0f;  // 1.5 * 2^23: what is below one falls off
    x = x > -87.0f ? x : -87.0f;
    x = x < 88.0f ? x : 88.0f;
    const float n = __builtin_fmaf(x, 1.44269504f, round_to_integer) - round_to_integer;
    const float r = __builtin_fmaf(n, 2.12194440e-4f, __builtin_fmaf(n, -0.693359375f, x));
    float p = 1.9875691500e-4f;
    for (const float c :
         {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
        p = __builtin_fmaf(p, r, c);
    }
    const float mantissa = __builtin_fmaf(p, r * r, r) + 1.0f;
    const uint32_t bits = static_cast<uint32_t>(static_cast<int>(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return mantissa * power;
}

inline float sigmoid_of(float x) { return 1.0f / (1.0f + exponential(-x)); }

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
    float p = 7.0376836292e-2f;
    for (const float c : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                          -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f}) {
        p = __builtin_fmaf(p, f, c);
    }
    const float square = f * f, exponent = static_cast<float>(n);
    const float above = __builtin_fmaf(exponent, -2.12194440e-4f, p * f * square);
    return __builtin_fmaf(exponent, 0.693359375f, f + __builtin_fmaf(square, -0.5f, above));
}

inline float square_root(float x) { return __builtin_sqrtf(x > 0.0f ? x : 0.0f); }

inline float gelu_of(float x) {
    const float t = 1.0f / __builtin_fmaf(x > 0.0f ? x : -x, 0.231641888f, 1.0f);
    float p = 0.5307027145f;
    for (const float c : {-0.7265760135f, 0.7107068705f, -0.142248368f, 0.127414796f}) {
        p = __builtin_fmaf(p, t, c);
    }
    const float beyond = p * t * exponential(x * x * -0.5f);
    return x > 0.0f ? __builtin_fmaf(-x, beyond, x) : x * beyond;
}

// The softmax over the channels of P pixels; sums are in the order of the channels, those of the pixels side
// by side, since each waits for the one before.
template <int P>
void softmax_pixels(const float* map, int channels, float* rows) {
    constexpr int lanes = 16;
    float sums[P] = {};
    for (int p = 0; p < P; ++p) {
        const float* x = map + static_cast<ptrdiff_t>(p) * channels;
        float* row = rows + static_cast<ptrdiff_t>(p) * channels;
        float parts[lanes];
        for (float& part : parts) part = x[0];
        int c = 0;
        for (; c + lanes <= channels; c += lanes) {
            for (int i = 0; i < lanes; ++i) parts[i] = x[c + i] > parts[i] ? x[c + i] : parts[i];
        }
        float largest = x[0];
        for (; c < channels; ++c) largest = x[c] > largest ? x[c] : largest;
        for (const float part : parts) largest = part > largest ? part : largest;
        for (c = 0; c < channels; ++c) row[c] = exponential(x[c] - largest);
    }
    for (int c = 0; c < channels; ++c) {
        for (int p = 0; p < P; ++p) sums[p] += rows[static_cast<ptrdiff_t>(p) * channels + c];
    }
    for (int p = 0; p < P; ++p) {
        for (int c = 0; c < channels; ++c) rows[static_cast<ptrdiff_t>(p) * channels + c] /= sums[p];
    }
}

// rows (count, channels) = exp(x - max) / sum, over the channels of each pixel.
void softmax(const float* map, int count, int channels, float* rows) {
    constexpr int pixels = 4;
    int i = 0;
    for (; i + pixels <= count; i += pixels, map += pixels * channels, rows += pixels * channels) {
        softmax_pixels<pixels>(map, channels, rows);
    }
    for (; i < count; ++i, map += channels, rows += channels) softmax_pixels<1>(map, channels, rows);
}

}  // namespace
}  // namespace bitfactor
