// exp, and what is made of it. The arithmetic is stated step by step in bitfactor.runtime.reference: a number
// is split into n * ln 2 + r, a polynomial gives exp(r), and n goes into the exponent.

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

// rows (count, channels) = exp(x - max) / sum, over the channels of each pixel.
void softmax(const float* map, int count, int channels, float* rows) {
    for (int i = 0; i < count; ++i, map += channels, rows += channels) {
        float largest = map[0], sum = 0.0f;
        for (int c = 1; c < channels; ++c) largest = map[c] > largest ? map[c] : largest;
        for (int c = 0; c < channels; ++c) sum += rows[c] = exponential(map[c] - largest);
        for (int c = 0; c < channels; ++c) rows[c] /= sum;
    }
}

}  // namespace
}  // namespace bitfactor
