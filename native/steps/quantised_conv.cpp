// Convolutions of real numbers by 8-bit integers, and how they are laid out in words.

#include "steps/quantised_conv.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bitfactor {
namespace {

// (outputs, runs, run_levels) -> (outputs, runs * words): two or four weights in a word, zeros behind a run.
std::vector<uint32_t> words_of(const QuantisedLayer& layer) {
    const int bits = 32 / layer.in_word(), words = layer.run_words();
    const uint32_t mask = bits == 8 ? 0xffu : 0xffffu;
    const int32_t* weight = layer.weight.data();
    std::vector<uint32_t> packed(static_cast<size_t>(layer.outputs()) * layer.runs() * words, 0);
    uint32_t* to = packed.data();
    for (int run = 0; run < layer.outputs() * layer.runs(); ++run, to += words) {
        for (int i = 0; i < layer.run_levels(); ++i, ++weight) {
            to[i / layer.in_word()] |= (static_cast<uint32_t>(*weight) & mask) << i % layer.in_word() * bits;
        }
    }
    return packed;
}

// What is missing of each sum, where a level is stored less `zero`.
std::vector<int32_t> base_of(const QuantisedLayer& layer) {
    const ptrdiff_t depth = static_cast<ptrdiff_t>(layer.runs()) * layer.run_levels();
    std::vector<int32_t> base(layer.outputs(), 0);
    if (!layer.kernels->zero) return base;
    const int32_t* weight = layer.weight.data();
    for (int32_t& sum : base) {
        for (ptrdiff_t i = 0; i < depth; ++i) sum += *weight++;
        sum *= layer.kernels->zero;
    }
    return base;
}

constexpr int most_product = 255 * 128;  // of a level and a weight
constexpr int most_float_taps = (1 << 24) / most_product;

using Place = std::function<size_t()>;  // of the levels, known once all layers are there

struct Constants {
    AlignedVector<uint32_t> weight;
    AlignedVector<int32_t> base;
    AlignedVector<float> scale, bias, shift, inverse;
    std::vector<ptrdiff_t> offsets;
};

// As many copies of what is there for each channel as fill whole registers.
AlignedVector<float> repeated(const std::vector<float>& values, int lanes, float factor) {
    size_t period = values.size();
    while (period % lanes) period += values.size();
    AlignedVector<float> all;
    for (size_t i = 0; i < period; ++i) all.push_back(factor * values[i % values.size()]);
    return all;
}

struct DepthwiseConstants {
    AlignedVector<float> weight, scale, bias, shift, inverse;

    DepthwiseConstants(const QuantisedLayer& layer, int lanes)
        : weight(layer.weight.size()),
          scale(layer.scale.begin(), layer.scale.end()),
          bias(layer.bias.begin(), layer.bias.end()),
          shift(repeated(layer.lowest, lanes, -1.0f)),
          inverse(repeated(layer.inverse, lanes, 1.0f)) {
        const size_t channels = static_cast<size_t>(layer.groups), taps = weight.size() / channels;
        for (size_t i = 0; i < weight.size(); ++i) {
            weight[i % taps * channels + i / taps] = static_cast<float>(layer.weight[i]);
        }
    }
};

QuantisedMap map_of(const QuantisedLayer& layer, const AlignedVector<float>& shift,
                    const AlignedVector<float>& inverse) {
    Window w = layer.window;
    const bool skips = taps_of(w) == 1 && w.pad_top == 0 && w.pad_left == 0 &&
                       w.in_h > (w.out_h - 1) * w.stride_h && w.in_w > (w.out_w - 1) * w.stride_w;
    int skip_h = 1, skip_w = 1;
    if (skips) {
        std::swap(skip_h, w.stride_h);
        std::swap(skip_w, w.stride_w);
        w.in_h = w.out_h;
        w.in_w = w.out_w;
    }
    const auto span = [](int out, int stride, int kernel, int dilation) {
        return (out - 1) * stride + (kernel - 1) * dilation + 1;
    };
    return {w,
            layer.window.in_h,
            layer.window.in_w,
            skip_h,
            skip_w,
            layer.channels(),
            span(w.out_h, w.stride_h, w.kernel_h, w.dilation_h),
            span(w.out_w, w.stride_w, w.kernel_w, w.dilation_w),
            static_cast<int>(shift.size()),
            shift.data(),
            inverse.data()};
}

Place place_of(Program& program, const QuantisedLayer& layer, uint64_t bytes) {
    const size_t reserved = layer.apart ? program.reserve(bytes) : 0;
    if (!layer.apart) program.need_scratch(bytes);
    return [&program, apart = layer.apart, reserved] { return apart ? reserved : program.scratch(); };
}

// The levels are laid out in a step of their own; `own` has the constants of the map.
template <class Own>
void add_levels(Program& program,
                void (*quantise)(const QuantisedMap&, const float* map, int first, int count, void* levels),
                const QuantisedMap& map, const Place& place, size_t source, const std::shared_ptr<Own>& own) {
    program.add_parts("quantise", map.lines, layout_work(map.levels()),
                      [quantise, own, map, place, source](Workspace& w, int first, int count) {
                          quantise(map, at<float>(w.arena, source), first, count, at<char>(w.arena, place()));
                          return w.rows.data();
                      });
}

std::shared_ptr<Constants> constants_of(const QuantisedLayer& layer, int lanes) {
    const auto packed = [&](const auto& values, size_t depth) {
        return pack_lanes(values.data(), layer.groups, layer.out_channels, depth, lanes);
    };
    const size_t depth = static_cast<size_t>(layer.runs()) * layer.run_words();
    return std::make_shared<Constants>(Constants{packed(words_of(layer), depth),
                                                 packed(base_of(layer), 1),
                                                 packed(layer.scale, 1),
                                                 packed(layer.bias, 1),
                                                 repeated(layer.lowest, lanes, -1.0f),
                                                 repeated(layer.inverse, lanes, 1.0f),
                                                 {}});
}

QuantisedConv conv_of(const QuantisedLayer& layer, const QuantisedMap& map, Constants& own) {
    const Window& w = map.window;
    for (int kh = 0; kh < w.kernel_h; ++kh) {
        for (int kw = 0; kw < (layer.by_rows() ? 1 : w.kernel_w); ++kw) {
            const ptrdiff_t position = kh * w.dilation_h * map.pitch + kw * w.dilation_w;
            own.offsets.push_back(position * map.channels);
        }
    }
    return {map,
            layer.groups,
            layer.in_channels,
            layer.out_channels,
            layer.runs(),
            layer.run_words(),
            own.offsets.data(),
            own.weight.data(),
            own.base.data(),
            own.scale.data(),
            own.bias.data()};
}

// A single pixel: its output channels are shared out.
void add_row(Program& program, const char* kernel, const QuantisedKernels& kernels, const QuantisedConv& conv,
             const std::shared_ptr<Constants>& own, const Place& place, double operands) {
    const int lanes = program.kernels().lanes;
    program.add_row(kernel, conv.out_channels, lanes, operands,
                    [&kernels, own, conv, place, lanes](Workspace& w, int first, int count, float* row) {
                        const ptrdiff_t channel = static_cast<ptrdiff_t>(first) * lanes;
                        QuantisedConv part = conv;
                        part.weight += channel * conv.runs * conv.run_words;
                        part.base += channel;
                        part.scale += channel;
                        part.bias += channel;
                        part.out_channels = std::min(count * lanes, conv.out_channels - first * lanes);
                        kernels.conv(part, at<char>(w.arena, place()), 0, 1, row);
                    });
}

// Channels by themselves: the levels are floats, and the weights (taps, channels), too.
void add_depthwise(Program& program, const QuantisedLayer& layer) {
    const int channels = layer.groups, taps = taps_of(layer.window), pixels = pixels_of(layer.window);
    const auto own = std::make_shared<DepthwiseConstants>(layer, program.kernels().lanes);
    const QuantisedMap map = map_of(layer, own->shift, own->inverse);
    Window window = map.window;
    window.in_h = map.lines;
    window.in_w = map.pitch;
    window.pad_top = window.pad_left = 0;
    Conv conv{window, channels, 1, 1, own->weight.data(), own->bias.data(), nullptr};
    conv.scale = own->scale.data();
    const Place place = place_of(program, layer, uint64_t{map.levels()} * sizeof(float));
    add_levels(program, program.kernels().common->quantise, map, place, layer.source, own);
    program.add_step("depthwise", pixels, channels, 0, taps,
                     [own, conv, place, &program](Workspace& w, int first, int count) {
                         program.kernels().common->depthwise(conv, at<float>(w.arena, place()), first, count,
                                                             w.rows.data());
                         return w.rows.data();
                     });
}

void add(Program& program, const Instruction& i) {
    const auto values = [&](const char* name) {
        return std::vector<float>(i.array<float>(name), i.array<float>(name) + i.size(name));
    };
    const auto* weight = reinterpret_cast<const int8_t*>(i.array<uint8_t>("weight"));
    const int groups = i.number("groups");
    const QuantisedLayer layer{program.kernels().quantised,
                               i.source(),
                               i.window(),
                               groups,
                               i.length("weight", 3),
                               i.length("weight", 0) / groups,
                               {weight, weight + i.size("weight")},
                               values("scale"),
                               values("bias"),
                               values("lowest"),
                               values("inverse"),
                               i.flag("apart")};
    const bool apart = groups > 1 && layer.in_channels == 1 && layer.out_channels == 1;
    if (apart && taps_of(layer.window) <= most_float_taps) return add_depthwise(program, layer);
    add_quantised(program, "quantised_conv", layer);
}

constexpr int64_t most_depth = INT32_MAX / most_product;

void check(Verifier& v) {
    const int64_t outputs = v.length("weight", 0, 4), depth = v.length("weight", 3, 4);
    const int groups = v.number("groups", 1);
    v.expect(outputs >= 1 && outputs % groups == 0, "as many channels in each group");
    v.expect(depth >= 1 && depth <= Verifier::most_numbers / groups / 64, "fewer channels");
    const int channels = static_cast<int>(groups * depth);
    const Window w = v.window(channels);
    v.expect(taps_of(w) * depth <= most_depth, "sums that 32 bits hold");
    v.array<uint8_t>("weight", {outputs, w.kernel_h, w.kernel_w, depth});
    for (const char* name : {"scale", "bias"}) v.elements<float>(name, static_cast<size_t>(outputs));
    const size_t ranges = v.size("lowest") == 1 ? 1 : static_cast<size_t>(channels);
    for (const char* name : {"lowest", "inverse"}) {
        const float* values = v.elements<float>(name, ranges);
        v.expect(std::all_of(values, values + ranges, [](float x) { return std::isfinite(x); }),
                 "finite ranges");
    }
    const Buffer source = v.real_buffer("source");
    v.expect_map(source, w.in_h * w.in_w, channels, false);
    v.begin(pixels_of(w), outputs, {source});
    if (v.flag("apart")) v.stands_apart();
}

}  // namespace

void add_quantised(Program& program, const char* kernel, const QuantisedLayer& layer) {
    const QuantisedKernels& kernels = *layer.kernels;
    const auto own = constants_of(layer, program.kernels().lanes);
    const QuantisedMap map = map_of(layer, own->shift, own->inverse);
    const QuantisedConv conv = conv_of(layer, map, *own);
    // A run's last word may reach further.
    const Place place = place_of(program, layer, uint64_t{map.levels()} * kernels.level_bytes + 4);
    add_levels(program, kernels.quantise, map, place, layer.source, own);
    const double operands = conv.runs * conv.run_words;
    if (pixels_of(layer.window) == 1 && layer.groups == 1) {
        return add_row(program, kernel, kernels, conv, own, place, operands);
    }
    program.add_step(kernel, pixels_of(layer.window), layer.outputs(), 0, operands,
                     [&kernels, own, conv, place](Workspace& w, int first, int count) {
                         kernels.conv(conv, at<char>(w.arena, place()), first, count, w.rows.data());
                         return w.rows.data();
                     });
    const int out_w = layer.window.out_w;  // rows that are not long are done as a whole
    if (kernels.pixels) program.round_strips(out_w <= 4 * kernels.pixels ? out_w : kernels.pixels);
}

Kinds quantised_conv_kinds() { return {{"quantised_conv", check, add}}; }

}  // namespace bitfactor
