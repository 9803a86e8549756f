// Convolution of signs by signs: exclusive or, population count, add; vectorised over output channels.
//
// A lane holds 32 signs of one output channel. With weights laid out (vector, tap, word, lane), one step
// loads a register of weights per vector, broadcasts one word of a pixel, and adds the count of differing
// bits; no sum ever crosses lanes. The tile is as in conv.h.
//
// Where a tap falls outside the map it reads `padding`, so the loops know no border. For padding with zero,
// which no bit can hold, `base` puts right what those taps counted: it is exact, and costs one add an output.

#pragma once

#include "tiles.h"

namespace bitfactor {
namespace {

// sum (P, V * lanes): how many bits differ between rows and weight.
// S is Simd; it is a parameter so that what a set lacks is not looked up.
template <int P, int V, class S = Simd>
void count_tile(const void* const* rows, Runs runs, const uint32_t* weight, ptrdiff_t vector_stride,
                typename S::Int (&sum)[P][V]) {
    typename S::Count count[P][V];
    UNROLL for (int p = 0; p < P; ++p) { UNROLL for (int v = 0; v < V; ++v) count[p][v] = S::no_count(); }
    if constexpr (!S::counts_are_sums) {
        UNROLL for (int p = 0; p < P; ++p) { UNROLL for (int v = 0; v < V; ++v) sum[p][v] = S::zero_int(); }
    }
    int steps = 0;
    for (int run = 0; run < runs.count; ++run, rows += P) {
        ptrdiff_t first = 0;
        for (int piece = 0; piece < runs.pieces; ++piece, first += runs.stride) {
            for (ptrdiff_t word = first; word < first + runs.numbers; ++word, weight += S::lanes) {
                typename S::Bits w[V];
                UNROLL for (int v = 0; v < V; ++v) w[v] = S::load_bits(weight + v * vector_stride);
                UNROLL for (int p = 0; p < P; ++p) {
                    const typename S::Bits x =
                        S::broadcast_bits(static_cast<const uint32_t*>(rows[p]) + word);
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
    }
    UNROLL for (int p = 0; p < P; ++p) {
        UNROLL for (int v = 0; v < V; ++v) S::finish(sum[p][v], count[p][v]);
    }
}

// The classes say which taps of a pixel are padded, see BinaryConv.
inline const int32_t* base_of(const BinaryConv& conv, Pixel pixel) {
    const ptrdiff_t per_class =
        static_cast<ptrdiff_t>(conv.groups) * vectors_for(conv.out_channels) * Simd::lanes;
    return conv.base + per_class * (conv.row_class[pixel.y] + conv.column_class[pixel.x]);
}

struct BinaryConvBlock {
    template <int P, int V>
    static void run(const BinaryConv& conv, Runs runs, const void* const* rows, Pixel pixel, int group,
                    int first_vector, int count, float* out) {
        const ptrdiff_t vector_stride = runs.depth() * Simd::lanes;
        const ptrdiff_t vector =
            static_cast<ptrdiff_t>(group) * vectors_for(conv.out_channels) + first_vector;
        Simd::Int count_of[P][V];
        count_tile<P, V>(rows, runs, conv.weight + vector * vector_stride, vector_stride, count_of);
        Simd::Float sum[P][V];
        UNROLL for (int p = 0; p < P; ++p) {
            const int32_t* base = base_of(conv, pixel) + vector * Simd::lanes;
            UNROLL for (int v = 0; v < V; ++v) {
                sum[p][v] = Simd::minus_twice(base + v * Simd::lanes, count_of[p][v]);
            }
            if (p + 1 < count) pixel = next(conv.window, pixel);
        }
        store_tile<P, V>(sum, conv, group, first_vector, count, out);
    }
};

void binary_conv(const BinaryConv& conv, const uint32_t* map, int first, int count, const void** pointers,
                 float* rows) {
    const Reading reading(conv.window, conv.pixel_stride, conv.words);
    for (int group = 0; group < conv.groups; ++group) {
        sweep<BinaryConvBlock, Simd::binary_vectors>(conv, reading,
                                                     map + static_cast<ptrdiff_t>(group) * conv.group_stride,
                                                     group, first, count, pointers, rows);
    }
}

}  // namespace
}  // namespace bitfactor
