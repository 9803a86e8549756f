// Convolution of 256 levels by integers of 8 bits, vectorised over output channels as in conv.h.
//
// A lane holds the products of one output channel with two or four levels that lie side by side, and adds
// them up: sums are exact. The map is padded, so that the loops know no border, and what a row of the window
// reads lies side by side: the 7 * 3 levels of an image fill 6 words but for three, which are multiplied by
// 0.

#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/tiles.h"

namespace bitfactor {
namespace {

// L is Simd, or what else has its `Level`.
template <class L>
using LevelOf = typename L::Level;

template <class L>
constexpr int levels_in_word = 4 / sizeof(LevelOf<L>);

template <class L>
Simd::Float cut(Simd::Float level) {
    if constexpr (!L::levels_are_cut) return level;
    return Simd::min(Simd::max(level, Simd::broadcast(0.0f)), Simd::broadcast(255.0f));
}

// `count` numbers that begin with a pixel's first channel; nullptr stands for zeros.
template <class L>
void quantise_numbers(const QuantisedMap& map, const float* from, int count, LevelOf<L>* to) {
    for (int i = 0, phase = 0; i < count; i += Simd::lanes) {
        const Simd::Float x = from ? Simd::load_first(from + i, count - i) : Simd::broadcast(0.0f);
        const Simd::Float above = Simd::add(x, Simd::load(map.shift + phase));
        const Simd::Float level = Simd::multiply(above, Simd::load(map.inverse + phase));
        L::store_levels(to + i, cut<L>(level), count - i);
        phase = phase + Simd::lanes < map.period ? phase + Simd::lanes : 0;
    }
}

template <class L>
void quantise(const QuantisedMap& map, const float* from, int first, int count, void* levels) {
    const Window& w = map.window;
    const int channels = map.channels, left = std::min(w.pad_left, map.pitch);
    const int inner = std::min(w.in_w, map.pitch - left);
    for (int line = first; line < first + count; ++line) {
        LevelOf<L>* to =
            static_cast<LevelOf<L>*>(levels) + static_cast<ptrdiff_t>(line) * map.pitch * channels;
        const int y = line - w.pad_top;
        if (!inside(y, w.in_h)) {
            quantise_numbers<L>(map, nullptr, map.pitch * channels, to);
            continue;
        }
        const float* row = from + static_cast<ptrdiff_t>(y) * map.skip_h * map.in_w * channels;
        quantise_numbers<L>(map, nullptr, left * channels, to);
        to += left * channels;
        if (map.skip_w == 1) {
            quantise_numbers<L>(map, row, inner * channels, to);
        } else {
            for (int x = 0; x < inner; ++x) {
                quantise_numbers<L>(map, row + static_cast<ptrdiff_t>(x) * map.skip_w * channels, channels,
                                    to + x * channels);
            }
        }
        quantise_numbers<L>(map, nullptr, (map.pitch - left - inner) * channels, to + inner * channels);
    }
}

inline Simd::Bits broadcast_levels(const void* from) {
    uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return Simd::broadcast_bits(&word);
}

// The tile of `count` pixels from `pixel` on, of the output channels from `first_vector` on.
template <class L, int P, int V>
void quantised_tile(const QuantisedConv& conv, const LevelOf<L>* levels, Pixel pixel, int group,
                    int first_vector, int count, float* out) {
    const Window& w = conv.map.window;
    const LevelOf<L>* at[P];
    for (int p = 0; p < P; ++p) {
        const ptrdiff_t corner = static_cast<ptrdiff_t>(pixel.y) * w.stride_h * conv.map.pitch;
        at[p] = levels + (corner + pixel.x * w.stride_w) * conv.map.channels + group * conv.in_channels;
        if (p + 1 < count) pixel = next(w, pixel);
    }
    const ptrdiff_t vector_stride = static_cast<ptrdiff_t>(conv.runs) * conv.run_words * Simd::lanes;
    const ptrdiff_t vector = static_cast<ptrdiff_t>(group) * vectors_for(conv.out_channels) + first_vector;
    const uint32_t* weight = conv.weight + vector * vector_stride;
    const ptrdiff_t channel = vector * Simd::lanes;
    typename L::LevelSum sum[P][V];
    UNROLL for (int p = 0; p < P; ++p) {
        UNROLL for (int v = 0; v < V; ++v) {
            sum[p][v] = L::level_sum(conv.base + channel + v * Simd::lanes);
        }
    }
    for (int run = 0; run < conv.runs; ++run) {
        const ptrdiff_t offset = conv.offsets[run];
        for (ptrdiff_t i = offset; i < offset + conv.run_words * levels_in_word<L>;
             i += levels_in_word<L>, weight += Simd::lanes) {
            Simd::Bits weights[V];
            UNROLL for (int v = 0; v < V; ++v) weights[v] = Simd::load_bits(weight + v * vector_stride);
            UNROLL for (int p = 0; p < P; ++p) {
                const Simd::Bits x = broadcast_levels(at[p] + i);
                UNROLL for (int v = 0; v < V; ++v) { sum[p][v] = L::add_products(sum[p][v], x, weights[v]); }
            }
        }
    }
    Simd::Float y[P][V];
    UNROLL for (int v = 0; v < V; ++v) {
        const Simd::Float scale = Simd::load(conv.scale + channel + v * Simd::lanes);
        const Simd::Float bias = Simd::load(conv.bias + channel + v * Simd::lanes);
        UNROLL for (int p = 0; p < P; ++p) y[p][v] = Simd::fma(L::real_of(sum[p][v]), scale, bias);
    }
    store_tile<P, V>(y, conv, group, first_vector, count, out);
}

template <class L, int V>
void sweep_levels(const QuantisedConv& conv, const LevelOf<L>* levels, int group, int vector, int first,
                  int count, float* rows) {
    const ptrdiff_t stride = static_cast<ptrdiff_t>(conv.groups) * conv.out_channels;
    Pixel pixel = pixel_at(conv.map.window, first);
    for (int done = 0; done < count; done += Simd::tile) {
        const auto tile =
            tile_at(done, count) == 1 ? quantised_tile<L, 1, V> : quantised_tile<L, Simd::tile, V>;
        tile(conv, levels, pixel, group, vector, std::min(Simd::tile, count - done), rows + done * stride);
        pixel = after(conv.map.window, pixel, Simd::tile);
    }
}

template <class L>
void quantised_conv(const QuantisedConv& conv, const void* map, int first, int count, float* rows) {
    constexpr int V = L::level_vectors;
    const LevelOf<L>* levels = static_cast<const LevelOf<L>*>(map);
    const int vectors = vectors_for(conv.out_channels);
    for (int group = 0; group < conv.groups; ++group) {
        int vector = 0;
        for (; vector + V <= vectors; vector += V) {
            sweep_levels<L, V>(conv, levels, group, vector, first, count, rows);
        }
        for (; vector < vectors; ++vector)
            sweep_levels<L, 1>(conv, levels, group, vector, first, count, rows);
    }
}

template <class L>
constexpr QuantisedKernels quantised_kernels = {sizeof(LevelOf<L>), L::level_zero, 0, quantise<L>,
                                                quantised_conv<L>};

}  // namespace
}  // namespace bitfactor
