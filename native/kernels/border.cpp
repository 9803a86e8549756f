#include "kernels/border.h"

#include <algorithm>

namespace bitfactor {
namespace {

// The kernel rows first <= k < last that fall inside the map at one output row (or columns, likewise).
using Span = std::pair<int, int>;

Span span_at(int index, int stride, int padding, int dilation, int kernel, int size) {
    int first = 0, last = kernel;
    while (first < kernel && index * stride - padding + first * dilation < 0) ++first;
    while (last > first && index * stride - padding + (last - 1) * dilation >= size) --last;
    return {first, last};
}

// Numbers the spans that occur: gives the number at each output row, and fills `spans`.
std::vector<int> classify(int out, int stride, int padding, int dilation, int kernel, int size,
                          std::vector<Span>& spans) {
    std::vector<int> classes;
    for (int i = 0; i < out; ++i) {
        const Span span = span_at(i, stride, padding, dilation, kernel, size);
        const auto known = std::find(spans.begin(), spans.end(), span);
        classes.push_back(static_cast<int>(known - spans.begin()));
        if (known == spans.end()) spans.push_back(span);
    }
    return classes;
}

// base of one output channel, whose weight is (kh, kw, words).
int32_t base_at(const Window& w, Span rows, Span columns, int words, int signs, const uint32_t* weight) {
    int32_t base = 0;
    for (int kh = 0; kh < w.kernel_h; ++kh) {
        for (int kw = 0; kw < w.kernel_w; ++kw) {
            const bool in =
                rows.first <= kh && kh < rows.second && columns.first <= kw && kw < columns.second;
            if (in) base += signs;
            for (int i = 0; i < words; ++i, ++weight) base += in ? 0 : 2 * __builtin_popcount(*weight);
        }
    }
    return base;
}

}  // namespace

Border border_of(const Window& w, int groups, int out_channels, int words, int signs, const uint32_t* weight,
                 int pad_value, int lanes) {
    std::vector<Span> rows{}, columns{};
    Border border;
    if (pad_value == 0) {
        border.row_class = classify(w.out_h, w.stride_h, w.pad_top, w.dilation_h, w.kernel_h, w.in_h, rows);
        border.column_class =
            classify(w.out_w, w.stride_w, w.pad_left, w.dilation_w, w.kernel_w, w.in_w, columns);
    } else {  // padding is a sign like any other
        rows = {{0, w.kernel_h}};
        columns = {{0, w.kernel_w}};
        border.row_class.assign(w.out_h, 0);
        border.column_class.assign(w.out_w, 0);
    }
    const int per_class = groups * ((out_channels + lanes - 1) / lanes) * lanes;
    for (int& row : border.row_class) row *= static_cast<int>(columns.size()) * per_class;
    for (int& column : border.column_class) column *= per_class;
    const size_t depth = static_cast<size_t>(w.kernel_h) * w.kernel_w * words;
    for (const Span& row : rows) {
        for (const Span& column : columns) {
            std::vector<int32_t> base;
            for (int o = 0; o < groups * out_channels; ++o) {
                base.push_back(base_at(w, row, column, words, signs, weight + o * depth));
            }
            const auto packed = pack_lanes(base.data(), groups, out_channels, 1, lanes);
            border.base.insert(border.base.end(), packed.begin(), packed.end());
        }
    }
    return border;
}

SignLayout layout_of(const Window& w, int groups, int words, int group_stride,
                     std::vector<ptrdiff_t>& offsets) {
    const int lines = (w.out_h - 1) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1;
    const int pitch = (w.out_w - 1) * w.stride_w + (w.kernel_w - 1) * w.dilation_w + 1;
    const bool padded = w.pad_top > 0 || w.pad_left > 0 || lines > w.in_h || pitch > w.in_w;
    const ptrdiff_t group = padded ? words : group_stride, position = groups * group;
    const ptrdiff_t line = (padded ? pitch : w.in_w) * position;
    const bool by_rows = w.dilation_w * position == words;
    offsets.clear();
    for (int kh = 0; kh < w.kernel_h; ++kh) {
        for (int kw = 0; kw < (by_rows ? 1 : w.kernel_w); ++kw)
            offsets.push_back(kh * w.dilation_h * line + kw * w.dilation_w * position);
    }
    return {padded,
            line,
            position,
            group,
            static_cast<int>(offsets.size()),
            (by_rows ? w.kernel_w : 1) * words,
            offsets.data()};
}

}  // namespace bitfactor
