// Weights as the kernels read them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bitfactor {

constexpr size_t huge_page = 1 << 21;

// While it lives, what this thread allocates below is taken from `left`, and refused where that is too
// little.
class Allowance {
  public:
    explicit Allowance(size_t& left);
    Allowance(const Allowance&) = delete;
    ~Allowance();

    static void take(size_t bytes);

  private:
    size_t* before_;
};

// Allocates at multiples of 64 bytes, the size of a cache line and of the widest register; what fills a huge
// page stands in huge ones, where the system has them, so that fewer addresses are looked up.
template <class T>
struct Aligned {
    using value_type = T;
    Aligned() = default;
    template <class U>
    Aligned(const Aligned<U>&) {}
    static std::align_val_t alignment(size_t bytes) {
        return std::align_val_t{bytes < huge_page ? 64 : huge_page};
    }
    T* allocate(size_t n) {
        const size_t bytes = n * sizeof(T);
        Allowance::take(bytes);
        void* memory = ::operator new(bytes, alignment(bytes));
#if defined(__linux__)
        if (bytes >= huge_page) madvise(memory, bytes / huge_page * huge_page, MADV_HUGEPAGE);
#endif
        return static_cast<T*>(memory);
    }
    void deallocate(T* p, size_t n) { ::operator delete(p, alignment(n * sizeof(T))); }
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

// Words of 32 signs (rows, words) -> (rows, nibbles), four signs a byte.
inline std::vector<uint8_t> nibbles_of(const uint32_t* signs, size_t rows, int words, int nibbles) {
    std::vector<uint8_t> bytes;
    bytes.reserve(rows * nibbles);
    for (size_t row = 0; row < rows; ++row, signs += words) {
        for (int n = 0; n < nibbles; ++n) bytes.push_back(signs[n / 8] >> n % 8 * 4 & 15);
    }
    return bytes;
}

constexpr int tile_rows = 16, tiles_ahead = 4;

// Words of 32 signs (channels, taps, words) -> (vectors, steps, tile_rows): the weights of 16 output
// channels, the signs of 64 input channels of one tap. Bit 4 * n + j of row r is output channel n, input
// channel 4 * r + j: as the bytes of a tile lie. Where channels are missing, bits are 0. `tiles_ahead` tiles
// more follow, which are read but not used.
inline AlignedVector<uint64_t> pack_tiles(const uint32_t* weight, int channels, int taps, int words) {
    const int steps_of_tap = (words + 1) / 2, vectors = (channels + 15) / 16;
    const size_t steps = static_cast<size_t>(taps) * steps_of_tap;
    AlignedVector<uint64_t> packed((vectors * steps + tiles_ahead) * tile_rows, 0);
    for (int channel = 0; channel < channels; ++channel) {
        uint64_t* tile = packed.data() + channel / 16 * steps * tile_rows;
        for (int tap = 0; tap < taps; ++tap, weight += words) {
            for (int step = 0; step < steps_of_tap; ++step, tile += tile_rows) {
                const uint64_t high = 2 * step + 1 < words ? weight[2 * step + 1] : 0;
                const uint64_t signs = high << 32 | weight[2 * step];
                for (int r = 0; r < tile_rows; ++r) tile[r] |= (signs >> 4 * r & 15) << channel % 16 * 4;
            }
        }
    }
    return packed;
}

// The nearest bfloat16, ties to even, as its 16 bits.
inline uint16_t bfloat16_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float float_of(uint16_t bfloat16) {
    const uint32_t bits = static_cast<uint32_t>(bfloat16) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// (channels, lines, run) -> (vectors, lines * run_steps, parts, 16, 32): 32 numbers of a run for 16 output
// channels, number k of channel n at row k / 2, column 2 * n + k % 2; the part high, then, if `parts` is 2,
// low. Missing ones are 0.
inline AlignedVector<uint16_t> pack_runs(const float* weight, int channels, int lines, int run, int parts) {
    const size_t run_steps = (static_cast<size_t>(run) + 31) / 32, steps = lines * run_steps;
    AlignedVector<uint16_t> packed((static_cast<size_t>(channels) + 15) / 16 * steps * parts * 512, 0);
    for (int channel = 0; channel < channels; ++channel) {
        for (int line = 0; line < lines; ++line, weight += run) {
            for (int i = 0; i < run; ++i) {
                const size_t step = channel / 16 * steps + line * run_steps + i / 32;
                uint16_t* to =
                    packed.data() + step * parts * 512 + i % 32 / 2 * 32 + channel % 16 * 2 + i % 2;
                to[0] = bfloat16_of(weight[i]);
                if (parts == 2) to[512] = bfloat16_of(weight[i] - float_of(to[0]));
            }
        }
    }
    return packed;
}

}  // namespace bitfactor
