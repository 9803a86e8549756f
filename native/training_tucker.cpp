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

void Trainer::weights(const Tucker& w, const float* cores, float* x, float* y, const std::vector<float*>& W) {
    const Mixing& m = w.mixing;
    const size_t of_x = static_cast<size_t>(m.taps) * m.pairs;
    const size_t of_y =
        static_cast<size_t>(m.taps) * (w.coupled ? (w.outputs + 1) / 2 : w.outputs) * w.inner_channels;
    const size_t parts = (static_cast<size_t>(w.outputs) + filters_at_once - 1) / filters_at_once;
    AlignedVector<float> channel(static_cast<size_t>(w.channels) * w.inner_channels);
    training_.products.transpose(w.channel, w.channels, w.inner_channels, channel.data(), w.channels);
    mix(m, cores, x);
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

void Trainer::of_weights(const Tucker& w, const float* cores, float* x, const float* y,
                         const std::vector<const float*>& of_W, const TuckerGradients& gradients) {
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
    std::fill_n(gradients.output, static_cast<size_t>(w.outputs) * rows, 0.0f);
    std::fill_n(gradients.channel, static_cast<size_t>(w.channels) * columns, 0.0f);
    mix(m, cores, x);
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
                                 slice_transposed.data(), gradients.output + first * rows, w.coupled, true});
            });
            for_each_part(w.channels, [&](ptrdiff_t first, int count) {
                kernels.product({count, columns, output_words, of_W_tap.by_rows() + first, 1, w.channels, y,
                                 gradients.channel + first * columns, w.coupled, true});
            });
            for_each_part(rows, [&](ptrdiff_t first, int count) {
                kernels.product({count, columns, output_words, output.by_rows() + first, 1, rows,
                                 of_y.by_rows(), of_x + first * columns, w.coupled});
            });
            of_x += m.pairs;
            y += static_cast<ptrdiff_t>(output_words) * columns;
        }
    }
    unmix(m, cores, x, gradients.cores, gradients.rows, gradients.tap_factor);
}

}  // namespace bitfactor
