// All that follows a convolution: a list of stages walked over rows of channels.
//
// A block is 32 channels, half a word of signs, or the last 16. It is loaded into registers, taken through
// every stage, and written where a stage says so, so only what is kept goes to memory. Lists that are common
// are compiled as a whole; any other is interpreted, once a block. Both do the same.

#pragma once

#include "kernels/functions.h"
#include "kernels/integer.h"

namespace bitfactor {
namespace {

constexpr int block_channels = 32;
constexpr int block_vectors = block_channels / Simd::lanes;
static_assert(block_channels == 32 && block_channels % Simd::lanes == 0);

struct Block {
    Simd::Float x[block_vectors];
};

// The registers of a block where no lane is missing, and of half of one. Both are known at compile time, so
// that they stay in registers; 0 are as many as there are channels left.
constexpr int half_channels = 16, half_vectors = half_channels / Simd::lanes;
static_assert(half_channels % Simd::lanes == 0);

template <int vectors>
Simd::Float load_lanes(const float* from, int count) {
    if constexpr (vectors > 0) return Simd::load(from);
    return Simd::load_first(from, count);
}

template <int vectors>
void store_lanes(float* to, Simd::Float x, int count) {
    if constexpr (vectors > 0) {
        Simd::store(to, x);
    } else {
        Simd::store_first(to, x, count);
    }
}

// f(x, first) for each register and its first channel.
template <int vectors, class F>
[[gnu::always_inline]] inline void each_register(Block& block, int count, F f) {
    if constexpr (vectors > 0) {
        UNROLL for (int i = 0; i < vectors; ++i) f(block.x[i], i * Simd::lanes);
    } else {
        ROLLED for (int i = 0; i * Simd::lanes < count; ++i) f(block.x[i], i * Simd::lanes);
    }
}

// x = f(x, a, first), where a is read from memory.
template <int vectors, class F>
[[gnu::always_inline]] inline void with_operand(Block& block, const float* a, int count, F f) {
    each_register<vectors>(block, count, [&](Simd::Float& x, int first) {
        x = f(x, load_lanes<vectors>(a + first, count - first), first);
    });
}

// Functions are long: they stand in the code once, and a block goes through memory to them.
template <class F>
void through_memory(Block& block, F f) {
    float x[block_channels];
    UNROLL for (int i = 0; i < block_vectors; ++i) Simd::store(x + i * Simd::lanes, block.x[i]);
    f(x);
    UNROLL for (int i = 0; i < block_vectors; ++i) block.x[i] = Simd::load(x + i * Simd::lanes);
}

template <class F>
void map_registers(Block& block, F f) {
    through_memory(block, [&](float* x) {
        ROLLED for (int i = 0; i < block_channels; i += Simd::lanes) Simd::store(x + i, f(Simd::load(x + i)));
    });
}

template <class F>
void map_lanes(Block& block, F f) {
    through_memory(block, [&](float* x) {
        for (int i = 0; i < block_channels; ++i) x[i] = f(x[i]);
    });
}

// In missing lanes direction and threshold are 0, and x * 0 > 0 is false: unused bits come out as 0.
template <int vectors>
[[gnu::always_inline]] inline uint32_t signs_of(Block& block, const float* direction, const float* threshold,
                                                int count) {
    uint32_t word = 0;
    each_register<vectors>(block, count, [&](Simd::Float& x, int first) {
        const Simd::Float turned = Simd::multiply(x, load_lanes<vectors>(direction + first, count - first));
        const uint32_t bits = Simd::greater(turned, load_lanes<vectors>(threshold + first, count - first));
        word |= bits << first;
    });
    return word;
}

// `kind` is stage.kind; where it is known at compile time, the switch goes.
template <int vectors>
[[gnu::always_inline]] inline void apply(Stage::Kind kind, const Stage& stage, Block& block, ptrdiff_t pixel,
                                         int c, int channels, char* arena) {
    const int count = channels - c;
    // Arrays that a kind does not have are null, which no offset may be added to.
    const auto a = [&] { return stage.a + pixel * stage.a_step + c; };
    const auto b = [&](int first) { return stage.b + pixel * stage.b_step + c + first; };
    const ptrdiff_t buffer_pixel = stage.spread ? 0 : pixel;
    float* buffer = reinterpret_cast<float*>(arena + stage.buffer) + buffer_pixel * channels + c;
    switch (kind) {
        case Stage::scale:
            return with_operand<vectors>(block, a(), count,
                                         [](auto x, auto a, int) { return Simd::multiply(x, a); });
        case Stage::affine:
            return with_operand<vectors>(block, a(), count, [&](auto x, auto a, int first) {
                return Simd::fma(x, a, load_lanes<vectors>(b(first), count - first));
            });
        case Stage::relu:
            return each_register<vectors>(
                block, count, [](Simd::Float& x, int) { x = Simd::max(x, Simd::broadcast(0.0f)); });
        case Stage::prelu:
            return with_operand<vectors>(block, a(), count, [](auto x, auto a, int) {
                return Simd::if_positive(x, x, Simd::multiply(a, x));
            });
        case Stage::clip:
            return with_operand<vectors>(block, a(), count, [&](auto x, auto a, int first) {
                return Simd::min(Simd::max(x, a), load_lanes<vectors>(b(first), count - first));
            });
        case Stage::sigmoid:
            return map_registers(block, sigmoid_of);
        case Stage::exp:
            return map_registers(block, exponential);
        case Stage::log:
            return map_lanes(block, logarithm);
        case Stage::sqrt:
            return map_lanes(block, square_root);
        case Stage::reciprocal:
            return map_registers(block, reciprocal_of);
        case Stage::gelu:
            return map_registers(block, gelu_of);
        case Stage::add:
            return with_operand<vectors>(block, buffer, count,
                                         [](auto x, auto a, int) { return Simd::add(x, a); });
        case Stage::multiply:
            return with_operand<vectors>(block, buffer, count,
                                         [](auto x, auto a, int) { return Simd::multiply(x, a); });
        case Stage::store:
            return each_register<vectors>(block, count, [&](Simd::Float& x, int first) {
                store_lanes<vectors>(buffer + first, x, count - first);
            });
        case Stage::signs: {
            const ptrdiff_t halves = (channels + 63) / 64 * 2;
            uint32_t* half = reinterpret_cast<uint32_t*>(arena + stage.buffer) + pixel * halves + c / 32;
            *half = signs_of<vectors>(block, a(), b(0), count);
            if (c + 32 >= channels && c % 64 == 0) half[1] = 0;
            return;
        }
        case Stage::weigh:
            return through_memory(block, [&](float* x) { weigh(*stage.weigher, x, buffer, c, count); });
    }
}

struct AnyStages {
    struct Own {
        explicit Own(const Stage* from) : stages(from) {}
        const Stage* stages;
    };
    template <int vectors>
    static void walk(const Stage* stages, size_t count, Block& block, ptrdiff_t pixel, int c, int channels,
                     char* arena) {
        for (size_t i = 0; i < count; ++i) {
            apply<vectors>(stages[i].kind, stages[i], block, pixel, c, channels, arena);
        }
    }
};

template <Stage::Kind... kinds>
struct Stages {
    // Nothing that is stored can change them: they stay in registers.
    struct Own {
        explicit Own(const Stage* from) {
            for (Stage& stage : stages) stage = *from++;
        }
        Stage stages[sizeof...(kinds)];
    };
    static bool are(const Stage* stages, size_t count) {
        return count == sizeof...(kinds) && ((stages++->kind == kinds) && ...);
    }

    template <int vectors>
    [[gnu::always_inline]] static inline void walk(const Stage* stages, size_t, Block& block, ptrdiff_t pixel,
                                                   int c, int channels, char* arena) {
        (apply<vectors>(kinds, *stages++, block, pixel, c, channels, arena), ...);
    }
};

template <class List, int vectors, class Rows>
[[gnu::always_inline]] inline void walk_block(const Stage* stages, size_t stage_count, const Rows& rows,
                                              int row, ptrdiff_t pixel, int c, int channels, char* arena) {
    Block block;
    each_register<vectors>(block, channels - c, [&](Simd::Float& x, int first) {
        x = rows.template load<vectors>(row, c + first);
    });
    List::template walk<vectors>(stages, stage_count, block, pixel, c, channels, arena);
}

// The last channels, where they are no whole block: interpreted for every list.
template <class Rows>
[[gnu::noinline]] void walk_rest(const Stage* stages, size_t stage_count, const Rows& rows, int row,
                                 ptrdiff_t pixel, int c, int channels, char* arena) {
    walk_block<AnyStages, 0>(stages, stage_count, rows, row, pixel, c, channels, arena);
}

template <class List, class Rows>
void walk_rows(const Stage* stages, size_t stage_count, const Rows& rows, int channels, char* arena) {
    const typename List::Own own(stages);
    const int whole = rows.end / block_channels * block_channels;
    rows.for_each([&](int row, ptrdiff_t pixel) __attribute__((always_inline)) {
        for (int c = rows.begin; c < whole; c += block_channels) {
            walk_block<List, block_vectors>(own.stages, stage_count, rows, row, pixel, c, channels, arena);
        }
        if (rows.end - whole == half_channels) {
            walk_block<List, half_vectors>(own.stages, stage_count, rows, row, pixel, whole, channels, arena);
        } else if (whole < rows.end) {
            walk_rest(stages, stage_count, rows, row, pixel, whole, channels, arena);
        }
    });
}

template <class Rows>
using Walk = void (*)(const Stage*, size_t count, const Rows&, int channels, char* arena);

// That of the first of the lists that is that of the stages, or nullptr.
template <class Rows, class... Lists>
Walk<Rows> walk_for(const Stage* stages, size_t count) {
    Walk<Rows> walk = nullptr;
    static_cast<void>(((Lists::are(stages, count) && (walk = walk_rows<Lists, Rows>)) || ...));
    return walk;
}

// How rows are taken through the stages. Rows have channels `begin` (a block's first) to `end`, for_each(f),
// which calls f(row, pixel) for each row that is a pixel of the result, and load<vectors>(row, c), a register
// of its channels.
template <class Rows>
Walk<Rows> walk_of(const Stage* stages, size_t count) {
    using S = Stage;
    const Walk<Rows> walk =
        Simd::lanes == 1
            ? nullptr
            : walk_for<Rows, Stages<S::signs>,                                          // between two layers
                       Stages<S::scale, S::relu, S::add, S::store>,                     // within a block
                       Stages<S::scale, S::prelu, S::add, S::store>,                    // likewise
                       Stages<S::scale, S::relu, S::add, S::signs, S::store>,           // at its end
                       Stages<S::scale, S::prelu, S::add, S::signs, S::store>,          // likewise
                       Stages<S::relu, S::store>, Stages<S::relu, S::signs, S::store>,  // stem
                       Stages<S::scale, S::affine, S::add, S::signs, S::store>,         // Bi-Real
                       Stages<S::scale, S::affine, S::add, S::clip, S::signs, S::store>,  // IR-Net
                       Stages<S::scale, S::affine, S::add, S::store>, Stages<S::scale, S::affine, S::store>,
                       Stages<S::scale, S::relu, S::affine, S::add, S::signs, S::store>,  // QuickNet
                       Stages<S::scale, S::relu, S::affine, S::add, S::relu, S::store>,   // at a stage's end
                       Stages<S::scale, S::affine, S::add, S::affine, S::prelu, S::affine, S::signs,
                              S::store>,  // ReActNet
                       Stages<S::affine, S::prelu, S::affine, S::signs, S::store>,
                       Stages<S::add, S::affine, S::prelu, S::affine, S::signs, S::store>,
                       Stages<S::scale, S::affine, S::prelu, S::store, S::scale, S::add, S::store>,  // BNext
                       Stages<S::multiply, S::affine, S::add, S::signs, S::store, S::scale, S::store>,
                       Stages<S::signs, S::store>, Stages<S::add, S::signs, S::store>,  // pool, upsampling
                       Stages<S::store>>(stages, count);
    return walk ? walk : walk_rows<AnyStages, Rows>;
}

}  // namespace
}  // namespace bitfactor
