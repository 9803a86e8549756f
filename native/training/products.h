// The channel modes of a Tucker weight: products of matrices of words. A word is a float, or couples two
// bfloat16, neighbouring terms of a sum: so a product is that of floats with half the steps.
//
// A tile of rows by two registers of columns takes one row of b at a time, which is used for all of its rows;
// b's part of as many columns stays in the L1 or L2 cache. The terms of a sum come in order, so that it has
// the same bits on every instruction set.

#pragma once

#include <algorithm>

#include "training/mixing.h"

namespace bitfactor {
namespace {

constexpr int product_rows = Simd::lanes == 16 ? 8 : 4;

template <bool coupled>
Simd::Float add_product(Simd::Float sum, float a, Simd::Float b) {
#if defined(__AVX512BF16__)
    if constexpr (coupled) return Simd::add_couples(sum, Simd::broadcast(a), b);
#endif
    return Simd::fma(Simd::broadcast(a), b, sum);
}

// A tile of one register need not be full.
template <bool coupled, int Rows, int Vectors>
void product_tile(const Product& p, int row, int column) {
    const int columns = Vectors == 1 ? p.columns - column : Vectors * Simd::lanes;
    const auto load = [&](const float* from, int v) {
        return Vectors == 1 ? Simd::load_first(from, columns) : Simd::load(from + v * Simd::lanes);
    };
    float* c = p.c + static_cast<ptrdiff_t>(row) * p.columns + column;
    const float *a = p.a + row * p.row_stride, *b = p.b + column;
    Simd::Float sum[Rows][Vectors];
    UNROLL for (int r = 0; r < Rows; ++r) {
        UNROLL for (int v = 0; v < Vectors; ++v) {
            sum[r][v] = p.add ? load(c + static_cast<ptrdiff_t>(r) * p.columns, v) : Simd::broadcast(0.0f);
        }
    }
    for (int i = 0; i < p.inner; ++i, a += p.inner_stride, b += p.columns) {
        Simd::Float of_b[Vectors];
        UNROLL for (int v = 0; v < Vectors; ++v) of_b[v] = load(b, v);
        UNROLL for (int r = 0; r < Rows; ++r) {
            UNROLL for (int v = 0; v < Vectors; ++v) {
                sum[r][v] = add_product<coupled>(sum[r][v], a[r * p.row_stride], of_b[v]);
            }
        }
    }
    UNROLL for (int r = 0; r < Rows; ++r, c += p.columns) {
        UNROLL for (int v = 0; v < Vectors; ++v) {
            if (Vectors == 1) {
                Simd::store_first(c, sum[r][v], columns);
            } else {
                Simd::store(c + v * Simd::lanes, sum[r][v]);
            }
        }
    }
}

template <bool coupled, int Vectors>
void product_columns(const Product& p, int column) {
    int row = 0;
    for (; row + product_rows <= p.rows; row += product_rows) {
        product_tile<coupled, product_rows, Vectors>(p, row, column);
    }
    for (; row < p.rows; ++row) product_tile<coupled, 1, Vectors>(p, row, column);
}

template <bool coupled>
void product_of_words(const Product& p) {
    int column = 0;
    for (; column + 2 * Simd::lanes <= p.columns; column += 2 * Simd::lanes) {
        product_columns<coupled, 2>(p, column);
    }
    for (; column < p.columns; column += Simd::lanes) product_columns<coupled, 1>(p, column);
}

void product(const Product& p) {
    if (p.coupled) {
        product_of_words<true>(p);
    } else {
        product_of_words<false>(p);
    }
}

// Words of two neighbouring columns, (rows, columns / 2), and of two neighbouring rows, (rows / 2, columns);
// what is missing of the last is 0.
void couple_columns(const float* x, int rows, int columns, float* words) {
    Bfloat16* to = reinterpret_cast<Bfloat16*>(words);
    for (int row = 0; row < rows; ++row, x += columns) {
        for (int i = 0; i < columns; ++i) set(to[i], x[i]);
        to += columns;
        if (columns % 2) *to++ = {0};
    }
}

void couple_rows(const float* x, int rows, int columns, float* words) {
    for (int row = 0; row < rows; row += 2, x += 2 * columns, words += columns) {
        const bool both = row + 1 < rows;
        for (int i = 0; i < columns; ++i) {
            Bfloat16 low, high;
            set(low, x[i]);
            set(high, both ? x[columns + i] : 0.0f);
            const uint32_t word = static_cast<uint32_t>(high.bits) << 16 | low.bits;
            std::memcpy(words + i, &word, sizeof word);
        }
    }
}

// (rows, columns) -> (columns, rows), a stride from one of these to the next.
void transpose_words(const float* x, int rows, int columns, float* out, ptrdiff_t stride) {
    constexpr int lanes = Simd::lanes;
    for (int row = 0; row < rows; row += lanes) {
        for (int column = 0; column < columns; column += lanes) {
            Simd::Float square[lanes];
            UNROLL for (int i = 0; i < lanes; ++i) {
                square[i] = row + i < rows
                                ? Simd::load_first(x + static_cast<ptrdiff_t>(row + i) * columns + column,
                                                   columns - column)
                                : Simd::broadcast(0.0f);
            }
            transpose(square);
            UNROLL for (int i = 0; i < lanes; ++i) {
                if (column + i < columns) {
                    Simd::store_first(out + (column + i) * stride + row, square[i], rows - row);
                }
            }
        }
    }
}

// scratch: (count, inner channels), then (taps, count, channels).
void filters(const Tucker& w, const float* x, const float* channel, int first, int count, float* scratch,
             float* y, float* W) {
    const int taps = w.mixing.taps, columns = w.inner_channels;
    float* found = scratch + static_cast<ptrdiff_t>(count) * columns;  // (taps, count, channels)
    for (int tap = 0; tap < taps; ++tap) {
        float* y_rows = w.coupled ? scratch : y + (static_cast<ptrdiff_t>(tap) * w.outputs + first) * columns;
        product({count, columns, w.inner_outputs, w.output + static_cast<ptrdiff_t>(first) * w.inner_outputs,
                 w.inner_outputs, 1, x + static_cast<ptrdiff_t>(tap) * w.mixing.pairs, y_rows});
        if (w.coupled) {
            const ptrdiff_t row = static_cast<ptrdiff_t>(tap) * ((w.outputs + 1) / 2) + first / 2;
            couple_rows(y_rows, count, columns, y + row * columns);
        }
        product({count, w.channels, columns, y_rows, columns, 1, channel,
                 found + static_cast<ptrdiff_t>(tap) * count * w.channels});
    }
    scatter_taps(found, count * w.channels, taps, count * w.channels,
                 W + static_cast<ptrdiff_t>(first) * w.channels * taps);
}

#if defined(__AVX512BF16__)
constexpr bool couples = true;
bool training_supported() { return this_cpu().avx512bf16; }
#else
constexpr bool couples = false;
bool training_supported() { return true; }
#endif

constexpr ProductKernels product_kernels = {couples,         product,     couple_columns, couple_rows,
                                            transpose_words, gather_taps, filters};

}  // namespace
}  // namespace bitfactor
