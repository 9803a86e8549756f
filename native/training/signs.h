// Between the maps of a framework that trains, real numbers in its own types and layouts, and words of signs.
//
// Loops are plain where the compiler finds the vectors by itself: blocks of 64 pixels or channels, a bit
// each.

#pragma once

#include <algorithm>
#include <cstring>

#include "training/training_kernels.h"

namespace bitfactor {
namespace {

constexpr int map_block = 64;

struct Bfloat16 {
    uint16_t bits;
};

// The bits of a number as float. As integers they compare like numbers, among those of one sign, and such
// comparisons are what compilers make vectors of.
inline int32_t float_bits(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline int32_t float_bits(Bfloat16 x) { return static_cast<int32_t>(static_cast<uint32_t>(x.bits) << 16); }

// The same in as few bits as the type has: a vector holds twice as many of bfloat16.
inline int32_t own_bits(float x) { return float_bits(x); }
inline int16_t own_bits(Bfloat16 x) { return static_cast<int16_t>(x.bits); }

inline float real_of(float x) { return x; }
inline float real_of(Bfloat16 x) {
    const int32_t bits = float_bits(x);
    float real;
    std::memcpy(&real, &bits, sizeof real);
    return real;
}

constexpr int32_t magnitude = 0x7fffffff, one = 0x3f800000, infinity = 0x7f800000;

inline void set(float& to, float x) { to = x; }
inline void set(Bfloat16& to, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    to.bits = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// `count` numbers that lie side by side, as bits; |x| < `limit` is inside. Gives whether one is no number.
template <class T>
[[gnu::always_inline]] inline bool bits_of(const T* x, int count, int32_t limit, uint64_t& signs,
                                           uint64_t& inside) {
    using Bits = decltype(own_bits(*x));
    constexpr int shift = 8 * static_cast<int>(sizeof(int32_t) - sizeof(Bits));
    constexpr Bits own_magnitude = magnitude >> shift, own_infinity = infinity >> shift;
    const Bits own_limit = static_cast<Bits>((limit + (1 << shift) - 1) >> shift);
    uint8_t sign[map_block] = {}, in[map_block] = {}, none = 0;
    for (int i = 0; i < count; ++i) {
        const Bits bits = own_bits(x[i]), size = static_cast<Bits>(bits & own_magnitude);
        sign[i] = bits > 0;
        in[i] = size < own_limit;
        none |= size > own_infinity;
    }
    const auto gathered = [](const uint8_t (&bits)[map_block]) {
        uint64_t word = 0;
        for (int i = 0; i < map_block; i += 8) {
            uint64_t eight;
            std::memcpy(&eight, bits + i, 8);
            word |= (eight * 0x0102040810204080 >> 56) << i;
        }
        return word;
    };
    signs = gathered(sign);
    inside = gathered(in);
    return none;
}

inline int32_t limit_of(const SignMap& map) { return one + map.closed; }

inline ptrdiff_t words_of(const SignMap& map) {
    return static_cast<ptrdiff_t>(map.groups) * ((map.channels + 63) / 64) * 2;
}

// Calls f(group, c, p, channels, pixels) for each block of up to 32 channels and 64 pixels.
template <class F>
void for_each_block(const SignMap& map, F f) {
    for (int group = 0; group < map.groups; ++group) {
        for (int c = 0; c < map.channels; c += 32) {
            for (int p = 0; p < map.pixels; p += map_block) {
                f(group, c, p, std::min(32, map.channels - c), std::min(map_block, map.pixels - p));
            }
        }
    }
}

inline ptrdiff_t word_at(const SignMap& map, int group, int c, int p) {
    return p * words_of(map) + group * ((map.channels + 63) / 64) * 2 + c / 32;
}

// Pixels of fewer channels than a word has are looked at together: they lie side by side.
template <class T>
bool pack_narrow(const SignMap& map, const T* x, uint32_t* signs, uint32_t* inside) {
    bool none = false;
    const ptrdiff_t pixels = static_cast<ptrdiff_t>(map.pixels) * map.groups, together = 64 / map.channels;
    const uint64_t of_pixel = (uint64_t{1} << map.channels) - 1;
    for (ptrdiff_t first = 0; first < pixels; first += together) {
        const int count = static_cast<int>(std::min(together, pixels - first));
        uint64_t sign, in;
        const T* from = x + first * map.channels;
        none |= count * map.channels == 64 ? bits_of(from, 64, limit_of(map), sign, in)
                                           : bits_of(from, count * map.channels, limit_of(map), sign, in);
        for (int i = 0; i < count; ++i) {
            const uint64_t own = sign >> (i * map.channels) & of_pixel,
                           own_in = in >> (i * map.channels) & of_pixel;
            std::memcpy(signs + (first + i) * 2, &own, 8);
            if (inside) std::memcpy(inside + (first + i) * 2, &own_in, 8);
        }
    }
    return none;
}

template <class T>
bool pack_pixels(const SignMap& map, const T* x, uint32_t* signs, uint32_t* inside) {
    if (map.channels <= 32) return pack_narrow(map, x, signs, inside);
    bool none = false;
    const int words = (map.channels + 63) / 64;
    for (ptrdiff_t i = 0; i < static_cast<ptrdiff_t>(map.pixels) * map.groups; ++i) {
        for (int w = 0; w < words; ++w) {
            uint64_t sign, in;
            const T* from = x + i * map.channels + w * 64;
            none |= bits_of(from, std::min(64, map.channels - w * 64), limit_of(map), sign, in);
            std::memcpy(signs + (i * words + w) * 2, &sign, 8);
            if (inside) std::memcpy(inside + (i * words + w) * 2, &in, 8);
        }
    }
    return none;
}

template <class T>
bool pack_channels(const SignMap& map, const T* x, uint32_t* signs, uint32_t* inside) {
    int32_t none = 0;
    const int32_t limit = limit_of(map);
    const ptrdiff_t words = words_of(map);
    for_each_block(map, [&](int group, int c, int p, int channels, int pixels) {
        uint32_t sign[map_block] = {}, in[map_block] = {};
        for (int i = 0; i < channels; ++i) {
            const T* from = x + (static_cast<ptrdiff_t>(group) * map.channels + c + i) * map.pixels + p;
            for (int j = 0; j < pixels; ++j) {
                const int32_t value = float_bits(from[j]);
                sign[j] |= static_cast<uint32_t>(value > 0) << i;
                in[j] |= static_cast<uint32_t>((value & magnitude) < limit) << i;
                none |= (value & magnitude) > infinity;
            }
        }
        const ptrdiff_t at = word_at(map, group, c, p);
        const bool odd = map.channels - c <= 32 && c % 64 == 0;  // the last word of 64 has a half without use
        for (int j = 0; j < pixels; ++j) {
            signs[at + j * words] = sign[j];
            if (odd) signs[at + j * words + 1] = 0;
            if (inside) {
                inside[at + j * words] = in[j];
                if (odd) inside[at + j * words + 1] = 0;
            }
        }
    });
    return none;
}

template <class T>
bool pack_map(const SignMap& map, const void* x, uint32_t* signs, uint32_t* inside) {
    const T* from = static_cast<const T*>(x);
    return map.channels_last ? pack_pixels(map, from, signs, inside)
                             : pack_channels(map, from, signs, inside);
}

bool pack(const SignMap& map, const void* x, uint32_t* signs, uint32_t* inside) {
    return map.bfloat16 ? pack_map<Bfloat16>(map, x, signs, inside) : pack_map<float>(map, x, signs, inside);
}

inline void take_sign(float& to, uint32_t bit) {
    const uint32_t bits = 0xbf800000u ^ bit << 31;
    std::memcpy(&to, &bits, sizeof to);
}
inline void take_sign(Bfloat16& to, uint32_t bit) { to.bits = static_cast<uint16_t>(0xbf80u ^ bit << 15); }

inline void keep_if(float& to, uint32_t bit) {
    uint32_t bits;
    std::memcpy(&bits, &to, sizeof bits);
    bits &= 0u - bit;
    std::memcpy(&to, &bits, sizeof to);
}
inline void keep_if(Bfloat16& to, uint32_t bit) { to.bits &= static_cast<uint16_t>(0u - bit); }

// Calls f(number, bit) for each number of a map.
template <class T, class F>
void with_bits(const SignMap& map, const uint32_t* bits, void* out, F f) {
    T* to = static_cast<T*>(out);
    if (map.channels_last) {
        const int words = (map.channels + 63) / 64 * 2;
        for (ptrdiff_t i = 0; i < static_cast<ptrdiff_t>(map.pixels) * map.groups; ++i, bits += words) {
            for (int c = 0; c < map.channels; c += 32) {
                const uint32_t word = bits[c / 32];
                T* at = to + i * map.channels + c;
                if (c + 32 <= map.channels) {
                    for (int k = 0; k < 32; ++k) f(at[k], word >> k & 1);
                } else {
                    for (int k = 0; k < map.channels - c; ++k) f(at[k], word >> k & 1);
                }
            }
        }
        return;
    }
    const ptrdiff_t stride = words_of(map);
    for_each_block(map, [&](int group, int c, int p, int channels, int pixels) {
        uint32_t words[map_block];
        for (int j = 0; j < pixels; ++j) words[j] = bits[word_at(map, group, c, p) + j * stride];
        for (int i = 0; i < channels; ++i) {
            T* at = to + (static_cast<ptrdiff_t>(group) * map.channels + c + i) * map.pixels + p;
            for (int j = 0; j < pixels; ++j) f(at[j], words[j] >> i & 1);
        }
    });
}

void unpack(const SignMap& map, const uint32_t* signs, void* out) {
    if (map.bfloat16) {
        with_bits<Bfloat16>(map, signs, out, [](Bfloat16& x, uint32_t bit) { take_sign(x, bit); });
    } else {
        with_bits<float>(map, signs, out, [](float& x, uint32_t bit) { take_sign(x, bit); });
    }
}

void mask(const SignMap& map, const uint32_t* inside, void* gradient) {
    if (map.bfloat16) {
        with_bits<Bfloat16>(map, inside, gradient, [](Bfloat16& x, uint32_t bit) { keep_if(x, bit); });
    } else {
        with_bits<float>(map, inside, gradient, [](float& x, uint32_t bit) { keep_if(x, bit); });
    }
}

template <class T>
void give_scaled(const SignMap& map, const float* rows, const float* scale, int first, int count, T* to) {
    const int channels = map.groups * map.channels;
    if (map.channels_last) {
        for (int p = 0; p < count; ++p) {
            const float* __restrict row = rows + static_cast<ptrdiff_t>(p) * channels;
            T* __restrict at = to + static_cast<ptrdiff_t>(first + p) * channels;
            for (int c = 0; c < channels; ++c) set(at[c], row[c] * scale[c]);
        }
        return;
    }
    for (int c = 0; c < channels; ++c) {
        T* at = to + static_cast<ptrdiff_t>(c) * map.pixels + first;
        for (int p = 0; p < count; ++p) {
            set(at[p], rows[static_cast<ptrdiff_t>(p) * channels + c] * scale[c]);
        }
    }
}

void give(const SignMap& map, const float* rows, const float* scale, int first, int count, void* out) {
    if (map.bfloat16) {
        give_scaled(map, rows, scale, first, count, static_cast<Bfloat16*>(out));
    } else {
        give_scaled(map, rows, scale, first, count, static_cast<float*>(out));
    }
}

// The gradient of one number, and what it adds to the slope's.
template <class T>
[[gnu::always_inline]] inline void prelu_of(T x, T gradient, float slope, T& of_x, float& of_slope) {
    const float value = real_of(x), upon = real_of(gradient);
    set(of_x, value > 0 ? upon : slope * upon);
    of_slope += value > 0 ? 0.0f : upon * value;
}

template <class T>
void prelu_gradients(const SignMap& map, const T* __restrict x, const T* __restrict gradient,
                     const float* __restrict slope, T* __restrict of_x, float* __restrict of_slope) {
    std::fill(of_slope, of_slope + map.channels, 0.0f);
    if (map.channels_last) {
        for (int p = 0; p < map.pixels;
             ++p, x += map.channels, gradient += map.channels, of_x += map.channels) {
            for (int c = 0; c < map.channels; ++c)
                prelu_of(x[c], gradient[c], slope[c], of_x[c], of_slope[c]);
        }
        return;
    }
    constexpr int lanes = 16;  // sums side by side: one alone would have to be in order
    for (int c = 0; c < map.channels; ++c, x += map.pixels, gradient += map.pixels, of_x += map.pixels) {
        float sums[lanes] = {};
        int p = 0;
        for (; p + lanes <= map.pixels; p += lanes) {
            for (int i = 0; i < lanes; ++i)
                prelu_of(x[p + i], gradient[p + i], slope[c], of_x[p + i], sums[i]);
        }
        for (; p < map.pixels; ++p) prelu_of(x[p], gradient[p], slope[c], of_x[p], sums[0]);
        for (const float sum : sums) of_slope[c] += sum;
    }
}

void prelu(const SignMap& map, const void* x, const void* gradient, const float* slope, void* of_x,
           float* of_slope) {
    const auto run = [&](auto type) {
        using T = decltype(type);
        prelu_gradients(map, static_cast<const T*>(x), static_cast<const T*>(gradient), slope,
                        static_cast<T*>(of_x), of_slope);
    };
    if (map.bfloat16) {
        run(Bfloat16{});
    } else {
        run(0.0f);
    }
}

constexpr SignKernels sign_kernels = {pack, unpack, mask, give, prelu};

}  // namespace
}  // namespace bitfactor
