// A map of signs as bytes, laid out so that a convolution over it is a sum of plain matrix products.
//
// A byte is +1 or -1, and 0 in channels beyond the last and in zero padding, which is therefore exact by
// itself. Padding is part of the map. A row of the map is `pitch` pixels; the padding on the right of one row
// is that on the left of the next. So the tap (kh, kw) of the result's pixel (y, x) lies at offset(kh, kw) +
// y * pitch + x: 16 successive positions are the rows of a tile, whatever row of the result they belong to.
// Positions that fall on padding, x >= out_w, are computed too, and dropped: one in 57 on a map of 56 x 56.
//
// With a stride, the pixels whose coordinates leave the same remainders form a map of their own, a phase, and
// in it the stride is 1.

#pragma once

#include <vector>

#include "kernels/kernels.h"

namespace bitfactor {

// The padded coordinates of one axis. Tap t of result i reads, of the phase remainders[phase[t]], the index
// i + shift[t]; and the index i of a phase is coordinate (i + first) * stride + remainder of the input.
struct ByteAxis {
    ByteAxis(int in, int out, int kernel, int stride, int padding, int dilation);

    int in, stride, first, length;
    int shared;  // indices at the end that are padding, as those at the start of the next row are
    std::vector<int> remainders, phase, shift;
};

struct ByteMap {
    ByteMap(const Window& window, int channels, int pad_value);

    ByteAxis rows, columns;
    int channels, pixel_bytes, pad_value;
    int pitch, phase_positions, positions;  // of a phase; of all
    int out_positions;                      // from the result's first pixel to its last
    std::vector<ptrdiff_t> taps;            // byte offset of the position that a tap of result (0, 0) reads

    // Bytes that are allocated: a tile may read further than the last result, but what it reads there is
    // dropped.
    uint64_t bytes() const { return (static_cast<uint64_t>(positions) + 64) * pixel_bytes; }
};

}  // namespace bitfactor
