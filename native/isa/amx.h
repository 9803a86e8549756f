// Tiles of AMX, and how their sums leave them: what amx_signs.h, amx_runs.h and amx_levels.h share.
//
// Four tiles of 16 positions are a strip, 64 outputs a panel: its sums stay in the L1 cache until the stages
// take them.

#pragma once

#include "isa/avx512.h"
// What is built on these registers.
#include "kernels/byte_map.h"
#include "kernels/epilogue.h"
#include "kernels/pack.h"
#include "kernels/rows.h"
#include "kernels/run_map.h"
#if defined(TILE_STAND_IN)
#include TILE_STAND_IN
#endif

namespace bitfactor {
namespace {

constexpr int tile_bytes = 1024, tile_numbers = tile_bytes / 2, strip_tiles = 4, strip = 16 * strip_tiles;
constexpr int panel_vectors = 4, panel_channels = 16 * panel_vectors;
constexpr int vector_bytes = strip_tiles * tile_bytes;

inline bool ends_panel(int vector, int vectors) {
    return vector % panel_vectors == panel_vectors - 1 || vector + 1 == vectors;
}

struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The tiles of this thread, while it exists. Afterwards they are as before the first use, for whoever else
// uses them.
class Tiles {
  public:
    explicit Tiles(const Configuration& configuration) {
        asm volatile("" : : "r"(&configuration) : "memory");  // GCC 12 takes it that 8 bytes are read
        _tile_loadconfig(&configuration);
    }
    ~Tiles() { _tile_release(); }
};

constexpr Configuration whole_tiles;

// Where no tile is stored for some 2000 cycles, the next store takes 900 cycles more.
inline void stay_awake() {
    alignas(64) int8_t unused[tile_bytes];
    _tile_stored(4, unused, 64);
}

// The rows of a panel, whose row 0 is `position`.
struct TileRows {
    const char* sums;    // (vectors, strip, 16)
    __mmask16 integers;  // all, or none: those are float
    int out_w, pitch, position, count, begin, end;

    template <class F>
    void for_each(F f) const {
        int x = position % pitch;
        ptrdiff_t pixel = static_cast<ptrdiff_t>(position / pitch) * out_w + at_most(x, out_w);
        for (int i = 0; i < count; ++i) {
            if (x < out_w) f(i, pixel++);
            x = x + 1 < pitch ? x + 1 : 0;
        }
    }

    // Channels that do not exist have some number.
    template <int>
    Simd::Float load(int row, int c) const {
        const __m512i x = _mm512_load_si512(sums + (c - begin) / Simd::lanes * vector_bytes + 64 * row);
        return _mm512_mask_cvtepi32_ps(_mm512_castsi512_ps(x), integers, x);
    }
};

// The sums of up to 64 positions and 64 outputs, on their way to the stages.
class Panel {
  public:
    Panel(const TileStages& stages, bool integers)
        : stages_(stages),
          walk_(walk_of<TileRows>(stages.stages, stages.count)),
          integers_(integers ? 0xffff : 0) {}

    // Where the sums of a vector go, (strip, 16) of 32 bits.
    char* sums(int vector) { return sums_ + vector % panel_vectors * vector_bytes; }
    // Takes those of `count` positions, up to `vector`, through the stages.
    void take(int position, int count, int vector) const {
        const int begin = vector / panel_vectors * panel_channels;
        const int end = at_most(begin + panel_channels, stages_.channels);
        const TileRows rows{sums_, integers_, stages_.out_w, stages_.pitch, position, count, begin, end};
        walk_(stages_.stages, stages_.count, rows, stages_.channels, stages_.arena);
    }

  private:
    const TileStages& stages_;
    const Walk<TileRows> walk_;
    const __mmask16 integers_;
    alignas(64) char sums_[panel_vectors * vector_bytes];
};

// Tiles 0 ... T.
template <int T>
void store_tiles(char* to, int step) {
    _tile_stored(0, to, 64);
    if constexpr (T > 1) _tile_stored(1, to + step, 64);
    if constexpr (T > 2) _tile_stored(2, to + 2 * step, 64);
    if constexpr (T > 3) _tile_stored(3, to + 3 * step, 64);
}

}  // namespace
}  // namespace bitfactor
