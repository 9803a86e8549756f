// How a strip of pixels and the output channels of one group are cut into tiles.
//
// The pointers of the whole strip are gathered once; then each block of output channels sweeps over the
// strip, so its weights come from the L1 cache for all tiles but the first.

#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/rows.h"

namespace bitfactor {
namespace {

inline int vectors_for(int channels) { return (channels + Simd::lanes - 1) / Simd::lanes; }

// Calls f(number, first) for each so many registers of output channels: `V` of them, the rest fewer.
template <int V, class F>
void for_each_block(int channels, F f) {
    const int vectors = vectors_for(channels);
    int vector = 0;
    for (; vector + V <= vectors; vector += V) f(std::integral_constant<int, V>(), vector);
    if constexpr (V > 2) {
        if (vector + 2 <= vectors) {
            f(std::integral_constant<int, 2>(), vector);
            vector += 2;
        }
    }
    for (; vector < vectors; ++vector) f(std::integral_constant<int, 1>(), vector);
}

// The tile that starts at `done`: a single pixel has its own, as linear layers have no other; any other
// remainder is computed as a whole tile.
inline int tile_at(int done, int count) { return count - done == 1 ? 1 : Simd::tile; }

// What a tile reads of the map for each of its pixels: `count` runs of `pieces` of `numbers`, in the order of
// the weights; a piece is `stride` numbers further than the one before.
struct Runs {
    int count, pieces, numbers;
    ptrdiff_t stride;

    ptrdiff_t depth() const { return static_cast<ptrdiff_t>(count) * pieces * numbers; }
};

// A run is a tap; where no pixel of the tile is at the border, it is a row of the window, whose taps are its
// pieces, or one piece if they lie side by side.
struct Reading {
    Window window, rows_of_window;
    ptrdiff_t pixel_stride;
    int depth;  // numbers of a tap

    Reading(const Window& w, ptrdiff_t stride, int tap_numbers)
        : window(w), rows_of_window(w), pixel_stride(stride), depth(tap_numbers) {
        rows_of_window.kernel_w = 1;
    }
    bool by_rows(Pixel pixel, int count) const {
        return count >= Simd::tile && is_interior<Simd::tile>(window, pixel);
    }
    Runs runs(Pixel pixel, int count) const {
        if (!by_rows(pixel, count)) return {window.kernel_h * window.kernel_w, 1, depth, 0};
        const ptrdiff_t stride = window.dilation_w * pixel_stride;
        if (stride == depth) return {window.kernel_h, 1, window.kernel_w * depth, 0};
        return {window.kernel_h, window.kernel_w, depth, stride};
    }
};

[[gnu::noinline]] inline void gather_strip(const Reading& reading, const Number* map, const Number* padding,
                                           Pixel at, int count, const void** rows) {
    const int taps = reading.window.kernel_h * reading.window.kernel_w;
    for (int done = 0; done < count; done += Simd::tile, at = after(reading.window, at, Simd::tile)) {
        const void** tile_rows = rows + static_cast<ptrdiff_t>(done) * taps;
        const int left = count - done;
        if (tile_at(done, count) == 1) {
            gather_rows<1>(reading.window, map, padding, reading.pixel_stride, at, 1, tile_rows);
        } else {
            gather_rows<Simd::tile>(reading.by_rows(at, left) ? reading.rows_of_window : reading.window, map,
                                    padding, reading.pixel_stride, at, left, tile_rows);
        }
    }
}

// Writes the first `count` pixels of a tile, or all, to out (pixels, groups * out_channels).
template <int P, int V, class Layer>
[[gnu::always_inline]] inline void store_tile(const Simd::Float (&tile)[P][V], const Layer& layer, int group,
                                              int vector, int count, float* out) {
    const int channels = layer.out_channels - vector * Simd::lanes;
    const ptrdiff_t stride = static_cast<ptrdiff_t>(layer.groups) * layer.out_channels;
    out += group * layer.out_channels + vector * Simd::lanes;
    if (channels >= V * Simd::lanes) {
        UNROLL for (int p = 0; p < P; ++p) {
            if (p < count) {
                UNROLL for (int v = 0; v < V; ++v) {
                    Simd::store(out + p * stride + v * Simd::lanes, tile[p][v]);
                }
            }
        }
        return;
    }
    float numbers[P][V * Simd::lanes];
    UNROLL for (int p = 0; p < P; ++p) {
        UNROLL for (int v = 0; v < V; ++v) Simd::store(numbers[p] + v * Simd::lanes, tile[p][v]);
    }
    for (int p = 0; p < at_most(count, P); ++p) std::copy_n(numbers[p], channels, out + p * stride);
}

template <class Block, int V, class Layer>
void sweep_strip(const Layer& layer, const Reading& reading, const void* const* rows, int group, int vector,
                 Pixel at, int count, float* out) {
    const int taps = layer.window.kernel_h * layer.window.kernel_w;
    const ptrdiff_t stride = static_cast<ptrdiff_t>(layer.groups) * layer.out_channels;
    for (int done = 0; done < count; done += Simd::tile, at = after(layer.window, at, Simd::tile)) {
        const void* const* tile_rows = rows + static_cast<ptrdiff_t>(done) * taps;
        const int left = count - done;
        const Runs runs = reading.runs(at, left);
        if (tile_at(done, count) == 1) {
            Block::template run<1, V>(layer, runs, tile_rows, at, group, vector, 1, out + done * stride);
        } else {
            Block::template run<Simd::tile, V>(layer, runs, tile_rows, at, group, vector, left,
                                               out + done * stride);
        }
    }
}

// Runs Block over all tiles.
template <class Block, int V, class Layer>
void sweep(const Layer& layer, const Reading& reading, const void* map, int group, int first, int count,
           const void** rows, float* out) {
    const Pixel pixel = pixel_at(layer.window, first);
    gather_strip(reading, static_cast<const Number*>(map), reinterpret_cast<const Number*>(layer.padding),
                 pixel, count, rows);
    for_each_block<V>(layer.out_channels, [&](auto vectors, int vector) {
        sweep_strip<Block, vectors()>(layer, reading, rows, group, vector, pixel, count, out);
    });
}

}  // namespace
}  // namespace bitfactor
