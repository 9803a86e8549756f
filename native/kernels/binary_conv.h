// Convolution of signs by signs: exclusive or, population count, add; vectorised over output channels.
//
// A lane holds 32 signs of one output channel. With weights laid out (vector, tap, word, lane), one step
// loads a register of weights per vector, broadcasts one word of a pixel, and adds the count of differing
// bits; no sum ever crosses lanes. The tile is as in conv.h.
//
// The windows of a strip lie side by side in its lines, with whatever padding: so the loops know no border.
// For padding with zero, which no bit can hold, `base` puts right what the taps there counted: it is exact,
// and costs one add an output.

#pragma once

#include <algorithm>

#include "kernels/tiles.h"

namespace bitfactor {
namespace {

// Lines first ... first + count of the map with their padding, as many positions as windows reach over.
inline void pad_lines(const BinaryConv& conv, const uint32_t* map, int first, int count, uint32_t* to) {
    const Window& w = conv.window;
    const int position = static_cast<int>(conv.layout.position),
              pitch = static_cast<int>(conv.layout.line) / position;
    const int left = std::min(w.pad_left, pitch), right = std::max(left, std::min(pitch, left + w.in_w));
    const auto pad = [&](int positions) {
        for (int i = 0; i < positions * conv.groups; ++i) to = std::copy_n(conv.padding, conv.words, to);
    };
    for (int y = first; y < first + count; ++y) {
        if (!inside(y, w.in_h)) {
            pad(pitch);
            continue;
        }
        const uint32_t* from = map + static_cast<ptrdiff_t>(y) * w.in_w * conv.pixel_stride;
        pad(left);
        if (position == conv.pixel_stride) {
            to = std::copy_n(from, static_cast<ptrdiff_t>(right - left) * position, to);
        } else {
            for (int i = 0; i < (right - left) * conv.groups; ++i, from += conv.group_stride) {
                for (int k = 0; k < conv.words; ++k) *to++ = from[k];
            }
        }
        pad(pitch - right);
    }
}

// The lines that the windows of a strip lie in: `words` are those of the first window of row `top` of the
// result.
struct Lines {
    const uint32_t* words;
    int top;

    const uint32_t* corner(const BinaryConv& conv, Pixel pixel) const {
        return words + (pixel.y - top) * conv.window.stride_h * conv.layout.line +
               pixel.x * conv.window.stride_w * conv.layout.position;
    }
};

inline Lines lines_of(const BinaryConv& conv, const uint32_t* map, Pixel first, Pixel last, uint32_t* band) {
    const Window& w = conv.window;
    const int line = first.y * w.stride_h - w.pad_top;
    if (!conv.layout.padded) return {map + line * conv.layout.line, first.y};
    const int lines = (last.y - first.y) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1;
    pad_lines(conv, map, line, lines, band);
    return {band, first.y};
}

// sum (P, V * lanes): how many bits differ between the windows at `corners` and weight.
// S is Simd; it is a parameter so that what a set lacks is not looked up.
template <int P, int V, class S = Simd>
[[gnu::always_inline]] inline void count_tile(const BinaryConv& conv, const uint32_t* const (&corners)[P],
                                              const uint32_t* weight, ptrdiff_t vector_stride,
                                              typename S::Int (&sum)[P][V]) {
    typename S::Count count[P][V];
    UNROLL for (int p = 0; p < P; ++p) { UNROLL for (int v = 0; v < V; ++v) count[p][v] = S::no_count(); }
    if constexpr (!S::counts_are_sums) {
        UNROLL for (int p = 0; p < P; ++p) { UNROLL for (int v = 0; v < V; ++v) sum[p][v] = S::zero_int(); }
    }
    int steps = 0;
    for (int run = 0; run < conv.layout.runs; ++run) {
        const ptrdiff_t first = conv.layout.offsets[run];
        for (ptrdiff_t word = first; word < first + conv.layout.run_words; ++word, weight += S::lanes) {
            typename S::Bits w[V];
            UNROLL for (int v = 0; v < V; ++v) w[v] = S::load_bits(weight + v * vector_stride);
            UNROLL for (int p = 0; p < P; ++p) {
                const typename S::Bits x = S::broadcast_bits(corners[p] + word);
                UNROLL for (int v = 0; v < V; ++v) count[p][v] = S::add_differing(count[p][v], x, w[v]);
            }
            if constexpr (!S::counts_are_sums) {
                if (++steps < S::count_steps) continue;
                steps = 0;
                UNROLL for (int p = 0; p < P; ++p) {
                    UNROLL for (int v = 0; v < V; ++v) S::flush(sum[p][v], count[p][v]);
                }
            }
        }
    }
    UNROLL for (int p = 0; p < P; ++p) {
        UNROLL for (int v = 0; v < V; ++v) S::finish(sum[p][v], count[p][v]);
    }
}

// `count` pixels from `pixel` on; the others of the tile repeat the last one.
template <int P, int V>
void binary_tile(const BinaryConv& conv, const Lines& lines, Pixel pixel, int group, int vector, int count,
                 float* out) {
    const ptrdiff_t vector_stride =
        static_cast<ptrdiff_t>(conv.layout.runs) * conv.layout.run_words * Simd::lanes;
    const ptrdiff_t first = static_cast<ptrdiff_t>(group) * vectors_for(conv.out_channels) + vector;
    const int32_t* base = conv.base + first * Simd::lanes;
    const uint32_t* corners[P];
    const int32_t* bases[P];
    const uint32_t* corner = lines.corner(conv, pixel) + group * conv.layout.group;
    UNROLL for (int p = 0; p < P; ++p) {
        corners[p] = corner;
        bases[p] = base + conv.row_class[pixel.y] + conv.column_class[pixel.x];
        if (p + 1 >= count) continue;
        corner += conv.window.stride_w * conv.layout.position;
        if (++pixel.x == conv.window.out_w) {
            pixel = {pixel.y + 1, 0};
            corner = lines.corner(conv, pixel) + group * conv.layout.group;
        }
    }
    Simd::Int differing[P][V];
    count_tile<P, V>(conv, corners, conv.weight + first * vector_stride, vector_stride, differing);
    Simd::Float sums[P][V];
    UNROLL for (int p = 0; p < P; ++p) {
        UNROLL for (int v = 0; v < V; ++v) {
            sums[p][v] = Simd::minus_twice(bases[p] + v * Simd::lanes, differing[p][v]);
        }
    }
    store_tile<P, V>(sums, conv, group, vector, count, out);
}

template <int V>
void sweep_signs(const BinaryConv& conv, const Lines& lines, Pixel pixel, int count, int group, int vector,
                 float* rows) {
    const ptrdiff_t stride = static_cast<ptrdiff_t>(conv.groups) * conv.out_channels;
    for (int done = 0; done < count; done += Simd::tile, pixel = after(conv.window, pixel, Simd::tile)) {
        const auto run = tile_at(done, count) == 1 ? binary_tile<1, V> : binary_tile<Simd::tile, V>;
        run(conv, lines, pixel, group, vector, std::min(Simd::tile, count - done), rows + done * stride);
    }
}

void binary_conv(const BinaryConv& conv, const uint32_t* map, int first, int count, uint32_t* band,
                 float* rows) {
    const Pixel pixel = pixel_at(conv.window, first);
    const Lines lines = lines_of(conv, map, pixel, after(conv.window, pixel, count - 1), band);
    for (int group = 0; group < conv.groups; ++group) {
        for_each_block<Simd::binary_vectors>(conv.out_channels, [&](auto vectors, int vector) {
            sweep_signs<vectors()>(conv, lines, pixel, count, group, vector, rows);
        });
    }
}

}  // namespace
}  // namespace bitfactor
