// The tile instructions that the set `amx` uses, in plain C++: so it runs where the CPU has all
// else that the set needs, AVX-512 with BF16.
//
// They do as Intel's manual says, and end the program where the instruction would fault: tiles that are not
// configured, or whose sizes do not match. Sums of tdpbf16ps are bit for bit those of the manual: of each
// product's two, the even and the odd numbers are summed apart, by fused multiply-adds from zero on, then
// together, and then to what stands in the tile; rounded to nearest even, with denormals taken and given as
// zero.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace bitfactor {
namespace {

class StandIn {
  public:
    // Of this thread, as the tiles of a CPU.
    static StandIn& tiles() {
        static thread_local StandIn of_thread;
        return of_thread;
    }

    void load_config(const void* from) {
        uint8_t bytes[64];
        std::memcpy(bytes, from, sizeof bytes);
        expect(bytes[0] == 1, "palette 1");
        for (int i = 0; i < count; ++i) {
            uint16_t row_bytes;
            std::memcpy(&row_bytes, bytes + 16 + 2 * i, sizeof row_bytes);
            tiles_[i] = {bytes[48 + i], row_bytes, {}};
            expect(tiles_[i].rows <= rows && tiles_[i].row_bytes <= width, "16 rows of 64 bytes at most");
        }
    }
    void release() {
        for (Tile& tile : tiles_) tile = {};
    }
    void zero(int to) { clear(configured(to)); }
    void load(int to, const void* from, ptrdiff_t stride) {
        Tile& tile = configured(to);
        clear(tile);
        for (int r = 0; r < tile.rows; ++r)
            std::memcpy(tile.bytes[r], static_cast<const char*>(from) + r * stride, tile.row_bytes);
    }
    void store(int from, void* to, ptrdiff_t stride) {
        const Tile& tile = configured(from);
        for (int r = 0; r < tile.rows; ++r)
            std::memcpy(static_cast<char*>(to) + r * stride, tile.bytes[r], tile.row_bytes);
    }

    // Those on the left are unsigned, or not.
    template <class Left>
    void add_products_of_bytes(int to, int left, int right) {
        add_products<int8_t, int32_t>(
            to, left, right, [](int32_t sum, int8_t a, int8_t b) { return sum + static_cast<Left>(a) * b; },
            [](int32_t sum, const int32_t* of_four) {
                return sum + of_four[0] + of_four[1] + of_four[2] + of_four[3];
            });
    }
    void add_products_of_bfloat16(int to, int left, int right) {
        add_products<uint16_t, float>(
            to, left, right,
            [](float sum, uint16_t a, uint16_t b) { return flushed(std::fma(number(a), number(b), sum)); },
            [](float sum, const float* of_two) {
                return flushed(flushed(sum) + flushed(of_two[0] + of_two[1]));
            });
    }

  private:
    static constexpr int count = 8, rows = 16, width = 64;
    struct Tile {
        int rows, row_bytes;
        uint8_t bytes[StandIn::rows][width];
    };

    static void expect(bool holds, const char* what) {
        if (holds) return;
        std::fprintf(stderr, "tiles: expected %s\n", what);
        std::abort();
    }
    Tile& configured(int i) {
        expect(tiles_[i].rows > 0, "a tile that is configured");
        return tiles_[i];
    }
    static void clear(Tile& tile) { std::memset(tile.bytes, 0, sizeof tile.bytes); }

    static float flushed(float x) {
        return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
    }
    static float number(uint16_t bfloat16) {
        const uint32_t bits = static_cast<uint32_t>(bfloat16) << 16;
        float x;
        std::memcpy(&x, &bits, sizeof x);
        return flushed(x);
    }

    // Of each of the two or four numbers in the words of a column of `right`, the sum over the rows; then
    // these together. Sanitizers, which look at the numbers of tiles alone here, would make it three times
    // slower.
    template <class Number, class Sum, class Add, class Join>
    [[gnu::no_sanitize("address", "undefined", "thread"), gnu::optimize("O3")]] void add_products(
        int to, int left, int right, Add add, Join join) {
        constexpr int in_word = 4 / sizeof(Number), numbers = width / sizeof(Number);
        const Tile &a = configured(left), &b = configured(right);
        Tile& c = configured(to);
        expect(to != left && to != right && left != right, "three tiles");
        expect(a.row_bytes == 4 * b.rows && c.rows == a.rows && c.row_bytes == b.row_bytes,
               "tiles whose sizes match");
        for (int m = 0; m < c.rows; ++m) {
            Sum sums[numbers] = {}, row[numbers / in_word];
            for (int k = 0; k < b.rows; ++k) {
                Number x[numbers], w[numbers];
                for (int i = 0; i < width; i += 4)
                    std::memcpy(reinterpret_cast<char*>(x) + i, a.bytes[m] + 4 * k, 4);
                std::memcpy(w, b.bytes[k], width);
                for (int i = 0; i < numbers; ++i) sums[i] = add(sums[i], x[i], w[i]);
            }
            std::memcpy(row, c.bytes[m], width);
            for (int n = 0; n < numbers / in_word; ++n) row[n] = join(row[n], sums + n * in_word);
            std::memcpy(c.bytes[m], row, c.row_bytes);
        }
    }

    Tile tiles_[count] = {};
};

inline bool tiles_supported() { return true; }

}  // namespace
}  // namespace bitfactor

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbusd
#undef _tile_dpbf16ps
#define _tile_loadconfig(from) StandIn::tiles().load_config(from)
#define _tile_release() StandIn::tiles().release()
#define _tile_loadd(to, from, stride) StandIn::tiles().load(to, from, stride)
#define _tile_stored(from, to, stride) StandIn::tiles().store(from, to, stride)
#define _tile_zero(to) StandIn::tiles().zero(to)
#define _tile_dpbssd(to, left, right) StandIn::tiles().add_products_of_bytes<int8_t>(to, left, right)
#define _tile_dpbusd(to, left, right) StandIn::tiles().add_products_of_bytes<uint8_t>(to, left, right)
#define _tile_dpbf16ps(to, left, right) StandIn::tiles().add_products_of_bfloat16(to, left, right)
