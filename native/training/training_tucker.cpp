// The weights of Tucker decompositions and their gradients: what there is to multiply, in which order, by
// which thread. For W_t = U x_t V^T of each tap, U the factor of outputs and V that of channels, and y = U x,
//
//     of_y = of_W V,  of_U = sum of_y x^T,  of_V = sum of_W^T y,  of_x = U^T of_y.
//
// A weight and tap at a time, whose matrices stay in the L2 cache. Sums over weights and taps come in order,
// so that they have the same bits with any number of threads.

#include <algorithm>

#include "kernels/pack.h"
#include "training/training.h"

namespace bitfactor {
namespace {

constexpr int filters_at_once = 32;  // an even number; their taps stay in the L2 cache

// Calls f(first, count) for parts of rows, an even first, one for each thread.
template <class F>
void for_each_part(ThreadPool& threads, int rows, F f) {
    const int eights = 8 * static_cast<int>(threads.workers()), part = (rows + eights - 1) / eights * 8;
    threads.for_each(static_cast<size_t>((rows + part - 1) / part), [&](size_t i) {
        const int first = static_cast<int>(i) * part;
        f(static_cast<ptrdiff_t>(first), std::min(part, rows - first));
    });
}

// The words of a matrix of floats (rows, columns) as an operand: of neighbouring columns, for what is summed
// along a row, and of neighbouring rows. Not coupled, both are the matrix itself.
class Operand {
  public:
    Operand(const ProductKernels& kernels, bool coupled, int rows, int columns, const float* x = nullptr)
        : kernels_(kernels), coupled_(coupled), columns_(columns), words_(words(columns)), x_(x) {
        if (!coupled) return;
        by_columns_.resize(static_cast<size_t>(rows) * words_);
        by_rows_.resize(static_cast<size_t>(words(rows)) * columns);
    }

    void stand_for(const float* x) { x_ = x; }

    // Rows first ... first + count, an even first, are there.
    void take(ptrdiff_t first, int count) {
        if (!coupled_) return;
        const float* from = x_ + first * columns_;
        kernels_.couple_columns(from, count, columns_, by_columns_.data() + first * words_);
        kernels_.couple_rows(from, count, columns_, by_rows_.data() + first / 2 * columns_);
    }

    const float* by_columns(ptrdiff_t row) const {
        return coupled_ ? by_columns_.data() + row * words_ : x_ + row * columns_;
    }
    const float* by_rows() const { return coupled_ ? by_rows_.data() : x_; }

    int words(int terms) const { return coupled_ ? (terms + 1) / 2 : terms; }

  private:
    const ProductKernels& kernels_;
    bool coupled_;
    int columns_, words_;
    const float* x_;
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

Tucker described(const TuckerOperands& of, const Kronecker& grid, const Kronecker& taps, bool coupled) {
    return {{grid.rows, grid.columns, taps.rows, taps.columns, of.output.columns * of.channel.columns,
             grid.numbers.data(), taps.numbers.data()},
            of.output.rows,
            of.channel.rows,
            of.output.columns,
            of.channel.columns,
            coupled,
            of.output.numbers,
            of.channel.numbers};
}

// Of y, for each tap.
size_t floats_of_y(const Tucker& w) {
    return static_cast<size_t>(w.coupled ? (w.outputs + 1) / 2 : w.outputs) * w.inner_channels;
}

// Leads the gradients of weights back through the channel modes, one tap of one weight at a time.
class ChannelsBackward {
  public:
    ChannelsBackward(ThreadPool& threads, const ProductKernels& kernels, const Tucker& w,
                     const TuckerOperands& gradients)
        : threads_(threads),
          kernels_(kernels),
          w_(w),
          of_output_(gradients.output.numbers),
          of_channel_(gradients.channel.numbers),
          output_(kernels, w.coupled, w.outputs, w.inner_outputs, w.output),
          channel_(kernels, w.coupled, w.channels, w.inner_channels, w.channel),
          of_W_(kernels, w.coupled, w.outputs, w.channels),
          of_y_(kernels, w.coupled, w.outputs, w.inner_channels),
          x_(kernels, w.coupled, w.inner_outputs, w.inner_channels),
          taps_of_W_(static_cast<size_t>(w.mixing.taps) * w.outputs * w.channels),
          of_y_floats_(static_cast<size_t>(w.outputs) * w.inner_channels),
          x_transposed_(static_cast<size_t>(x_.words(w.inner_channels)) * w.inner_outputs) {
        output_.take(0, w.outputs);
        channel_.take(0, w.channels);
        of_y_.stand_for(of_y_floats_.data());
        std::fill_n(of_output_, static_cast<size_t>(w.outputs) * w.inner_outputs, 0.0f);
        std::fill_n(of_channel_, static_cast<size_t>(w.channels) * w.inner_channels, 0.0f);
    }

    // Takes the gradient of a weight.
    void take(const float* of_W) {
        const ptrdiff_t tap = static_cast<ptrdiff_t>(w_.outputs) * w_.channels;
        for_each_part(threads_, w_.outputs, [&](ptrdiff_t first, int count) {
            first *= w_.channels;
            kernels_.gather_taps(of_W + first * w_.mixing.taps, w_.mixing.taps, count * w_.channels,
                                 taps_of_W_.data() + first, tap);
        });
    }

    // Of a tap of it, adds the gradients of the factors, and puts that of x in x's place.
    void lead_back(int tap, const float* y, float* x) {
        const int rows = w_.inner_outputs, columns = w_.inner_channels;
        of_W_.stand_for(taps_of_W_.data() + static_cast<ptrdiff_t>(tap) * w_.outputs * w_.channels);
        x_.stand_for(x);
        for_each_part(threads_, w_.outputs, [&](ptrdiff_t first, int count) {
            of_W_.take(first, count);
            multiply_rows(count, columns, w_.channels, of_W_.by_columns(first), channel_.by_rows(),
                          of_y_floats_.data() + first * columns, false);
            of_y_.take(first, count);
        });
        for_each_part(threads_, rows, [&](ptrdiff_t first, int count) {
            x_.take(first, count);
            kernels_.transpose(x_.by_columns(first), count, x_.words(columns), x_transposed_.data() + first,
                               rows);
        });
        for_each_part(threads_, w_.outputs, [&](ptrdiff_t first, int count) {
            multiply_rows(count, rows, columns, of_y_.by_columns(first), x_transposed_.data(),
                          of_output_ + first * rows, true);
        });
        for_each_part(threads_, w_.channels, [&](ptrdiff_t first, int count) {
            multiply_columns(count, w_.channels, of_W_.by_rows() + first, y, of_channel_ + first * columns,
                             true);
        });
        for_each_part(threads_, rows, [&](ptrdiff_t first, int count) {
            multiply_columns(count, rows, output_.by_rows() + first, of_y_.by_rows(), x + first * columns,
                             false);
        });
    }

  private:
    // c (count, columns) = a b, terms along the rows of a.
    void multiply_rows(int count, int columns, int terms, const float* a, const float* b, float* c,
                       bool add) const {
        const int words = x_.words(terms);
        kernels_.product({count, columns, words, a, words, 1, b, c, w_.coupled, add});
    }
    // c (count, inner channels) = a^T b, terms, the outputs, along the columns of a (outputs, width).
    void multiply_columns(int count, int width, const float* a, const float* b, float* c, bool add) const {
        kernels_.product(
            {count, w_.inner_channels, x_.words(w_.outputs), a, 1, width, b, c, w_.coupled, add});
    }

    ThreadPool& threads_;
    const ProductKernels& kernels_;
    const Tucker& w_;
    float *of_output_, *of_channel_;
    Operand output_, channel_, of_W_, of_y_, x_;
    AlignedVector<float> taps_of_W_, of_y_floats_, x_transposed_;
};

}  // namespace

void Trainer::weights(const TuckerOperands& operands, bool coupled, float* x, float* y,
                      const std::vector<float*>& W) {
    const Kronecker grid(operands.grid), taps(operands.taps);
    const Tucker w = described(operands, grid, taps, coupled);
    const Mixing& m = w.mixing;
    const size_t of_x = static_cast<size_t>(m.taps) * m.pairs, of_y = m.taps * floats_of_y(w);
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
    ChannelsBackward backward(threads_, training_.products, w, gradients);
    mix(m, operands.core, x);
    float* slice = x;
    for (const float* of_this : of_W) {
        backward.take(of_this);
        for (int tap = 0; tap < m.taps; ++tap, y += floats_of_y(w), slice += m.pairs) {
            backward.lead_back(tap, y, slice);
        }
    }
    std::vector<float> of_grid(grid.numbers.size()), of_taps(taps.numbers.size());
    unmix(m, operands.core, x, gradients.core, of_grid.data(), of_taps.data());
    of_kronecker(operands.grid, of_grid, gradients.grid);
    of_kronecker(operands.taps, of_taps, gradients.taps);
}

}  // namespace bitfactor
