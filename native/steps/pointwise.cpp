// Stages, which take the rows of the last step on, pixel by pixel; kernels/epilogue.h says what each
// computes.

#include <algorithm>
#include <cmath>

#include "steps/step.h"

namespace bitfactor {
namespace {

// No operation of its own: the stages take their rows from a buffer.
void add_rows(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    program.add_step("pointwise", source.pixels, source.channels, 0, 1,
                     [=](Workspace& w, int first, int) { return row_at(w.arena, source, first); });
}

template <Stage::Kind kind>
void add_alone(Program& program, const Instruction&) {
    program.stage(kind);
}

template <Stage::Kind kind>
void add_with_buffer(Program& program, const Instruction& i) {
    program.stage(kind, i.buffer("buffer"));
}

void add_scale(Program& program, const Instruction& i) {
    program.stage(Stage::scale, 0, i.array<float>("alpha"), i.size("alpha"), nullptr, 0);
}

void add_prelu(Program& program, const Instruction& i) {
    program.stage(Stage::prelu, 0, i.array<float>("slope"), i.size("slope"), nullptr, 0);
}

void add_affine(Program& program, const Instruction& i) {
    program.stage(Stage::affine, 0, i.array<float>("scale"), i.size("scale"), i.array<float>("shift"),
                  i.size("shift"));
}

void add_clip(Program& program, const Instruction& i) {
    const size_t channels = static_cast<size_t>(program.last().channels);
    const std::vector<float> lowest(channels, *i.array<float>("lower"));
    const std::vector<float> highest(channels, *i.array<float>("upper"));
    program.stage(Stage::clip, 0, lowest.data(), channels, highest.data(), channels);
}

void add_signs(Program& program, const Instruction& i) {
    program.stage(Stage::signs, i.buffer("buffer").offset, i.array<float>("direction"), i.size("direction"),
                  i.array<float>("threshold"), i.size("threshold"));
}

void check_rows(Verifier& v) {
    const Buffer source = v.real_buffer("source");
    v.begin(source.pixels, source.channels, {source});
}

void check_alone(Verifier& v) { v.channels(); }

// A number for each channel, or for each pixel and channel.
const float* check_parameter(Verifier& v, const char* name) {
    const size_t channels = static_cast<size_t>(v.channels()), size = v.size(name);
    return v.elements<float>(name, size == channels ? channels : channels * v.pixels());
}

void check_scale(Verifier& v) { check_parameter(v, "alpha"); }

void check_affine(Verifier& v) {
    for (const char* name : {"scale", "shift"}) check_parameter(v, name);
}

void check_prelu(Verifier& v) { check_parameter(v, "slope"); }

void check_clip(Verifier& v) {
    check_alone(v);
    for (const char* name : {"lower", "upper"}) v.elements<float>(name, 1);
}

// Of a step's own size.
Buffer check_buffer(Verifier& v, bool signs) {
    const Buffer buffer = v.buffer("buffer");
    v.expect_map(buffer, v.pixels(), v.channels(), signs);
    return buffer;
}

void check_store(Verifier& v) { v.writes(check_buffer(v, false)); }

// A buffer of one pixel is for all.
void check_other(Verifier& v) {
    const Buffer buffer = v.real_buffer("buffer");
    v.expect_map(buffer, buffer.pixels == 1 ? 1 : v.pixels(), v.channels(), false);
    v.reads(buffer);
}

void check_signs(Verifier& v) {
    const float *direction = check_parameter(v, "direction"), *threshold = check_parameter(v, "threshold");
    v.expect(
        std::all_of(direction, direction + v.size("direction"), [](float x) { return x == 1 || x == -1; }),
        "directions of -1 and +1");
    v.expect(std::none_of(threshold, threshold + v.size("threshold"), [](float x) { return std::isnan(x); }),
             "thresholds that are numbers");
    v.writes(check_buffer(v, true));
}

}  // namespace

Kinds pointwise_kinds() {
    return {{"pointwise", check_rows, add_rows},
            {"scale", check_scale, add_scale},
            {"affine", check_affine, add_affine},
            {"relu", check_alone, add_alone<Stage::relu>},
            {"prelu", check_prelu, add_prelu},
            {"clip", check_clip, add_clip},
            {"sigmoid", check_alone, add_alone<Stage::sigmoid>},
            {"exp", check_alone, add_alone<Stage::exp>},
            {"log", check_alone, add_alone<Stage::log>},
            {"sqrt", check_alone, add_alone<Stage::sqrt>},
            {"reciprocal", check_alone, add_alone<Stage::reciprocal>},
            {"gelu", check_alone, add_alone<Stage::gelu>},
            {"multiply", check_other, add_with_buffer<Stage::multiply>},
            {"add", check_other, add_with_buffer<Stage::add>},
            {"store", check_store, add_with_buffer<Stage::store>},
            {"signs", check_signs, add_signs}};
}

}  // namespace bitfactor
