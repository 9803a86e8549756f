// Convolutions of signs, as bytes.
//
// tdpbssd multiplies 16 positions by 64 channels with 64 channels by 16 outputs in 16 cycles, 1024 products a
// cycle. The signs of the map are bytes (byte_map.h); those of the weights stay bits, 8 times fewer, for all
// of a network's would not fit the L2 cache as bytes: a tile of them is expanded into a ring in the L1 cache,
// 4 tiles ahead, since a tile load waits for stores that are still under way. Each serves 4 tiles of 16
// positions, which take 64 cycles, and expanding one takes 16 loads, blends and stores.

#pragma once

#include "isa/amx.h"

namespace bitfactor {
namespace {

// Zero in channels that do not exist.
__m512i bytes_of(uint64_t signs, uint64_t exist) {
    return _mm512_mask_blend_epi8(signs, _mm512_maskz_set1_epi8(exist, -1), _mm512_set1_epi8(1));
}

uint64_t first_bits(int count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }

void fill(const ByteMap& map, int count, int8_t* bytes) {
    const __m512i padding = _mm512_set1_epi8(static_cast<char>(map.pad_value));
    for (int i = 0; i < count; ++i) {
        for (int c = 0; c < map.pixel_bytes; c += 64, bytes += 64) {
            _mm512_store_si512(bytes, _mm512_maskz_mov_epi8(first_bits(map.channels - c), padding));
        }
    }
}

void expand_pixels(const ByteMap& map, const uint64_t* signs, int stride, int count, int8_t* bytes) {
    const int words = map.pixel_bytes / 64;
    for (int i = 0; i < count; ++i, signs += stride * words) {
        for (int word = 0; word < words; ++word, bytes += 64) {
            _mm512_store_si512(bytes, bytes_of(signs[word], first_bits(map.channels - 64 * word)));
        }
    }
}

// Columns first ... first + count of one row of a phase.
void expand_row(const ByteMap& map, const uint64_t* signs, int phase, int row, int first, int count,
                int8_t* bytes) {
    const int phases = static_cast<int>(map.columns.remainders.size()), stride = map.columns.stride;
    const int y = (row + map.rows.first) * map.rows.stride + map.rows.remainders[phase / phases];
    if (row >= map.rows.length || !inside(y, map.rows.in)) return fill(map, count, bytes);
    const int remainder = map.columns.remainders[phase % phases], last = first + count;
    const int begin = at_most(at_least_0(-map.columns.first - first) + first, last);
    const int stop = at_most((map.columns.in - remainder + stride - 1) / stride - map.columns.first, last);
    const int end = stop > begin ? stop : begin;
    const ptrdiff_t x = static_cast<ptrdiff_t>(begin + map.columns.first) * stride + remainder;
    fill(map, begin - first, bytes);
    expand_pixels(map, signs + (static_cast<ptrdiff_t>(y) * map.columns.in + x) * (map.pixel_bytes / 64),
                  stride, end - begin, bytes + static_cast<ptrdiff_t>(begin - first) * map.pixel_bytes);
    fill(map, last - end, bytes + static_cast<ptrdiff_t>(end - first) * map.pixel_bytes);
}

void expand(const ByteMap& map, const uint64_t* signs, int first, int count, int8_t* bytes) {
    for (const int last = first + count; first < last;) {
        const int phase = first / map.phase_positions, at = first % map.phase_positions;
        const int row = at / map.pitch, column = at % map.pitch;
        const int row_end = at_most(map.phase_positions - row * map.pitch, map.pitch);
        const int run = at_most(row_end - column, last - first);
        expand_row(map, signs, phase, row, column, run,
                   bytes + static_cast<ptrdiff_t>(first) * map.pixel_bytes);
        first += run;
    }
}

// Its code stands in the library once.
[[gnu::noinline]] void expand_weights(const uint64_t* bits, int8_t* tile) {
    const __m512i minus = _mm512_set1_epi8(-1), plus = _mm512_set1_epi8(1);
    UNROLL for (int r = 0; r < tile_rows; ++r) {
        _mm512_store_si512(tile + 64 * r, _mm512_mask_blend_epi8(bits[r], minus, plus));
    }
    asm volatile("" ::: "memory");  // GCC does not know that the load of a tile reads memory
}

// The first T tiles of 16 positions.
template <int T>
void conv_strip(const TileConv& conv, const int8_t* map, int position, int count, Panel& panel) {
    constexpr int ring_tiles = 2 * tiles_ahead;
    alignas(64) int8_t ring[ring_tiles][tile_bytes];
    const ptrdiff_t stride = conv.pixel_bytes, tile = 16 * stride;
    map += position * stride;
    const uint64_t* weight = conv.weight;
    unsigned at = 0;
    for (; at < tiles_ahead; ++at, weight += tile_rows) expand_weights(weight, ring[at]);
    for (int vector = 0; vector < conv.vectors; ++vector) {
        _tile_zero(0);
        if constexpr (T > 1) _tile_zero(1);
        if constexpr (T > 2) _tile_zero(2);
        if constexpr (T > 3) _tile_zero(3);
        for (int step = 0; step < conv.steps; ++step, ++at, weight += tile_rows) {
            const int8_t* x = map + conv.offsets[step];
            expand_weights(weight, ring[at % ring_tiles]);
            _tile_loadd(4, ring[(at - tiles_ahead) % ring_tiles], 64);
            _tile_loadd(5, x, stride);
            _tile_dpbssd(0, 5, 4);
            if constexpr (T > 1) {
                _tile_loadd(6, x + tile, stride);
                _tile_dpbssd(1, 6, 4);
            }
            if constexpr (T > 2) {
                _tile_loadd(5, x + 2 * tile, stride);
                _tile_dpbssd(2, 5, 4);
            }
            if constexpr (T > 3) {
                _tile_loadd(6, x + 3 * tile, stride);
                _tile_dpbssd(3, 6, 4);
            }
            if (step % 16 == 15) stay_awake();
        }
        store_tiles<T>(panel.sums(vector), tile_bytes);
        if (ends_panel(vector, conv.vectors)) panel.take(position, count, vector);
    }
}

void tile_conv(const TileConv& conv, const int8_t* map, int first, int count, const TileStages& stages) {
    const Tiles tiles(whole_tiles);
    Panel panel(stages, true);
    for (const int last = first + count; first < last; first += strip) {
        const int left = at_most(last - first, strip);
        const auto run = left > 48   ? conv_strip<4>
                         : left > 32 ? conv_strip<3>
                         : left > 16 ? conv_strip<2>
                                     : conv_strip<1>;
        run(conv, map, first, left, panel);
    }
}

}  // namespace
}  // namespace bitfactor
