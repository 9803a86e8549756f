// Convolution of signs by signs where there is no population count: a table of the counts.
//
// Four signs of a pixel choose one of 16 rows, how many of them differ from each of the 16 values that four
// signs of a weight may have. The row is a table for a shuffle whose indices are the weights of as many
// output channels as a register has bytes: one shuffle and one addition for four products of each. The counts
// stay bytes for `steps` steps (63 * 4 = 252), and are widened then to 16 bits.
//
// The vocabulary of `Lookup`:
//   lanes, vectors   bytes of a register; registers of output channels of a tile
//   Bytes            zero, load, add, choose(row, indices), with the row that table_row(address) repeats
//   Sums             sums of 16 bits: no_sums, widen(sums, bytes), part(sums, k), the k-th Simd::lanes of
//   them
//                    as Simd::Int

#pragma once

#include "tiles.h"

namespace bitfactor {
namespace {

constexpr int lookup_steps = 60;

struct CountTable {
    alignas(64) uint8_t counts[256];

    constexpr CountTable() : counts() {
        for (int i = 0; i < 256; ++i) {
            const int differing = (i >> 4) ^ (i & 15);
            counts[i] = static_cast<uint8_t>((differing & 1) + (differing >> 1 & 1) + (differing >> 2 & 1) +
                                             (differing >> 3));
        }
    }
};

constexpr CountTable count_table;

template <int P, int V>
void look_up_tile(const uint8_t* const* rows, Runs runs, const uint8_t* weight, ptrdiff_t vector_stride,
                  Lookup::Sums (&sums)[P][V]) {
    Lookup::Bytes count[P][V];
    UNROLL for (int p = 0; p < P; ++p) {
        UNROLL for (int v = 0; v < V; ++v) {
            count[p][v] = Lookup::zero();
            sums[p][v] = Lookup::no_sums();
        }
    }
    const auto widen = [&] {
        UNROLL for (int p = 0; p < P; ++p) {
            UNROLL for (int v = 0; v < V; ++v) {
                Lookup::widen(sums[p][v], count[p][v]);
                count[p][v] = Lookup::zero();
            }
        }
    };
    const uint8_t* at[P];
    const auto look_up = [&](int i) {
        Lookup::Bytes w[V];
        UNROLL for (int v = 0; v < V; ++v) w[v] = Lookup::load(weight + v * vector_stride);
        weight += Lookup::lanes;
        UNROLL for (int p = 0; p < P; ++p) {
            const Lookup::Bytes row = Lookup::table_row(count_table.counts + at[p][i]);
            UNROLL for (int v = 0; v < V; ++v) {
                count[p][v] = Lookup::add(count[p][v], Lookup::choose(row, w[v]));
            }
        }
    };
    int room = lookup_steps;
    for (int run = 0; run < runs.count; ++run, rows += P) {
        UNROLL for (int p = 0; p < P; ++p) at[p] = rows[p];
        for (int i = 0; i < runs.numbers;) {
            const int end = runs.numbers - i < room ? runs.numbers : i + room;
            room -= end - i;
            for (; i + 4 <= end; i += 4) {
                UNROLL for (int k = 0; k < 4; ++k) look_up(i + k);
            }
            for (; i < end; ++i) look_up(i);
            if (room == 0) {
                widen();
                room = lookup_steps;
            }
        }
    }
    widen();
}

struct LookupBlock {
    static constexpr int parts = Lookup::lanes / Simd::lanes;

    template <int P, int V>
    static void run(const LookupConv& conv, Runs runs, const uint8_t* const* rows, Pixel pixel, int group,
                    int first_vector, int count, float* out) {
        const ptrdiff_t vector_stride = static_cast<ptrdiff_t>(runs.count) * runs.numbers * Lookup::lanes;
        const ptrdiff_t vector =
            static_cast<ptrdiff_t>(group) * vectors_for(conv.out_channels, Lookup::lanes) + first_vector;
        Lookup::Sums sums[P][V];
        look_up_tile<P, V>(rows, runs, conv.weight + vector * vector_stride, vector_stride, sums);
        const int channels = conv.out_channels - first_vector * Lookup::lanes;
        const ptrdiff_t stride = static_cast<ptrdiff_t>(conv.groups) * conv.out_channels;
        out += group * conv.out_channels + first_vector * Lookup::lanes;
        for (int p = 0; p < P && p < count; ++p, out += stride) {
            const int32_t* base = base_of<Lookup::lanes>(conv, pixel) + vector * Lookup::lanes;
            UNROLL for (int i = 0; i < V * parts; ++i) {
                const int c = i * Simd::lanes;
                const Simd::Float sum =
                    Simd::minus_twice(base + c, Lookup::part(sums[p][i / parts], i % parts));
                if (channels >= V * Lookup::lanes) {
                    Simd::store(out + c, sum);
                } else {
                    Simd::store_first(out + c, sum, channels - c);
                }
            }
            if (p + 1 < count) pixel = next(conv.window, pixel);
        }
    }
};

void lookup_conv(const LookupConv& conv, const uint8_t* map, int first, int count, const void** pointers,
                 float* rows) {
    const Reading reading(conv.window, conv.pixel_stride, conv.words);
    for (int group = 0; group < conv.groups; ++group) {
        sweep<LookupBlock, Lookup::vectors, Lookup::lanes>(
            conv, reading, map + static_cast<ptrdiff_t>(group) * conv.group_stride, group, first, count,
            reinterpret_cast<const uint8_t**>(pointers), rows);
    }
}

void expand_nibbles(const uint32_t* signs, int words, int nibbles, int count, uint8_t* bytes) {
    for (int pixel = 0; pixel < count; ++pixel, signs += words) {
        int n = 0;
        for (; n + 16 <= nibbles; n += 16, bytes += 16) Lookup::expand(signs + n / 8, bytes);
        if (n == nibbles) continue;
        uint8_t last[16];
        Lookup::expand(signs + n / 8, last);
        for (; n < nibbles; ++n) *bytes++ = last[n % 16];
    }
}

constexpr LookupKernels lookup_kernels = {Lookup::lanes, expand_nibbles, lookup_conv};

}  // namespace
}  // namespace bitfactor
