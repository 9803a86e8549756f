// AVX2 and FMA: x86 since 2013 (Intel Haswell, AMD Zen).

#include "isa/avx2.h"

#include "kernels/binary_conv.h"
#include "kernels/common_kernels.h"
#include "kernels/kernel_set.h"
#include "kernels/quantised_conv.h"

namespace bitfactor {
namespace {

struct Lookup {
    static constexpr int lanes = 32, vectors = 2;
    using Bytes = __m256i;
    struct Sums {
        __m256i low, high;  // bytes 0 to 7 of each half of a register, and 8 to 15
    };

    static Bytes zero() { return _mm256_setzero_si256(); }
    static Bytes load(const uint8_t* from) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    }
    static Bytes row(const uint8_t* from) {
        return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
    }
    static Bytes choose(Bytes row, Bytes indices) { return _mm256_shuffle_epi8(row, indices); }
    static Bytes add(Bytes a, Bytes b) {
        Bytes sum = _mm256_add_epi8(a, b);
        asm("" : "+x"(sum));  // else GCC adds up several first, for which registers are too few
        return sum;
    }
    static Bytes lower(Bytes x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
    static Bytes upper(Bytes x) { return lower(_mm256_srli_epi16(x, 4)); }
    static Sums no_sums() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    static void widen(Sums& sums, Bytes counts) {
        const __m256i zero = _mm256_setzero_si256();
        sums.low = _mm256_add_epi16(sums.low, _mm256_unpacklo_epi8(counts, zero));
        sums.high = _mm256_add_epi16(sums.high, _mm256_unpackhi_epi8(counts, zero));
    }
    static Simd::Int part(const Sums& sums, int k) {
        const __m256i pair = k % 2 ? sums.high : sums.low;
        return _mm256_cvtepu16_epi32(k < 2 ? _mm256_castsi256_si128(pair)
                                           : _mm256_extracti128_si256(pair, 1));
    }
    static void add_upper(uint8_t* bytes, const uint8_t* next) {
        const __m256i both = _mm256_or_si256(load(bytes), _mm256_slli_epi16(load(next), 4));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), both);
    }
};

}  // namespace
}  // namespace bitfactor

#include "kernels/lookup_conv.h"

namespace bitfactor {
namespace {
bool supported() { return this_cpu().avx2; }
}  // namespace

const CommonKernels avx2_common = common_kernels;
const BinaryKernels avx2_binary = {binary_conv, &lookup_kernels};

extern const KernelSet avx2;
const KernelSet avx2 = kernel_set("avx2", supported, &avx2_common, &avx2_binary, &quantised_kernels<Simd>);

}  // namespace bitfactor
