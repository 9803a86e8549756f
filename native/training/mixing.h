// Grid and tap modes of a Tucker weight, which are small: core slices are mixed and led from the layout of a
// weight, taps innermost, to the layout of products, taps outermost, in one pass over memory; and gradients
// back.
//
// A block is 64 of the pairs of channels, which are all alike. Its slices stay in the L1 or L2 cache.

#pragma once

#include <algorithm>

#include "training/signs.h"

namespace bitfactor {
namespace {

constexpr int mixing_block = 64, mixing_vectors = mixing_block / Simd::lanes;

// y (rows, block) = a x with x (inner, block). The strides of a are in numbers, those of x and y likewise,
// from one row of a block to the next.
struct Factor {
    const float* a;
    int rows, inner;
    ptrdiff_t row_stride, inner_stride;
};

template <int Rows>
void multiply_rows(const Factor& factor, int row, const float* x, ptrdiff_t x_stride, float* y,
                   ptrdiff_t y_stride) {
    constexpr int at_once = mixing_vectors > 4 ? 4 : mixing_vectors;
    const float* a = factor.a + row * factor.row_stride;
    for (int first = 0; first < mixing_block; first += at_once * Simd::lanes) {
        Simd::Float sum[Rows][at_once];
        UNROLL for (int r = 0; r < Rows; ++r) {
            UNROLL for (int v = 0; v < at_once; ++v) sum[r][v] = Simd::broadcast(0.0f);
        }
        for (int i = 0; i < factor.inner; ++i) {
            const float* from = x + i * x_stride + first;
            UNROLL for (int r = 0; r < Rows; ++r) {
                const Simd::Float number =
                    Simd::broadcast(a[r * factor.row_stride + i * factor.inner_stride]);
                UNROLL for (int v = 0; v < at_once; ++v) {
                    sum[r][v] = Simd::fma(number, Simd::load(from + v * Simd::lanes), sum[r][v]);
                }
            }
        }
        UNROLL for (int r = 0; r < Rows; ++r) {
            float* to = y + (row + r) * y_stride + first;
            UNROLL for (int v = 0; v < at_once; ++v) Simd::store(to + v * Simd::lanes, sum[r][v]);
        }
    }
}

inline void multiply(const Factor& factor, const float* x, ptrdiff_t x_stride, float* y, ptrdiff_t y_stride) {
    int row = 0;
    for (; row + 2 < factor.rows; row += 3) multiply_rows<3>(factor, row, x, x_stride, y, y_stride);
    for (; row < factor.rows; ++row) multiply_rows<1>(factor, row, x, x_stride, y, y_stride);
}

template <int Rows, int Inner>
void add_products_of(const float* y, ptrdiff_t y_stride, const float* x, ptrdiff_t x_stride, float* sums,
                     ptrdiff_t sums_stride) {
    Simd::Float sum[Rows][Inner];
    UNROLL for (int r = 0; r < Rows; ++r) {
        UNROLL for (int i = 0; i < Inner; ++i) sum[r][i] =
            Simd::load(sums + r * sums_stride + i * Simd::lanes);
    }
    for (int at = 0; at < mixing_block; at += Simd::lanes) {
        UNROLL for (int r = 0; r < Rows; ++r) {
            const Simd::Float left = Simd::load(y + r * y_stride + at);
            UNROLL for (int i = 0; i < Inner; ++i) {
                sum[r][i] = Simd::fma(left, Simd::load(x + i * x_stride + at), sum[r][i]);
            }
        }
    }
    UNROLL for (int r = 0; r < Rows; ++r) {
        UNROLL for (int i = 0; i < Inner; ++i)
            Simd::store(sums + r * sums_stride + i * Simd::lanes, sum[r][i]);
    }
}

// sums (rows, inner, lanes) += y x^T, lane by lane: y (rows, block), x (inner, block).
inline void add_products(const float* y, int rows, ptrdiff_t y_stride, const float* x, int inner,
                         ptrdiff_t x_stride, float* sums) {
    const ptrdiff_t sums_stride = static_cast<ptrdiff_t>(inner) * Simd::lanes;
    for (int row = 0; row < rows;) {
        const bool three_rows = row + 2 < rows;
        for (int i = 0; i < inner;) {
            const bool three = i + 2 < inner;
            const auto add = three_rows ? (three ? add_products_of<3, 3> : add_products_of<3, 1>)
                                        : (three ? add_products_of<1, 3> : add_products_of<1, 1>);
            add(y + row * y_stride, y_stride, x + i * x_stride, x_stride,
                sums + row * sums_stride + i * Simd::lanes, sums_stride);
            i += three ? 3 : 1;
        }
        row += three_rows ? 3 : 1;
    }
}

// A square of lanes x lanes, its rows in registers.
inline void transpose(Simd::Float (&rows)[Simd::lanes]) {
    constexpr int half = Simd::lanes / 2;
    Simd::Float zipped[Simd::lanes];
    UNROLL for (int round = 1; round < Simd::lanes; round *= 2) {
        UNROLL for (int i = 0; i < half; ++i) {
            Simd::zip(rows[i], rows[i + half], zipped[2 * i], zipped[2 * i + 1]);
        }
        UNROLL for (int i = 0; i < Simd::lanes; ++i) rows[i] = zipped[i];
    }
}

// What comes next in a row, which no prefetcher of the machine foresees.
template <class T>
void prefetch(const T* next, int count) {
    for (int i = 0; i < count; i += 64 / static_cast<int>(sizeof(T))) __builtin_prefetch(next + i);
}

// Slices (count, taps) as (taps, count), a stride from one row to the next.
void gather_taps(const float* slices, int taps, int count, float* out, ptrdiff_t stride) {
    constexpr int lanes = Simd::lanes;
    for (int pair = 0; pair < count; pair += lanes, slices += static_cast<ptrdiff_t>(lanes) * taps) {
        prefetch(slices + static_cast<ptrdiff_t>(mixing_block) * taps, lanes * taps);
        for (int tap = 0; tap < taps; tap += lanes) {
            Simd::Float square[lanes];
            UNROLL for (int i = 0; i < lanes; ++i) {
                square[i] =
                    pair + i < count
                        ? Simd::load_first(slices + static_cast<ptrdiff_t>(i) * taps + tap, taps - tap)
                        : Simd::broadcast(0.0f);
            }
            transpose(square);
            UNROLL for (int i = 0; i < lanes; ++i) {
                if (tap + i < taps)
                    Simd::store_first(out + (tap + i) * stride + pair, square[i], count - pair);
            }
        }
    }
}

void scatter_taps(const float* x, ptrdiff_t stride, int taps, int count, float* slices) {
    constexpr int lanes = Simd::lanes;
    for (int pair = 0; pair < count; pair += lanes, slices += static_cast<ptrdiff_t>(lanes) * taps) {
        prefetch(slices + static_cast<ptrdiff_t>(mixing_block) * taps, lanes * taps);
        for (int tap = 0; tap < taps; tap += lanes) {
            Simd::Float square[lanes];
            UNROLL for (int i = 0; i < lanes; ++i) {
                square[i] = tap + i < taps ? Simd::load_first(x + (tap + i) * stride + pair, count - pair)
                                           : Simd::broadcast(0.0f);
            }
            transpose(square);
            UNROLL for (int i = 0; i < lanes; ++i) {
                if (pair + i < count)
                    Simd::store_first(slices + static_cast<ptrdiff_t>(i) * taps + tap, square[i], taps - tap);
            }
        }
    }
}

// scratch: (cores, inner taps + taps, block), what was gathered and then its product with the taps' factor.
inline void taps_of_cores(const Mixing& m, const float* cores, int first, int count, float* scratch) {
    for (int g = 0; g < m.cores; ++g) {
        float* gathered = scratch + static_cast<ptrdiff_t>(g) * (m.inner_taps + m.taps) * mixing_block;
        if (count < mixing_block) std::fill_n(gathered, m.inner_taps * mixing_block, 0.0f);
        gather_taps(cores + (static_cast<ptrdiff_t>(g) * m.pairs + first) * m.inner_taps, m.inner_taps, count,
                    gathered, mixing_block);
        multiply({m.tap_factor, m.taps, m.inner_taps, m.inner_taps, 1}, gathered, mixing_block,
                 gathered + m.inner_taps * mixing_block, mixing_block);
    }
}

inline void mix_block(const Mixing& m, const float* cores, int first, int count, float* scratch, float* x) {
    taps_of_cores(m, cores, first, count, scratch);
    const ptrdiff_t step = static_cast<ptrdiff_t>(m.inner_taps + m.taps) * mixing_block;
    float* mixed = scratch + m.cores * step;  // (weights, block)
    for (int tap = 0; tap < m.taps; ++tap) {
        multiply({m.rows, m.weights, m.cores, m.cores, 1}, scratch + (m.inner_taps + tap) * mixing_block,
                 step, mixed, mixing_block);
        for (int p = 0; p < m.weights; ++p) {
            float* to = x + static_cast<ptrdiff_t>(p * m.taps + tap) * m.pairs + first;
            std::copy_n(mixed + p * mixing_block, count, to);
            prefetch(to + mixing_block, mixing_block);
        }
    }
}

// With `of_x`, the gradient of x: of_cores is written, and what the block adds to those of rows and taps
// comes to of_rows (weights, cores, lanes) and of_taps (taps, inner taps, lanes).
inline void unmix_block(const Mixing& m, const float* cores, int first, int count, const float* of_x,
                        float* scratch, float* of_cores, float* of_rows, float* of_taps) {
    taps_of_cores(m, cores, first, count, scratch);
    const ptrdiff_t step = static_cast<ptrdiff_t>(m.inner_taps + m.taps) * mixing_block;
    float* given = scratch + m.cores * step;  // (taps, weights, block): the gradient of x
    float* of_y = given + static_cast<ptrdiff_t>(m.weights) * m.taps * mixing_block;  // (taps, block)
    for (int tap = 0; tap < m.taps; ++tap) {
        float* of_tap = given + static_cast<ptrdiff_t>(tap) * m.weights * mixing_block;
        for (int p = 0; p < m.weights; ++p) {
            const float* from = of_x + static_cast<ptrdiff_t>(p * m.taps + tap) * m.pairs + first;
            float* to = of_tap + p * mixing_block;
            prefetch(from + mixing_block, mixing_block);
            std::fill(std::copy_n(from, count, to), to + mixing_block, 0.0f);
        }
        add_products(of_tap, m.weights, mixing_block, scratch + (m.inner_taps + tap) * mixing_block, m.cores,
                     step, of_rows);
    }
    for (int g = 0; g < m.cores; ++g) {
        for (int tap = 0; tap < m.taps; ++tap) {
            multiply({m.rows + g, 1, m.weights, 0, m.cores},
                     given + static_cast<ptrdiff_t>(tap) * m.weights * mixing_block, mixing_block,
                     of_y + tap * mixing_block, 0);
        }
        float* gathered = scratch + g * step;
        add_products(of_y, m.taps, mixing_block, gathered, m.inner_taps, mixing_block, of_taps);
        multiply({m.tap_factor, m.inner_taps, m.taps, 1, m.inner_taps}, of_y, mixing_block, gathered,
                 mixing_block);
        scatter_taps(gathered, mixing_block, m.inner_taps, count,
                     of_cores + (static_cast<ptrdiff_t>(g) * m.pairs + first) * m.inner_taps);
    }
}

template <class F>
void for_each_block(int first, int count, F f) {
    for (int done = 0; done < count; done += mixing_block) {
        f(first + done, std::min(mixing_block, count - done));
    }
}

void mix(const Mixing& m, const float* cores, int first, int count, float* scratch, float* x) {
    for_each_block(first, count, [&](int at, int pairs) { mix_block(m, cores, at, pairs, scratch, x); });
}

void unmix(const Mixing& m, const float* cores, int first, int count, const float* of_x, float* scratch,
           float* of_cores, float* of_rows, float* of_taps) {
    const int of_factors = m.weights * m.cores + m.taps * m.inner_taps;
    float* sums = scratch + mixing_floats(m) - of_factors * Simd::lanes;
    float* of_tap_sums = sums + m.weights * m.cores * Simd::lanes;
    std::fill_n(sums, of_factors * Simd::lanes, 0.0f);
    for_each_block(first, count, [&](int at, int pairs) {
        unmix_block(m, cores, at, pairs, of_x, scratch, of_cores, sums, of_tap_sums);
    });
    const auto reduce = [](const float* lanes, int values, float* out) {
        for (int i = 0; i < values; ++i, lanes += Simd::lanes) {
            out[i] = 0.0f;
            for (int lane = 0; lane < Simd::lanes; ++lane) out[i] += lanes[lane];
        }
    };
    reduce(sums, m.weights * m.cores, of_rows);
    reduce(of_tap_sums, m.taps * m.inner_taps, of_taps);
}

constexpr MixingKernels mixing_kernels = {mix, unmix};

}  // namespace
}  // namespace bitfactor
