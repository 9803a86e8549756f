#include "kernels/byte_map.h"

#include <algorithm>

namespace bitfactor {
namespace {

int floor_divide(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

int index_of(std::vector<int>& values, int value) {
    const auto known = std::find(values.begin(), values.end(), value);
    const int index = static_cast<int>(known - values.begin());
    if (known == values.end()) values.push_back(value);
    return index;
}

}  // namespace

ByteAxis::ByteAxis(int in, int out, int kernel, int stride, int padding, int dilation)
    : in(in), stride(stride) {
    for (int tap = 0; tap < kernel; ++tap) {
        const int coordinate = tap * dilation - padding;
        shift.push_back(floor_divide(coordinate, stride));
        phase.push_back(index_of(remainders, coordinate - shift.back() * stride));
    }
    first = shift.front();
    length = out + shift.back() - first;
    for (int& s : shift) s -= first;
    const int least = *std::min_element(remainders.begin(), remainders.end());
    const int inside =
        std::max(0, (in - least + stride - 1) / stride - first);  // indices before the far padding
    shared = std::max(0, std::min(-first, length - inside));
}

ByteMap::ByteMap(const Window& w, int channels, int pad_value)
    : rows(w.in_h, w.out_h, w.kernel_h, w.stride_h, w.pad_top, w.dilation_h),
      columns(w.in_w, w.out_w, w.kernel_w, w.stride_w, w.pad_left, w.dilation_w),
      channels(channels),
      pixel_bytes((channels + 63) / 64 * 64),
      pad_value(pad_value),
      pitch(std::max(w.out_w, columns.length - columns.shared)),
      phase_positions(rows.length * pitch + columns.shared),
      positions(phase_positions * static_cast<int>(rows.remainders.size() * columns.remainders.size())),
      out_positions((w.out_h - 1) * pitch + w.out_w) {
    for (int kh = 0; kh < w.kernel_h; ++kh) {
        for (int kw = 0; kw < w.kernel_w; ++kw) {
            const auto columns_of_phase = static_cast<int>(columns.remainders.size());
            const int phase = rows.phase[kh] * columns_of_phase + columns.phase[kw];
            const int position = phase * phase_positions + rows.shift[kh] * pitch + columns.shift[kw];
            taps.push_back(static_cast<ptrdiff_t>(position) * pixel_bytes);
        }
    }
}

}  // namespace bitfactor
