// Precision `integer`: bitfactor.format.operations.integer states what each of these computes.
//
// Maps are float as all are, and hold integers of 16 bits, which a float does exactly. What is read is cut to
// them first, so that no program, whatever its maps hold, makes a sum overflow. The loops are plain: they are
// written so that a compiler makes vectors of them.

#pragma once

#include "kernels/pool.h"

namespace bitfactor {
namespace {

// NaN is -32768.
inline int32_t short_of(float x) {
    x = x > -32768.0f ? x : -32768.0f;
    return static_cast<int32_t>(x < 32767.0f ? x : 32767.0f);
}

inline int32_t cut_to(int32_t x, int32_t lower, int32_t upper) {
    x = x > lower ? x : lower;
    return x < upper ? x : upper;
}

inline int32_t half_of(int shift) { return shift ? 1 << (shift - 1) : 0; }

// sum (32) += rnd(x (x > 0 ? P : Q), k), for x, P and Q of a block.
inline void add_term(const float* __restrict x, const int32_t* __restrict positive,
                     const int32_t* __restrict negative, int shift, int32_t* __restrict sum) {
    const int32_t half = half_of(shift);
    for (int i = 0; i < weigh_block; ++i) {
        const int32_t value = short_of(x[i]);
        const int32_t factor = value > 0 ? positive[i] : negative[i];
        sum[i] += (value * factor + half) >> shift;
    }
}

// x (32), the channels c ... of a pixel; `other` is the second value, with `count` channels left.
[[gnu::noinline]] void weigh(const Weigh& w, float* __restrict x, const float* other, int c, int count) {
    int32_t sum[weigh_block];
    for (int i = 0; i < weigh_block; ++i) sum[i] = w.offset[c + i];
    add_term(x, w.positive[0] + c, w.negative[0] + c, w.shift[0], sum);
    if (w.two) {
        float second[weigh_block] = {};
        std::memcpy(second, other, static_cast<size_t>(at_most(count, weigh_block)) * sizeof(float));
        add_term(second, w.positive[1] + c, w.negative[1] + c, w.shift[1], sum);
    }
    if (w.bends) {
        for (int i = 0; i < weigh_block; ++i) {
            const int32_t bent = cut_to(sum[i], w.lower, w.upper), own = short_of(x[i]);
            x[i] = static_cast<float>(own > 0 ? own : bent);
        }
        return;
    }
    for (int i = 0; i < weigh_block; ++i) x[i] = static_cast<float>(cut_to(sum[i], w.lower, w.upper));
}

// Adding it rounds to an integer, ties to even.
inline double nearest(double x) {
    constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52
    return (x + magic) - magic;
}

void to_integers(const Quantise& q, const float* map, int count, float* rows) {
    for (int i = 0; i < count; ++i, map += q.channels, rows += q.channels) {
        for (int c = 0; c < q.channels; ++c) {
            double x = static_cast<double>(map[c]) * static_cast<double>(q.factor[c]) + q.offset[c];
            x = x > q.lower ? x : q.lower;
            x = x < q.upper ? x : q.upper;
            rows[c] = static_cast<float>(nearest(nearest(x * 1000) / 1000));
        }
    }
}

// What the window of a pixel reads, group by group, (groups, depth).
inline void gather_window(const IntegerConv& conv, const float* map, Pixel pixel, int16_t* window) {
    const Window& w = conv.window;
    const Corner at = corner_of(w, pixel);
    const int all = conv.groups * conv.in_channels, taps = w.kernel_h * w.kernel_w;
    const float most = static_cast<float>(conv.largest);
    for (int group = 0; group < conv.groups; ++group, window += conv.depth) {
        int16_t* to = window;
        const ptrdiff_t first = static_cast<ptrdiff_t>(group) * conv.in_channels;
        for_each_tap(w, [&](int, int dy, int dx) {
            const int y = at.top + dy, x = at.left + dx;
            if (inside(y, w.in_h) && inside(x, w.in_w)) {
                const float* __restrict from = map + (static_cast<ptrdiff_t>(y) * w.in_w + x) * all + first;
                int16_t* __restrict own = to;
                for (int c = 0; c < conv.in_channels; ++c) {
                    const float above = from[c] > -most ? from[c] : -most;
                    own[c] = static_cast<int16_t>(static_cast<int32_t>(above < most ? above : most));
                }
            } else {
                std::memcpy(to, conv.outside + first, static_cast<size_t>(conv.in_channels) * sizeof *to);
            }
            to += conv.in_channels;
        });
        for (int i = taps * conv.in_channels; i < conv.depth; ++i) window[i] = 0;
    }
}

// The products of a row of weights with four windows.
inline void multiply_windows(const int16_t* __restrict weight, const int16_t* const windows[integer_tile],
                             ptrdiff_t first, int depth, int32_t sums[integer_tile]) {
    static_assert(integer_tile == 4);
    const int16_t *__restrict x0 = windows[0] + first, *__restrict x1 = windows[1] + first,
                              *__restrict x2 = windows[2] + first, *__restrict x3 = windows[3] + first;
    int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0;
    for (int i = 0; i < depth; ++i) {
        a0 += static_cast<int32_t>(weight[i]) * x0[i];
        a1 += static_cast<int32_t>(weight[i]) * x1[i];
        a2 += static_cast<int32_t>(weight[i]) * x2[i];
        a3 += static_cast<int32_t>(weight[i]) * x3[i];
    }
    sums[0] = a0;
    sums[1] = a1;
    sums[2] = a2;
    sums[3] = a3;
}

inline float finished(const IntegerConv& conv, int output, int32_t a) {
    if (!conv.multiplier) return static_cast<float>(static_cast<double>(a) * static_cast<double>(conv.scale));
    const int64_t half = half_of(conv.shift);
    const int64_t value = (int64_t{a} * conv.multiplier[output] + half) >> conv.shift;
    return static_cast<float>(value > -32767 ? value < 32767 ? value : 32767 : -32767);
}

// Rows are made for integer_tile pixels at once; those beyond `count` repeat the first, and are dropped.
void integer_conv(const IntegerConv& conv, const float* map, int first, int count, int16_t* windows,
                  float* rows) {
    const int channels = conv.groups * conv.out_channels;
    const ptrdiff_t pitch = static_cast<ptrdiff_t>(conv.groups) * conv.depth;
    for (int done = 0; done < count; done += integer_tile) {
        const int pixels = at_most(count - done, integer_tile);
        const int16_t* each[integer_tile];
        for (int i = 0; i < integer_tile; ++i) {
            int16_t* window = windows + (i < pixels ? i : 0) * pitch;
            if (i < pixels) gather_window(conv, map, pixel_at(conv.window, first + done + i), window);
            each[i] = window;
        }
        for (int output = 0; output < channels; ++output) {
            int32_t sums[integer_tile];
            multiply_windows(conv.weight + static_cast<ptrdiff_t>(output) * conv.depth, each,
                             static_cast<ptrdiff_t>(output / conv.out_channels) * conv.depth, conv.depth, sums);
            for (int i = 0; i < pixels; ++i) {
                rows[static_cast<ptrdiff_t>(i) * channels + output] =
                    finished(conv, output, sums[i] + conv.bias[output]);
            }
        }
        rows += static_cast<ptrdiff_t>(pixels) * channels;
    }
}

// floor((2 sum + n) / (2 n))
inline float mean_of(int32_t sum, int32_t n) {
    const int32_t over = 2 * sum + n, quotient = over / (2 * n);
    return static_cast<float>(quotient - (over % (2 * n) < 0));
}

void integer_avg_pool(const Pool& pool, const float* map, int first, int count, float* rows) {
    const Window& w = pool.window;
    for (int i = 0; i < count; ++i, rows += pool.channels) {
        const Pixel pixel = pixel_at(w, first + i);
        const Extent taps = extent_at(w, pixel);
        const Corner at = corner_of(w, pixel);
        const int n = mean_count(pool, pixel);
        for (int c = 0; c < pool.channels; c += weigh_block) {
            int32_t sums[weigh_block] = {};
            const int some = at_most(pool.channels - c, weigh_block);
            for (int kh = taps.y0; kh < taps.y1; ++kh) {
                for (int kw = taps.x0; kw < taps.x1; ++kw) {
                    const ptrdiff_t place = static_cast<ptrdiff_t>(at.top + kh) * w.in_w + at.left + kw;
                    const float* x = map + place * pool.channels + c;
                    for (int k = 0; k < some; ++k) sums[k] += short_of(x[k]);
                }
            }
            for (int k = 0; k < some; ++k) rows[c + k] = mean_of(sums[k], n);
        }
    }
}

}  // namespace
}  // namespace bitfactor
