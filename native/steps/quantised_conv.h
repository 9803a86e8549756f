// Convolutions of numbers of which two or four fill a word: by 8-bit integers, or by bfloat16.

#pragma once

#include <vector>

#include "steps/step.h"

namespace bitfactor {

// Weights are (groups * out_channels, kh, kw, in_channels): integers, or the bits of bfloat16. What `lowest`
// and `inverse` say of numbers is one for all channels, or one each.
struct QuantisedLayer {
    const QuantisedKernels* kernels;
    size_t source;
    Window window;
    int groups, in_channels, out_channels;
    std::vector<int32_t> weight;
    std::vector<float> scale, bias, lowest, inverse;
    bool apart;  // what is laid out is still there when the next layer runs

    int channels() const { return groups * in_channels; }
    int outputs() const { return groups * out_channels; }
    // Whether the numbers that a row of the window reads lie side by side.
    bool by_rows() const { return groups == 1 && window.dilation_w == 1; }
    int runs() const { return window.kernel_h * (by_rows() ? 1 : window.kernel_w); }
    int run_levels() const { return in_channels * (by_rows() ? window.kernel_w : 1); }
    int in_word() const { return 4 / kernels->level_bytes; }
    int run_words() const { return round_up(run_levels(), in_word()) / in_word(); }
};

void add_quantised(Program& program, const char* kernel, const QuantisedLayer& layer);

}  // namespace bitfactor
