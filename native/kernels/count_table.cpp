#include "kernels/kernels.h"

namespace bitfactor {
namespace {

constexpr uint8_t bits_of(int x) { return x ? x % 2 + bits_of(x / 2) : 0; }

constexpr CountTable made() {
    CountTable table{};
    for (int x = 0; x < 256; ++x) {
        for (int w = 0; w < 16; ++w) table.counts[x][w] = bits_of(x % 16 ^ w) | bits_of(x / 16 ^ w) << 4;
    }
    return table;
}

}  // namespace

constexpr CountTable count_table = made();

}  // namespace bitfactor
