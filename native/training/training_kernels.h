// What training offers of an instruction set, beside kernels.h: compiled once for each width of registers,
// and no part of the C library.

#pragma once

#include "kernels/kernels.h"

namespace bitfactor {

// A map of a framework that trains, one sample: `groups` times `channels`, in float or bfloat16, (pixels,
// channels) or (channels, pixels). Its signs are (pixels, groups, words), each group at a 64-bit word.
struct SignMap {
    int pixels, groups, channels;
    bool channels_last, bfloat16;
    bool closed;  // whether -1 and +1 are inside
};

// What training needs of it.
struct SignKernels {
    // The signs, and where `inside` is not nullptr whether |x| < 1 (<= 1 if closed). Gives whether one of the
    // numbers is none, whose sign means nothing.
    bool (*pack)(const SignMap&, const void* x, uint32_t* signs, uint32_t* inside);
    void (*unpack)(const SignMap&, const uint32_t* signs, void* out);
    // Puts 0 where the bit is 0.
    void (*mask)(const SignMap&, const uint32_t* inside, void* gradient);
    // Writes rows (count, channels) times scale (channels) to pixels first ... first + count of the map.
    void (*give)(const SignMap&, const float* rows, const float* scale, int first, int count, void* out);
    // The gradients of prelu, x > 0 ? x : slope * x with a slope for each channel of one group: of_x, shaped
    // as x, and of_slope (channels).
    void (*prelu)(const SignMap&, const void* x, const void* gradient, const float* slope, void* of_x,
                  float* of_slope);
};

// Batch normalisation of one sample's map, of one group, in the types of the map; numbers of a channel are
// float.
struct NormaliseKernels {
    // The mean of each channel, and the sum of squares around it.
    void (*moments)(const SignMap&, const void* x, float* mean, float* squares);
    // y = factor x + offset, plus `added` unless it is nullptr, clipped to -1 ... 1 if `clip`.
    void (*normalise)(const SignMap&, const void* x, const void* added, bool clip, const float* factor,
                      const float* offset, void* y);
    // Where `kept` is not nullptr it becomes the gradient, with 0 where y was clipped. The sums of it, or of
    // the gradient, and of its products with x - mean.
    void (*sums)(const SignMap&, const void* x, const void* y, const void* gradient, const float* mean,
                 void* kept, float* sums, float* dots);
    // of_x = factor gradient + slope x + offset.
    void (*gradient)(const SignMap&, const void* x, const void* gradient, const float* factor,
                     const float* slope, const float* offset, void* of_x);
    // of_x = gradient height / cosh(steepness x)^2: through the slope of a hyperbolic tangent.
    void (*tanh_gradient)(const SignMap&, const void* x, const void* gradient, float height, float steepness,
                          void* of_x);
};

// How core slices become those of weights (see mixing.h): x_p = sum_g rows[p, g] tap_factor core_g, with
// cores (cores, pairs, inner taps) and x (weights, taps, pairs). A pair is one of each channel mode.
struct Mixing {
    int weights, cores, taps, inner_taps, pairs;
    const float* rows;        // (weights, cores)
    const float* tap_factor;  // (taps, inner taps)
};

// Floats of scratch that the kernels need: a block of 64 pairs of all slices, and 16 lanes of sums.
static inline size_t mixing_floats(const Mixing& m) {
    const size_t slices =
        static_cast<size_t>(m.cores) * (m.inner_taps + m.taps) + static_cast<size_t>(m.weights + 1) * m.taps;
    return slices * 64 + (static_cast<size_t>(m.weights) * m.cores + m.taps * m.inner_taps) * 16;
}

struct MixingKernels {
    // Of the pairs first ... first + count.
    void (*mix)(const Mixing&, const float* cores, int first, int count, float* scratch, float* x);
    // The gradients: of_cores, and what these pairs add to of_rows and of_taps, shaped as the factors.
    void (*unmix)(const Mixing&, const float* cores, int first, int count, const float* of_x, float* scratch,
                  float* of_cores, float* of_rows, float* of_taps);
};

// Weights (outputs, channels, taps) of x (taps, inner outputs, inner channels), of which there are
// mixing.pairs: for each tap output x channel^T. `coupled`: what is kept, y = output x, and what backward
// multiplies are words of two bfloat16 (see products.h).
struct Tucker {
    Mixing mixing;
    int outputs, channels, inner_outputs, inner_channels;
    bool coupled;
    const float* output;   // (outputs, inner outputs)
    const float* channel;  // (channels, inner channels)
};

// c (rows, columns) = a b, or c += a b, of words. The strides of a are from one row and one column to the
// next; b and c have no gaps.
struct Product {
    int rows, columns, inner;
    const float* a;
    ptrdiff_t row_stride, inner_stride;
    const float* b;
    float* c;
    bool coupled = false, add = false;
};

struct ProductKernels {
    bool couples;  // whether there are words of two bfloat16
    void (*product)(const Product&);
    void (*couple_columns)(const float* x, int rows, int columns, float* words);
    void (*couple_rows)(const float* x, int rows, int columns, float* words);
    void (*transpose)(const float* words, int rows, int columns, float* out, ptrdiff_t stride);
    void (*gather_taps)(const float* slices, int taps, int count, float* out, ptrdiff_t stride);
    // Filters first ... first + count, an even first. y is (taps, outputs, inner channels).
    void (*filters)(const Tucker&, const float* x, const float* channel_transposed, int first, int count,
                    float* scratch, float* y, float* W);
};

struct TrainingKernels {
    int lanes;
    bool (*supported)();
    SignKernels signs;
    NormaliseKernels normalise;
    MixingKernels mixing;
    ProductKernels products;
};

}  // namespace bitfactor
