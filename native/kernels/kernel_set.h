// Included by each file in isa/ behind its `Simd`: the algorithms over it, and the tables of them.
//
// The vocabulary of `Simd`:
//   lanes            32-bit lanes of a register; divides 32
//   tile             pixels of a tile
//   conv_vectors, binary_vectors   registers of output channels of a tile
//   Float            lanes real numbers: load, load_first (of n lanes, the others 0), store, store_first,
//                    broadcast, add, multiply, divide, fma(a, b, c) = a * b + c rounded once,
//                    max(a, b) = a > b ? a : b, min(a, b) = a < b ? a : b, if_positive(x, a, b) = x > 0 ? a :
//                    b, times_power_of_two(x, n) = x * 2^n for integers n of -126 to 127,
//                    greater(a, b) = one bit a lane, lane 0 lowest,
//                    zip(a, b, low, high) = a0 b0 a1 b1 ... in two registers
//   Bits             lanes words of 32 signs: load_bits, broadcast_bits, store_bits. Or of two 16-bit
//   integers:
//                    add_pairs(sum, x, weights) adds both products to a sum of 32 bits
//   Count            counts of differing bits: no_count, add_differing(count, a, b). Where counts_are_sums is
//                    false they overflow after count_steps steps: flush(sum, count) moves them to a sum
//   Int              lanes 32-bit integers: zero_int, finish(sum, count) completes a sum,
//                    minus_twice(base, sum) = base - 2 * sum as real numbers
//   Level            how a level of an 8-bit integer layer is stored: less `level_zero`, and two or four in a
//                    word. store_levels(to, x, n): the first n of x, rounded, which are cut to 0 to 255 where
//                    `levels_are_cut`
//   LevelSum         sums of their products, `level_vectors` registers of output channels of a tile:
//                    level_sum(base), add_products(sum, levels, weights) of Bits, real_of(sum)
//
// Everything is in an unnamed namespace: were an inline function shared between files that are compiled for
// different instruction sets, the linker might keep the one that this machine cannot run.

#pragma once

#include "kernels/kernels.h"

namespace bitfactor {
namespace {

inline const QuantisedKernels* no_bfloat16() { return nullptr; }

constexpr KernelSet kernel_set(const char* name, bool (*supported)(), const CommonKernels* common,
                               const BinaryKernels* binary, const QuantisedKernels* quantised,
                               const QuantisedKernels* (*bfloat16)() = no_bfloat16,
                               const TileKernels* tiles = nullptr) {
    return {name, supported, Simd::lanes, Simd::tile, common, binary, quantised, bfloat16, tiles};
}

}  // namespace
}  // namespace bitfactor
