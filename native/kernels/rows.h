// Where the taps of a window read: one pointer for each pixel and tap. Stride, dilation and padding live here
// alone, so the convolutions are plain products of rows and need no copy of the map (no im2col).

#pragma once

#include "kernels/kernels.h"

namespace bitfactor {
namespace {

struct Pixel {
    int y, x;
};

inline Pixel pixel_at(const Window& window, int index) {
    return {index / window.out_w, index % window.out_w};
}

inline Pixel next(const Window& window, Pixel pixel) {
    return pixel.x + 1 < window.out_w ? Pixel{pixel.y, pixel.x + 1} : Pixel{pixel.y + 1, 0};
}

// The pixel `count` further on: as `next`, and as `pixel_at`, but without a division.
inline Pixel after(const Window& window, Pixel pixel, int count) {
    pixel.x += count;
    while (pixel.x >= window.out_w) pixel = {pixel.y + 1, pixel.x - window.out_w};
    return pixel;
}

inline int at_least_0(int value) { return value > 0 ? value : 0; }
inline int at_most(int value, int limit) { return value < limit ? value : limit; }
inline bool inside(int index, int size) { return static_cast<unsigned>(index) < static_cast<unsigned>(size); }

// Where the window of one pixel lies in the map: the place of its first tap.
struct Corner {
    int top, left;
};

inline Corner corner_of(const Window& w, Pixel pixel) {
    return {pixel.y * w.stride_h - w.pad_top, pixel.x * w.stride_w - w.pad_left};
}

inline bool all_inside(const Window& w, Corner corner) {
    return corner.top >= 0 && corner.top + (w.kernel_h - 1) * w.dilation_h < w.in_h && corner.left >= 0 &&
           corner.left + (w.kernel_w - 1) * w.dilation_w < w.in_w;
}

// Calls f(tap, y, x) for each tap, with its distance from the corner.
template <class F>
void for_each_tap(const Window& w, F f) {
    for (int kh = 0, tap = 0; kh < w.kernel_h; ++kh) {
        for (int kw = 0; kw < w.kernel_w; ++kw, ++tap) f(tap, kh * w.dilation_h, kw * w.dilation_w);
    }
}

// Whether `tile` pixels from `pixel` on lie in one row of the result and none of their taps falls outside the
// map.
template <int tile>
bool is_interior(const Window& w, Pixel pixel) {
    if (pixel.x + tile > w.out_w) return false;
    return all_inside(w, corner_of(w, pixel)) && all_inside(w, corner_of(w, {pixel.y, pixel.x + tile - 1}));
}

// Of 32 bits: a real number or a word of signs. Only its place matters.
struct Number {
    uint32_t bits;
};

// rows[tap * tile + i] = what the tap reads at the i-th pixel from `pixel` on. Pixels from `count` to `tile`
// repeat the last one: a tile is always computed whole, and its surplus is dropped.
template <int tile>
void gather_rows(const Window& w, const Number* map, const Number* padding, ptrdiff_t pixel_stride,
                 Pixel pixel, int count, const void** rows) {
    const auto offset = [&](int y, int x) { return (static_cast<ptrdiff_t>(y) * w.in_w + x) * pixel_stride; };
    if (tile > 1 && is_interior<tile>(w, pixel) && count >= tile) {
        const Corner at = corner_of(w, pixel);
        const ptrdiff_t step = w.stride_w * pixel_stride;
        for_each_tap(w, [&](int tap, int dy, int dx) {
            const Number* start = map + offset(at.top + dy, at.left + dx);
            UNROLL for (int i = 0; i < tile; ++i) rows[tap * tile + i] = start + i * step;
        });
        return;
    }
    for (int i = 0; i < tile; ++i) {
        const Corner at = corner_of(w, pixel);
        for_each_tap(w, [&](int tap, int dy, int dx) {
            const int y = at.top + dy, x = at.left + dx;
            rows[tap * tile + i] = inside(y, w.in_h) && inside(x, w.in_w) ? map + offset(y, x) : padding;
        });
        if (i + 1 < count) pixel = next(w, pixel);
    }
}

}  // namespace
}  // namespace bitfactor
