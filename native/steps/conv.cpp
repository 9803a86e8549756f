// Convolutions of real numbers: by fused multiply-adds, by tiles of bfloat16, or by dot products of two.

#include <algorithm>
#include <utility>

#include "kernels/run_map.h"
#include "program/choice.h"
#include "steps/quantised_conv.h"

namespace bitfactor {
namespace {

// Weights are (groups * out_channels, kh, kw, in_channels), biases (groups * out_channels).
struct Given {
    size_t source;
    Window window;
    int maps, groups, in_channels, out_channels;
    const float *weight, *bias;
    bool apart;  // what is laid out is still there when the next layer runs
};

Given given(const Instruction& i) {
    const int groups = i.number("groups");
    return {i.source(),
            i.window(),
            i.maps(),
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
        const ptrdiff_t vector_numbers = static_cast<ptrdiff_t>(layer.steps) * map.parts * 512;
        return program.add_row(
            "conv by tiles", out_channels, 16, taps_of(window) * in_channels,
            [&program, own, layer, place, vector_numbers](Workspace& w, int first, int count, float* row) {
                RunConv part = layer;
                part.vectors = count;
                part.weight += first * vector_numbers;
                part.bias += static_cast<ptrdiff_t>(first) * 16;
                const Stage store{Stage::store, nullptr, nullptr, 0, 0, 0, false};
                program.kernels().tiles->run_conv(
                    part, at<uint16_t>(w.arena, place()), 0, 1,
                    {&store, 1, 1, 1, 16 * count, reinterpret_cast<char*>(row)});
            });
    }
    program.add_step("conv by tiles", map.out_positions, out_channels, 0, taps_of(window) * in_channels,
                     nullptr);
    program.by_tiles(
        window.out_w, map.pitch,
        [&program, own, layer, place](Workspace& w, int first, int count, const TileStages& stages) {
            program.kernels().tiles->run_conv(layer, at<uint16_t>(w.arena, place()), first, count, stages);
        });
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

// `layer_of` gives the layer and the map of each of several.
template <class LayerOf>
void add_by_multiply_adds(Program& program, const Conv& layer, int maps, LayerOf layer_of) {
    const int pixels = pixels_of(layer.window), channels = layer.groups * layer.out_channels;
    const int taps = taps_of(layer.window);
    program.need_pointers(static_cast<size_t>(program.kernels().tile) * taps);
    program.add_step("conv", maps * pixels, channels, taps, taps * layer.in_channels,
                     [=, &program](Workspace& w, int first, int count) {
                         for_each_map(pixels, first, count, [&](int map, int from, int part, int done) {
                             const auto [of_map, numbers] = layer_of(w, map);
                             program.kernels().common->conv(
                                 of_map, numbers, from, part, w.pointers.data(),
                                 w.rows.data() + static_cast<ptrdiff_t>(done) * channels);
                         });
                         return w.rows.data();
                     });
}

void add_by_multiply_adds(Program& program, const Given& conv) {
    const size_t source = conv.source;
    const Window& window = conv.window;
    const int groups = conv.groups, in_channels = conv.in_channels, out_channels = conv.out_channels;
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
    if (conv.maps * pixels_of(window) == 1 && groups == 1) {
        const int lanes = program.kernels().lanes;
        program.need_pointers(static_cast<size_t>(program.kernels().tile * taps_of(window)));
        return program.add_row("conv", out_channels, lanes, depth,
                               [&program, own, layer, source, depth, lanes, out_channels](
                                   Program::Workspace& w, int first, int count, float* row) {
                                   Conv part = layer;
                                   part.weight += first * depth * lanes;
                                   part.bias += static_cast<ptrdiff_t>(first) * lanes;
                                   part.out_channels = std::min(count * lanes, out_channels - first * lanes);
                                   program.kernels().common->conv(part, at<float>(w.arena, source), 0, 1,
                                                                  w.pointers.data(), row);
                               });
    }
    add_by_multiply_adds(program, layer, conv.maps, [own, layer, source](Workspace& w, int map) {
        const ptrdiff_t size =
            static_cast<ptrdiff_t>(layer.window.in_h) * layer.window.in_w * layer.groups * layer.in_channels;
        return std::make_pair(layer, at<float>(w.arena, source) + map * size);
    });
}

// Each channel by itself: the weights become (taps, channels).
void add_depthwise(Program& program, const Given& conv) {
    const int channels = conv.groups, taps = taps_of(conv.window), pixels = pixels_of(conv.window);
    struct Constants {
        AlignedVector<float> weight, bias;
    };
    auto own =
        std::make_shared<Constants>(Constants{AlignedVector<float>(static_cast<size_t>(taps) * channels),
                                              AlignedVector<float>(conv.bias, conv.bias + channels)});
    for (int c = 0; c < channels; ++c) {
        for (int tap = 0; tap < taps; ++tap) own->weight[tap * channels + c] = conv.weight[c * taps + tap];
    }
    const Conv layer{conv.window, channels, 1, 1, own->weight.data(), own->bias.data(), nullptr};
    const size_t source = conv.source;
    const ptrdiff_t map_size = static_cast<ptrdiff_t>(conv.window.in_h) * conv.window.in_w * channels;
    program.add_step("depthwise", conv.maps * pixels, channels, 0, taps,
                     [=, own = own, &program](Workspace& w, int first, int count) {
                         for_each_map(pixels, first, count, [&](int map, int from, int part, int done) {
                             program.kernels().common->depthwise(
                                 layer, at<float>(w.arena, source) + map * map_size, from, part,
                                 w.rows.data() + static_cast<ptrdiff_t>(done) * channels);
                         });
                         return w.rows.data();
                     });
}

void add(Program& program, const Instruction& instruction) {
    const Given conv = given(instruction);
    if (conv.groups > 1 && conv.in_channels == 1 && conv.out_channels == 1)
        return add_depthwise(program, conv);
    const Choice choice = choice_of_numbers(
        program.kernels(), {conv.window, conv.maps, conv.groups, conv.in_channels, conv.out_channels},
        program.bfloat16_parts());
    if (choice.kernel == Kernel::tiles) {
        add_by_tiles(program, conv);
    } else if (choice.kernel == Kernel::dots) {
        add_by_dots(program, conv);
    } else {
        add_by_multiply_adds(program, conv);
    }
    program.last().reason = choice.reason;
}

// The columns of each group, as the weights of a convolution, in the memory that all layers use in turn.
void add_columns(Program& program, const Instruction& i, const Conv& layer, int maps) {
    const size_t other = static_cast<size_t>(i.integer("other"));
    const bool transposed = i.flag("transposed");
    const int lanes = program.kernels().lanes, depth = layer.in_channels, columns = layer.out_channels;
    const int groups = layer.groups, vectors = (columns + lanes - 1) / lanes;
    const ptrdiff_t panel = static_cast<ptrdiff_t>(depth) * lanes;
    const ptrdiff_t map_size = static_cast<ptrdiff_t>(groups) * depth * columns;
    // From column to column, and from summed number to number.
    const ptrdiff_t along = transposed ? groups * depth : 1, down = transposed ? 1 : groups * columns;
    const ptrdiff_t group_step = transposed ? depth : columns;
    program.need_scratch(static_cast<uint64_t>(maps) * groups * vectors * panel * sizeof(float));
    program.add_parts("columns", maps * groups * vectors, layout_work(static_cast<size_t>(maps * map_size)),
                      [=, &program](Workspace& w, int first, int count) {
                          for (int part = first; part < first + count; ++part) {
                              const int vector = part % vectors * lanes, group = part / vectors % groups;
                              const float* from = at<float>(w.arena, other) +
                                                  part / vectors / groups * map_size + group * group_step +
                                                  vector * along;
                              float* to = at<float>(w.arena, program.scratch()) + part * panel;
                              const int full = std::min(lanes, columns - vector);
                              for (int k = 0; k < depth; ++k, to += lanes, from += down) {
                                  for (int n = 0; n < full; ++n) to[n] = from[n * along];
                                  std::fill(to + full, to + lanes, 0.0f);
                              }
                          }
                          return w.rows.data();
                      });
}

// A product of two computed values: a convolution over single pixels, whose weights are the second value.
void add_matmul(Program& program, const Instruction& i) {
    const size_t source = i.source();
    const int maps = i.maps(), rows = i.number("rows"), lanes = program.kernels().lanes;
    const int groups = i.number("groups"), depth = i.number("depth"), columns = i.number("columns");
    const Window line{1, rows, 1, rows, 1, 1, 1, 1, 0, 0, 1, 1};
    const int vectors = (columns + lanes - 1) / lanes;
    auto zeros = std::make_shared<const AlignedVector<float>>(
        static_cast<size_t>(std::max(groups * vectors * lanes, depth)), 0.0f);
    const Conv layer{line, groups, depth, columns, nullptr, zeros->data(), zeros->data()};
    add_columns(program, i, layer, maps);
    const ptrdiff_t map_size = static_cast<ptrdiff_t>(rows) * groups * depth;
    const ptrdiff_t map_weights = static_cast<ptrdiff_t>(groups) * vectors * depth * lanes;
    add_by_multiply_adds(program, layer, maps, [=, &program](Workspace& w, int map) {
        Conv of_map = layer;
        of_map.weight = at<float>(w.arena, program.scratch()) + map * map_weights;
        of_map.bias = zeros->data();
        return std::make_pair(of_map, at<float>(w.arena, source) + map * map_size);
    });
}

void check_conv(Verifier& v) {
    const int64_t outputs = v.length("weight", 0, 4), depth = v.length("weight", 3, 4);
    const int groups = v.number("groups", 1), maps = v.maps();
    v.expect(outputs >= 1 && outputs % groups == 0, "as many channels in each group");
    v.expect(depth >= 1 && depth <= Verifier::most_numbers / groups, "fewer channels");
    const int channels = static_cast<int>(groups * depth);
    const Window w = v.window(channels, maps);
    v.array<float>("weight", {outputs, w.kernel_h, w.kernel_w, depth});
    v.array<float>("bias", {outputs});
    const Buffer source = v.real_buffer("source");
    v.expect_map(source, maps * w.in_h * w.in_w, channels, false);
    v.begin(maps * pixels_of(w), outputs, {source});
    if (v.flag("apart")) v.stands_apart();
}

// Its values may be seen in other shapes than those in which they were made.
void check_matmul(Verifier& v) {
    const int64_t maps = v.maps(), rows = v.number("rows", 1), groups = v.number("groups", 1);
    const int64_t depth = v.number("depth", 1), columns = v.number("columns", 1);
    v.flag("transposed");
    v.expect_numbers(maps * rows, groups);
    v.expect_numbers(maps * rows * groups, depth);
    v.expect_numbers(maps * groups, depth);
    v.expect_numbers(maps * groups * depth, columns);
    v.expect_numbers(maps * rows, groups);
    const Buffer source = v.real_buffer("source"), other = v.real_buffer("other");
    v.expect(static_cast<int64_t>(source.size()) == maps * rows * groups * depth &&
                 static_cast<int64_t>(other.size()) == maps * groups * depth * columns,
             "values of the product's sizes");
    v.expect_numbers(maps * rows * groups, columns);
    v.begin(maps * rows, groups * columns, {source, other});
}

}  // namespace

Kinds conv_kinds() { return {{"conv", check_conv, add}, {"matmul", check_matmul, add_matmul}}; }

}  // namespace bitfactor
