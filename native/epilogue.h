// All that follows a convolution: a list of stages walked over rows of channels.
//
// A block is the 64 channels of one word of signs. It is loaded into registers, taken through every stage,
// and written where a stage says so; so the list is read once a block, and only what is kept goes to memory.

#pragma once

#include "exponential.h"
#include "kernels.h"

namespace bitfactor {
namespace {

constexpr int block_channels = 64;
constexpr int block_vectors = block_channels / Simd::lanes;

struct Block {
    Simd::Float x[block_vectors];
};

// A whole block knows at compile time that no lane is missing.
template <bool whole>
Simd::Float load_lanes(const float* from, int count) {
    if constexpr (whole) return Simd::load(from);
    return Simd::load_first(from, count);
}

template <bool whole>
void store_lanes(float* to, Simd::Float x, int count) {
    if constexpr (whole) {
        Simd::store(to, x);
    } else {
        Simd::store_first(to, x, count);
    }
}

// x = f(x, a, i) for each vector i, where a is read from memory.
template <bool whole, class F>
void with_operand(Block& block, const float* a, int count, F f) {
    UNROLL for (int i = 0; i < block_vectors; ++i) {
        const int first = i * Simd::lanes;
        block.x[i] = f(block.x[i], load_lanes<whole>(a + first, count - first), first);
    }
}

template <class F>
void each_lane(Block& block, F f) {
    float x[block_channels];
    UNROLL for (int i = 0; i < block_vectors; ++i) Simd::store(x + i * Simd::lanes, block.x[i]);
    for (float& value : x) value = f(value);
    UNROLL for (int i = 0; i < block_vectors; ++i) block.x[i] = Simd::load(x + i * Simd::lanes);
}

// In missing lanes direction and threshold are 0, and x * 0 > 0 is false: unused bits come out as 0.
template <bool whole>
uint64_t signs_of(const Block& block, const float* direction, const float* threshold, int count) {
    uint64_t word = 0;
    UNROLL for (int i = 0; i < block_vectors; ++i) {
        const int first = i * Simd::lanes;
        const Simd::Float x = Simd::multiply(block.x[i], load_lanes<whole>(direction + first, count - first));
        const uint64_t bits = Simd::greater(x, load_lanes<whole>(threshold + first, count - first));
        word |= bits << first;
    }
    return word;
}

template <bool whole>
void apply(const Stage& stage, Block& block, ptrdiff_t pixel, int c, int channels, char* arena) {
    const int count = channels - c;
    const float* a = stage.a + pixel * stage.a_step + c;
    const ptrdiff_t buffer_pixel = stage.spread ? 0 : pixel;
    float* buffer = reinterpret_cast<float*>(arena + stage.buffer) + buffer_pixel * channels + c;
    switch (stage.kind) {
        case Stage::scale:
            return with_operand<whole>(block, a, count,
                                       [](auto x, auto a, int) { return Simd::multiply(x, a); });
        case Stage::affine:
            return with_operand<whole>(block, a, count, [&](auto x, auto a, int first) {
                return Simd::fma(x, a, load_lanes<whole>(stage.b + c + first, count - first));
            });
        case Stage::relu:
            UNROLL for (auto& x : block.x) x = Simd::max(x, Simd::broadcast(0.0f));
            return;
        case Stage::prelu:
            return with_operand<whole>(block, a, count, [](auto x, auto a, int) {
                return Simd::if_positive(x, x, Simd::multiply(a, x));
            });
        case Stage::clip:
            return with_operand<whole>(block, a, count, [&](auto x, auto a, int first) {
                return Simd::min(Simd::max(x, a), load_lanes<whole>(stage.b + c + first, count - first));
            });
        case Stage::sigmoid:
            return each_lane(block, sigmoid_of);
        case Stage::add:
            return with_operand<whole>(block, buffer, count,
                                       [](auto x, auto a, int) { return Simd::add(x, a); });
        case Stage::multiply:
            return with_operand<whole>(block, buffer, count,
                                       [](auto x, auto a, int) { return Simd::multiply(x, a); });
        case Stage::store:
            UNROLL for (int i = 0; i < block_vectors; ++i) {
                const int first = i * Simd::lanes;
                store_lanes<whole>(buffer + first, block.x[i], count - first);
            }
            return;
        case Stage::signs: {
            const ptrdiff_t words = (channels + block_channels - 1) / block_channels;
            reinterpret_cast<uint64_t*>(arena + stage.buffer)[pixel * words + c / block_channels] =
                signs_of<whole>(block, a, stage.b + c, count);
            return;
        }
    }
}

template <bool whole>
void walk(const Stage* stages, size_t stage_count, const float* row, ptrdiff_t pixel, int c, int channels,
          char* arena) {
    Block block;
    UNROLL for (int i = 0; i < block_vectors; ++i) {
        const int first = c + i * Simd::lanes;
        block.x[i] = load_lanes<whole>(row + first, channels - first);
    }
    for (size_t i = 0; i < stage_count; ++i) apply<whole>(stages[i], block, pixel, c, channels, arena);
}

void epilogue(const Stage* stages, size_t stage_count, const float* rows, int first, int count, int channels,
              char* arena) {
    for (int i = 0; i < count; ++i) {
        const float* row = rows + static_cast<ptrdiff_t>(i) * channels;
        int c = 0;
        for (; c + block_channels <= channels; c += block_channels) {
            walk<true>(stages, stage_count, row, first + i, c, channels, arena);
        }
        if (c < channels) walk<false>(stages, stage_count, row, first + i, c, channels, arena);
    }
}

}  // namespace
}  // namespace bitfactor
