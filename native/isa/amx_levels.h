// Convolutions of levels of 8 bits: tdpbusd multiplies them where they lie in the map of quantised_conv.h.

#pragma once

#include <initializer_list>

#include "isa/amx.h"

namespace bitfactor {
namespace {

// Sums and levels of so many pixels in tiles 0 to 4; 6 and 7 are of a run's last words.
Configuration configuration_of_levels(int pixels, int last_words) {
    Configuration c;
    for (const int tile : {0, 1, 2, 3, 4, 6}) c.rows[tile] = static_cast<uint8_t>(pixels);
    if (last_words) {
        c.row_bytes[6] = static_cast<uint16_t>(4 * last_words);
        c.rows[7] = static_cast<uint8_t>(last_words);
    }
    return c;
}

#define ADD_LEVELS(vector, x, by)                          \
    _tile_loadd(by, weight + vector * vector_numbers, 64); \
    _tile_dpbusd(vector, x, by)
#define ADD_VECTORS(x, by)    \
    ADD_LEVELS(0, x, by);     \
    if constexpr (V > 1) {    \
        ADD_LEVELS(1, x, by); \
    }                         \
    if constexpr (V > 2) {    \
        ADD_LEVELS(2, x, by); \
    }                         \
    if constexpr (V > 3) {    \
        ADD_LEVELS(3, x, by); \
    }

// Sums (V, pixels, 16) of successive pixels of a row.
template <int V>
void level_tile(const QuantisedConv& conv, const uint8_t* corner, const uint32_t* weight, int32_t* sums) {
    const ptrdiff_t stride = static_cast<ptrdiff_t>(conv.map.window.stride_w) * conv.map.channels;
    const ptrdiff_t vector_numbers = static_cast<ptrdiff_t>(conv.runs) * conv.run_words * 16;
    const int last_words = conv.run_words % 16;
    int steps = 0;
    _tile_zero(0);
    if constexpr (V > 1) _tile_zero(1);
    if constexpr (V > 2) _tile_zero(2);
    if constexpr (V > 3) _tile_zero(3);
    for (int run = 0; run < conv.runs; ++run) {
        const uint8_t* x = corner + conv.offsets[run];
        for (int word = 0; word < conv.run_words - last_words; word += 16, x += 64, weight += 256) {
            _tile_loadd(4, x, stride);
            ADD_VECTORS(4, 5)
            if (++steps % 16 == 0) stay_awake();
        }
        if (!last_words) continue;
        _tile_loadd(6, x, stride);
        ADD_VECTORS(6, 7)
        weight += 16 * last_words;
    }
    store_tiles<V>(reinterpret_cast<char*>(sums), tile_bytes);
}

// Tiles of so few pixels are too empty.
constexpr int least_level_pixels = 4;

void level_conv(const QuantisedConv& conv, const void* map, int first, int count, float* rows) {
    const Window& w = conv.map.window;
    const int pixels = at_most(w.out_w, 16), vectors = (conv.out_channels + 15) / 16;
    if (pixels < least_level_pixels || conv.groups > 1)
        return avx512_bytes.conv(conv, map, first, count, rows);
    const Tiles tiles(configuration_of_levels(pixels, conv.run_words % 16));
    alignas(64) int32_t sums[panel_vectors][16][16];
    for (const int last = first + count; first < last;) {
        const int y = first / w.out_w, x = first % w.out_w;
        const int begin = at_most(x, w.out_w - pixels);  // so that no tile reaches beyond its row
        const int valid = at_most(begin + pixels - x, last - first);
        const ptrdiff_t position =
            static_cast<ptrdiff_t>(y) * w.stride_h * conv.map.pitch + begin * w.stride_w;
        const uint8_t* corner = static_cast<const uint8_t*>(map) + position * conv.map.channels;
        for (int vector = 0; vector < vectors; vector += panel_vectors) {
            const int left = at_most(vectors - vector, panel_vectors);
            const auto run = left > 3    ? level_tile<4>
                             : left == 3 ? level_tile<3>
                             : left == 2 ? level_tile<2>
                                         : level_tile<1>;
            run(conv, corner, conv.weight + static_cast<ptrdiff_t>(vector) * conv.runs * conv.run_words * 16,
                &sums[0][0][0]);
            for (int v = 0, c = 16 * vector; v < left; ++v, c += 16) {
                const __m512 scale = _mm512_load_ps(conv.scale + c), bias = _mm512_load_ps(conv.bias + c);
                for (int i = 0; i < valid; ++i) {
                    const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums[v][x - begin + i]));
                    Simd::store_first(rows + static_cast<ptrdiff_t>(i) * conv.out_channels + c,
                                      _mm512_fmadd_ps(sum, scale, bias), conv.out_channels - c);
                }
            }
        }
        first += valid;
        rows += static_cast<ptrdiff_t>(valid) * conv.out_channels;
    }
}

void quantise_levels(const QuantisedMap& map, const float* from, int first, int count, void* levels) {
    avx512_bytes.quantise(map, from, first, count, levels);
}

constexpr QuantisedKernels level_kernels = {1, 0, 16, quantise_levels, level_conv};

}  // namespace
}  // namespace bitfactor
