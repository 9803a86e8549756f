// From an image to an input, as a network's image rule says.

#pragma once

#include "program/description.h"

namespace bitfactor {

// Pixels are (height, width, channels) of 0 to 255: 1 grey, 3 RGB, 4 with an alpha that is left out. The
// input is (channels of the rule, rule.height, rule.width). Resizing is OpenCV's: by areas where an image
// shrinks, else linear; its numbers differ from OpenCV's by 1 at most.
void prepare_image(const ImageRule& rule, const uint8_t* pixels, int height, int width, int channels,
                   float* input);

}  // namespace bitfactor
