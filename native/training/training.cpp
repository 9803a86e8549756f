#include "training/training.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>

#include "kernels/border.h"
#include "kernels/pack.h"

namespace bitfactor {

#define TABLE(name) extern const TrainingKernels name;
#include "training_tables.inc"
#undef TABLE

namespace {

// The best of the same registers.
const TrainingKernels& training_of(const KernelSet& kernels) {
#define TABLE(name) \
    if (name.lanes == kernels.lanes && name.supported()) return name;
#include "training_tables.inc"
#undef TABLE
    throw std::invalid_argument(std::string("nothing trains with ") + kernels.name);
}

constexpr int mixing_strip = 4096;     // pairs; what they add to a factor's gradient is one term of its sum
constexpr int strip_bytes = 32 << 10;  // of rows: they stay in the L1 cache

size_t words_of(const SignMap& map) {
    return static_cast<size_t>(map.groups) * ((map.channels + 63) / 64) * 2;
}

size_t sign_words(const SignMap& map) { return map.pixels * words_of(map); }

size_t map_bytes(const SignMap& map) {
    return static_cast<size_t>(map.pixels) * map.groups * map.channels * (map.bfloat16 ? 2 : 4);
}

// The i-th of many that lie side by side.
const void* nth(const void* first, size_t i, size_t bytes) {
    return static_cast<const char*>(first) + i * bytes;
}
void* nth(void* first, size_t i, size_t bytes) { return static_cast<char*>(first) + i * bytes; }

}  // namespace

Trainer::Trainer(const KernelSet& kernels, int threads)
    : kernels_(kernels), training_(training_of(kernels)), threads_(threads - 1) {}

bool Trainer::pack(const SignMap& map, int samples, const void* x, uint32_t* signs, uint32_t* inside) {
    std::atomic<bool> none{false};
    threads_.for_each(static_cast<size_t>(samples), [&](size_t i) {
        const size_t at = i * sign_words(map);
        uint32_t* in = inside ? inside + at : nullptr;
        if (training_.signs.pack(map, nth(x, i, map_bytes(map)), signs + at, in)) none = true;
    });
    return none;
}

void Trainer::unpack(const SignMap& map, int samples, const uint32_t* signs, void* out) {
    threads_.for_each(static_cast<size_t>(samples), [&](size_t i) {
        training_.signs.unpack(map, signs + i * sign_words(map), nth(out, i, map_bytes(map)));
    });
}

void Trainer::mask(const SignMap& map, int samples, const uint32_t* inside, void* gradient) {
    threads_.for_each(static_cast<size_t>(samples), [&](size_t i) {
        training_.signs.mask(map, inside + i * sign_words(map), nth(gradient, i, map_bytes(map)));
    });
}

void Trainer::prelu(const SignMap& map, int samples, const void* x, const void* gradient, const float* slope,
                    void* of_x, float* of_slope) {
    const size_t bytes = map_bytes(map);
    threads_.for_each(static_cast<size_t>(samples), [&](size_t i) {
        training_.signs.prelu(map, nth(x, i, bytes), nth(gradient, i, bytes), slope, nth(of_x, i, bytes),
                              of_slope + i * map.channels);
    });
}

namespace {

// What each pixel of a map with `repeats` as one multiplies by, or adds.
std::vector<float> repeated(const Normalisation& norm, int channels, const std::vector<double>& numbers) {
    std::vector<float> all(static_cast<size_t>(channels) * norm.repeats);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(numbers[i % channels]);
    return all;
}

}  // namespace

void Trainer::normalise(const SignMap& map, int samples, const Normalisation& norm, const void* x,
                        const void* added, float* statistics, void* y) {
    const size_t bytes = map_bytes(map), wide = map.channels, channels = wide / norm.repeats;
    std::vector<float> means(samples * wide), squares(samples * wide);
    threads_.for_each(static_cast<size_t>(samples), [&](size_t i) {
        training_.normalise.moments(map, nth(x, i, bytes), &means[i * wide], &squares[i * wide]);
    });
    std::vector<double> mean(channels), variance(channels), factor(channels), offset(channels);
    const double parts = static_cast<double>(means.size() / channels);
    for (size_t i = 0; i < means.size(); ++i) mean[i % channels] += means[i] / parts;
    for (size_t i = 0; i < means.size(); ++i) {
        const double off = means[i] - mean[i % channels];
        variance[i % channels] += (squares[i] / map.pixels + off * off) / parts;
    }
    for (size_t c = 0; c < channels; ++c) {
        const double deviation = 1 / std::sqrt(variance[c] + norm.eps);
        factor[c] = norm.weight[c] * deviation;
        offset[c] = norm.bias[c] - mean[c] * factor[c];
        statistics[c] = static_cast<float>(mean[c]);
        statistics[channels + c] = static_cast<float>(variance[c]);
        statistics[2 * channels + c] = static_cast<float>(deviation);
    }
    const auto factors = repeated(norm, channels, factor), offsets = repeated(norm, channels, offset);
    threads_.for_each(static_cast<size_t>(samples), [&](size_t i) {
        training_.normalise.normalise(map, nth(x, i, bytes), added ? nth(added, i, bytes) : nullptr,
                                      norm.clip, factors.data(), offsets.data(), nth(y, i, bytes));
    });
}

void Trainer::normalise_backward(const SignMap& map, int samples, const Normalisation& norm, const void* x,
                                 const void* y, const void* gradient, const float* statistics, void* kept,
                                 void* of_x, float* of_weight, float* of_bias) {
    const size_t bytes = map_bytes(map), wide = map.channels, channels = wide / norm.repeats;
    std::vector<float> sums(samples * wide), dots(samples * wide);
    const auto means = repeated(norm, channels, {statistics, statistics + channels});
    threads_.for_each(static_cast<size_t>(samples), [&](size_t i) {
        training_.normalise.sums(map, nth(x, i, bytes), y ? nth(y, i, bytes) : nullptr,
                                 nth(gradient, i, bytes), means.data(), kept ? nth(kept, i, bytes) : nullptr,
                                 &sums[i * wide], &dots[i * wide]);
    });
    std::vector<double> sum(channels), dot(channels), factor(channels), slope(channels), offset(channels);
    for (size_t i = 0; i < sums.size(); ++i) {
        sum[i % channels] += sums[i];
        dot[i % channels] += dots[i];
    }
    const double count = static_cast<double>(sums.size() / channels) * map.pixels;
    for (size_t c = 0; c < channels; ++c) {
        const double deviation = statistics[2 * channels + c];
        factor[c] = norm.weight[c] * deviation;
        slope[c] = -factor[c] * deviation * deviation * dot[c] / count;
        offset[c] = -factor[c] * sum[c] / count - slope[c] * statistics[c];
        of_weight[c] = static_cast<float>(dot[c] * deviation);
        of_bias[c] = static_cast<float>(sum[c]);
    }
    const auto factors = repeated(norm, channels, factor), slopes = repeated(norm, channels, slope),
               offsets = repeated(norm, channels, offset);
    const void* upon = kept ? kept : gradient;
    threads_.for_each(static_cast<size_t>(samples), [&](size_t i) {
        training_.normalise.gradient(map, nth(x, i, bytes), nth(upon, i, bytes), factors.data(),
                                     slopes.data(), offsets.data(), nth(of_x, i, bytes));
    });
}

void Trainer::tanh_gradient(const SignMap& map, int samples, const void* x, const void* gradient,
                            float height, float steepness, void* of_x) {
    const size_t bytes = map_bytes(map);
    threads_.for_each(static_cast<size_t>(samples), [&](size_t i) {
        training_.normalise.tanh_gradient(map, nth(x, i, bytes), nth(gradient, i, bytes), height, steepness,
                                          nth(of_x, i, bytes));
    });
}

void Trainer::conv(const SignMap& out, int samples, const Window& window, int channels, const uint32_t* signs,
                   const uint32_t* weight, const float* scale, void* y) {
    const int taps = window.kernel_h * window.kernel_w, outputs = out.groups * out.channels;
    const int words = (channels + 31) / 32, group_words = (channels + 63) / 64 * 2;
    std::vector<uint32_t> tight(static_cast<size_t>(outputs) * taps * words);
    for (size_t i = 0; i < static_cast<size_t>(outputs) * taps; ++i) {
        std::copy_n(weight + i * group_words, words, tight.data() + i * words);
    }
    const auto packed =
        pack_lanes(tight.data(), out.groups, out.channels, static_cast<size_t>(taps) * words, kernels_.lanes);
    const Border border =
        border_of(window, out.groups, out.channels, words, channels, tight.data(), 0, kernels_.lanes);
    const std::vector<uint32_t> padding(words, 0);
    std::vector<ptrdiff_t> offsets;
    const BinaryConv layer{window,
                           out.groups,
                           words,
                           out.channels,
                           group_words,
                           out.groups * group_words,
                           layout_of(window, out.groups, words, group_words, offsets),
                           packed.data(),
                           padding.data(),
                           border.base.data(),
                           border.row_class.data(),
                           border.column_class.data()};
    const int tile = kernels_.tile;
    const int strip = std::max(1, strip_bytes / static_cast<int>(sizeof(float)) / outputs / tile) * tile;
    const size_t strips = (static_cast<size_t>(out.pixels) + strip - 1) / strip;
    const size_t map_words = static_cast<size_t>(window.in_h) * window.in_w * layer.pixel_stride;
    threads_.for_each(samples * strips, [&](size_t item) {
        thread_local AlignedVector<uint32_t> band;
        thread_local AlignedVector<float> rows;
        band.resize(std::max(band.size(), band_words(layer, strip)));
        rows.resize(std::max(rows.size(), static_cast<size_t>(strip) * outputs));
        const size_t sample = item / strips;
        const int first = static_cast<int>(item % strips) * strip;
        const int count = std::min(strip, out.pixels - first);
        kernels_.binary->conv(layer, signs + sample * map_words, first, count, band.data(), rows.data());
        training_.signs.give(out, rows.data(), scale, first, count, nth(y, sample, map_bytes(out)));
    });
}

void Trainer::mix(const Mixing& mixing, const float* cores, float* x) {
    const size_t strips = (static_cast<size_t>(mixing.pairs) + mixing_strip - 1) / mixing_strip;
    threads_.for_each(strips, [&](size_t i) {
        thread_local AlignedVector<float> scratch;
        scratch.resize(std::max(scratch.size(), mixing_floats(mixing)));
        const int first = static_cast<int>(i) * mixing_strip;
        const int count = std::min(mixing_strip, mixing.pairs - first);
        training_.mixing.mix(mixing, cores, first, count, scratch.data(), x);
    });
}

void Trainer::unmix(const Mixing& mixing, const float* cores, const float* of_x, float* of_cores,
                    float* of_rows, float* of_taps) {
    const size_t strips = (static_cast<size_t>(mixing.pairs) + mixing_strip - 1) / mixing_strip;
    const size_t rows = static_cast<size_t>(mixing.weights) * mixing.cores;
    const size_t taps = static_cast<size_t>(mixing.taps) * mixing.inner_taps;
    std::vector<float> terms(strips * (rows + taps));  // added up in order, whatever the number of threads
    threads_.for_each(strips, [&](size_t i) {
        thread_local AlignedVector<float> scratch;
        scratch.resize(std::max(scratch.size(), mixing_floats(mixing)));
        const int first = static_cast<int>(i) * mixing_strip;
        const int count = std::min(mixing_strip, mixing.pairs - first);
        float* term = terms.data() + i * (rows + taps);
        training_.mixing.unmix(mixing, cores, first, count, of_x, scratch.data(), of_cores, term,
                               term + rows);
    });
    std::fill_n(of_rows, rows, 0.0f);
    std::fill_n(of_taps, taps, 0.0f);
    for (size_t i = 0; i < strips; ++i) {
        const float* term = terms.data() + i * (rows + taps);
        for (size_t j = 0; j < rows; ++j) of_rows[j] += term[j];
        for (size_t j = 0; j < taps; ++j) of_taps[j] += term[rows + j];
    }
}

}  // namespace bitfactor
