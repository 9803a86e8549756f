// Precision `integer`: bitfactor.format.operations.integer states each rule, and why nothing overflows.

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "steps/step.h"

namespace bitfactor {
namespace {

constexpr int most_short = 32767, most_shift = 30, most_offset = 1 << 30;

// As many copies of what is there for each channel as a compiler makes vectors of.
AlignedVector<float> repeated(const float* values, int channels) {
    constexpr int enough = 256;
    AlignedVector<float> all;
    do all.insert(all.end(), values, values + channels);
    while (all.size() < enough);
    return all;
}

void add_integers(Program& program, const Instruction& i) {
    struct Constants {
        AlignedVector<float> factor, offset;
    };
    const Buffer source = i.buffer("source");
    auto own =
        std::make_shared<const Constants>(Constants{repeated(i.array<float>("factor"), source.channels),
                                                    repeated(i.array<float>("offset"), source.channels)});
    const Quantise layer{static_cast<int>(own->factor.size()), own->factor.data(), own->offset.data(),
                         static_cast<double>(i.integer("lower")), static_cast<double>(i.integer("upper"))};
    program.add_step("integers", source.pixels, source.channels, 0, 2,
                     [=, own = own, &program](Workspace& w, int first, int count) {
                         program.kernels().common->to_integers(layer, row_at(w.arena, source, first),
                                                               count * source.channels, w.rows.data());
                         return w.rows.data();
                     });
}

// (outputs, taps of a group) -> (outputs, pairs): two weights in a word, the second 0 behind a row.
std::vector<uint32_t> pairs_of(const uint8_t* weight, size_t outputs, size_t taps, size_t pairs) {
    std::vector<uint32_t> words(outputs * pairs, 0);
    for (size_t row = 0; row < outputs; ++row) {
        for (size_t k = 0; k < taps; ++k) {
            const auto one = static_cast<uint16_t>(int16_t{static_cast<int8_t>(weight[row * taps + k])});
            words[row * pairs + k / 2] |= uint32_t{one} << (k % 2 * 16);
        }
    }
    return words;
}

// What a sum is multiplied by: M / 2^k, which a float holds, or what 1 stands for.
std::vector<float> factors_of(const Instruction& i, size_t outputs) {
    if (i.has("scale")) return std::vector<float>(outputs, *i.array<float>("scale"));
    std::vector<float> factors(outputs);
    const int32_t* multiplier = i.array<int32_t>("multiplier");
    for (size_t c = 0; c < outputs; ++c)
        factors[c] = std::ldexp(static_cast<float>(multiplier[c]), -i.number("shift"));
    return factors;
}

void add_conv(Program& program, const Instruction& i) {
    struct Constants {
        AlignedVector<uint32_t> weight, bias;
        AlignedVector<float> factor;
        AlignedVector<int16_t> outside;
    };
    const Window window = i.window();
    const int groups = i.number("groups"), outputs = i.length("weight", 0),
              in_channels = i.length("weight", 3);
    const int taps = taps_of(window) * in_channels, pairs = (taps + 1) / 2, out_channels = outputs / groups;
    const auto all = static_cast<size_t>(outputs), depth = static_cast<size_t>(pairs);
    const auto packed = [&](const auto* values, size_t count) {
        return pack_lanes(values, groups, out_channels, count, program.kernels().lanes);
    };
    const int32_t *bias = i.array<int32_t>("bias"), *outside = i.array<int32_t>("outside");
    auto own = std::make_shared<const Constants>(Constants{
        packed(pairs_of(i.array<uint8_t>("weight"), all, static_cast<size_t>(taps), depth).data(), depth),
        packed(std::vector<uint32_t>(bias, bias + all).data(), 1), packed(factors_of(i, all).data(), 1),
        AlignedVector<int16_t>(outside, outside + i.size("outside"))});
    const IntegerConv conv{window,
                           groups,
                           in_channels,
                           out_channels,
                           pairs,
                           i.number("largest"),
                           own->weight.data(),
                           own->bias.data(),
                           own->factor.data(),
                           own->outside.data(),
                           i.has("scale"),
                           i.number("shift") ? 0.5f : 0.0f};
    const size_t source = i.source();
    program.add_step("integer_conv", pixels_of(window), outputs, 0, pairs,
                     [=, own = own, &program](Workspace& w, int first, int count) {
                         program.kernels().common->integer_conv(conv, at<float>(w.arena, source), first,
                                                                count, w.signs.data(), w.rows.data());
                         return w.rows.data();
                     });
    program.need_signs(static_cast<uint64_t>(integer_tile) * groups * depth);
}

// Constants of all channels, or one for all, filled up to whole blocks behind what is there.
void append(AlignedVector<int32_t>& to, const Instruction& i, const char* name, int channels) {
    const size_t begin = to.size(), size = i.has(name) ? i.size(name) : 0;
    to.resize(begin + static_cast<size_t>(round_up(channels, weigh_block)));
    for (size_t c = 0; size && c < static_cast<size_t>(channels); ++c)
        to[begin + c] = i.array<int32_t>(name)[size == 1 ? 0 : c];
}

void add_weigh(Program& program, const Instruction& i) {
    const bool two = i.has("buffer");
    AlignedVector<int32_t> constants;
    for (const char* name : {"positive0", "negative0", "positive1", "negative1", "offset"})
        append(constants, i, name, program.last().channels);
    const Weigh weigh{{},
                      {},
                      nullptr,
                      {i.number("shifts", 0), two ? i.number("shifts", 1) : 0},
                      i.number("lower"),
                      i.number("upper"),
                      two,
                      false};
    program.weigh(constants, weigh, two ? i.buffer("buffer") : Buffer{});
}

void add_bend(Program& program, const Instruction& i) {
    AlignedVector<int32_t> constants;
    for (int both = 0; both < 2; ++both) append(constants, i, "slope", program.last().channels);
    constants.resize(constants.size() / 2 * 5);
    const Weigh weigh{{}, {}, nullptr, {i.number("shift"), 0}, -most_short, most_short, false, true};
    program.weigh(constants, weigh, Buffer{});
}

void check_bounds(Verifier& v) {
    const int lower = v.number("lower", -most_short, most_short);
    v.number("upper", lower, most_short);
}

void check_integers(Verifier& v) {
    const Buffer source = v.real_buffer("source");
    for (const char* name : {"factor", "offset"}) {
        const float* values = v.elements<float>(name, static_cast<size_t>(source.channels));
        v.expect(std::all_of(values, values + source.channels, [](float x) { return std::isfinite(x); }),
                 "finite numbers");
    }
    check_bounds(v);
    v.begin(source.pixels, source.channels, {source});
}

// Integers within a bound, one for each channel; or, with `one`, one for all.
const int32_t* check_within(Verifier& v, const char* name, size_t channels, int most, bool one = false) {
    const size_t size = one && v.size(name) == 1 ? 1 : channels;
    const int32_t* values = v.elements<int32_t>(name, size);
    v.expect(std::all_of(values, values + size, [&](int32_t x) { return x >= -most && x <= most; }),
             "integers within their bounds");
    return values;
}

// Whether each output's sum of products, in any order, is below 2^31.
bool sums_fit(const uint8_t* weight, const int32_t* bias, int64_t outputs, int64_t taps, int64_t largest) {
    for (int64_t row = 0; row < outputs; ++row) {
        int64_t sum = 0;
        for (int64_t k = 0; k < taps; ++k) sum += std::abs(static_cast<int8_t>(weight[row * taps + k]));
        if (sum * largest + std::abs(int64_t{bias[row]}) > INT32_MAX) return false;
    }
    return true;
}

void check_conv(Verifier& v) {
    const int64_t outputs = v.length("weight", 0, 4), depth = v.length("weight", 3, 4);
    const int groups = v.number("groups", 1), largest = v.number("largest", 1, most_short);
    v.expect(outputs >= 1 && outputs % groups == 0, "as many channels in each group");
    v.expect(depth >= 1 && depth <= Verifier::most_numbers / groups / 64, "fewer channels");
    const int channels = static_cast<int>(groups * depth);
    const Window w = v.window(channels);
    const int64_t taps = taps_of(w) * depth;
    v.expect(taps <= Verifier::most_numbers / 64 / groups, "a smaller kernel");
    const uint8_t* weight = v.array<uint8_t>("weight", {outputs, w.kernel_h, w.kernel_w, depth});
    const int32_t* bias = v.elements<int32_t>("bias", static_cast<size_t>(outputs));
    v.expect(sums_fit(weight, bias, outputs, taps, largest), "sums that 32 bits hold");
    check_within(v, "outside", static_cast<size_t>(channels), largest);
    v.number("shift", 0, most_shift);
    if (v.has("scale")) {
        v.elements<float>("scale", 1);
    } else {
        check_within(v, "multiplier", static_cast<size_t>(outputs), most_short);
    }
    const Buffer source = v.real_buffer("source");
    v.expect_map(source, w.in_h * w.in_w, channels, false);
    v.begin(pixels_of(w), outputs, {source});
}

// The largest magnitude of constants.
int64_t largest_of(Verifier& v, const char* name, int most) {
    const int32_t* values = check_within(v, name, static_cast<size_t>(v.channels()), most, true);
    int64_t largest = 0;
    for (size_t i = 0; i < v.size(name); ++i) largest = std::max(largest, std::abs(int64_t{values[i]}));
    return largest;
}

// No sum of an offset and of terms leaves 32 bits.
void check_weigh(Verifier& v) {
    const bool two = v.has("buffer");
    const std::vector<int> shifts = v.numbers("shifts", two ? 2 : 1, 0, most_shift);
    check_bounds(v);
    int64_t reach = v.has("offset") ? largest_of(v, "offset", most_offset) : 0;
    const auto add_reach = [&](const char* positive, const char* negative, int shift) {
        const int64_t factor =
            std::max(largest_of(v, positive, most_short), largest_of(v, negative, most_short));
        reach += (most_short * factor >> shift) + 1;
    };
    add_reach("positive0", "negative0", shifts[0]);
    if (two) add_reach("positive1", "negative1", shifts[1]);
    v.expect(reach <= INT32_MAX, "sums that 32 bits hold");
    if (!two) return;
    const Buffer buffer = v.real_buffer("buffer");
    v.expect_map(buffer, buffer.pixels == 1 ? 1 : v.pixels(), v.channels(), false);
    v.reads(buffer);
}

void check_bend(Verifier& v) {
    check_within(v, "slope", static_cast<size_t>(v.channels()), most_short, true);
    v.number("shift", 0, most_shift);
}

}  // namespace

Kinds integer_kinds() {
    return {{"integers", check_integers, add_integers},
            {"integer_conv", check_conv, add_conv},
            {"weigh", check_weigh, add_weigh},
            {"bend", check_bend, add_bend}};
}

}  // namespace bitfactor
