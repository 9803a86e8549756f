// Batch normalisation, what is added to it and a clip to -1 ... 1, forward and backward in two passes each.
//
// A pass goes through one sample; sums are of samples, and whoever calls adds them up. A row is what lies
// side by side: the channels of a pixel, or the pixels of a channel.

#pragma once

#include "training/signs.h"

namespace bitfactor {
namespace {

// What a row multiplies by or adds: one number for each channel of it, or that of its channel.
struct OfEach {
    const float* numbers;
    float operator[](int i) const { return numbers[i]; }
};
struct OfAll {
    float number;
    float operator[](int) const { return number; }
};

// Calls f(first number, count, per channel) for each row; `per channel` makes OfEach or OfAll of an array.
template <class F>
[[gnu::always_inline]] inline void for_each_row(const SignMap& map, F f) {
    if (map.channels_last) {
        for (int p = 0; p < map.pixels; ++p) {
            f(static_cast<ptrdiff_t>(p) * map.channels, map.channels,
              [](const float* numbers) { return OfEach{numbers}; });
        }
        return;
    }
    for (int c = 0; c < map.channels; ++c) {
        f(static_cast<ptrdiff_t>(c) * map.pixels, map.pixels,
          [c](const float* numbers) { return OfAll{numbers[c]}; });
    }
}

constexpr int sum_lanes = 32;  // sums side by side: one alone would have to be in order

// sums[c] = the sum of value(number, mean of its channel) over the pixels.
template <class F>
[[gnu::always_inline]] inline void sum_channels(const SignMap& map, const float* mean, float* __restrict sums,
                                                F value) {
    std::fill(sums, sums + map.channels, 0.0f);
    if (map.channels_last) {
        for (int p = 0; p < map.pixels; ++p) {
            const ptrdiff_t at = static_cast<ptrdiff_t>(p) * map.channels;
            for (int c = 0; c < map.channels; ++c) sums[c] += value(at + c, mean[c]);
        }
        return;
    }
    for (int c = 0; c < map.channels; ++c) {
        const ptrdiff_t at = static_cast<ptrdiff_t>(c) * map.pixels;
        float lanes[sum_lanes] = {};
        int p = 0;
        for (; p + sum_lanes <= map.pixels; p += sum_lanes) {
            for (int i = 0; i < sum_lanes; ++i) lanes[i] += value(at + p + i, mean[c]);
        }
        for (; p < map.pixels; ++p) lanes[0] += value(at + p, mean[c]);
        for (const float sum : lanes) sums[c] += sum;
    }
}

template <class T>
void moments_of(const SignMap& map, const T* __restrict x, float* __restrict mean,
                float* __restrict squares) {
    sum_channels(map, squares, mean, [=](ptrdiff_t i, float) { return real_of(x[i]); });
    for (int c = 0; c < map.channels; ++c) mean[c] /= static_cast<float>(map.pixels);
    sum_channels(map, mean, squares, [=](ptrdiff_t i, float mean) {
        const float off = real_of(x[i]) - mean;
        return off * off;
    });
}

template <class T, bool plus, bool clip, class Numbers>
[[gnu::always_inline]] inline void normalise_row(int count, const T* __restrict x, const T* __restrict added,
                                                 Numbers factor, Numbers offset, T* __restrict y) {
    for (int i = 0; i < count; ++i) {
        float value = real_of(x[i]) * factor[i] + offset[i];
        if (plus) value += real_of(added[i]);
        if (clip) value = value < -1 ? -1 : value > 1 ? 1 : value;  // none stays none
        set(y[i], value);
    }
}

template <class T, bool plus, bool clip>
void normalise_of(const SignMap& map, const T* x, const T* added, const float* factor, const float* offset,
                  T* y) {
    for_each_row(map, [=](ptrdiff_t at, int count, auto of) {
        normalise_row<T, plus, clip>(count, x + at, plus ? added + at : nullptr, of(factor), of(offset),
                                     y + at);
    });
}

template <class T>
void keep_unclipped(const SignMap& map, const T* __restrict y, const T* __restrict gradient,
                    T* __restrict kept) {
    const ptrdiff_t numbers = static_cast<ptrdiff_t>(map.pixels) * map.channels;
    for (ptrdiff_t i = 0; i < numbers; ++i) {
        const float at = real_of(y[i]);
        set(kept[i], at > -1 && at < 1 ? real_of(gradient[i]) : 0.0f);
    }
}

template <class T>
void sums_of(const SignMap& map, const T* __restrict x, const T* __restrict gradient, const float* mean,
             float* __restrict sums, float* __restrict dots) {
    sum_channels(map, mean, sums, [=](ptrdiff_t i, float) { return real_of(gradient[i]); });
    sum_channels(map, mean, dots,
                 [=](ptrdiff_t i, float mean) { return real_of(gradient[i]) * (real_of(x[i]) - mean); });
}

template <class T, class Numbers>
[[gnu::always_inline]] inline void gradient_row(int count, const T* __restrict x,
                                                const T* __restrict gradient, Numbers factor, Numbers slope,
                                                Numbers offset, T* __restrict of_x) {
    for (int i = 0; i < count; ++i) {
        set(of_x[i], factor[i] * real_of(gradient[i]) + slope[i] * real_of(x[i]) + offset[i]);
    }
}

template <class F>
void in_type_of(const SignMap& map, F run) {
    if (map.bfloat16) {
        run(Bfloat16{});
    } else {
        run(0.0f);
    }
}

void moments(const SignMap& map, const void* x, float* mean, float* squares) {
    in_type_of(map,
               [&](auto type) { moments_of(map, static_cast<const decltype(type)*>(x), mean, squares); });
}

void normalise(const SignMap& map, const void* x, const void* added, bool clip, const float* factor,
               const float* offset, void* y) {
    in_type_of(map, [&](auto type) {
        using T = decltype(type);
        const auto run = added  ? clip ? normalise_of<T, true, true> : normalise_of<T, true, false>
                         : clip ? normalise_of<T, false, true>
                                : normalise_of<T, false, false>;
        run(map, static_cast<const T*>(x), static_cast<const T*>(added), factor, offset, static_cast<T*>(y));
    });
}

void normalise_sums(const SignMap& map, const void* x, const void* y, const void* gradient, const float* mean,
                    void* kept, float* sums, float* dots) {
    in_type_of(map, [&](auto type) {
        using T = decltype(type);
        if (kept) {
            keep_unclipped(map, static_cast<const T*>(y), static_cast<const T*>(gradient),
                           static_cast<T*>(kept));
        }
        const void* of = kept ? kept : gradient;
        sums_of(map, static_cast<const T*>(x), static_cast<const T*>(of), mean, sums, dots);
    });
}

void normalise_gradient(const SignMap& map, const void* x, const void* gradient, const float* factor,
                        const float* slope, const float* offset, void* of_x) {
    in_type_of(map, [&](auto type) {
        using T = decltype(type);
        const auto from = static_cast<const T*>(x), upon = static_cast<const T*>(gradient);
        const auto to = static_cast<T*>(of_x);
        for_each_row(map, [=](ptrdiff_t at, int count, auto of) {
            gradient_row(count, from + at, upon + at, of(factor), of(slope), of(offset), to + at);
        });
    });
}

// exp(-x) for x >= 0, within 3e-7 of it: a power of 2, and the polynomial of what is left of the exponent.
// The least of two numbers that are not negative is that of their bits: without a branch, a loop is
// vectorised.
inline float exp_minus(float x) {
    constexpr int32_t most = 0x42fa0000;  // 125.0f
    float power = x * 1.44269504f;        // log2(e)
    int32_t least;
    std::memcpy(&least, &power, sizeof least);
    least = std::min(least, most);
    std::memcpy(&power, &least, sizeof power);
    const int whole = static_cast<int>(power + 0.5f);
    const float z = (static_cast<float>(whole) - power) * 0.693147181f;  // at most ln 2 / 2 from 0
    const float series =
        1 + z * (1 + z * (1 / 2.0f + z * (1 / 6.0f + z * (1 / 24.0f + z * (1 / 120.0f + z * (1 / 720.0f))))));
    const int32_t bits = (127 - whole) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return series * scale;
}

template <class T>
void tanh_gradient_of(const SignMap& map, const T* __restrict x, const T* __restrict gradient, float height,
                      float steepness, T* __restrict of_x) {
    const ptrdiff_t numbers = static_cast<ptrdiff_t>(map.pixels) * map.groups * map.channels;
    for (ptrdiff_t i = 0; i < numbers; ++i) {
        const float at = steepness * real_of(x[i]);
        const float e = exp_minus(2 * __builtin_fabsf(at));
        set(of_x[i], real_of(gradient[i]) * (4 * height * e / ((1 + e) * (1 + e))));
    }
}

void tanh_gradient(const SignMap& map, const void* x, const void* gradient, float height, float steepness,
                   void* of_x) {
    in_type_of(map, [&](auto type) {
        using T = decltype(type);
        tanh_gradient_of(map, static_cast<const T*>(x), static_cast<const T*>(gradient), height, steepness,
                         static_cast<T*>(of_x));
    });
}

constexpr NormaliseKernels normalise_kernels = {moments, normalise, normalise_sums, normalise_gradient,
                                                tanh_gradient};

}  // namespace
}  // namespace bitfactor
