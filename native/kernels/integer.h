// Precision `integer`: bitfactor.format.operations.integer states what each of these computes.
//
// Maps are float as all are, and hold integers of 16 bits, which a float does exactly. What is read is cut to
// them first, so that no program, whatever its maps hold, makes a sum overflow. The loops are plain: they are
// written so that a compiler makes vectors of them.

#pragma once

#include "kernels/pool.h"

namespace bitfactor {
namespace {

// NaN is -32767.
inline int32_t short_of(float x) {
    x = x > -32767.0f ? x : -32767.0f;
    return static_cast<int32_t>(x < 32767.0f ? x : 32767.0f);
}

inline int32_t cut_to(int32_t x, int32_t lower, int32_t upper) {
    x = x > lower ? x : lower;
    return x < upper ? x : upper;
}

inline int32_t half_of(int shift) { return shift ? 1 << (shift - 1) : 0; }

// sum (n) += rnd(x (x > 0 ? P : Q), k)
template <int n>
void add_term(const float* __restrict x, const int32_t* __restrict positive,
              const int32_t* __restrict negative, int shift, int32_t* __restrict sum) {
    const int32_t half = half_of(shift);
    for (int i = 0; i < n; ++i) {
        const int32_t value = short_of(x[i]);
        const int32_t factor = value > 0 ? positive[i] : negative[i];
        sum[i] += (value * factor + half) >> shift;
    }
}

template <int n>
void weigh_channels(const Weigh& w, float* __restrict x, const float* other, int c, int count) {
    int32_t sum[n];
    for (int i = 0; i < n; ++i) sum[i] = w.offset[c + i];
    add_term<n>(x, w.positive[0] + c, w.negative[0] + c, w.shift[0], sum);
    if (w.two) {
        float second[n] = {};
        if (count < n) other = static_cast<const float*>(std::memcpy(second, other, count * sizeof(float)));
        add_term<n>(other, w.positive[1] + c, w.negative[1] + c, w.shift[1], sum);
    }
    const int32_t lower = w.lower, upper = w.upper;
    if (w.bends) {
        for (int i = 0; i < n; ++i) {
            const int32_t made = cut_to(sum[i], lower, upper), own = short_of(x[i]);
            const int32_t keeps = -static_cast<int32_t>(own > 0);  // all ones, or 0
            x[i] = static_cast<float>((own & keeps) | (made & ~keeps));
        }
        return;
    }
    for (int i = 0; i < n; ++i) x[i] = static_cast<float>(cut_to(sum[i], lower, upper));
}

// x (32), the channels c ... of a pixel; `other` is the second value, with `count` channels left.
[[gnu::noinline]] void weigh(const Weigh& w, float* x, const float* other, int c, int count) {
    if (count > weigh_block / 2) return weigh_channels<weigh_block>(w, x, other, c, count);
    weigh_channels<weigh_block / 2>(w, x, other, c, count);
}

// Adding it rounds to an integer, ties to even.
inline double nearest(double x) {
    constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52
    return (x + magic) - magic;
}

void to_integers(const Quantise& q, const float* numbers, int count, float* integers) {
    for (int done = 0; done < count; done += q.period) {
        const float* __restrict from = numbers + done;
        float* __restrict to = integers + done;
        const int some = at_most(count - done, q.period);
        for (int i = 0; i < some; ++i) {
            double x = static_cast<double>(from[i]) * static_cast<double>(q.factor[i]) + q.offset[i];
            x = x > q.lower ? x : q.lower;
            x = x < q.upper ? x : q.upper;
            to[i] = static_cast<float>(nearest(nearest(x * 1000) / 1000));
        }
    }
}

// What the window of a pixel reads, group by group, (groups, pairs).
inline void gather_window(const IntegerConv& conv, const float* map, Pixel pixel, uint32_t* words) {
    const Window& w = conv.window;
    const Corner at = corner_of(w, pixel);
    const int all = conv.groups * conv.in_channels, taps = w.kernel_h * w.kernel_w;
    const float most = static_cast<float>(conv.largest);
    for (int group = 0; group < conv.groups; ++group, words += conv.pairs) {
        int16_t* window = reinterpret_cast<int16_t*>(words);
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
        if (taps * conv.in_channels % 2) *to = 0;
    }
}

// Sums of a register of outputs, as the numbers that they become. All is exact in double: 31 and 16 bits
// multiplied, a power of two, and a half.
inline void finish_sums(const IntegerConv& conv, const int32_t* __restrict sums,
                        const float* __restrict factor, float* __restrict row) {
    const double half = static_cast<double>(conv.half);
    if (conv.last) {
        for (int i = 0; i < Simd::lanes; ++i) {
            row[i] = static_cast<float>(static_cast<double>(sums[i]) * static_cast<double>(factor[i]));
        }
        return;
    }
    for (int i = 0; i < Simd::lanes; ++i) {
        const double x = static_cast<double>(sums[i]) * static_cast<double>(factor[i]) + half;
        const double above = nearest(x) > x ? 1.0 : 0.0;
        row[i] = static_cast<float>(nearest(x) - above);
    }
}

// Rows are made for integer_tile pixels at once; those beyond `count` repeat the first, and are dropped.
void integer_conv(const IntegerConv& conv, const float* map, int first, int count, uint32_t* windows,
                  float* rows) {
    constexpr int lanes = Simd::lanes;
    const int channels = conv.groups * conv.out_channels, vectors = (conv.out_channels + lanes - 1) / lanes;
    const ptrdiff_t pitch = static_cast<ptrdiff_t>(conv.groups) * conv.pairs;
    for (int done = 0; done < count; done += integer_tile) {
        const int pixels = at_most(count - done, integer_tile);
        const uint32_t* each[integer_tile];
        for (int i = 0; i < integer_tile; ++i) {
            uint32_t* window = windows + (i < pixels ? i : 0) * pitch;
            if (i < pixels) gather_window(conv, map, pixel_at(conv.window, first + done + i), window);
            each[i] = window;
        }
        for (int k = 0; k < conv.groups * vectors; ++k) {
            const ptrdiff_t group = k / vectors, output = k % vectors * lanes;
            const uint32_t* weight = conv.weight + static_cast<ptrdiff_t>(k) * conv.pairs * lanes;
            Simd::Bits sums[integer_tile];
            UNROLL for (int i = 0; i < integer_tile; ++i) sums[i] = Simd::load_bits(conv.bias + k * lanes);
            for (int p = 0; p < conv.pairs; ++p) {
                const Simd::Bits two = Simd::load_bits(weight + static_cast<ptrdiff_t>(p) * lanes);
                UNROLL for (int i = 0; i < integer_tile; ++i) {
                    const uint32_t* x = each[i] + group * conv.pairs + p;
                    sums[i] = Simd::add_pairs(sums[i], Simd::broadcast_bits(x), two);
                }
            }
            const int some = at_most(conv.out_channels - static_cast<int>(output), lanes);
            float* row = rows + group * conv.out_channels + output;
            UNROLL for (int i = 0; i < integer_tile; ++i) {
                if (i >= pixels) break;
                int32_t stored[lanes];
                float made[lanes];
                Simd::store_bits(reinterpret_cast<uint32_t*>(stored), sums[i]);
                finish_sums(conv, stored, conv.factor + static_cast<ptrdiff_t>(k) * lanes, made);
                Simd::Float x = Simd::load(made);
                if (!conv.last) x = Simd::min(Simd::max(x, Simd::broadcast(-32767)), Simd::broadcast(32767));
                Simd::store_first(row + static_cast<ptrdiff_t>(i) * channels, x, some);
            }
        }
        rows += static_cast<ptrdiff_t>(pixels) * channels;
    }
}

// floor((2 sum + n) / (2 n))
inline int32_t mean_of(int32_t sum, int32_t n) {
    const int32_t over = 2 * sum + n, quotient = over / (2 * n);
    return quotient - (over % (2 * n) < 0);
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
            if (n & (n - 1)) {
                for (int k = 0; k < some; ++k) rows[c + k] = static_cast<float>(mean_of(sums[k], n));
            } else {
                const int shift = __builtin_ctz(2u * static_cast<unsigned>(n));
                for (int k = 0; k < some; ++k) rows[c + k] = static_cast<float>((2 * sums[k] + n) >> shift);
            }
        }
    }
}

}  // namespace
}  // namespace bitfactor
