#include "program/description.h"

#include <algorithm>
#include <cmath>

#include "program/program.h"

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

void check_image(Verifier& v) {
    v.expect_described();
    const std::vector<int> size = v.numbers("size", 2, 1), resize = v.numbers("resize", 2, 1);
    v.flag("keep_aspect");
    const size_t channels = v.size("mean");
    v.expect(channels == 1 || channels == 3, "one channel or three");
    v.expect_map(v.inputs()[0], int64_t{size[0]} * size[1], static_cast<int64_t>(channels), false);
    v.expect(size[0] <= resize[0] && size[1] <= resize[1], "a size that is cut out of the resized image");
    const float *mean = v.elements<float>("mean", channels), *std = v.elements<float>("std", channels);
    for (size_t c = 0; c < channels; ++c)
        v.expect(std::isfinite(mean[c]) && std::isfinite(std[c]) && std[c] > 0, "finite mean, std above 0");
}

void check_labels(Verifier& v) {
    v.expect_described();
    const std::string names = v.text("names");
    v.expect(!names.empty() && names.back() == '\0' && v.labels == 0, "names that end, once");
    v.labels = static_cast<size_t>(std::count(names.begin(), names.end(), '\0'));
}

void check_skeleton(Verifier& v) {
    v.expect(v.labels > 0, "labels before a skeleton");
    for (const char* name : {"edges", "flip_pairs"}) {
        const size_t pairs = static_cast<size_t>(v.length(name, 0, 2));
        v.numbers(name, 2 * pairs, 0, static_cast<int>(v.labels) - 1);
    }
}

// The samples of each port in turn.
void check_golden(Verifier& v, const std::vector<Buffer>& ports, size_t& known) {
    v.expect_described();
    v.expect(known < ports.size(), "golden values of each input and output once");
    const int64_t samples = v.length("values", 0, 2);
    v.expect(samples >= 1, "a sample");
    v.array<float>("values", {samples, static_cast<int64_t>(ports[known++].size())});
    v.expect(v.golden_samples == 0 || v.golden_samples == samples, "golden values of as many samples");
    v.golden_samples = samples;
}

}  // namespace

Kinds description_kinds() {
    return {
        {"image", check_image, add_image},
        {"labels", check_labels, add_labels},
        {"skeleton", check_skeleton, add_skeleton},
        {"golden_input", [](Verifier& v) { check_golden(v, v.inputs(), v.golden_inputs); }, add_golden_input},
        {"golden_output", [](Verifier& v) { check_golden(v, v.outputs(), v.golden_outputs); },
         add_golden_output}};
}

}  // namespace bitfactor
