// A binary layer's forward pass, and what its backward pass needs, for a framework that trains.
//
// The signs of a batch stand (samples, pixels, groups, words), as SignMap says; those of a weight likewise,
// its output channels being the samples and its taps the pixels.

#pragma once

#include <cstddef>

#include "thread_pool.h"
#include "training_kernels.h"

namespace bitfactor {

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
    // x (weights, taps, pairs) of cores (cores, pairs, inner taps).
    void mix(const Mixing& mixing, const float* cores, void* x);
    // The gradients of cores, rows and tap factor.
    void unmix(const Mixing& mixing, const float* cores, const void* of_x, float* of_cores, float* of_rows,
               float* of_taps);

  private:
    const KernelSet& kernels_;
    const TrainingKernels& training_;
    ThreadPool threads_;
};

}  // namespace bitfactor
