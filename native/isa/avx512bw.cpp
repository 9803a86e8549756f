// AVX-512 F, BW, VL and DQ with neither VPOPCNTDQ nor VNNI: Intel's Skylake-X.
#include "isa/avx512.h"
// What is built on these registers.
#include "kernels/binary_conv.h"
#include "kernels/common_kernels.h"
#include "kernels/kernel_set.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {

// As in avx2.cpp, with 64 output channels in a register.
struct Lookup {
    static constexpr int lanes = 64, vectors = 2;
    using Bytes = __m512i;
    struct Sums {
        __m512i low, high;  // bytes 0 to 7 of each quarter of a register, and 8 to 15
    };

    static Bytes zero() { return _mm512_setzero_si512(); }
    static Bytes load(const uint8_t* from) { return _mm512_loadu_si512(from); }
    static Bytes row(const uint8_t* from) {
        return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
    }
    static Bytes choose(Bytes row, Bytes indices) { return _mm512_shuffle_epi8(row, indices); }
    static Bytes add(Bytes a, Bytes b) { return _mm512_add_epi8(a, b); }
    static Bytes lower(Bytes x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
    static Bytes upper(Bytes x) { return lower(_mm512_srli_epi16(x, 4)); }
    static Sums no_sums() { return {zero(), zero()}; }
    static void widen(Sums& sums, Bytes counts) {
        sums.low = _mm512_add_epi16(sums.low, _mm512_unpacklo_epi8(counts, zero()));
        sums.high = _mm512_add_epi16(sums.high, _mm512_unpackhi_epi8(counts, zero()));
    }
    static Simd::Int part(const Sums& sums, int k) {
        const __m256i both = _mm256_set_m128i(quarter(sums.high, k), quarter(sums.low, k));
        return _mm512_cvtepu16_epi32(both);
    }
    static void add_upper(uint8_t* bytes, const uint8_t* next) {
        _mm512_storeu_si512(bytes, _mm512_or_si512(load(bytes), _mm512_slli_epi16(load(next), 4)));
    }

  private:
    static __m128i quarter(__m512i x, int k) {
        switch (k) {
            case 0:
                return _mm512_castsi512_si128(x);
            case 1:
                return _mm512_extracti32x4_epi32(x, 1);
            case 2:
                return _mm512_extracti32x4_epi32(x, 2);
            default:
                return _mm512_extracti32x4_epi32(x, 3);
        }
    }
};

}  // namespace
}  // namespace bitfactor

#include "kernels/lookup_conv.h"

namespace bitfactor {
namespace {
bool supported() { return this_cpu().avx512bw; }
}  // namespace

const CommonKernels avx512_common = common_kernels;
const BinaryKernels avx512_lookups = {binary_conv, &lookup_kernels};

extern const KernelSet avx512bw;
const KernelSet avx512bw =
    kernel_set("avx512bw", supported, &avx512_common, &avx512_lookups, &quantised_kernels<Simd>);

}  // namespace bitfactor
