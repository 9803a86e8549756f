// Weights as the kernels read them.

#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

namespace bitfactor {

// Allocates at multiples of 64 bytes, the size of a cache line and of the widest register.
template <class T>
struct Aligned {
    using value_type = T;
    Aligned() = default;
    template <class U>
    Aligned(const Aligned<U>&) {}
    T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{64})); }
    void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t{64}); }
    template <class U>
    bool operator==(const Aligned<U>&) const {
        return true;
    }
    template <class U>
    bool operator!=(const Aligned<U>&) const {
        return false;
    }
};

template <class T>
using AlignedVector = std::vector<T, Aligned<T>>;

// (groups, channels, depth) -> (groups, vectors, depth, lanes): `lanes` output channels side by side, zeros
// where the channels of a group do not fill the last vector.
template <class T>
AlignedVector<T> pack_lanes(const T* weight, int groups, int channels, size_t depth, int lanes) {
    const size_t vectors = (static_cast<size_t>(channels) + lanes - 1) / lanes;
    AlignedVector<T> packed(groups * vectors * depth * lanes, T{0});
    for (int group = 0; group < groups; ++group) {
        for (int channel = 0; channel < channels; ++channel, weight += depth) {
            T* to = packed.data() + (group * vectors + channel / lanes) * depth * lanes + channel % lanes;
            for (size_t k = 0; k < depth; ++k) to[k * lanes] = weight[k];
        }
    }
    return packed;
}

}  // namespace bitfactor
