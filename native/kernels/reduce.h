// What looks at all channels of a pixel, or at all pixels of a channel; and interpolation between pixels.

#pragma once

#include "kernels/functions.h"

namespace bitfactor {
namespace {

constexpr int partial_sums = 16;

// The sum of f(x): 16 side by side, in turns, which then are added in halves.
template <class F>
float sum_of(const float* x, int count, F f) {
    float sums[partial_sums] = {};
    int c = 0;
    for (; c + partial_sums <= count; c += partial_sums) {
        for (int i = 0; i < partial_sums; ++i) sums[i] += f(x[c + i]);
    }
    for (int i = 0; c + i < count; ++i) sums[i] += f(x[c + i]);
    for (int half = partial_sums / 2; half; half /= 2) {
        for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    return sums[0];
}

void layer_norm(const float* __restrict map, int count, int channels, float eps, float* __restrict rows) {
    const float n = static_cast<float>(channels);
    for (int i = 0; i < count; ++i, map += channels, rows += channels) {
        const float mean = sum_of(map, channels, [](float x) { return x; }) / n;
        for (int c = 0; c < channels; ++c) rows[c] = map[c] - mean;
        const float variance = sum_of(rows, channels, [](float x) { return x * x; }) / n;
        const float factor = 1.0f / __builtin_sqrtf(variance + eps);
        for (int c = 0; c < channels; ++c) rows[c] *= factor;
    }
}

inline float larger(float a, float b) { return b > a ? b : a; }
inline float smaller(float a, float b) { return b < a ? b : a; }

float reduced(Reduction how, const float* x, int count) {
    if (how == Reduction::mean || how == Reduction::sum) {
        const float sum = sum_of(x, count, [](float value) { return value; });
        return how == Reduction::mean ? sum / static_cast<float>(count) : sum;
    }
    float best = x[0];
    for (int c = 1; c < count; ++c) best = how == Reduction::max ? larger(best, x[c]) : smaller(best, x[c]);
    return best;
}

void reduce_channels(Reduction how, const float* map, int count, int channels, float* rows) {
    for (int i = 0; i < count; ++i, map += channels) rows[i] = reduced(how, map, channels);
}

void reduce_pixels(Reduction how, const float* __restrict map, int pixels, int channels,
                   float* __restrict row) {
    const bool sums = how == Reduction::mean || how == Reduction::sum;
    for (int c = 0; c < channels; ++c) row[c] = sums ? 0.0f : map[c];
    for (int i = 0; i < pixels; ++i, map += channels) {
        if (sums) {
            for (int c = 0; c < channels; ++c) row[c] += map[c];
        } else if (how == Reduction::max) {
            for (int c = 0; c < channels; ++c) row[c] = larger(row[c], map[c]);
        } else {
            for (int c = 0; c < channels; ++c) row[c] = smaller(row[c], map[c]);
        }
    }
    if (how != Reduction::mean) return;
    for (int c = 0; c < channels; ++c) row[c] /= static_cast<float>(pixels);
}

void resize(const Resize& r, const float* __restrict map, int first, int count, float* __restrict rows) {
    for (int pixel = first; pixel < first + count; ++pixel, rows += r.channels) {
        const int y = pixel / r.out_w, x = pixel % r.out_w;
        const auto at = [&](int row, int column) {
            return map + (static_cast<ptrdiff_t>(row) * r.in_w + column) * r.channels;
        };
        const float *a = at(r.top[y], r.left[x]), *b = at(r.bottom[y], r.left[x]);
        const float *c = at(r.top[y], r.right[x]), *d = at(r.bottom[y], r.right[x]);
        const float down = r.down[y], along = r.along[x];
        for (int k = 0; k < r.channels; ++k) {
            const float left = __builtin_fmaf(down, b[k] - a[k], a[k]);
            const float right = __builtin_fmaf(down, d[k] - c[k], c[k]);
            rows[k] = __builtin_fmaf(along, right - left, left);
        }
    }
}

inline float largest_of(const float* x, int count) {
    Simd::Float parts = Simd::broadcast(x[0]);
    int c = 0;
    for (; c + Simd::lanes <= count; c += Simd::lanes) parts = Simd::max(Simd::load(x + c), parts);
    float lanes[Simd::lanes], largest = x[0];
    Simd::store(lanes, parts);
    for (const float lane : lanes) largest = lane > largest ? lane : largest;
    for (; c < count; ++c) largest = x[c] > largest ? x[c] : largest;
    return largest;
}

inline float sum_of_lanes(Simd::Float x) {
    float lanes[Simd::lanes], sum = 0.0f;
    Simd::store(lanes, x);
    for (const float lane : lanes) sum += lane;
    return sum;
}

// The softmax over the channels of P pixels; sums are in the order of the channels, those of the pixels side
// by side, since each waits for the one before. They begin at 0, and at NaN where an input less the largest
// is that, which the exponential would hide. What is 87 or more below the largest, as a masked place is, has
// 0.
template <int P>
void softmax_pixels(const float* map, int channels, float* rows) {
    float sums[P] = {};
    ROLLED for (int p = 0; p < P; ++p) {
        const float* x = map + static_cast<ptrdiff_t>(p) * channels;
        float* row = rows + static_cast<ptrdiff_t>(p) * channels;
        const Simd::Float less = Simd::broadcast(-largest_of(x, channels));
        Simd::Float below = Simd::broadcast(0.0f);
        for (int c = 0; c < channels; c += Simd::lanes) {
            const Simd::Float apart = Simd::add(Simd::load_first(x + c, channels - c), less);
            const Simd::Float counted = Simd::add(apart, Simd::broadcast(87.0f));
            const Simd::Float part = Simd::if_positive(counted, exponential(apart), Simd::broadcast(0.0f));
            Simd::store_first(row + c, part, channels - c);
            below = Simd::add(below, apart);
        }
        const float all = sum_of_lanes(below);
        if (all != all) sums[p] = all;
    }
    for (int c = 0; c < channels; ++c) {
        for (int p = 0; p < P; ++p) sums[p] += rows[static_cast<ptrdiff_t>(p) * channels + c];
    }
    ROLLED for (int p = 0; p < P; ++p) {
        float* row = rows + static_cast<ptrdiff_t>(p) * channels;
        const Simd::Float sum = Simd::broadcast(sums[p]);
        for (int c = 0; c < channels; c += Simd::lanes) {
            const Simd::Float part = Simd::divide(Simd::load_first(row + c, channels - c), sum);
            Simd::store_first(row + c, part, channels - c);
        }
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
