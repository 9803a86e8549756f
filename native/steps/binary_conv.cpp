// Convolutions of signs: by popcounts, by lookups, or by tiles of bytes.

#include <algorithm>

#include "kernels/border.h"
#include "kernels/byte_map.h"
#include "program/choice.h"
#include "steps/step.h"

namespace bitfactor {
namespace {

constexpr int exact_sums = 1 << 24;  // beyond, a float does not hold every integer

// Copies `count` bits from bit `first` of `from` to the start of `to`, with zeros behind them.
void copy_bits(const uint64_t* from, size_t first, size_t count, uint64_t* to) {
    std::fill(to, to + (count + 63) / 64, 0);
    for (size_t i = 0; i < count; ++i) {
        const uint64_t bit = from[(first + i) / 64] >> ((first + i) % 64) & 1;
        to[i / 64] |= bit << (i % 64);
    }
}

// Copies the signs so that each group starts at a word of its own: (pixels, groups, words). Gives their
// offset.
size_t regroup(Program& program, size_t source, int pixels, int groups, int channels) {
    const size_t from_words = words_for(groups * channels), to_words = words_for(channels);
    const size_t offset =
        program.reserve(static_cast<uint64_t>(pixels) * groups * to_words * sizeof(uint64_t));
    program.add_step("regroup", 1, 0, 0, 0, [=](Program::Workspace& w, int, int) {
        const uint64_t* from = at<uint64_t>(w.arena, source);
        uint64_t* to = at<uint64_t>(w.arena, offset);
        for (int pixel = 0; pixel < pixels; ++pixel, from += from_words) {
            for (int group = 0; group < groups; ++group, to += to_words) {
                copy_bits(from, static_cast<size_t>(group) * channels, channels, to);
            }
        }
        return w.rows.data();
    });
    return offset;
}

// A layer as the file has it; `words` 32-bit words of weight hold the `in_channels` signs of a group.
struct Layer {
    Window window;
    int maps, groups, in_channels, out_channels, words, pad_value;
    const uint32_t* weight;

    Border border(int lanes) const {
        return border_of(window, groups, out_channels, words, in_channels, weight, pad_value, lanes);
    }
};

// The signs become bytes in a step of their own, in memory behind the arena that all layers use in turn.
void add_by_tiles(Program& program, const Layer& l, size_t source) {
    struct Constants {
        ByteMap map;
        AlignedVector<uint64_t> weight;
        std::vector<ptrdiff_t> offsets;
    };
    auto own = std::make_shared<Constants>(
        Constants{ByteMap(l.window, l.in_channels, l.pad_value),
                  pack_tiles(l.weight, l.out_channels, taps_of(l.window), l.words),
                  {}});
    for (const ptrdiff_t tap : own->map.taps) {
        for (int byte = 0; byte < own->map.pixel_bytes; byte += 64) own->offsets.push_back(tap + byte);
    }
    const TileConv layer{static_cast<int>(own->offsets.size()), (l.out_channels + 15) / 16,
                         own->map.pixel_bytes, own->offsets.data(), own->weight.data()};
    program.need_scratch(own->map.bytes());
    const size_t bytes = static_cast<size_t>(own->map.positions) * own->map.pixel_bytes;
    program.add_parts("expand", own->map.positions, layout_work(bytes),
                      [&program, own, source](Program::Workspace& w, int first, int count) {
                          program.kernels().tiles->expand(own->map, at<uint64_t>(w.arena, source), first,
                                                          count, at<int8_t>(w.arena, program.scratch()));
                          return w.rows.data();
                      });
    program.add_step("binary_conv by tiles", own->map.out_positions, l.out_channels, 0,
                     taps_of(l.window) * l.words, nullptr);
    program.by_tiles(l.window.out_w, own->map.pitch,
                     [&program, own, layer](Workspace& w, int first, int count, const TileStages& stages) {
                         program.kernels().tiles->conv(layer, at<int8_t>(w.arena, program.scratch()), first,
                                                       count, stages);
                     });
}

void add_by_popcounts(Program& program, const Layer& l, size_t source) {
    struct Constants {
        AlignedVector<uint32_t> weight, padding;
        Border border;
        std::vector<ptrdiff_t> offsets;
    };
    const int lanes = program.kernels().lanes, taps = taps_of(l.window), depth = taps * l.words;
    auto own =
        std::make_shared<Constants>(Constants{pack_lanes(l.weight, l.groups, l.out_channels, depth, lanes),
                                              AlignedVector<uint32_t>(l.words, 0u),
                                              l.border(lanes),
                                              {}});
    if (l.pad_value == 1) {
        for (int c = 0; c < l.in_channels; ++c) own->padding[c / 32] |= 1u << (c % 32);
    }
    const int group_words = static_cast<int>(2 * words_for(l.in_channels));
    const BinaryConv conv{l.window,
                          l.groups,
                          l.words,
                          l.out_channels,
                          group_words,
                          l.groups * group_words,
                          layout_of(l.window, l.groups, l.words, group_words, own->offsets),
                          own->weight.data(),
                          own->padding.data(),
                          own->border.base.data(),
                          own->border.row_class.data(),
                          own->border.column_class.data()};
    const int pixels = pixels_of(l.window), channels = l.groups * l.out_channels;
    const ptrdiff_t map_words = static_cast<ptrdiff_t>(l.window.in_h) * l.window.in_w * conv.pixel_stride;
    program.add_step("binary_conv", l.maps * pixels, channels, 0, depth,
                     [=, own = own, &program](Workspace& w, int first, int count) {
                         for_each_map(pixels, first, count, [&](int map, int from, int part, int done) {
                             program.kernels().binary->conv(
                                 conv, at<uint32_t>(w.arena, source) + map * map_words, from, part,
                                 w.signs.data(), w.rows.data() + static_cast<ptrdiff_t>(done) * channels);
                         });
                         return w.rows.data();
                     });
    program.need_signs(band_words(conv, program.last().strip));
}

// The signs become bytes in a step of their own, in the memory that all layers use in turn.
void add_by_lookups(Program& program, const Layer& l, size_t source) {
    struct Constants {
        AlignedVector<uint8_t> weight;
        Border border;
        std::vector<ptrdiff_t> offsets;
    };
    const LookupKernels& lookups = *program.kernels().binary->lookups;
    const Window& w = l.window;
    const int nibbles = (l.in_channels + 3) / 4, taps = taps_of(w);
    const auto span = [](int out, int stride, int kernel, int dilation) {
        return (out - 1) * stride + (kernel - 1) * dilation + 1;
    };
    const LookupMap map{w,
                        l.groups,
                        l.in_channels,
                        nibbles,
                        l.pad_value,
                        span(w.out_h, w.stride_h, w.kernel_h, w.dilation_h),
                        span(w.out_w, w.stride_w, w.kernel_w, w.dilation_w)};
    const size_t rows = static_cast<size_t>(l.groups) * l.out_channels * taps;
    auto own = std::make_shared<Constants>(
        Constants{pack_lanes(nibbles_of(l.weight, rows, l.words, nibbles).data(), l.groups, l.out_channels,
                             static_cast<size_t>(taps) * nibbles, lookups.lanes),
                  l.border(lookups.lanes),
                  {}});
    const bool by_rows = l.groups == 1 && w.dilation_w == 1;
    for (int kh = 0; kh < w.kernel_h; ++kh) {
        for (int kw = 0; kw < (by_rows ? 1 : w.kernel_w); ++kw) {
            const ptrdiff_t position = kh * w.dilation_h * map.pitch + kw * w.dilation_w;
            own->offsets.push_back(position * map.position_bytes());
        }
    }
    const LookupConv conv{map,
                          l.out_channels,
                          static_cast<int>(own->offsets.size()),
                          (by_rows ? w.kernel_w : 1) * nibbles,
                          own->offsets.data(),
                          own->weight.data(),
                          own->border.base.data(),
                          own->border.row_class.data(),
                          own->border.column_class.data()};
    const uint64_t bytes = static_cast<uint64_t>(map.lines) * map.pitch * map.position_bytes();
    program.need_scratch(bytes);
    program.add_parts("expand", map.lines, layout_work(bytes / 8),
                      [map, source, &program](Program::Workspace& w, int first, int count) {
                          program.kernels().binary->lookups->expand(map, at<uint32_t>(w.arena, source), first,
                                                                    count,
                                                                    at<uint8_t>(w.arena, program.scratch()));
                          return w.rows.data();
                      });
    program.add_step("binary_conv by lookups", pixels_of(w), l.groups * l.out_channels, 0, taps * l.words,
                     [conv, own, &program](Program::Workspace& w, int first, int count) {
                         program.kernels().binary->lookups->conv(
                             conv, at<uint8_t>(w.arena, program.scratch()), first, count, w.rows.data());
                         return w.rows.data();
                     });
}

void add(Program& program, const Instruction& i) {
    const int groups = i.number("groups");
    const Layer l{i.window(),
                  i.maps(),
                  groups,
                  i.number("in_channels"),
                  i.length("weight", 0) / groups,
                  i.length("weight", 3),
                  i.number("pad_value"),
                  i.array<uint32_t>("weight")};
    size_t source = i.source();
    if (groups > 1 && l.in_channels % 64)
        source = regroup(program, source, l.maps * l.window.in_h * l.window.in_w, groups, l.in_channels);
    const Choice choice = choice_of_signs(
        program.kernels(), {l.window, l.maps, groups, l.in_channels, l.out_channels}, l.pad_value);
    if (choice.kernel == Kernel::tiles) {
        add_by_tiles(program, l, source);
    } else if (choice.kernel == Kernel::lookups) {
        add_by_lookups(program, l, source);
    } else {
        add_by_popcounts(program, l, source);
    }
    program.last().reason = choice.reason;
}

// Unused bits of the last word are 0.
bool tails_are_empty(const uint32_t* weight, int64_t rows, int64_t words, int channels) {
    const uint32_t unused = channels % 32 ? ~0u << (channels % 32) : 0;
    for (int64_t row = 0; row < rows; ++row) {
        if (weight[(row + 1) * words - 1] & unused) return false;
    }
    return true;
}

void check(Verifier& v) {
    const int64_t outputs = v.length("weight", 0, 4);
    const int groups = v.number("groups", 1), depth = v.number("in_channels", 1);
    v.expect(outputs >= 1 && outputs % groups == 0, "as many channels in each group");
    v.expect(depth <= Verifier::most_numbers / groups / 64, "fewer channels");
    const int maps = v.maps();
    const Window w = v.window(groups * ((depth + 63) / 64 * 64), maps);
    const int64_t words = (depth + 31) / 32;
    const uint32_t* weight = v.array<uint32_t>("weight", {outputs, w.kernel_h, w.kernel_w, words});
    v.expect(tails_are_empty(weight, outputs * taps_of(w), words, depth), "unused bits of 0");
    v.expect(int64_t{taps_of(w)} * depth < exact_sums, "sums that a float holds");
    v.number("pad_value", -1, 1);
    const Buffer source = v.buffer("source");
    v.expect_map(source, maps * w.in_h * w.in_w, groups * depth, true);
    v.begin(maps * pixels_of(w), outputs, {source});
}

}  // namespace

Kinds binary_conv_kinds() { return {{"binary_conv", check, add}}; }

}  // namespace bitfactor
