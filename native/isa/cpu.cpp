#include "isa/cpu.h"

#include <cpuid.h>

namespace bitfactor {
namespace {

struct Leaf {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

// Zeros where the CPU has no such leaf.
Leaf leaf(unsigned number, unsigned part = 0) {
    Leaf found;
    __get_cpuid_count(number, part, &found.a, &found.b, &found.c, &found.d);
    return found;
}

bool has(unsigned word, int bit) { return word >> bit & 1; }

// The registers that the system saves, in bits.
unsigned saved_by_the_system(const Leaf& basic) {
    if (!has(basic.c, 27)) return 0;
    unsigned low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
#if defined(__APPLE__)
    low |= 0xe0 * has(low, 2);  // macOS saves those of AVX-512 from their first use on
#endif
    return low;
}

Cpu read() {
    const Leaf vendor = leaf(0), basic = leaf(1), more = leaf(7), last = more.a ? leaf(7, 1) : Leaf{};
    const unsigned saved = saved_by_the_system(basic);
    const auto saves = [&](unsigned registers) { return (saved & registers) == registers; };
    Cpu cpu{};
    cpu.intel = vendor.b == signature_INTEL_ebx && vendor.d == signature_INTEL_edx;
    // XMM and YMM; with masks, upper halves and ZMM16 to 31; tiles and their configuration.
    const bool ymm = saves(0x6), zmm = saves(0xe6), tiles = saves(0x60000);
    cpu.avx2 = ymm && has(more.b, 5) && has(basic.c, 12);
    cpu.avxvnni = cpu.avx2 && has(last.a, 4);
    // F, DQ, BW, VL
    cpu.avx512bw =
        cpu.avx2 && zmm && has(more.b, 16) && has(more.b, 17) && has(more.b, 30) && has(more.b, 31);
    cpu.avx512vnni = cpu.avx512bw && has(more.c, 11);
    cpu.avx512vpopcntdq = cpu.avx512bw && has(more.c, 14);
    cpu.avx512bf16 = cpu.avx512bw && has(last.a, 5);
    // bfloat16, tiles, bytes
    cpu.tiles = tiles && has(more.d, 22) && has(more.d, 24) && has(more.d, 25);
    return cpu;
}

}  // namespace

const Cpu& this_cpu() {
    static const Cpu cpu = read();
    return cpu;
}

}  // namespace bitfactor
