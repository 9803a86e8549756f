// All that follows a convolution: a list of stages walked over rows of channels.
//
// A block is the 64 channels of one word of signs. It is loaded into registers, taken through every stage,
// and written where a stage says so, so only what is kept goes to memory. Lists that are common are compiled
// as a whole; any other is interpreted, once a block. Both do the same.

#pragma once

#include "functions.h"
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
void each_register(Block& block, F f) {
    for (Simd::Float& x : block.x) x = f(x);
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

// `kind` is stage.kind; where it is known at compile time, the switch goes.
template <bool whole>
[[gnu::always_inline]] inline void apply(Stage::Kind kind, const Stage& stage, Block& block, ptrdiff_t pixel,
                                         int c, int channels, char* arena) {
    const int count = channels - c;
    const float* a = stage.a + pixel * stage.a_step + c;
    const float* b = stage.b + pixel * stage.b_step + c;
    const ptrdiff_t buffer_pixel = stage.spread ? 0 : pixel;
    float* buffer = reinterpret_cast<float*>(arena + stage.buffer) + buffer_pixel * channels + c;
    switch (kind) {
        case Stage::scale:
            return with_operand<whole>(block, a, count,
                                       [](auto x, auto a, int) { return Simd::multiply(x, a); });
        case Stage::affine:
            return with_operand<whole>(block, a, count, [&](auto x, auto a, int first) {
                return Simd::fma(x, a, load_lanes<whole>(b + first, count - first));
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
                return Simd::min(Simd::max(x, a), load_lanes<whole>(b + first, count - first));
            });
        case Stage::sigmoid:
            return each_register(block, sigmoid_of);
        case Stage::exp:
            return each_register(block, exponential);
        case Stage::log:
            return each_lane(block, logarithm);
        case Stage::sqrt:
            return each_lane(block, square_root);
        case Stage::reciprocal:
            return each_register(block, reciprocal_of);
        case Stage::gelu:
            return each_register(block, gelu_of);
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
                signs_of<whole>(block, a, b, count);
            return;
        }
    }
}

struct AnyStages {
    template <bool whole>
    static void walk(const Stage* stages, size_t count, Block& block, ptrdiff_t pixel, int c, int channels,
                     char* arena) {
        for (size_t i = 0; i < count; ++i) {
            apply<whole>(stages[i].kind, stages[i], block, pixel, c, channels, arena);
        }
    }
};

template <Stage::Kind... kinds>
struct Stages {
    static bool are(const Stage* stages, size_t count) {
        return count == sizeof...(kinds) && ((stages++->kind == kinds) && ...);
    }

    template <bool whole>
    [[gnu::always_inline]] static inline void walk(const Stage* stages, size_t, Block& block, ptrdiff_t pixel,
                                                   int c, int channels, char* arena) {
        (apply<whole>(kinds, *stages++, block, pixel, c, channels, arena), ...);
    }
};

template <class List, bool whole, class Rows>
[[gnu::always_inline]] inline void walk_block(const Stage* stages, size_t stage_count, const Rows& rows,
                                              int row, ptrdiff_t pixel, int c, int channels, char* arena) {
    Block block;
    UNROLL for (int i = 0; i < block_vectors; ++i) block.x[i] =
        rows.template load<whole>(row, c + i * Simd::lanes);
    List::template walk<whole>(stages, stage_count, block, pixel, c, channels, arena);
}

template <class List, class Rows>
void walk_rows(const Stage* stages, size_t stage_count, const Rows& rows, int channels, char* arena) {
    rows.for_each([&](int row, ptrdiff_t pixel) {
        int c = 0;
        for (; c + block_channels <= channels; c += block_channels) {
            walk_block<List, true>(stages, stage_count, rows, row, pixel, c, channels, arena);
        }
        if (c < channels) walk_block<List, false>(stages, stage_count, rows, row, pixel, c, channels, arena);
    });
}

// Walks the first of the lists that is that of the stages, or gives false.
template <class... Lists, class Rows>
bool walk_if_are(const Stage* stages, size_t count, const Rows& rows, int channels, char* arena) {
    return ((Lists::are(stages, count) && (walk_rows<Lists>(stages, count, rows, channels, arena), true)) ||
            ...);
}

// `rows` has for_each(f), which calls f(row, pixel) for each row that is a pixel of the result, and
// load<whole>(row, c), a register of its channels.
template <class Rows>
void take_through(const Stage* stages, size_t count, const Rows& rows, int channels, char* arena) {
    using S = Stage;
    const bool done =
        walk_if_are<Stages<S::signs>,                                                // between two layers
                    Stages<S::scale, S::relu, S::add, S::store>,                     // within a block
                    Stages<S::scale, S::prelu, S::add, S::store>,                    // likewise
                    Stages<S::scale, S::relu, S::add, S::signs, S::store>,           // at its end
                    Stages<S::scale, S::prelu, S::add, S::signs, S::store>,          // likewise
                    Stages<S::relu, S::store>, Stages<S::relu, S::signs, S::store>,  // stem
                    Stages<S::signs, S::store>, Stages<S::add, S::signs, S::store>,  // pool, upsampling
                    Stages<S::store>>(stages, count, rows, channels, arena);
    if (done) return;
    walk_rows<AnyStages>(stages, count, rows, channels, arena);
}

struct FloatRows {
    const float* rows;
    int first, count, channels;

    template <class F>
    void for_each(F f) const {
        for (int i = 0; i < count; ++i) f(i, first + i);
    }

    template <bool whole>
    Simd::Float load(int row, int c) const {
        return load_lanes<whole>(rows + static_cast<ptrdiff_t>(row) * channels + c, channels - c);
    }
};

void epilogue(const Stage* stages, size_t stage_count, const float* rows, int first, int count, int channels,
              char* arena) {
    take_through(stages, stage_count, FloatRows{rows, first, count, channels}, channels, arena);
}

}  // namespace
}  // namespace bitfactor
