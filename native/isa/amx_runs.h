// Convolutions of real numbers, as runs of one or two bfloat16 each, see run_map.h.
//
// tdpbf16ps does half as many products as tdpbssd in the same time; of numbers of two parts, three are needed
// for one.

#pragma once

#include <cstring>

#include "isa/amx.h"

namespace bitfactor {
namespace {

// Numbers of bfloat16, the nearest, ties to even.
inline __m256i rounded(__m512 x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }

inline __m512 widened(__m256i bfloat16) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bfloat16), 16));
}

void split_numbers(const float* from, ptrdiff_t count, uint16_t* high, uint16_t* low) {
    for (ptrdiff_t i = 0; i < count; i += Simd::lanes) {
        const __mmask16 exist = Simd::first(static_cast<int>(count - i));
        const __m512 x = _mm512_maskz_loadu_ps(exist, from + i);
        const __m256i part = rounded(x);
        _mm256_mask_storeu_epi16(high + i, exist, part);
        if (low) _mm256_mask_storeu_epi16(low + i, exist, rounded(_mm512_sub_ps(x, widened(part))));
    }
}

// Numbers first ... last of all parts = 0.
void clear(const RunMap& map, uint16_t* numbers, size_t first, size_t last) {
    for (int part = 0; part < map.parts; ++part, numbers += map.part_numbers) {
        std::memset(numbers + first, 0, (last - first) * sizeof *numbers);
    }
}

void split_line(const RunMap& map, const float* from, int line, uint16_t* numbers) {
    const int y = (line % map.rows.length + map.rows.first) * map.rows.stride +
                  map.rows.remainders[line / map.rows.length];
    const size_t begin = static_cast<size_t>(line) * map.line_numbers, end = begin + map.line_numbers;
    if (!inside(y, map.rows.in)) return clear(map, numbers, begin, end);
    const int left = at_most(map.pad_left * map.channels, map.line_numbers);
    const int count = at_most(map.in_w * map.channels, map.line_numbers - left);
    clear(map, numbers, begin, begin + left);
    uint16_t* high = numbers + begin + left;
    split_numbers(from + static_cast<ptrdiff_t>(y) * map.in_w * map.channels, count, high,
                  map.parts == 2 ? high + map.part_numbers : nullptr);
    clear(map, numbers, begin + left + count, end);
}

void split(const RunMap& map, const float* from, int first, int count, uint16_t* numbers) {
    const int phases = static_cast<int>(map.rows.remainders.size());
    for (int part = first; part < first + count; ++part) {
        if (part < map.lines) {
            split_line(map, from, part % phases * map.rows.length + part / phases, numbers);
        } else {
            clear(map, numbers, static_cast<size_t>(map.lines) * map.line_numbers, map.part_numbers);
        }
    }
}

// high * high + high * low + low * high of one tile of the map, in this order, whatever the threads make of
// strips; of two, in turn, as each product waits for the one before it in the same sum.
#define LOAD(to, part, tile) _tile_loadd(to, part + tile * 16 * conv.position_numbers, stride)
#define ADD_ONE(tile)           \
    LOAD(6, high, tile);        \
    LOAD(7, low, tile);         \
    _tile_dpbf16ps(tile, 6, 4); \
    _tile_dpbf16ps(tile, 6, 5); \
    _tile_dpbf16ps(tile, 7, 4)
#define ADD_TWO(first, second)    \
    LOAD(6, high, first);         \
    LOAD(7, high, second);        \
    _tile_dpbf16ps(first, 6, 4);  \
    _tile_dpbf16ps(second, 7, 4); \
    _tile_dpbf16ps(first, 6, 5);  \
    _tile_dpbf16ps(second, 7, 5); \
    LOAD(6, low, first);          \
    LOAD(7, low, second);         \
    _tile_dpbf16ps(first, 6, 4);  \
    _tile_dpbf16ps(second, 7, 4)
// high * high of one tile, by the register that its number leaves free.
#define ADD_HIGH(tile, by) \
    LOAD(by, high, tile);  \
    _tile_dpbf16ps(tile, by, 4)

template <int T, int parts>
void run_strip(const RunConv& conv, const uint16_t* map, int position, int count, Panel& panel) {
    const ptrdiff_t stride = 2 * conv.position_numbers;
    map += position * conv.position_numbers;
    const uint16_t* weight = conv.weight;
    for (int vector = 0; vector < conv.vectors; ++vector) {
        const float* bias = conv.bias + 16 * vector;  // every row of a tile
        _tile_loadd(0, bias, 0);
        if constexpr (T > 1) _tile_loadd(1, bias, 0);
        if constexpr (T > 2) _tile_loadd(2, bias, 0);
        if constexpr (T > 3) _tile_loadd(3, bias, 0);
        for (int step = 0; step < conv.steps; ++step, weight += parts * tile_numbers) {
            const uint16_t* high = map + conv.offsets[step];
            _tile_loadd(4, weight, 64);
            if constexpr (parts == 1) {
                ADD_HIGH(0, 6);
                if constexpr (T > 1) {
                    ADD_HIGH(1, 7);
                }
                if constexpr (T > 2) {
                    ADD_HIGH(2, 6);
                }
                if constexpr (T > 3) {
                    ADD_HIGH(3, 7);
                }
                if (step % 16 == 15) stay_awake();
                continue;
            }
            const uint16_t* low = high + conv.part_numbers;
            _tile_loadd(5, weight + tile_numbers, 64);
            if constexpr (T == 1) {
                ADD_ONE(0);
            }
            if constexpr (T > 1) {
                ADD_TWO(0, 1);
            }
            if constexpr (T == 3) {
                ADD_ONE(2);
            }
            if constexpr (T == 4) {
                ADD_TWO(2, 3);
            }
            if (step % 8 == 7) stay_awake();
        }
        store_tiles<T>(panel.sums(vector), tile_bytes);
        if (ends_panel(vector, conv.vectors)) panel.take(position, count, vector);
    }
}

template <int parts>
void run_strips(const RunConv& conv, const uint16_t* map, int first, int count, const TileStages& stages) {
    Panel panel(stages, false);
    for (const int last = first + count; first < last; first += strip) {
        const int left = at_most(last - first, strip);
        const auto run = left > 48   ? run_strip<4, parts>
                         : left > 32 ? run_strip<3, parts>
                         : left > 16 ? run_strip<2, parts>
                                     : run_strip<1, parts>;
        run(conv, map, first, left, panel);
    }
}

// Likewise of one vector of outputs, by the tile in 4 and, of two parts, 5.
#define ADD_VECTOR(vector, by)                                                \
    _tile_loadd(by, weight + vector * vector_numbers, 64);                    \
    _tile_dpbf16ps(vector, 4, by);                                            \
    if constexpr (parts == 2) {                                               \
        _tile_dpbf16ps(vector, 5, by);                                        \
        _tile_loadd(by, weight + vector * vector_numbers + tile_numbers, 64); \
        _tile_dpbf16ps(vector, 4, by);                                        \
    }

// One tile of positions by V vectors of outputs: a panel.
template <int V, int parts>
void run_tile(const RunConv& conv, const uint16_t* map, int position, int count, int vector, Panel& panel) {
    const ptrdiff_t stride = 2 * conv.position_numbers;
    const ptrdiff_t vector_numbers = static_cast<ptrdiff_t>(conv.steps) * parts * tile_numbers;
    const uint16_t* weight = conv.weight + vector * vector_numbers;
    const float* bias = conv.bias + 16 * vector;  // every row of a tile
    map += position * conv.position_numbers;
    _tile_loadd(0, bias, 0);
    if constexpr (V > 1) _tile_loadd(1, bias + 16, 0);
    if constexpr (V > 2) _tile_loadd(2, bias + 32, 0);
    if constexpr (V > 3) _tile_loadd(3, bias + 48, 0);
    for (int step = 0; step < conv.steps; ++step, weight += parts * tile_numbers) {
        const uint16_t* high = map + conv.offsets[step];
        _tile_loadd(4, high, stride);
        if constexpr (parts == 2) _tile_loadd(5, high + conv.part_numbers, stride);
        ADD_VECTOR(0, 6);
        if constexpr (V > 1) {
            ADD_VECTOR(1, 7);
        }
        if constexpr (V > 2) {
            ADD_VECTOR(2, 6);
        }
        if constexpr (V > 3) {
            ADD_VECTOR(3, 7);
        }
        if (step % 8 == 7) stay_awake();
    }
    store_tiles<V>(panel.sums(vector), vector_bytes);
    panel.take(position, count, vector);
}

// Rows of a tile that are not aligned, as the runs of an image's few channels, cross two cache lines, and
// make a tile load three times as long: each tile is loaded once for 4 vectors.
template <int parts>
void run_tiles(const RunConv& conv, const uint16_t* map, int first, int count, const TileStages& stages) {
    Panel panel(stages, false);
    for (const int last = first + count; first < last; first += 16) {
        for (int vector = 0; vector < conv.vectors; vector += panel_vectors) {
            const int left = conv.vectors - vector;
            const auto run = left > 3    ? run_tile<4, parts>
                             : left == 3 ? run_tile<3, parts>
                             : left == 2 ? run_tile<2, parts>
                                         : run_tile<1, parts>;
            run(conv, map, first, at_most(last - first, 16), vector, panel);
        }
    }
}

void run_conv(const RunConv& conv, const uint16_t* map, int first, int count, const TileStages& stages) {
    const Tiles tiles(whole_tiles);
    const bool aligned = conv.position_numbers % 32 == 0;
    const auto run = conv.parts == 1 ? aligned ? run_strips<1> : run_tiles<1>
                     : aligned       ? run_strips<2>
                                     : run_tiles<2>;
    run(conv, map, first, count, stages);
}

}  // namespace
}  // namespace bitfactor
