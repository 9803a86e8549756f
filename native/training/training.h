// A binary layer's forward pass, and what its backward pass needs, for a framework that trains.
//
// The signs of a batch stand (samples, pixels, groups, words), as SignMap says; those of a weight likewise,
// its output channels being the samples and its taps the pixels.

#pragma once

#include <cstddef>
#include <vector>

#include "threads/thread_pool.h"
#include "training/training_kernels.h"

namespace bitfactor {

struct Matrix {
    int rows, columns;
    float* numbers;
};

// A core (grid, inner outputs, inner channels, taps) and its factors, each (outer, inner); or their
// gradients. Grid and taps may have several modes, or none.
struct TuckerOperands {
    float* core;
    std::vector<Matrix> grid;
    Matrix output, channel;
    std::vector<Matrix> taps;
};

// A map may have `repeats` pixels as one, with as many times the channels, where rows of those are short.
struct Normalisation {
    int repeats;
    const float *weight, *bias;
    double eps;
    bool clip;
};

class Trainer {
  public:
    Trainer(const KernelSet& kernels, int threads);

    // For each sample what the kernels of the same names do.
    bool pack(const SignMap& map, int samples, const void* x, uint32_t* signs, uint32_t* inside);
    void unpack(const SignMap& map, int samples, const uint32_t* signs, void* out);
    void mask(const SignMap& map, int samples, const uint32_t* inside, void* gradient);
    // of_slope is (samples, channels).
    void prelu(const SignMap& map, int samples, const void* x, const void* gradient, const float* slope,
               void* of_x, float* of_slope);
    // y = x normalised over the batch by a channel's mean and variance, times weight plus bias, and what else
    // `normalise` does. `statistics` (3, channels) become mean, variance and 1 / sqrt(variance + eps).
    void normalise(const SignMap& map, int samples, const Normalisation& norm, const void* x,
                   const void* added, float* statistics, void* y);
    // The gradients of x, weight and bias, and `kept` as of `sums`.
    void normalise_backward(const SignMap& map, int samples, const Normalisation& norm, const void* x,
                            const void* y, const void* gradient, const float* statistics, void* kept,
                            void* of_x, float* of_weight, float* of_bias);
    void tanh_gradient(const SignMap& map, int samples, const void* x, const void* gradient, float height,
                       float steepness, void* of_x);
    // y = scale * (signs (*) weight), exact sums but for the scale; padding is 0. `out` is y's map, and
    // `channels` those of a group of the input.
    void conv(const SignMap& out, int samples, const Window& window, int channels, const uint32_t* signs,
              const uint32_t* weight, const float* scale, void* y);
    // Whether weights may be `coupled`.
    bool couples() const { return training_.products.couples; }
    // The weights W of all places of the grid, (outputs, channels, taps), by way of x, their slices of the
    // core (weights, taps, inner outputs, inner channels). y, of each weight (taps, outputs, inner channels),
    // or half the outputs if coupled, is what of_weights needs again.
    void weights(const TuckerOperands& operands, bool coupled, float* x, float* y,
                 const std::vector<float*>& W);
    // The gradients of the operands; x is room.
    void of_weights(const TuckerOperands& operands, bool coupled, float* x, const float* y,
                    const std::vector<const float*>& of_W, const TuckerOperands& gradients);

  private:
    void mix(const Mixing& mixing, const float* cores, float* x);
    void unmix(const Mixing& mixing, const float* cores, const float* of_x, float* of_cores, float* of_rows,
               float* of_taps);

    const KernelSet& kernels_;
    const TrainingKernels& training_;
    ThreadPool threads_;
};

}  // namespace bitfactor
