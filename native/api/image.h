// From an image to an input, as a network's image rule says.

#pragma once

#include "program/description.h"

namespace bitfactor {

// Values of 0 to 255, (height, width, channels): 1 grey, 3 RGB, 4 with an alpha that is left out.
struct Image {
    const uint8_t* values;
    int height, width, channels;
};

struct ImageSize {
    int height, width;
};

// The middle of an image that is resized to `whole`: `out` is (size.height, size.width, channels). Where both
// sides shrink, a value is the mean of the area that it covers, else it is interpolated between its
// neighbours. Sums are exact, in integers, and rounded once, halves up: the same bytes on every machine. They
// differ from OpenCV's by 1 at most. Throws std::invalid_argument where a side of `whole` is beyond 2^22.
void resize_image(const Image& image, ImageSize whole, ImageSize size, int channels, uint8_t* out);

// The input is (channels of the rule, rule.height, rule.width).
void prepare_image(const ImageRule& rule, const Image& image, float* input);

}  // namespace bitfactor
