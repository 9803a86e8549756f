// Stages, which take the rows of the last step on, pixel by pixel; isa/epilogue.h says what each computes.

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

const Kind pointwise("pointwise", add_rows);
const Kind scale("scale", add_scale);
const Kind affine("affine", add_affine);
const Kind relu("relu", add_alone<Stage::relu>);
const Kind prelu("prelu", add_prelu);
const Kind clip("clip", add_clip);
const Kind sigmoid("sigmoid", add_alone<Stage::sigmoid>);
const Kind exponential("exp", add_alone<Stage::exp>);
const Kind logarithm("log", add_alone<Stage::log>);
const Kind square_root("sqrt", add_alone<Stage::sqrt>);
const Kind reciprocal("reciprocal", add_alone<Stage::reciprocal>);
const Kind gelu("gelu", add_alone<Stage::gelu>);
const Kind multiply("multiply", add_with_buffer<Stage::multiply>);
const Kind sum("add", add_with_buffer<Stage::add>);
const Kind store("store", add_with_buffer<Stage::store>);
const Kind signs("signs", add_signs);

}  // namespace
}  // namespace bitfactor
