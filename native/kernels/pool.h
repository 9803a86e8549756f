// Maximum and mean over windows, vectorised over channels; what is done to the input: the check and the
// change of layout.

#pragma once

#include <cstring>

#include "kernels/rows.h"

namespace bitfactor {
namespace {

// The taps of a window that fall inside the map: rows y0 <= kh < y1, columns x0 <= kw < x1.
struct Extent {
    int y0, y1, x0, x1;
};

inline Extent extent_at(const Window& w, Pixel pixel) {
    const Corner at = corner_of(w, pixel);
    return {at_least_0(-at.top), at_most(w.in_h - at.top, w.kernel_h), at_least_0(-at.left),
            at_most(w.in_w - at.left, w.kernel_w)};
}

// Channels c ... c + V registers of pool_pixel; of one register, those that exist.
template <int V, class Combine>
void pool_channels(const Pool& pool, const float* corner, Extent taps, float start, Combine combine, int c,
                   float* row) {
    constexpr int lanes = Simd::lanes;
    const int left = pool.channels - c;
    Simd::Float value[V];
    UNROLL for (int v = 0; v < V; ++v) value[v] = Simd::broadcast(start);
    for (int kh = taps.y0; kh < taps.y1; ++kh) {
        for (int kw = taps.x0; kw < taps.x1; ++kw) {
            const float* x =
                corner + (static_cast<ptrdiff_t>(kh) * pool.window.in_w + kw) * pool.channels + c;
            UNROLL for (int v = 0; v < V; ++v) {
                value[v] = combine(value[v], V > 1 ? Simd::load(x + v * lanes) : Simd::load_first(x, left));
            }
        }
    }
    UNROLL for (int v = 0; v < V; ++v) {
        V > 1 ? Simd::store(row + c + v * lanes, value[v]) : Simd::store_first(row + c, value[v], left);
    }
}

// row (channels) = start, then row = combine(row, x) for each tap inside the map, in the order (kh, kw).
template <class Combine>
void pool_pixel(const Pool& pool, const float* map, Pixel pixel, float start, Combine combine, float* row) {
    constexpr int vectors = 4;
    const Window& w = pool.window;
    const Extent taps = extent_at(w, pixel);
    const Corner at = corner_of(w, pixel);
    const float* corner = map + (static_cast<ptrdiff_t>(at.top) * w.in_w + at.left) * pool.channels;
    int c = 0;
    for (; c + vectors * Simd::lanes <= pool.channels; c += vectors * Simd::lanes) {
        pool_channels<vectors>(pool, corner, taps, start, combine, c, row);
    }
    for (; c < pool.channels; c += Simd::lanes) {
        pool_channels<1>(pool, corner, taps, start, combine, c, row);
    }
}

void divide_row(float* row, int channels, float count) {
    for (int c = 0; c < channels; c += Simd::lanes) {
        const Simd::Float mean =
            Simd::divide(Simd::load_first(row + c, channels - c), Simd::broadcast(count));
        Simd::store_first(row + c, mean, channels - c);
    }
}

void max_pool(const Pool& pool, const float* map, int first, int count, float* rows) {
    const float lowest = -__builtin_inff();
    for (int i = 0; i < count; ++i, rows += pool.channels) {
        pool_pixel(
            pool, map, pixel_at(pool.window, first + i), lowest,
            [](Simd::Float a, Simd::Float b) { return Simd::max(b, a); }, rows);
    }
}

// How many numbers the mean is over.
inline int mean_count(const Pool& pool, Pixel pixel) {
    const Window& w = pool.window;
    if (!pool.count_include_pad) {
        const Extent taps = extent_at(w, pixel);
        return (taps.y1 - taps.y0) * (taps.x1 - taps.x0);
    }
    const int bottom = at_most(pixel.y * w.stride_h + w.kernel_h, w.pad_top + w.in_h + pool.pad_bottom);
    const int right = at_most(pixel.x * w.stride_w + w.kernel_w, w.pad_left + w.in_w + pool.pad_right);
    return (bottom - pixel.y * w.stride_h) * (right - pixel.x * w.stride_w);
}

void avg_pool(const Pool& pool, const float* map, int first, int count, float* rows) {
    for (int i = 0; i < count; ++i, rows += pool.channels) {
        const Pixel pixel = pixel_at(pool.window, first + i);
        pool_pixel(
            pool, map, pixel, 0.0f, [](Simd::Float a, Simd::Float b) { return Simd::add(a, b); }, rows);
        divide_row(rows, pool.channels, static_cast<float>(mean_count(pool, pixel)));
    }
}

void global_avg_pool(const float* map, int pixels, int channels, float* row) {
    for (int c = 0; c < channels; c += Simd::lanes) {
        Simd::Float sum = Simd::broadcast(0.0f);
        for (int i = 0; i < pixels; ++i) {
            sum = Simd::add(sum,
                            Simd::load_first(map + static_cast<ptrdiff_t>(i) * channels + c, channels - c));
        }
        Simd::store_first(row + c, sum, channels - c);
    }
    divide_row(row, channels, static_cast<float>(pixels));
}

bool all_finite(const float* numbers, ptrdiff_t count) {
    uint32_t largest = 0;
    for (ptrdiff_t i = 0; i < count; ++i) {
        uint32_t bits;
        std::memcpy(&bits, numbers + i, sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest < 0x7f800000;
}

// Of so few lines that a compiler makes vectors of them: the colours of an image.
template <int height>
void transpose_lines(const float* __restrict map, int width, ptrdiff_t stride, float* __restrict out) {
    for (int x = 0; x < width; ++x) {
        UNROLL for (int y = 0; y < height; ++y) out[x * height + y] = map[y * stride + x];
    }
}

// In squares of 8, so that a cache line is used whole on both sides.
void transpose(const float* map, int height, int width, ptrdiff_t stride, float* out) {
    constexpr int side = 8;
    if (height == 1) return transpose_lines<1>(map, width, stride, out);
    if (width == 1 && stride == 1) return transpose_lines<1>(map, height, stride, out);
    if (height == 3) return transpose_lines<3>(map, width, stride, out);
    for (int y0 = 0; y0 < height; y0 += side) {
        const int y1 = at_most(y0 + side, height);
        for (int x0 = 0; x0 < width; x0 += side) {
            const int x1 = at_most(x0 + side, width);
            for (int y = y0; y < y1; ++y) {
                for (int x = x0; x < x1; ++x) {
                    out[static_cast<ptrdiff_t>(x) * height + y] = map[y * stride + x];
                }
            }
        }
    }
}

}  // namespace
}  // namespace bitfactor
