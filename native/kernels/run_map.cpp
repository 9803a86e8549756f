#include "kernels/run_map.h"

#include <algorithm>

namespace bitfactor {

RunMap::RunMap(const Window& w, int channels, int parts)
    : rows(w.in_h, w.out_h, w.kernel_h, w.stride_h, w.pad_top, w.dilation_h),
      in_w(w.in_w),
      pad_left(w.pad_left),
      channels(channels),
      parts(parts),
      position_numbers(w.stride_w * channels),
      lines(rows.length * static_cast<int>(rows.remainders.size())),
      run_steps((w.kernel_w * channels + 31) / 32) {
    const int length = (w.out_w - 1) * w.stride_w + w.kernel_w;
    const int shared = std::max(0, std::min(pad_left, length - pad_left - in_w));
    pitch = std::max(w.out_w, (length - shared + w.stride_w - 1) / w.stride_w);
    line_numbers = pitch * position_numbers;
    const size_t further = line_numbers + 32 * static_cast<size_t>(run_steps) + 16 * position_numbers;
    part_numbers = (static_cast<size_t>(lines) * line_numbers + further + 31) / 32 * 32;
    out_positions = (w.out_h - 1) * pitch + w.out_w;
    for (int kh = 0; kh < w.kernel_h; ++kh) {
        const ptrdiff_t line = rows.phase[kh] * rows.length + rows.shift[kh];
        for (int step = 0; step < run_steps; ++step) steps.push_back(line * line_numbers + 32 * step);
    }
}

}  // namespace bitfactor
