// What this x86 CPU, with its system, can run.

#pragma once

namespace bitfactor {

struct Cpu {
    bool intel;
    bool avx2;      // with fused multiply-adds
    bool avxvnni;   // with avx2
    bool avx512bw;  // with F, VL and DQ; those below come with it
    bool avx512vnni, avx512vpopcntdq, avx512bf16;
    bool tiles;  // products of bytes and of bfloat16; Linux is to be asked for them, too
};

// Read from the CPU itself. What compilers bring for that is 5 kB, and says no to all where zig compiles for
// Windows.
const Cpu& this_cpu();

}  // namespace bitfactor
