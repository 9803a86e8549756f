// Convolutions of signs: by popcounts, or by tiles of bytes.

#include <algorithm>

#include "border.h"
#include "byte_map.h"
#include "steps/step.h"

namespace bitfactor {
namespace {

// Copies `count` bits from bit `first` of `from` to the start of `to`, with zeros behind them.
void copy_bits(const uint64_t* from, size_t first, size_t count, uint64_t* to) {
    std::fill(to, to + (count + 63) / 64, 0);
    for (size_t i = 0; i < count; ++i) {
        const uint64_t bit = from[(first + i) / 64] >> ((first + i) % 64) & 1;
        to[i / 64] |= bit << (i % 64);
    }
}

// By what was measured of each, for a whole map: tiles compute 16 positions, 64 channels and 16 outputs at a
// time, missing ones too.
bool tiles_are_faster(const TileKernels& tiles, const ByteMap& map, const Window& w, int words, int outputs) {
    const double vectors = (outputs + 15) / 16 * taps_of(w);
    const double steps = map.pixel_bytes / 64 * ((map.out_positions + 15) / 16);
    return vectors * steps * tiles.cycles < vectors * words / 2 * pixels_of(w) / 16 * tiles.popcount_cycles;
}

// Copies the signs so that each group starts at a word of its own: (pixels, groups, words). Gives their
// offset.
size_t regroup(Program& program, size_t source, int pixels, int groups, int channels) {
    const size_t from_words = words_for(groups * channels), to_words = words_for(channels);
    const size_t offset = program.reserve(pixels * groups * to_words * sizeof(uint64_t));
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

// The signs become bytes in a step of their own, in memory behind the arena that all layers use in turn.
void add_by_tiles(Program& program, size_t source, const Window& window, const ByteMap& layout,
                  int out_channels, int words, const uint32_t* weight) {
    struct Constants {
        ByteMap map;
        AlignedVector<uint64_t> weight;
        std::vector<ptrdiff_t> offsets;
    };
    auto own = std::make_shared<Constants>(
        Constants{layout, pack_tiles(weight, out_channels, taps_of(window), words), {}});
    for (const ptrdiff_t tap : own->map.taps) {
        for (int byte = 0; byte < own->map.pixel_bytes; byte += 64) own->offsets.push_back(tap + byte);
    }
    const TileConv layer{static_cast<int>(own->offsets.size()), (out_channels + 15) / 16,
                         own->map.pixel_bytes, own->offsets.data(), own->weight.data()};
    program.need_scratch(own->map.bytes());
    const size_t bytes = static_cast<size_t>(own->map.positions) * own->map.pixel_bytes;
    program.add_parts("expand", own->map.positions, layout_work(bytes),
                      [&program, own, source](Program::Workspace& w, int first, int count) {
                          program.kernels().tiles->expand(own->map, at<uint64_t>(w.arena, source), first,
                                                          count, at<int8_t>(w.arena, program.scratch()));
                          return w.rows.data();
                      });
    program.add_step("binary_conv by tiles", own->map.out_positions, out_channels, 0, taps_of(window) * words,
                     [&program, own, layer](Program::Workspace& w, int first, int count) {
                         program.kernels().tiles->conv(layer, at<int8_t>(w.arena, program.scratch()), first,
                                                       count, reinterpret_cast<int32_t*>(w.rows.data()));
                         return w.rows.data();
                     });
    program.by_tiles(window.out_w, own->map.pitch, true);
}

// `words` 32-bit words of weight hold the `in_channels` signs of a group; unused bits are 0.
void add(Program& program, const Instruction& i) {
    const Window window = i.window();
    const int groups = i.number("groups"), in_channels = i.number("in_channels");
    const int out_channels = i.length("weight", 0) / groups, words = i.length("weight", 3);
    const int pad_value = i.number("pad_value");
    const uint32_t* weight = i.array<uint32_t>("weight");
    size_t source = i.source();
    if (groups == 1 && program.kernels().tiles) {
        const ByteMap map(window, in_channels, pad_value);
        if (tiles_are_faster(*program.kernels().tiles, map, window, words, out_channels)) {
            return add_by_tiles(program, source, window, map, out_channels, words, weight);
        }
    }
    struct Constants {
        AlignedVector<uint32_t> weight, padding;
        Border border;
    };
    const int lanes = program.kernels().lanes;
    const size_t depth = static_cast<size_t>(taps_of(window)) * words;
    auto own = std::make_shared<Constants>(
        Constants{pack_lanes(weight, groups, out_channels, depth, lanes), AlignedVector<uint32_t>(words, 0u),
                  border_of(window, groups, out_channels, words, in_channels, weight, pad_value, lanes)});
    if (pad_value == 1) {
        for (int c = 0; c < in_channels; ++c) own->padding[c / 32] |= 1u << (c % 32);
    }
    if (groups > 1 && in_channels % 64)
        source = regroup(program, source, window.in_h * window.in_w, groups, in_channels);
    const int group_words = static_cast<int>(2 * words_for(in_channels));
    const BinaryConv layer{window,
                           groups,
                           words,
                           out_channels,
                           group_words,
                           groups * group_words,
                           own->weight.data(),
                           own->padding.data(),
                           own->border.base.data(),
                           own->border.row_class.data(),
                           own->border.column_class.data()};
    program.add_step("binary_conv", pixels_of(window), groups * out_channels, taps_of(window), depth,
                     [&program, own, layer, source](Program::Workspace& w, int first, int count) {
                         program.kernels().binary_conv(layer, at<uint32_t>(w.arena, source), first, count,
                                                       w.pointers.data(), w.rows.data());
                         return w.rows.data();
                     });
}

const Kind kind("binary_conv", add);

}  // namespace
}  // namespace bitfactor
