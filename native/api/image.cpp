#include "api/image.h"

#include <algorithm>
#include <cmath>

namespace bitfactor {
namespace {

// One axis: result i is the sum of weights[k] * x[first + k].
struct Sum {
    int first;
    std::vector<float> weights;
};

std::vector<Sum> areas(int in, int out) {
    std::vector<Sum> sums;
    const double scale = static_cast<double>(in) / out;
    for (int i = 0; i < out; ++i) {
        const double begin = i * scale, end = std::min<double>((i + 1) * scale, in);
        Sum sum{static_cast<int>(begin), {}};
        for (int x = sum.first; x < end; ++x) {
            const double covered = std::min<double>(end, x + 1) - std::max<double>(begin, x);
            sum.weights.push_back(static_cast<float>(covered / (end - begin)));
        }
        sums.push_back(sum);
    }
    return sums;
}

std::vector<Sum> between(int in, int out) {
    std::vector<Sum> sums;
    for (int i = 0; i < out; ++i) {
        const double at = std::clamp((i + 0.5) * in / out - 0.5, 0.0, in - 1.0);
        const int first = std::min(static_cast<int>(at), std::max(in - 2, 0));
        const float part = static_cast<float>(at - first);
        sums.push_back({first, in > 1 ? std::vector<float>{1 - part, part} : std::vector<float>{1}});
    }
    return sums;
}

// Channel c of a pixel, where the network wants `wanted` channels.
float value_of(const uint8_t* pixel, int channels, int wanted, int c) {
    if (channels <= 2) return pixel[0];
    if (wanted > 1) return pixel[c];
    return std::rint(0.299f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2]);
}

}  // namespace

void prepare_image(const ImageRule& rule, const uint8_t* pixels, int height, int width, int channels,
                   float* input) {
    int whole_h = rule.resize_height, whole_w = rule.resize_width;
    if (rule.keep_aspect) {
        const double scale =
            std::max(static_cast<double>(whole_h) / height, static_cast<double>(whole_w) / width);
        whole_h = std::max(static_cast<int>(std::rint(height * scale)), rule.height);
        whole_w = std::max(static_cast<int>(std::rint(width * scale)), rule.width);
    }
    const bool shrinks = height > whole_h && width > whole_w;
    const auto rows = shrinks ? areas(height, whole_h) : between(height, whole_h);
    const auto columns = shrinks ? areas(width, whole_w) : between(width, whole_w);
    const int top = (whole_h - rule.height) / 2, left = (whole_w - rule.width) / 2;
    const int wanted = static_cast<int>(rule.mean.size());
    std::vector<float> line(static_cast<size_t>(width));
    for (int c = 0; c < wanted; ++c) {
        for (int y = 0; y < rule.height; ++y) {
            const Sum& row = rows[top + y];
            std::fill(line.begin(), line.end(), 0.0f);
            for (size_t k = 0; k < row.weights.size(); ++k) {
                const uint8_t* from = pixels + (row.first + k) * width * channels;
                for (int x = 0; x < width; ++x, from += channels)
                    line[x] += row.weights[k] * value_of(from, channels, wanted, c);
            }
            for (int x = 0; x < rule.width; ++x) {
                const Sum& column = columns[left + x];
                float value = 0;
                for (size_t k = 0; k < column.weights.size(); ++k)
                    value += column.weights[k] * line[column.first + k];
                *input++ = (std::rint(value) / 255 - rule.mean[c]) / rule.std[c];
            }
        }
    }
}

}  // namespace bitfactor
