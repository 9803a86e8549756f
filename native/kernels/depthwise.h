// Convolution of real numbers whose channels are apart, vectorised over them.
//
// The weights of a tap and `channel_vectors` registers of channels serve `depthwise_tile` pixels of a row.
// The order of an output's sum is that of conv.h; taps outside of the map, which add 0, are left out.
//
// Levels and weights of 8 bits may stand in floats: their sums are exact below 2^24, and no product of bytes
// has its operands in the order of channels.

#pragma once

#include "kernels/pool.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {

constexpr int depthwise_tile = 4, channel_vectors = 2;

struct FloatLevels {
    using Level = float;
    static constexpr bool levels_are_cut = true;
    static void store_levels(float* to, Simd::Float level, int count) {
        constexpr float rounds = 12582912.0f;  // 1.5 * 2^23
        const Simd::Float above = Simd::add(level, Simd::broadcast(rounds));
        Simd::store_first(to, Simd::add(above, Simd::broadcast(-rounds)), count);
    }
};

// P pixels whose taps are `taps` of the window, all inside of the map from `corner` on.
template <int P, int V>
void depthwise_block(const Conv& conv, const float* corner, Extent taps, int c, float* row) {
    constexpr int lanes = Simd::lanes;
    const Window& w = conv.window;
    const int channels = conv.groups, left = channels - c;
    const ptrdiff_t step = static_cast<ptrdiff_t>(w.stride_w) * channels;
    const auto load = [&](const float* from, int v) {
        return V > 1 ? Simd::load(from + v * lanes) : Simd::load_first(from, left);
    };
    Simd::Float sum[P][V];
    UNROLL for (int p = 0; p < P; ++p) {
        UNROLL for (int v = 0; v < V; ++v) {
            sum[p][v] = conv.scale ? Simd::broadcast(0.0f) : load(conv.bias + c, v);
        }
    }
    for (int kh = taps.y0; kh < taps.y1; ++kh) {
        const float* line = corner + static_cast<ptrdiff_t>(kh) * w.dilation_h * w.in_w * channels + c;
        for (int kw = taps.x0; kw < taps.x1; ++kw) {
            const float* x = line + static_cast<ptrdiff_t>(kw) * w.dilation_w * channels;
            const float* weight = conv.weight + (static_cast<ptrdiff_t>(kh) * w.kernel_w + kw) * channels + c;
            UNROLL for (int v = 0; v < V; ++v) {
                const Simd::Float tap = load(weight, v);
                UNROLL for (int p = 0; p < P; ++p) sum[p][v] =
                    Simd::fma(load(x + p * step, v), tap, sum[p][v]);
            }
        }
    }
    if (conv.scale) {
        UNROLL for (int v = 0; v < V; ++v) {
            const Simd::Float scale = load(conv.scale + c, v), bias = load(conv.bias + c, v);
            UNROLL for (int p = 0; p < P; ++p) sum[p][v] = Simd::fma(sum[p][v], scale, bias);
        }
    }
    UNROLL for (int p = 0; p < P; ++p) {
        UNROLL for (int v = 0; v < V; ++v) {
            float* to = row + static_cast<ptrdiff_t>(p) * channels + c + v * lanes;
            V > 1 ? Simd::store(to, sum[p][v]) : Simd::store_first(to, sum[p][v], left);
        }
    }
}

template <int P>
void depthwise_pixels(const Conv& conv, const float* map, Pixel pixel, Extent taps, float* row) {
    const Window& w = conv.window;
    const Corner at = corner_of(w, pixel);
    const float* corner = map + (static_cast<ptrdiff_t>(at.top) * w.in_w + at.left) * conv.groups;
    int c = 0;
    for (; c + channel_vectors * Simd::lanes <= conv.groups; c += channel_vectors * Simd::lanes) {
        depthwise_block<P, channel_vectors>(conv, corner, taps, c, row);
    }
    for (; c < conv.groups; c += Simd::lanes) depthwise_block<P, 1>(conv, corner, taps, c, row);
}

// The first tap whose place from `start` on, `step` apart, is not below 0; and the first that is `size` or
// more.
inline int first_inside(int start, int step) { return start < 0 ? (-start + step - 1) / step : 0; }
inline int end_inside(int start, int step, int size, int taps) {
    return start >= size ? 0 : at_most((size - start + step - 1) / step, taps);
}

inline Extent taps_inside(const Window& w, Pixel pixel) {
    const Corner at = corner_of(w, pixel);
    return {first_inside(at.top, w.dilation_h), end_inside(at.top, w.dilation_h, w.in_h, w.kernel_h),
            first_inside(at.left, w.dilation_w), end_inside(at.left, w.dilation_w, w.in_w, w.kernel_w)};
}

// Weights are (taps, channels), biases (channels); the groups of `conv` have a channel each.
void depthwise(const Conv& conv, const float* map, int first, int count, float* rows) {
    for (int done = 0; done < count;) {
        const Pixel pixel = pixel_at(conv.window, first + done);
        const Extent taps = taps_inside(conv.window, pixel);
        const Extent last = taps_inside(conv.window, {pixel.y, pixel.x + depthwise_tile - 1});
        float* row = rows + static_cast<ptrdiff_t>(done) * conv.groups;
        if (done + depthwise_tile <= count && pixel.x + depthwise_tile <= conv.window.out_w && taps.x0 == 0 &&
            last.x1 == conv.window.kernel_w) {
            depthwise_pixels<depthwise_tile>(conv, map, pixel, taps, row);
            done += depthwise_tile;
        } else {
            depthwise_pixels<1>(conv, map, pixel, taps, row);
            ++done;
        }
    }
}

}  // namespace
}  // namespace bitfactor
