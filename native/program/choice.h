// Which kernel computes a convolution: of those that can, the one that costs least.
//
// Costs are against each other, by what was measured of the kernels (docs/results/kernels.md) or, where that
// is said, by what their instructions do in a cycle.

#pragma once

#include <string>

#include "kernels/kernels.h"

namespace bitfactor {

enum class Kernel { popcounts, lookups, tiles, multiply_adds, dots };

struct Choice {
    Kernel kernel;
    std::string reason;  // why none of the others
};

// What a choice depends on of a layer; channels are those of one group.
struct ConvShape {
    Window window;
    int maps, groups, in_channels, out_channels;
};

// Of signs; `pad_value` as in the file.
Choice choice_of_signs(const KernelSet& set, const ConvShape& layer, int pad_value);
// Of real numbers, each of which is the sum of so many in bfloat16, or of 0 for float32.
Choice choice_of_numbers(const KernelSet& set, const ConvShape& layer, int bfloat16_parts);

}  // namespace bitfactor
