// Convolutions of real numbers: by fused multiply-adds, by tiles of bfloat16, or by dot products of two.

#include <algorithm>
#include <utility>

#include "run_map.h"
#include "steps/quantised_conv.h"

namespace bitfactor {
namespace {

// With fewer pixels tiles of 16 are too empty for numbers of two parts. Those of one have half the weights to
// read, which is what so few pixels wait for.
constexpr int least_pixels = 9;

// Weights are (groups * out_channels, kh, kw, in_channels), biases (groups * out_channels).
struct Given {
    size_t source;
    Window window;
    int groups, in_channels, out_channels;
    const float *weight, *bias;
    bool apart;  // what is laid out is still there when the next layer runs
};

Given given(const Instruction& i) {
    const int groups = i.number("groups");
    return {i.source(),
            i.window(),
            groups,
            i.length("weight", 3),
            i.length("weight", 0) / groups,
            i.array<float>("weight"),
            i.array<float>("bias"),
            i.flag("apart")};
}

void add_by_tiles(Program& program, const Given& conv) {
    const size_t source = conv.source;
    const Window& window = conv.window;
    const int in_channels = conv.in_channels, out_channels = conv.out_channels;
    struct Constants {
        RunMap map;
        AlignedVector<uint16_t> weight;
        AlignedVector<float> bias;
    };
    auto own = std::make_shared<Constants>(
        Constants{RunMap(window, in_channels, program.bfloat16_parts()),
                  pack_runs(conv.weight, out_channels, window.kernel_h, window.kernel_w * in_channels,
                            program.bfloat16_parts()),
                  pack_lanes(conv.bias, 1, out_channels, 1, program.kernels().lanes)});
    const RunMap& map = own->map;
    const RunConv layer{static_cast<int>(map.steps.size()),
                        (out_channels + 15) / 16,
                        map.parts,
                        map.position_numbers,
                        static_cast<ptrdiff_t>(map.part_numbers),
                        map.steps.data(),
                        own->weight.data(),
                        own->bias.data()};
    const bool apart = conv.apart;
    const size_t own_place = apart ? program.reserve(map.bytes()) : 0;
    const auto place = [&program, apart, own_place] { return apart ? own_place : program.scratch(); };
    if (!apart) program.need_scratch(map.bytes());
    program.add_parts("split", map.lines + 1, layout_work(map.parts * map.part_numbers),
                      [&program, own, source, place](Program::Workspace& w, int first, int count) {
                          program.kernels().tiles->split(own->map, at<float>(w.arena, source), first, count,
                                                         at<uint16_t>(w.arena, place()));
                          return w.rows.data();
                      });
    if (pixels_of(window) == 1) {
        const int strip = program.kernels().tiles->strip;
        const ptrdiff_t vector_numbers = static_cast<ptrdiff_t>(layer.steps) * map.parts * 512;
        program.need_rows(static_cast<size_t>(layer.vectors) * strip * 16);
        return program.add_row("conv by tiles", out_channels, 16, taps_of(window) * in_channels,
                               [&program, own, layer, place, vector_numbers, strip](
                                   Program::Workspace& w, int first, int count, float* row) {
                                   RunConv part = layer;
                                   part.vectors = count;
                                   part.weight += first * vector_numbers;
                                   part.bias += static_cast<ptrdiff_t>(first) * 16;
                                   program.kernels().tiles->run_conv(part, at<uint16_t>(w.arena, place()), 0,
                                                                     1, w.rows.data());
                                   for (int v = 0; v < count; ++v)
                                       std::copy_n(w.rows.data() + v * strip * 16, 16, row + 16 * v);
                               });
    }
    program.add_step("conv by tiles", map.out_positions, out_channels, 0, taps_of(window) * in_channels,
                     [&program, own, layer, place](Program::Workspace& w, int first, int count) {
                         program.kernels().tiles->run_conv(layer, at<uint16_t>(w.arena, place()), first,
                                                           count, w.rows.data());
                         return w.rows.data();
                     });
    program.by_tiles(window.out_w, map.pitch, false);
}

void add_by_dots(Program& program, const Given& conv) {
    const size_t depth = static_cast<size_t>(taps_of(conv.window)) * conv.in_channels;
    const int outputs = conv.groups * conv.out_channels;
    std::vector<int32_t> weight;
    for (size_t i = 0; i < outputs * depth; ++i) weight.push_back(bfloat16_of(conv.weight[i]));
    add_quantised(program, "conv by dots",
                  {program.kernels().bfloat16(),
                   conv.source,
                   conv.window,
                   conv.groups,
                   conv.in_channels,
                   conv.out_channels,
                   std::move(weight),
                   std::vector<float>(outputs, 1.0f),
                   {conv.bias, conv.bias + outputs},
                   {0.0f},
                   {1.0f},
                   conv.apart});
}

// Where groups are single channels, half of each word would be empty.
bool dots_are_faster(const Program& program, const Given& conv) {
    const bool fill = conv.groups == 1 || conv.in_channels > 1;
    return program.bfloat16_parts() == 1 && program.kernels().bfloat16() && fill;
}

void add(Program& program, const Instruction& instruction) {
    const Given conv = given(instruction);
    const size_t source = conv.source;
    const Window& window = conv.window;
    const int groups = conv.groups, in_channels = conv.in_channels, out_channels = conv.out_channels;
    if (program.bfloat16_parts() && program.kernels().tiles && groups == 1 && RunMap::fits(window) &&
        (pixels_of(window) >= least_pixels || program.bfloat16_parts() == 1)) {
        return add_by_tiles(program, conv);
    }
    if (dots_are_faster(program, conv)) return add_by_dots(program, conv);
    struct Constants {
        AlignedVector<float> weight, bias, padding;
    };
    const size_t depth = static_cast<size_t>(taps_of(window)) * in_channels;
    auto own = std::make_shared<Constants>(
        Constants{pack_lanes(conv.weight, groups, out_channels, depth, program.kernels().lanes),
                  pack_lanes(conv.bias, groups, out_channels, 1, program.kernels().lanes),
                  AlignedVector<float>(in_channels, 0.0f)});
    const Conv layer{
        window, groups, in_channels, out_channels, own->weight.data(), own->bias.data(), own->padding.data()};
    if (pixels_of(window) == 1 && groups == 1) {
        const int lanes = program.kernels().lanes;
        program.need_pointers(static_cast<size_t>(program.kernels().tile * taps_of(window)));
        return program.add_row("conv", out_channels, lanes, depth,
                               [&program, own, layer, source, depth, lanes, out_channels](
                                   Program::Workspace& w, int first, int count, float* row) {
                                   Conv part = layer;
                                   part.weight += first * depth * lanes;
                                   part.bias += static_cast<ptrdiff_t>(first) * lanes;
                                   part.out_channels = std::min(count * lanes, out_channels - first * lanes);
                                   program.kernels().conv(part, at<float>(w.arena, source), 0, 1,
                                                          w.pointers.data(), row);
                               });
    }
    program.add_step("conv", pixels_of(window), groups * out_channels, taps_of(window), depth,
                     [&program, own, layer, source](Program::Workspace& w, int first, int count) {
                         program.kernels().conv(layer, at<float>(w.arena, source), first, count,
                                                w.pointers.data(), w.rows.data());
                         return w.rows.data();
                     });
}

const Kind kind("conv", add);

}  // namespace
}  // namespace bitfactor
