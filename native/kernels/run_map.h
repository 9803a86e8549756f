// A map of real numbers as bfloat16, laid out so that a convolution over it is a sum of plain matrix
// products.
//
// A number is the sum of two: `high`, itself rounded to bfloat16 (8 bits of mantissa), and `low`, the rest
// rounded likewise. Of a product of two such sums the three larger terms are taken. With one part, a number
// is its `high`.
//
// The numbers that one row of a kernel reads, kernel_w * channels, lie side by side: a run. So few channels,
// 3 of an image say, fill the tiles too. As in byte_map.h padding is part of the map, that on the right of
// one row is that on the left of the next, and with a vertical stride the rows that leave the same remainder
// form a map of their own. Pixel (y, x) of the result is position y * pitch + x, and a position is
// `position_numbers` further in the map than the one before.

#pragma once

#include "kernels/byte_map.h"

namespace bitfactor {

struct RunMap {
    RunMap(const Window& window, int channels, int parts);

    // Whether runs are contiguous.
    static bool fits(const Window& window) { return window.dilation_w == 1; }

    ByteAxis rows;
    int in_w, pad_left, channels, parts;
    int pitch, position_numbers, line_numbers, lines;
    int run_steps;        // of 32 numbers
    size_t part_numbers;  // of high, and of low behind it, if there: the lines, then zeros, as a run reads
                          // further
    int out_positions;
    std::vector<ptrdiff_t> steps;  // where, in numbers, each step of result (0, 0) reads

    size_t bytes() const { return 2 * parts * part_numbers; }
};

}  // namespace bitfactor
