// What a program says of itself: how an image becomes its input, what its outputs are called, and what it
// must give.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bitfactor {

// An image is resized, cropped in the centre, and then each channel is (x / 255 - mean) / std.
struct ImageRule {
    int height, width, resize_height, resize_width;
    bool keep_aspect;              // it is resized until it just covers the size, in its own proportions
    std::vector<float> mean, std;  // (channels): one is grey, three are RGB
};

// Samples, as `values` (samples, numbers of a sample).
struct Golden {
    size_t samples = 0;
    std::vector<float> values;
};

struct Description {
    std::vector<ImageRule> image;            // one, or none
    std::vector<std::string> labels;         // of classes, or of keypoints where there are edges
    std::vector<int32_t> edges, flip_pairs;  // (pairs, 2), indices of labels
    std::vector<Golden> golden_inputs, golden_outputs;
};

}  // namespace bitfactor
