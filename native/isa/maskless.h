// Registers without masks, of NEON, WebAssembly and one lane, move their first lanes through memory.

#pragma once

namespace bitfactor {
namespace {

template <class Simd>
struct Maskless {
    static auto load_first(const float* from, int n) {
        if (n >= Simd::lanes) return Simd::load(from);
        float first[Simd::lanes] = {};
        for (int i = 0; i < n; ++i) first[i] = from[i];
        return Simd::load(first);
    }
    template <class Float>
    static void store_first(float* to, Float x, int n) {
        if (n >= Simd::lanes) return Simd::store(to, x);
        float first[Simd::lanes];
        Simd::store(first, x);
        for (int i = 0; i < n; ++i) to[i] = first[i];
    }
};

}  // namespace
}  // namespace bitfactor
