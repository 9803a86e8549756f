#include "description.h"

#include "program.h"

namespace bitfactor {
namespace {

void add_image(Program& program, const Instruction& i) {
    const auto values = [&](const char* name) {
        return std::vector<float>(i.array<float>(name), i.array<float>(name) + i.size(name));
    };
    program.description().image = {{i.number("size", 0), i.number("size", 1), i.number("resize", 0),
                                    i.number("resize", 1), i.flag("keep_aspect"), values("mean"),
                                    values("std")}};
}

// Names one behind the other, each with a zero at its end.
void add_labels(Program& program, const Instruction& i) {
    const std::string names = i.text("names");
    for (size_t first = 0, end; first < names.size(); first = end + 1) {
        end = names.find('\0', first);
        program.description().labels.push_back(names.substr(first, end - first));
    }
}

void add_skeleton(Program& program, const Instruction& i) {
    const auto pairs = [&](const char* name) {
        const int64_t* values = i.array<int64_t>(name);
        return std::vector<int32_t>(values, values + i.size(name));
    };
    program.description().edges = pairs("edges");
    program.description().flip_pairs = pairs("flip_pairs");
}

Golden golden(const Instruction& i) {
    const float* values = i.array<float>("values");
    return {static_cast<size_t>(i.length("values", 0)), {values, values + i.size("values")}};
}

void add_golden_input(Program& program, const Instruction& i) {
    program.description().golden_inputs.push_back(golden(i));
}

void add_golden_output(Program& program, const Instruction& i) {
    program.description().golden_outputs.push_back(golden(i));
}

const Kind image("image", add_image);
const Kind labels("labels", add_labels);
const Kind skeleton("skeleton", add_skeleton);
const Kind golden_input("golden_input", add_golden_input);
const Kind golden_output("golden_output", add_golden_output);

}  // namespace
}  // namespace bitfactor
