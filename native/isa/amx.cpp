// AMX int8 tiles, and AVX-512 for all else: Intel since Sapphire Rapids.
//
// tdpbssd multiplies 16 positions by 64 channels with 64 channels by 16 outputs in 16 cycles, 1024 products a
// cycle. The signs of the map are bytes (byte_map.h); those of the weights stay bits, 8 times fewer, for all
// of a network's would not fit the L2 cache as bytes: a tile of them is expanded into a ring in the L1 cache,
// 4 tiles ahead, since a tile load waits for stores that are still under way. Each serves 4 tiles of 16
// positions, which take 64 cycles, and expanding one takes 16 loads, blends and stores.
//
// Real numbers are one or two bfloat16 each, see run_map.h. tdpbf16ps does half as many products in the same
// time; of numbers of two parts, three are needed for one. Levels of 8 bits are multiplied by tdpbusd, where
// they lie in the map of quantised_conv.h.

#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "isa/avx512.h"
// What is built on these registers.
#include "kernels/byte_map.h"
#include "kernels/epilogue.h"
#include "kernels/kernel_set.h"
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

// Where no tile is stored for some 2000 cycles, the next store takes 900 cycles more.
inline void stay_awake() {
    alignas(64) int8_t unused[tile_bytes];
    _tile_stored(4, unused, 64);
}

// Its code stands in the library once.
[[gnu::noinline]] void expand_weights(const uint64_t* bits, int8_t* tile) {
    const __m512i minus = _mm512_set1_epi8(-1), plus = _mm512_set1_epi8(1);
    UNROLL for (int r = 0; r < tile_rows; ++r) {
        _mm512_store_si512(tile + 64 * r, _mm512_mask_blend_epi8(bits[r], minus, plus));
    }
    asm volatile("" ::: "memory");  // GCC does not know that the load of a tile reads memory
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
    template <bool>
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

#if !defined(TILE_STAND_IN)
// Linux lets a process use the tiles' state once it has asked for it.
bool tiles_supported() {
    constexpr int request_permission = 0x1023, tile_data = 18;
    return this_cpu().tiles && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif

bool supported() { return avx512_supported() && this_cpu().avx512bf16 && tiles_supported(); }

constexpr TileKernels tile_kernels = {strip, 24.0, 53.0, expand, tile_conv, split, run_conv};

}  // namespace

extern const KernelSet amx;
const KernelSet amx = kernel_set("amx", supported, &avx512_common, &avx512_popcounts, &level_kernels,
                                 no_bfloat16, &tile_kernels);

}  // namespace bitfactor
