// What the kinds of step have in common.

#pragma once

#include "program/program.h"

namespace bitfactor {

// Work is counted in operands: a multiply-add of real numbers, or a word of 32 signs by another. What follows
// a layer is worth some more for each number.
constexpr double epilogue_operands = 4;

inline double layout_work(size_t numbers) { return epilogue_operands * static_cast<double>(numbers); }

inline int taps_of(const Window& window) { return window.kernel_h * window.kernel_w; }
inline int pixels_of(const Window& window) { return window.out_h * window.out_w; }

inline int round_up(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }

inline size_t words_for(int channels) { return (static_cast<size_t>(channels) + 63) / 64; }

using Workspace = Program::Workspace;

// Calls f(map, first pixel in it, count, pixels before these) for each of the maps, of so many pixels, that
// the pixels first ... first + count lie in.
template <class F>
void for_each_map(int pixels, int first, int count, F f) {
    for (int done = 0; done < count;) {
        const int map = (first + done) / pixels, at = (first + done) % pixels;
        const int part = std::min(count - done, pixels - at);
        f(map, at, part, done);
        done += part;
    }
}

template <class T>
T* at(char* arena, size_t offset) {
    return reinterpret_cast<T*>(arena + offset);
}

inline const float* row_at(char* arena, const Buffer& map, int pixel) {
    return at<float>(arena, map.offset) + static_cast<size_t>(pixel) * map.channels;
}

}  // namespace bitfactor
