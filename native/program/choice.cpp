#include "program/choice.h"

#include <cstdio>
#include <vector>

#include "kernels/run_map.h"
#include "steps/step.h"

namespace bitfactor {
namespace {

struct Way {
    Kernel kernel;
    const char* name;
    const char* obstacle;  // why it cannot be taken, or nullptr
    double cost;
};

constexpr int most_lookups = 65535;  // signs of an output: what sums of 16 bits hold
// With fewer pixels tiles of 16 are too empty for numbers of two parts. Those of one have half the weights to
// read, which is what so few pixels wait for.
constexpr int least_pixels = 9;

constexpr const char* missing = "which this instruction set lacks";

// The first way can always be taken.
Choice cheapest(const std::vector<Way>& ways) {
    const Way* best = &ways.front();
    for (const Way& way : ways) {
        if (!way.obstacle && way.cost < best->cost) best = &way;
    }
    std::string reason = best->name;
    for (const Way& way : ways) {
        if (&way == best) continue;
        char times[48];
        std::snprintf(times, sizeof times, "%.2f times as long", way.cost / best->cost);
        reason += std::string("; not ") + way.name + ", " + (way.obstacle ? way.obstacle : times);
    }
    return {best->kernel, reason};
}

// Tiles compute 16 positions, 64 channels and 16 outputs at a time, missing ones too.
double tile_cost(const TileKernels& tiles, const ConvShape& l, int pad_value) {
    const ByteMap map(l.window, l.in_channels, pad_value);
    const double positions = (map.out_positions + 15) / 16 * 16;
    const double products = positions * map.pixel_bytes * taps_of(l.window) * round_up(l.out_channels, 16);
    return products * tiles.cycles / tiles.popcount_cycles;
}

}  // namespace

// A cost of 1 is a product of signs by popcounts. A byte holds 4 signs for a lookup, 8 for a popcount, which
// takes twice as long for as many.
Choice choice_of_signs(const KernelSet& set, const ConvShape& l, int pad_value) {
    const double windows = static_cast<double>(pixels_of(l.window)) * taps_of(l.window);
    const int words = (l.in_channels + 31) / 32;
    std::vector<Way> ways{{Kernel::popcounts, "by popcounts", nullptr,
                           windows * words * 32 * round_up(l.out_channels, set.lanes)}};
    const LookupKernels* lookups = set.binary->lookups;
    const char* obstacle = !lookups                                           ? missing
                           : l.maps > 1                                       ? "which take one map"
                           : taps_of(l.window) * l.in_channels > most_lookups ? "whose sums would overflow"
                           : pixels_of(l.window) == 1 ? "as a single pixel waits for its weights"
                                                      : nullptr;
    const double outputs = lookups ? round_up(l.out_channels, lookups->lanes) : 0;
    ways.push_back(
        {Kernel::lookups, "by lookups", obstacle, windows * round_up(l.in_channels, 4) * outputs / 2});
    obstacle = !set.tiles                   ? missing
               : l.maps > 1 || l.groups > 1 ? "which take one map and one group"
                                            : nullptr;
    ways.push_back({Kernel::tiles, "by tiles", obstacle, obstacle ? 0 : tile_cost(*set.tiles, l, pad_value)});
    return cheapest(ways);
}

// A cost of 1 is a multiply-add; of the others, by the products that an instruction makes in a cycle. Of two
// sums of two parts three products are taken.
Choice choice_of_numbers(const KernelSet& set, const ConvShape& l, int parts) {
    const char* dots = parts == 0                           ? "as the precision asks for float32"
                       : parts > 1                          ? "as the precision asks for more than bfloat16"
                       : !set.bfloat16()                    ? "which this machine lacks, or is slow at"
                       : l.maps > 1                         ? "which take one map"
                       : l.groups > 1 && l.in_channels == 1 ? "whose words would be half empty"
                                                            : nullptr;
    const char* tiles = parts == 0                   ? "as the precision asks for float32"
                        : !set.tiles                 ? missing
                        : l.maps > 1 || l.groups > 1 ? "which take one map and one group"
                        : !RunMap::fits(l.window)    ? "as its window has gaps"
                        : parts > 1 && pixels_of(l.window) < least_pixels ? "which so few pixels leave empty"
                                                                          : nullptr;
    return cheapest({{Kernel::multiply_adds, "by multiply-adds", nullptr, 1},
                     {Kernel::dots, "by dot products of bfloat16", dots, 1.0 / 2},
                     {Kernel::tiles, "by tiles of bfloat16", tiles, parts > 1 ? 3.0 / 16 : 1.0 / 16}});
}

}  // namespace bitfactor
