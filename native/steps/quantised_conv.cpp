// Convolutions of real numbers by 8-bit integers.

#include <algorithm>

#include "steps/step.h"

namespace bitfactor {
namespace {

// A layer as the file has it; weights are (groups * out_channels, kh, kw, in_channels).
struct Layer {
    size_t source;
    Window window;
    int groups, in_channels, out_channels;
    const int8_t* weight;
    const float *scale, *bias, *lowest, *inverse;
    bool by_channel;  // lowest and inverse
    bool apart;       // what is laid out is still there when the next layer runs

    int channels() const { return groups * in_channels; }
    int outputs() const { return groups * out_channels; }
    // Whether the levels that a row of the window reads lie side by side.
    bool by_rows() const { return groups == 1 && window.dilation_w == 1; }
    int runs() const { return window.kernel_h * (by_rows() ? 1 : window.kernel_w); }
    int run_levels() const { return in_channels * (by_rows() ? window.kernel_w : 1); }
};

Layer layer_of(const Instruction& i) {
    const int groups = i.number("groups");
    return {i.source(),
            i.window(),
            groups,
            i.length("weight", 3),
            i.length("weight", 0) / groups,
            reinterpret_cast<const int8_t*>(i.array<uint8_t>("weight")),
            i.array<float>("scale"),
            i.array<float>("bias"),
            i.array<float>("lowest"),
            i.array<float>("inverse"),
            i.size("lowest") > 1,
            i.flag("apart")};
}

// (outputs, runs, run_levels) -> (outputs, runs * words): two or four weights in a word, zeros behind a run.
std::vector<uint32_t> words_of(const Layer& layer, int in_word) {
    const int bits = 32 / in_word, words = round_up(layer.run_levels(), in_word) / in_word;
    const uint32_t mask = bits == 8 ? 0xffu : 0xffffu;
    const int8_t* weight = layer.weight;
    std::vector<uint32_t> packed(static_cast<size_t>(layer.outputs()) * layer.runs() * words, 0);
    uint32_t* to = packed.data();
    for (int run = 0; run < layer.outputs() * layer.runs(); ++run, to += words) {
        for (int i = 0; i < layer.run_levels(); ++i, ++weight) {
            to[i / in_word] |= (static_cast<uint32_t>(*weight) & mask) << i % in_word * bits;
        }
    }
    return packed;
}

// What is missing of each sum, where a level is stored less `zero`.
std::vector<int32_t> base_of(const Layer& layer, int zero) {
    const ptrdiff_t depth = static_cast<ptrdiff_t>(layer.runs()) * layer.run_levels();
    std::vector<int32_t> base;
    for (int output = 0; output < layer.outputs(); ++output) {
        const int8_t* weight = layer.weight + output * depth;
        int32_t sum = 0;
        for (ptrdiff_t i = 0; i < depth; ++i) sum += weight[i];
        base.push_back(zero * sum);
    }
    return base;
}

struct Constants {
    AlignedVector<uint32_t> weight;
    AlignedVector<int32_t> base;
    AlignedVector<float> scale, bias, shift, inverse;
    std::vector<ptrdiff_t> offsets;
};

// As many copies of what is there for each channel as fill whole registers.
AlignedVector<float> repeated(const float* values, int count, int channels, int lanes, float factor) {
    int period = lanes;
    if (count > 1) {
        period = channels;
        while (period % lanes) period += channels;
    }
    AlignedVector<float> all;
    for (int i = 0; i < period; ++i) all.push_back(factor * values[count > 1 ? i % channels : 0]);
    return all;
}

QuantisedMap map_of(const Layer& layer, const Constants& own) {
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
            static_cast<int>(own.shift.size()),
            own.shift.data(),
            own.inverse.data()};
}

std::shared_ptr<Constants> constants_of(const Layer& layer, const KernelSet& kernels) {
    const int lanes = kernels.lanes, in_word = 4 / kernels.quantised.level_bytes;
    const auto packed = [&](const auto* values, size_t depth) {
        return pack_lanes(values, layer.groups, layer.out_channels, depth, lanes);
    };
    const std::vector<uint32_t> words = words_of(layer, in_word);
    const int count = layer.by_channel ? layer.channels() : 1;
    return std::make_shared<Constants>(
        Constants{packed(words.data(), words.size() / layer.outputs()),
                  packed(base_of(layer, kernels.quantised.zero).data(), 1),
                  packed(layer.scale, 1),
                  packed(layer.bias, 1),
                  repeated(layer.lowest, count, layer.channels(), lanes, -1.0f),
                  repeated(layer.inverse, count, layer.channels(), lanes, 1.0f),
                  {}});
}

QuantisedConv conv_of(const Layer& layer, const QuantisedMap& map, Constants& own, int in_word) {
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
            round_up(layer.run_levels(), in_word) / in_word,
            own.offsets.data(),
            own.weight.data(),
            own.base.data(),
            own.scale.data(),
            own.bias.data()};
}

using Place = std::function<size_t()>;  // of the levels, known once all layers are there

// A single pixel: its output channels are shared out.
void add_row(Program& program, const QuantisedConv& conv, const std::shared_ptr<Constants>& own,
             const Place& place, double operands) {
    const int lanes = program.kernels().lanes;
    program.add_row("quantised_conv", conv.out_channels, lanes, operands,
                    [&program, own, conv, place, lanes](Workspace& w, int first, int count, float* row) {
                        const ptrdiff_t channel = static_cast<ptrdiff_t>(first) * lanes;
                        QuantisedConv part = conv;
                        part.weight += channel * conv.runs * conv.run_words;
                        part.base += channel;
                        part.scale += channel;
                        part.bias += channel;
                        part.out_channels = std::min(count * lanes, conv.out_channels - first * lanes);
                        program.kernels().quantised.conv(part, at<char>(w.arena, place()), 0, 1, row);
                    });
}

// The levels are laid out in a step of their own.
void add(Program& program, const Instruction& instruction) {
    const Layer layer = layer_of(instruction);
    const QuantisedKernels& kernels = program.kernels().quantised;
    const auto own = constants_of(layer, program.kernels());
    const QuantisedMap map = map_of(layer, *own);
    const QuantisedConv conv = conv_of(layer, map, *own, 4 / kernels.level_bytes);
    const size_t bytes = map.levels() * kernels.level_bytes + 4;  // a run's last word may reach further
    const size_t reserved = layer.apart ? program.reserve(bytes) : 0;
    if (!layer.apart) program.need_scratch(bytes);
    const Place place = [&program, apart = layer.apart, reserved] {
        return apart ? reserved : program.scratch();
    };
    program.add_parts("quantise", map.lines, layout_work(map.levels()),
                      [&program, own, map, place, source = layer.source](Workspace& w, int first, int count) {
                          program.kernels().quantised.quantise(map, at<float>(w.arena, source), first, count,
                                                               at<char>(w.arena, place()));
                          return w.rows.data();
                      });
    const double operands = conv.runs * conv.run_words;
    if (pixels_of(layer.window) == 1 && layer.groups == 1)
        return add_row(program, conv, own, place, operands);
    program.add_step("quantised_conv", pixels_of(layer.window), layer.outputs(), 0, operands,
                     [&program, own, conv, place](Workspace& w, int first, int count) {
                         program.kernels().quantised.conv(conv, at<char>(w.arena, place()), first, count,
                                                          w.rows.data());
                         return w.rows.data();
                     });
}

const Kind kind("quantised_conv", add);

}  // namespace
}  // namespace bitfactor
