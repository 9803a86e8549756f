// The weights of Tucker decompositions and their gradients: what there is to multiply, in which order, by
// which thread. For W_t = U x_t V^T of each tap, U the factor of outputs and V that of channels, and y = U x,
//
//     of_y = of_W V,  of_U = sum of_y x^T,  of_V = sum of_W^T y,  of_x = U^T of_y.
//
// A weight and tap at a time, whose matrices stay in the L2 cache. Sums over weights and taps come in order,
// so that they have the same bits with any number of threads.

#include <algorithm>

#include "pack.h"
#include "training.h"

namespace bitfactor {
namespace {

constexpr int filters_at_once = 32;  // an even number; their taps stay in the L2 cache

// A matrix of floats as an operand of products: itself, or the words that stand for it.
class Operand {
  public:
    Operand(const ProductKernels& kernels, bool coupled, int rows, int columns, bool by_columns, bool by_rows)
        : kernels_(kernels), coupled_(coupled), columns_(columns) {
        if (coupled && by_columns) by_columns_.resize(static_cast<size_t>(rows) * words(columns));
        if (coupled && by_rows) by_rows_.resize(static_cast<size_t>(words(rows)) * columns);
    }

    // Of x (rows, columns), of which `take` then takes rows first ... first + count, an even first.
    void stand_for(const float* x) { x_ = x; }
    void take(int first, int count) {
        const float* from = x_ + static_cast<ptrdiff_t>(first) * columns_;
        if (!by_columns_.empty()) {
            float* to = by_columns_.data() + static_cast<ptrdiff_t>(first) * words(columns_);
            kernels_.couple_columns(from, count, columns_, to);
        }
        if (!by_rows_.empty()) {
            float* to = by_rows_.data() + static_cast<ptrdiff_t>(first / 2) * columns_;
            kernels_.couple_rows(from, count, columns_, to);
        }
    }

    // Rows from `row` on, words along the columns; all rows, words along the rows.
    const float* by_columns(int row) const {
        return coupled_ ? by_columns_.data() + static_cast<ptrdiff_t>(row) * words(columns_)
                        : x_ + static_cast<ptrdiff_t>(row) * columns_;
    }
    const float* by_rows() const { return coupled_ ? by_rows_.data() : x_; }

    int words(int terms) const { return coupled_ ? (terms + 1) / 2 : terms; }

  private:
    const ProductKernels& kernels_;
    bool coupled_;
    int columns_;
    const float* x_ = nullptr;
    AlignedVector<float> by_columns_, by_rows_;
};

using Matrices = std::vector<Matrix>::const_iterator;

// The Kronecker product of matrices, the last one varying fastest.
struct Kronecker {
    int rows = 1, columns = 1;
    std::vector<float> numbers{1.0f};

    Kronecker(Matrices first, Matrices last) {
        for (; first != last; ++first) {
            std::vector<float> product;
            product.reserve(numbers.size() * first->rows * first->columns);
            for (int row = 0; row < rows; ++row) {
                for (int i = 0; i < first->rows; ++i) {
                    for (int column = 0; column < columns; ++column) {
                        const float number = numbers[row * columns + column];
                        const float* factor = first->numbers + i * first->columns;
                        for (int j = 0; j < first->columns; ++j) product.push_back(number * factor[j]);
                    }
                }
            }
            rows *= first->rows;
            columns *= first->columns;
            numbers = std::move(product);
        }
    }
    explicit Kronecker(const std::vector<Matrix>& factors) : Kronecker(factors.begin(), factors.end()) {}
};

// The gradients of the matrices by that of their product.
void of_kronecker(const std::vector<Matrix>& factors, const std::vector<float>& of_product,
                  const std::vector<Matrix>& gradients) {
    for (auto factor = factors.begin(); factor != factors.end(); ++factor) {
        const Kronecker before(factors.begin(), factor), after(factor + 1, factors.end());
        float* to = gradients[factor - factors.begin()].numbers;
        std::fill_n(to, factor->rows * factor->columns, 0.0f);
        const float* from = of_product.data();
        for (int i = 0; i < before.rows * factor->rows * after.rows; ++i) {
            const float* left = before.numbers.data() + i / (factor->rows * after.rows) * before.columns;
            const float* right = after.numbers.data() + i % after.rows * after.columns;
            float* row = to + i / after.rows % factor->rows * factor->columns;
            for (int j = 0; j < before.columns * factor->columns; ++j) {
                const float outside = left[j / factor->columns];
                for (int k = 0; k < after.columns; ++k) {
                    row[j % factor->columns] += outside * right[k] * *from++;
                }
            }
        }
    }
}

Tucker described(const TuckerOperands& of, const Kronecker& rows, const Kronecker& taps, bool coupled) {
    return {{rows.rows, rows.columns, taps.rows, taps.columns, of.output.columns * of.channel.columns,
             rows.numbers.data(), taps.numbers.data()},
            of.output.rows,
            of.channel.rows,
            of.output.columns,
            of.channel.columns,
            coupled,
            of.output.numbers,
            of.channel.numbers};
}

}  // namespace

// Calls f(first, count) for parts of rows, an even first, one for each thread.
template <class F>
void Trainer::for_each_part(int rows, F f) {
    const int eights = 8 * static_cast<int>(threads_.workers()), part = (rows + eights - 1) / eights * 8;
    threads_.for_each(static_cast<size_t>((rows + part - 1) / part), [&](size_t i) {
        const int first = static_cast<int>(i) * part;
        f(first, std::min(part, rows - first));
    });
}

void Trainer::weights(const TuckerOperands& operands, bool coupled, float* x, float* y,
                      const std::vector<float*>& W) {
    const Kronecker rows(operands.grid), taps(operands.taps);
    const Tucker w = described(operands, rows, taps, coupled);
    const Mixing& m = w.mixing;
    const size_t of_x = static_cast<size_t>(m.taps) * m.pairs;
    const size_t of_y =
        static_cast<size_t>(m.taps) * (w.coupled ? (w.outputs + 1) / 2 : w.outputs) * w.inner_channels;
    const size_t parts = (static_cast<size_t>(w.outputs) + filters_at_once - 1) / filters_at_once;
    AlignedVector<float> channel(static_cast<size_t>(w.channels) * w.inner_channels);
    training_.products.transpose(w.channel, w.channels, w.inner_channels, channel.data(), w.channels);
    mix(m, operands.core, x);
    threads_.for_each(parts * m.weights, [&](size_t i) {
        thread_local AlignedVector<float> scratch;
        const size_t floats = static_cast<size_t>(filters_at_once) * (m.taps * w.channels + w.inner_channels);
        scratch.resize(std::max(scratch.size(), floats));
        const size_t p = i / parts;
        const int first = static_cast<int>(i % parts) * filters_at_once;
        const int count = std::min(filters_at_once, w.outputs - first);
        training_.products.filters(w, x + p * of_x, channel.data(), first, count, scratch.data(),
                                   y + p * of_y, W[p]);
    });
}

void Trainer::of_weights(const TuckerOperands& operands, bool coupled, float* x, const float* y,
                         const std::vector<const float*>& of_W, const TuckerOperands& gradients) {
    const Kronecker grid(operands.grid), taps(operands.taps);
    const Tucker w = described(operands, grid, taps, coupled);
    const Mixing& m = w.mixing;
    const ProductKernels& kernels = training_.products;
    const int rows = w.inner_outputs, columns = w.inner_channels;
    const ptrdiff_t filter = static_cast<ptrdiff_t>(w.channels) * m.taps;
    Operand output(kernels, w.coupled, w.outputs, rows, false, true);
    Operand channel(kernels, w.coupled, w.channels, columns, false, true);
    Operand of_W_tap(kernels, w.coupled, w.outputs, w.channels, true, true);
    Operand of_y(kernels, w.coupled, w.outputs, columns, true, true);
    Operand slice(kernels, w.coupled, rows, columns, true, false);
    const int channel_words = channel.words(w.channels), output_words = output.words(w.outputs);
    const int column_words = slice.words(columns);
    AlignedVector<float> taps_of_W(static_cast<size_t>(m.taps) * w.outputs * w.channels);
    AlignedVector<float> of_y_floats(static_cast<size_t>(w.outputs) * columns);
    AlignedVector<float> slice_transposed(static_cast<size_t>(column_words) * rows);
    output.stand_for(w.output);
    output.take(0, w.outputs);
    channel.stand_for(w.channel);
    channel.take(0, w.channels);
    of_y.stand_for(of_y_floats.data());
    std::fill_n(gradients.output.numbers, static_cast<size_t>(w.outputs) * rows, 0.0f);
    std::fill_n(gradients.channel.numbers, static_cast<size_t>(w.channels) * columns, 0.0f);
    mix(m, operands.core, x);
    float* of_x = x;  // takes the place of x, slice by slice
    for (const float* of_this : of_W) {
        for_each_part(w.outputs, [&](ptrdiff_t first, int count) {
            kernels.gather_taps(of_this + first * filter, m.taps, count * w.channels,
                                taps_of_W.data() + first * w.channels,
                                static_cast<ptrdiff_t>(w.outputs) * w.channels);
        });
        for (int tap = 0; tap < m.taps; ++tap) {
            of_W_tap.stand_for(taps_of_W.data() + static_cast<ptrdiff_t>(tap) * w.outputs * w.channels);
            slice.stand_for(of_x);
            for_each_part(w.outputs, [&](ptrdiff_t first, int count) {
                of_W_tap.take(first, count);
                kernels.product({count, columns, channel_words, of_W_tap.by_columns(first), channel_words, 1,
                                 channel.by_rows(), of_y_floats.data() + first * columns, w.coupled});
                of_y.take(first, count);
            });
            for_each_part(rows, [&](ptrdiff_t first, int count) {
                slice.take(first, count);
                kernels.transpose(slice.by_columns(first), count, column_words,
                                  slice_transposed.data() + first, rows);
            });
            for_each_part(w.outputs, [&](ptrdiff_t first, int count) {
                kernels.product({count, rows, column_words, of_y.by_columns(first), column_words, 1,
                                 slice_transposed.data(), gradients.output.numbers + first * rows, w.coupled,
                                 true});
            });
            for_each_part(w.channels, [&](ptrdiff_t first, int count) {
                kernels.product({count, columns, output_words, of_W_tap.by_rows() + first, 1, w.channels, y,
                                 gradients.channel.numbers + first * columns, w.coupled, true});
            });
            for_each_part(rows, [&](ptrdiff_t first, int count) {
                kernels.product({count, columns, output_words, output.by_rows() + first, 1, rows,
                                 of_y.by_rows(), of_x + first * columns, w.coupled});
            });
            of_x += m.pairs;
            y += static_cast<ptrdiff_t>(output_words) * columns;
        }
    }
    std::vector<float> of_grid(grid.numbers.size()), of_taps(taps.numbers.size());
    unmix(m, operands.core, x, gradients.core, of_grid.data(), of_taps.data());
    of_kronecker(operands.grid, of_grid, gradients.grid);
    of_kronecker(operands.taps, of_taps, gradients.taps);
}

}  // namespace bitfactor
