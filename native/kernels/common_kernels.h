// The table of all but the layers of signs and of 8 bits, over the file's `Simd`.

#pragma once

#include "kernels/conv.h"
#include "kernels/depthwise.h"
#include "kernels/epilogue.h"
#include "kernels/integer.h"
#include "kernels/pool.h"
#include "kernels/reduce.h"

namespace bitfactor {
namespace {

struct FloatRows {
    static constexpr int begin = 0;
    const float* rows;
    int first, count, end;

    template <class F>
    [[gnu::always_inline]] void for_each(F f) const {
        for (int i = 0; i < count; ++i) f(i, first + i);
    }

    template <int vectors>
    Simd::Float load(int row, int c) const {
        return load_lanes<vectors>(rows + static_cast<ptrdiff_t>(row) * end + c, end - c);
    }
};

void epilogue(const Stage* stages, size_t stage_count, const float* rows, int first, int count, int channels,
              char* arena) {
    walk_of<FloatRows>(stages, stage_count)(stages, stage_count, {rows, first, count, channels}, channels,
                                            arena);
}

constexpr CommonKernels common_kernels = {
    conv,          depthwise,        quantise<FloatLevels>,
    max_pool,      avg_pool,         global_avg_pool,
    softmax,       layer_norm,       reduce_channels,
    reduce_pixels, resize,           to_integers,
    integer_conv,  integer_avg_pool, all_finite,
    transpose,     epilogue,
};

}  // namespace
}  // namespace bitfactor
