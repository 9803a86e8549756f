// A binary layer's forward pass, and what its backward pass needs, for a framework that trains.
//
// The signs of a batch stand (samples, pixels, groups, words), as SignMap says; those of a weight likewise,
// its output channels being the samples and its taps the pixels.

#pragma once

#include <cstddef>
#include <vector>

#include "thread_pool.h"
#include "training_kernels.h"

namespace bitfactor {

// Shaped as what they are the gradients of.
struct TuckerGradients {
    float *cores, *rows, *tap_factor, *output, *channel;
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
    // y = scale * (signs (*) weight), exact sums but for the scale; padding is 0. `out` is y's map, and
    // `channels` those of a group of the input.
    void conv(const SignMap& out, int samples, const Window& window, int channels, const uint32_t* signs,
              const uint32_t* weight, const float* scale, void* y);
    // Whether weights may be `coupled`.
    bool couples() const { return training_.products.couples; }
    // The weights W of cores (cores, pairs, inner taps), by way of x (weights, taps, pairs). y, of each
    // weight (taps, outputs, inner channels) or, coupled, half the outputs, is what of_weights needs again.
    void weights(const Tucker& tucker, const float* cores, float* x, float* y, const std::vector<float*>& W);
    // Their gradients; x is room.
    void of_weights(const Tucker& tucker, const float* cores, float* x, const float* y,
                    const std::vector<const float*>& of_W, const TuckerGradients& gradients);

  private:
    void mix(const Mixing& mixing, const float* cores, float* x);
    void unmix(const Mixing& mixing, const float* cores, const float* of_x, float* of_cores, float* of_rows,
               float* of_taps);
    // Calls f(first, count) for parts of some rows, an even first, each in a thread.
    template <class F>
    void for_each_part(int rows, F f);

    const KernelSet& kernels_;
    const TrainingKernels& training_;
    ThreadPool threads_;
};

}  // namespace bitfactor
