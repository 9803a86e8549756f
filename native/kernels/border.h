// Zero padding of signs, exactly.
//
// No bit is 0, so a tap outside the map reads the word 0, which counts popcount(w) differing bits. `sum =
// base - 2 * count` then needs base = (signs of the taps inside) + 2 * (popcount of the weights outside). It
// depends on the pixel by the rows and columns of the window that fall outside alone; pixels that share both
// form a class.

#pragma once

#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/pack.h"

namespace bitfactor {

struct Border {
    std::vector<int> row_class, column_class;  // as in BinaryConv
    AlignedVector<int32_t> base;
};

// `weight` is (groups * out_channels, kh, kw, words); `signs` are the channels of one group.
Border border_of(const Window& window, int groups, int out_channels, int words, int signs,
                 const uint32_t* weight, int pad_value, int lanes);

// `words` of each group hold signs; `offsets` are kept by the caller.
SignLayout layout_of(const Window& window, int groups, int words, int group_stride,
                     std::vector<ptrdiff_t>& offsets);

}  // namespace bitfactor
