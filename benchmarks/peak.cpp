// The most products per second that each instruction set can do: the instructions of a kernel on registers
// alone, without memory. kernels.py and whole.py compile and call it: `peak SET [KIND]` prints products per
// second, of signs, of levels (8 bits) or of floats (32 bits).
//
// AMX is given +1 and -1, as the kernel is: this processor slows its clock by how many products are not zero.

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

constexpr int steps = 20000, runs = 20;

// Hides from the compiler what is in a register, so that no instruction is left out.
#define OPAQUE(x) asm volatile("" : "+v"(x))

// Lookups: three rows for two pixels each, which part then into two sums.
__attribute__((target("avx2"))) double avx2() {
    constexpr int pairs = 2, vectors = 2;
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i count[2 * pairs][vectors] = {}, row = nibble, w = nibble;
    for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 64
        for (int p = 0; p < pairs; ++p) {
#pragma GCC unroll 64
            for (int v = 0; v < vectors; ++v) {
                __m256i both = _mm256_shuffle_epi8(row, w);
                for (int k = 1; k < 3; ++k) {
                    OPAQUE(row);
                    both = _mm256_add_epi8(both, _mm256_shuffle_epi8(row, w));
                    OPAQUE(both);
                }
                count[2 * p][v] = _mm256_add_epi8(count[2 * p][v], _mm256_and_si256(both, nibble));
                const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
                count[2 * p + 1][v] = _mm256_add_epi8(count[2 * p + 1][v], upper);
                OPAQUE(count[2 * p][v]);
                OPAQUE(count[2 * p + 1][v]);
            }
        }
    }
    return 2.0 * 3 * 128 * pairs * vectors * steps;
}

__attribute__((target("avx512f,avx512vpopcntdq"))) double avx512() {
    constexpr int pixels = 6, vectors = 4;
    __m512i count[pixels][vectors] = {}, x = _mm512_set1_epi32(5), w = _mm512_set1_epi32(3);
    for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 64
        for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 64
            for (int v = 0; v < vectors; ++v) {
                OPAQUE(x);
                count[p][v] = _mm512_add_epi32(count[p][v], _mm512_popcnt_epi32(_mm512_xor_si512(x, w)));
                OPAQUE(count[p][v]);
            }
        }
    }
    return 512.0 * pixels * vectors * steps;
}

constexpr int sums = 12;

__attribute__((target("avx512f,avx512vnni"))) double avx512_levels() {
    __m512i sum[sums] = {}, x = _mm512_set1_epi32(5), w = _mm512_set1_epi32(3);
    for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 64
        for (int i = 0; i < sums; ++i) {
            OPAQUE(x);
            sum[i] = _mm512_dpbusd_epi32(sum[i], x, w);
            OPAQUE(sum[i]);
        }
    }
    return 64.0 * sums * steps;
}

// Of 16 bits: sums of two bytes' products would be cut.
__attribute__((target("avx2"))) double avx2_levels() {
    __m256i sum[sums] = {}, x = _mm256_set1_epi32(5), w = _mm256_set1_epi32(3);
    for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 64
        for (int i = 0; i < sums; ++i) {
            OPAQUE(x);
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(x, w));
            OPAQUE(sum[i]);
        }
    }
    return 16.0 * sums * steps;
}

__attribute__((target("avx512f"))) double avx512_floats() {
    __m512 sum[sums] = {}, x = _mm512_set1_ps(0.5f), w = _mm512_set1_ps(0.25f);
    for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 64
        for (int i = 0; i < sums; ++i) {
            OPAQUE(x);
            sum[i] = _mm512_fmadd_ps(x, w, sum[i]);
            OPAQUE(sum[i]);
        }
    }
    return 16.0 * sums * steps;
}

__attribute__((target("avx2,fma"))) double avx2_floats() {
    __m256 sum[sums] = {}, x = _mm256_set1_ps(0.5f), w = _mm256_set1_ps(0.25f);
    for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 64
        for (int i = 0; i < sums; ++i) {
            OPAQUE(x);
            sum[i] = _mm256_fmadd_ps(x, w, sum[i]);
            OPAQUE(sum[i]);
        }
    }
    return 8.0 * sums * steps;
}

struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

__attribute__((target("amx-tile,amx-int8"))) double amx() {
    alignas(64) static int8_t signs[1024];
    uint32_t state = 1;
    for (int8_t& sign : signs) sign = (state = state * 1664525 + 1013904223) >> 31 ? 1 : -1;
    const Configuration configuration;
    syscall(SYS_arch_prctl, 0x1023, 18);
    _tile_loadconfig(&configuration);
    _tile_loadd(4, signs, 64);
    _tile_loadd(5, signs, 64);
    for (int step = 0; step < steps; ++step) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_release();
    return 4.0 * 16 * 16 * 64 * steps;
}

double most_per_second(double (*products)()) {
    double most = 0;
    for (int run = 0; run < runs; ++run) {
        const auto start = std::chrono::steady_clock::now();
        const double done = products();
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        most = done / seconds.count() > most ? done / seconds.count() : most;
    }
    return most;
}

}  // namespace

int main(int argc, char** argv) {
    struct {
        const char *set, *kind;
        double (*products)();
    } const every[] = {
        {"amx", "signs", amx},
        {"amx", "levels", amx},
        {"amx", "floats", avx512_floats},
        {"avx512", "signs", avx512},
        {"avx512", "levels", avx512_levels},
        {"avx512", "floats", avx512_floats},
        {"avx2", "signs", avx2},
        {"avx2", "levels", avx2_levels},
        {"avx2", "floats", avx2_floats},
    };
    const char *set = argc > 1 ? argv[1] : "", *kind = argc > 2 ? argv[2] : "signs";
    for (const auto& one : every) {
        if (std::strcmp(one.set, set) || std::strcmp(one.kind, kind)) continue;
        std::printf("%.0f\n", most_per_second(one.products));
        return 0;
    }
    return 1;
}
