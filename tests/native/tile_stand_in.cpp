// What the stand-in for tiles computes, against sums made by hand.

#include "tile_stand_in.h"

#include <initializer_list>

namespace bitfactor {
namespace {

struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64};
    uint8_t rows[16] = {16, 16, 16};
};

int failures = 0;

template <class T>
void expect(const char* what, T found, T expected) {
    if (std::memcmp(&found, &expected, sizeof found) == 0) return;
    std::printf("%s: %.9g, expected %.9g\n", what, static_cast<double>(found), static_cast<double>(expected));
    ++failures;
}

// c[0][0] + row 0 of a by column 0 of b, all else being 0; `in_word` of these stand in a word.
template <class Number, class Sum, class Add>
Sum product(Sum c, const Number* a, const Number* b, int count, Add add) {
    constexpr int in_word = 4 / sizeof(Number), numbers = 64 / sizeof(Number);
    Number left[16][numbers] = {}, right[16][numbers] = {};
    Sum sums[16][16] = {};
    sums[0][0] = c;
    for (int i = 0; i < count; ++i) {
        left[0][i] = a[i];
        right[i / in_word][i % in_word] = b[i];
    }
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, left, 64);
    _tile_loadd(2, right, 64);
    add();
    _tile_stored(0, sums, 64);
    expect("a sum of nothing", sums[1][1], Sum{0});
    return sums[0][0];
}

float of_bfloat16(float c, std::initializer_list<float> a, std::initializer_list<float> b) {
    const auto high = [](const float* x, uint16_t* bits) {
        uint32_t all;
        std::memcpy(&all, x, sizeof all);
        *bits = static_cast<uint16_t>(all >> 16);
    };
    uint16_t left[32], right[32];
    for (size_t i = 0; i < a.size(); ++i) {
        high(a.begin() + i, left + i);
        high(b.begin() + i, right + i);
    }
    return product(c, left, right, static_cast<int>(a.size()), [] { _tile_dpbf16ps(0, 1, 2); });
}

int run() {
    const Configuration configuration;
    _tile_loadconfig(&configuration);
    int8_t least[64], most[64];
    std::memset(least, -128, sizeof least);
    std::memset(most, 127, sizeof most);
    const auto bytes = [](int32_t c, const int8_t* a, const int8_t* b) {
        return product(c, a, b, 64, [] { _tile_dpbssd(0, 1, 2); });
    };
    expect("bytes below zero", bytes(-5, least, least), 64 * 128 * 128 - 5);
    const int32_t unsigned_bytes = product(7, least, most, 64, [] { _tile_dpbusd(0, 1, 2); });
    expect("unsigned bytes", unsigned_bytes, 7 + 64 * 128 * 127);
    expect("bytes of both signs", bytes(7, least, most), 7 - 64 * 128 * 127);

    constexpr float big = 1 << 24, tiny = 0x1p-126f;
    expect("even and odd apart", of_bfloat16(0, {big, big, 1}, {1, -1, 1}), 0.0f);
    expect("from zero on", of_bfloat16(big, {1, 0, 1}, {1, 0, 1}), big + 2);
    expect("to even", of_bfloat16(big, {1}, {3}), big + 4);
    expect("denormals taken as zero", of_bfloat16(0, {tiny / 2}, {0x1p100f}), 0.0f);
    expect("a sum taken as zero", of_bfloat16(tiny / 2, {tiny}, {1}), tiny);
    expect("denormals given as zero", of_bfloat16(0, {-tiny}, {0.5f}), 0.0f);
    expect("a denormal product", of_bfloat16(0, {tiny, 0, tiny}, {0.5f, 0, 0.5f}), 0.0f);
    _tile_release();
    return failures != 0;
}

}  // namespace
}  // namespace bitfactor

int main() { return bitfactor::run(); }
