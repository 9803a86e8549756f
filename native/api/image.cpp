#include "api/image.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace bitfactor {
namespace {

constexpr int most_resized = 1 << 22;  // the sums of a line then fit 32 bits, those of lines 64

// Result i is the sum of weights[k] * x[first + k], over the total of the weights.
struct Sum {
    int64_t first;
    std::vector<uint32_t> weights;
};

// Some results of one axis.
struct Axis {
    std::vector<Sum> sums;
    uint64_t total;
};

// In units of 1 / out of a pixel: each result covers `in` of them, each pixel `out`.
Sum area(int64_t in, int64_t out, int64_t i) {
    const int64_t begin = i * in, end = begin + in;
    Sum sum{begin / out, {}};
    for (int64_t x = sum.first; x * out < end; ++x)
        sum.weights.push_back(static_cast<uint32_t>(std::min(end, (x + 1) * out) - std::max(begin, x * out)));
    return sum;
}

// In units of 1 / (2 out) of a pixel, between the middles of two.
Sum between(int64_t in, int64_t out, int64_t i) {
    const int64_t unit = 2 * out, at = std::clamp((2 * i + 1) * in - out, int64_t{0}, (in - 1) * unit);
    const int64_t first = std::min(at / unit, std::max(in - 2, int64_t{0}));
    const auto part = static_cast<uint32_t>(at - first * unit);
    if (in == 1) return {0, {static_cast<uint32_t>(unit)}};
    return {first, {static_cast<uint32_t>(unit) - part, part}};
}

Axis middle_of(int in, int whole, int size, bool shrinks) {
    Axis axis{{}, static_cast<uint64_t>(shrinks ? in : 2 * whole)};
    const int start = (whole - size) / 2;
    for (int i = start; i < start + size; ++i)
        axis.sums.push_back(shrinks ? area(in, whole, i) : between(in, whole, i));
    return axis;
}

// As OpenCV's COLOR_RGB2GRAY.
void make_grey(const uint8_t* pixel, int channels, std::vector<uint8_t>& line) {
    for (uint8_t& grey : line) {
        grey = static_cast<uint8_t>((9798 * pixel[0] + 19235 * pixel[1] + 3735 * pixel[2] + (1 << 14)) >> 15);
        pixel += channels;
    }
}

// A side in the proportion of another that becomes `resized`, halves up.
int in_proportion(int64_t side, int64_t other, int64_t resized) {
    return static_cast<int>(std::min<int64_t>((2 * side * resized + other) / (2 * other), most_resized + 1));
}

ImageSize resized_size(const ImageRule& rule, int height, int width) {
    const int64_t tall = rule.resize_height, wide = rule.resize_width;
    if (!rule.keep_aspect) return {rule.resize_height, rule.resize_width};
    if (tall * width >= wide * height) return {rule.resize_height, in_proportion(width, height, tall)};
    return {in_proportion(height, width, wide), rule.resize_width};
}

}  // namespace

void resize_image(const Image& image, ImageSize whole, ImageSize size, int channels, uint8_t* out) {
    if (std::max(whole.height, whole.width) > most_resized)
        throw std::invalid_argument("expected an image that is resized to " + std::to_string(most_resized) +
                                    " pixels a side at most, found one far longer than wide");
    const bool shrinks = image.height > whole.height && image.width > whole.width;
    const Axis rows = middle_of(image.height, whole.height, size.height, shrinks);
    const Axis columns = middle_of(image.width, whole.width, size.width, shrinks);
    const uint64_t total = rows.total * columns.total;
    const bool to_grey = channels == 1 && image.channels > 1;
    const size_t depth = to_grey ? 1 : image.channels, length = image.width * depth;
    std::vector<uint8_t> grey(to_grey ? length : 0);
    std::vector<uint32_t> line(length);
    for (const Sum& row : rows.sums) {
        std::fill(line.begin(), line.end(), 0u);
        for (size_t k = 0; k < row.weights.size(); ++k) {
            const size_t y = static_cast<size_t>(row.first) + k;
            const uint8_t* from = image.values + y * image.width * image.channels;
            if (to_grey) make_grey(from, image.channels, grey);
            if (to_grey) from = grey.data();
            const uint32_t weight = row.weights[k];
            for (size_t i = 0; i < length; ++i) line[i] += weight * from[i];
        }
        for (const Sum& column : columns.sums) {
            for (int c = 0; c < channels; ++c) {
                const uint32_t* from = &line[column.first * depth + (depth > 1 ? c : 0)];
                uint64_t sum = total / 2;
                for (size_t k = 0; k < column.weights.size(); ++k)
                    sum += uint64_t{column.weights[k]} * from[k * depth];
                *out++ = static_cast<uint8_t>(sum / total);
            }
        }
    }
}

void prepare_image(const ImageRule& rule, const Image& image, float* input) {
    const size_t channels = rule.mean.size(), pixels = static_cast<size_t>(rule.height) * rule.width;
    std::vector<uint8_t> resized(pixels * channels);
    resize_image(image, resized_size(rule, image.height, image.width), {rule.height, rule.width},
                 static_cast<int>(channels), resized.data());
    for (size_t c = 0; c < channels; ++c) {
        for (size_t p = 0; p < pixels; ++p)
            *input++ = (static_cast<float>(resized[p * channels + c]) / 255 - rule.mean[c]) / rule.std[c];
    }
}

}  // namespace bitfactor
