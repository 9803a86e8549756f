// Convolution of signs by signs where there is no quick population count: a table of the counts.
//
// A byte of the map holds four signs of a pixel and four of the next one, and chooses one of 256 rows: for
// each of the 16 values that four signs of a weight may have, how many differ, from the first pixel's in the
// lower and from the second's in the upper four bits. The row is the table of a shuffle whose indices are the
// weights of as many output channels as a register has bytes. Three such counts are added as they are (12 at
// most), then the pixels part into sums of bytes, and these, after 60 steps (240 at most), into sums of 16
// bits.
//
// The vocabulary of `Lookup`:
//   lanes, vectors   bytes of a register; registers of output channels of a tile
//   Bytes            zero, load, add, row (16 bytes, repeated), choose(row, indices), lower and upper (four
//                    bits of each)
//   Sums             sums of 16 bits: no_sums, widen(sums, bytes), part(sums, k): the k-th Simd::lanes of
//                    them, as Simd::Int
//   add_upper        bytes[i] |= next[i] << 4 for a register

#pragma once

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <algorithm>

#include "kernels/rows.h"

namespace bitfactor {
namespace {

constexpr int lookup_steps = 60, lookup_group = 3;

// Two sums for each pair of pixels.
template <int pairs, int V>
struct LookupTile {
    Lookup::Bytes counts[2 * pairs][V];
    Lookup::Sums sums[2 * pairs][V];
    const uint8_t* at[pairs];
    const uint8_t* weight;
    ptrdiff_t vector_stride;

    // `steps` of the map's bytes from i on.
    template <int steps>
    [[gnu::always_inline]] inline void look_up(int i) {
        Lookup::Bytes both[pairs][V];
        UNROLL for (int k = 0; k < steps; ++k, weight += Lookup::lanes) {
            UNROLL for (int p = 0; p < pairs; ++p) {
                const Lookup::Bytes row = Lookup::row(count_table.counts[at[p][i + k]]);
                UNROLL for (int v = 0; v < V; ++v) {
                    const Lookup::Bytes found = Lookup::choose(row, Lookup::load(weight + v * vector_stride));
                    both[p][v] = k ? Lookup::add(both[p][v], found) : found;
                }
            }
        }
        UNROLL for (int p = 0; p < pairs; ++p) {
            UNROLL for (int v = 0; v < V; ++v) {
                counts[2 * p][v] = Lookup::add(counts[2 * p][v], Lookup::lower(both[p][v]));
                counts[2 * p + 1][v] = Lookup::add(counts[2 * p + 1][v], Lookup::upper(both[p][v]));
            }
        }
    }

    void widen() {
        UNROLL for (int p = 0; p < 2 * pairs; ++p) {
            UNROLL for (int v = 0; v < V; ++v) {
                Lookup::widen(sums[p][v], counts[p][v]);
                counts[p][v] = Lookup::zero();
            }
        }
    }

    // Over the windows that start at `corner` and, for each further pair, `pair_bytes` further on.
    void run(const LookupConv& conv, const uint8_t* corner, ptrdiff_t pair_bytes) {
        UNROLL for (int p = 0; p < 2 * pairs; ++p) {
            UNROLL for (int v = 0; v < V; ++v) {
                counts[p][v] = Lookup::zero();
                sums[p][v] = Lookup::no_sums();
            }
        }
        int room = lookup_steps;
        for (int run = 0; run < conv.runs; ++run) {
            UNROLL for (int p = 0; p < pairs; ++p) at[p] = corner + conv.offsets[run] + p * pair_bytes;
            for (int i = 0; i < conv.run_nibbles;) {
                const int end = std::min(conv.run_nibbles, i + room);
                room -= end - i;
                for (; i + lookup_group <= end; i += lookup_group) look_up<lookup_group>(i);
                for (; i < end; ++i) look_up<1>(i);
                if (room == 0) {
                    widen();
                    room = lookup_steps;
                }
            }
        }
        widen();
    }
};

// The pixels from `pixel` on, 2 * pairs at most, of the output channels from `vector` on.
template <int pairs, int V>
void look_up_tile(const LookupConv& conv, const uint8_t* map, Pixel pixel, int group, int vector, int count,
                  float* out) {
    constexpr int parts = Lookup::lanes / Simd::lanes;
    const Window& w = conv.map.window;
    const int vectors = (conv.out_channels + Lookup::lanes - 1) / Lookup::lanes;
    const ptrdiff_t bytes = conv.map.position_bytes(), position = pixel.y * w.stride_h * conv.map.pitch;
    LookupTile<pairs, V> tile;
    tile.vector_stride = static_cast<ptrdiff_t>(conv.runs) * conv.run_nibbles * Lookup::lanes;
    tile.weight = conv.weight + (static_cast<ptrdiff_t>(group) * vectors + vector) * tile.vector_stride;
    tile.run(conv, map + (position + pixel.x * w.stride_w) * bytes + group * conv.map.nibbles,
             2 * w.stride_w * bytes);
    const int channels = conv.out_channels - vector * Lookup::lanes;
    const ptrdiff_t stride = static_cast<ptrdiff_t>(conv.map.groups) * conv.out_channels;
    const int32_t* bases = conv.base + (static_cast<ptrdiff_t>(group) * vectors + vector) * Lookup::lanes;
    out += group * conv.out_channels + vector * Lookup::lanes;
    for (int p = 0; p < count; ++p, out += stride) {
        const int32_t* base = bases + conv.row_class[pixel.y] + conv.column_class[pixel.x + p];
        UNROLL for (int i = 0; i < V * parts; ++i) {
            const int c = i * Simd::lanes;
            const Simd::Int differing = Lookup::part(tile.sums[p][i / parts], i % parts);
            const Simd::Float sum = Simd::minus_twice(base + c, differing);
            if (channels >= V * Lookup::lanes) {
                Simd::store(out + c, sum);
            } else {
                Simd::store_first(out + c, sum, channels - c);
            }
        }
    }
}

template <int V>
void sweep_lookups(const LookupConv& conv, const uint8_t* map, int first, int count, int group, int vector,
                   float* rows) {
    const ptrdiff_t stride = static_cast<ptrdiff_t>(conv.map.groups) * conv.out_channels;
    Pixel pixel = pixel_at(conv.map.window, first);
    for (int done = 0; done < count;) {
        const int left = std::min(conv.map.window.out_w - pixel.x, count - done), tile = std::min(left, 4);
        const auto look_up = tile > 2 ? look_up_tile<2, V> : look_up_tile<1, V>;
        look_up(conv, map, pixel, group, vector, tile, rows + done * stride);
        done += tile;
        pixel = left > tile ? Pixel{pixel.y, pixel.x + tile} : Pixel{pixel.y + 1, 0};
    }
}

void lookup_conv(const LookupConv& conv, const uint8_t* map, int first, int count, float* rows) {
    const int vectors = (conv.out_channels + Lookup::lanes - 1) / Lookup::lanes;
    for (int group = 0; group < conv.map.groups; ++group) {
        int vector = 0;
        for (; vector + Lookup::vectors <= vectors; vector += Lookup::vectors) {
            sweep_lookups<Lookup::vectors>(conv, map, first, count, group, vector, rows);
        }
        for (; vector < vectors; ++vector) sweep_lookups<1>(conv, map, first, count, group, vector, rows);
    }
}

// 64 signs -> 16 bytes.
inline void expand_word(const uint32_t* signs, uint8_t* bytes) {
#ifdef __SSE2__
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(signs));
    const __m128i low = _mm_and_si128(eight, _mm_set1_epi8(15));
    const __m128i high = _mm_and_si128(_mm_srli_epi16(eight, 4), _mm_set1_epi8(15));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm_unpacklo_epi8(low, high));
#else
    for (int i = 0; i < 16; ++i) bytes[i] = signs[i / 8] >> i % 8 * 4 & 15;
#endif
}

inline void expand_group(const uint32_t* signs, int nibbles, uint8_t* bytes) {
    int n = 0;
    for (; n + 16 <= nibbles; n += 16) expand_word(signs + n / 8, bytes + n);
    if (n == nibbles) return;
    uint8_t last[16];
    expand_word(signs + n / 8, last);
    std::copy_n(last, nibbles - n, bytes + n);
}

// Writes one position of padding.
inline void pad(const LookupMap& map, uint8_t* bytes) {
    for (int i = 0; i < map.groups * map.nibbles; ++i) {
        const int signs = std::min(4, map.channels - i % map.nibbles * 4);
        bytes[i] = map.pad_value == 1 ? (1 << signs) - 1 : 0;
    }
}

void expand_lookups(const LookupMap& map, const uint32_t* signs, int first, int count, uint8_t* bytes) {
    const Window& w = map.window;
    const int words = (map.channels + 63) / 64 * 2;
    const ptrdiff_t position = map.position_bytes();
    for (int line = first; line < first + count; ++line) {
        uint8_t* start = bytes + line * map.pitch * position;
        uint8_t* to = start;
        const int y = line - w.pad_top;
        for (int x = -w.pad_left; x < map.pitch - w.pad_left; ++x, to += position) {
            if (!inside(y, w.in_h) || !inside(x, w.in_w)) {
                pad(map, to);
                continue;
            }
            const uint32_t* from = signs + (static_cast<ptrdiff_t>(y) * w.in_w + x) * map.groups * words;
            for (int group = 0; group < map.groups; ++group) {
                expand_group(from + group * words, map.nibbles, to + group * map.nibbles);
            }
        }
        const ptrdiff_t next = w.stride_w * position, paired = map.pitch * position - next;
        ptrdiff_t i = 0;
        for (; i + Lookup::lanes <= paired; i += Lookup::lanes)
            Lookup::add_upper(start + i, start + i + next);
        for (; i < paired; ++i) start[i] |= start[i + next] << 4;
    }
}

constexpr LookupKernels lookup_kernels = {Lookup::lanes, expand_lookups, lookup_conv};

}  // namespace
}  // namespace bitfactor
