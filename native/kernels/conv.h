// Convolution of real numbers, vectorised over output channels.
//
// A tile is `conv_tile` pixels by `conv_vectors` registers of output channels: each weight register is used
// for every pixel and each broadcast number for every register, so that loads are a small share of the
// instructions and the chains of dependent multiply-adds are long enough apart to hide their latency.
//
// The sum of an output starts at the bias and takes one fused multiply-add a tap, in the order (kh, kw, c).

#pragma once

#include "kernels/tiles.h"

namespace bitfactor {
namespace {

// sum (P, V * lanes) = bias + rows * weight.
template <int P, int V>
void conv_tile(const void* const* rows, Runs runs, const float* weight, ptrdiff_t vector_stride,
               const float* bias, Simd::Float (&sum)[P][V]) {
    UNROLL for (int p = 0; p < P; ++p) {
        UNROLL for (int v = 0; v < V; ++v) sum[p][v] = Simd::load(bias + v * Simd::lanes);
    }
    for (int run = 0; run < runs.count; ++run, rows += P) {
        ptrdiff_t first = 0;
        for (int piece = 0; piece < runs.pieces; ++piece, first += runs.stride) {
            for (ptrdiff_t i = first; i < first + runs.numbers; ++i, weight += Simd::lanes) {
                Simd::Float w[V];
                UNROLL for (int v = 0; v < V; ++v) w[v] = Simd::load(weight + v * vector_stride);
                UNROLL for (int p = 0; p < P; ++p) {
                    const Simd::Float x = Simd::broadcast(static_cast<const float*>(rows[p])[i]);
                    UNROLL for (int v = 0; v < V; ++v) sum[p][v] = Simd::fma(x, w[v], sum[p][v]);
                }
            }
        }
    }
}

struct ConvBlock {
    template <int P, int V>
    static void run(const Conv& conv, Runs runs, const void* const* rows, Pixel, int group, int first_vector,
                    int count, float* out) {
        const ptrdiff_t vector_stride = runs.depth() * Simd::lanes;
        const ptrdiff_t vector =
            static_cast<ptrdiff_t>(group) * vectors_for(conv.out_channels) + first_vector;
        Simd::Float sum[P][V];
        conv_tile<P, V>(rows, runs, conv.weight + vector * vector_stride, vector_stride,
                        conv.bias + vector * Simd::lanes, sum);
        store_tile<P, V>(sum, conv, group, first_vector, count, out);
    }
};

void conv(const Conv& conv, const float* map, int first, int count, const void** pointers, float* rows) {
    const ptrdiff_t pixel_stride = static_cast<ptrdiff_t>(conv.groups) * conv.in_channels;
    const Reading reading(conv.window, pixel_stride, conv.in_channels);
    for (int group = 0; group < conv.groups; ++group) {
        sweep<ConvBlock, Simd::conv_vectors>(conv, reading, map + group * conv.in_channels, group, first,
                                             count, pointers, rows);
    }
}

}  // namespace
}  // namespace bitfactor
