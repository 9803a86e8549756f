// The only file that knows Python. Arrays are taken as they are (`noconvert`): a silent conversion would make
// a copy, and results would be written to that.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>

#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bitfactor {
namespace {

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<const uint32_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Weight = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Samples = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Results = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Times = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Pair = std::pair<int, int>;

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (auto set = kernel_sets(); *set; ++set) names.emplace_back((*set)->name);
    return names;
}

const KernelSet& kernel_set_named(const std::string& name) {
    for (auto set = kernel_sets(); *set; ++set) {
        if (name == (*set)->name) return **set;
    }
    throw std::invalid_argument("this machine has no instruction set " + name);
}

Window window(Pair in, Pair out, Pair kernel, Pair stride, Pair padding, Pair dilation) {
    return {in.first,     in.second,     out.first,     out.second,     kernel.first,   kernel.second,
            stride.first, stride.second, padding.first, padding.second, dilation.first, dilation.second};
}

void expect(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
}

size_t size_of(const Buffer& buffer) { return static_cast<size_t>(buffer.pixels) * buffer.channels; }

std::vector<float*> pointers_to(const std::vector<Results>& outs, const Program& program, size_t samples) {
    expect(outs.size() == program.outputs().size(), "one array is needed for each output");
    std::vector<float*> pointers;
    for (size_t i = 0; i < outs.size(); ++i) {
        expect(outs[i].shape(0) == samples && outs[i].shape(1) == size_of(program.outputs()[i]),
               "an output array must be (samples, output size)");
        pointers.push_back(outs[i].data());
    }
    return pointers;
}

bool run(Program& program, const Samples& x, const std::vector<Results>& outs) {
    expect(x.shape(1) == size_of(program.input()), "x must be (samples, input size)");
    const std::vector<float*> pointers = pointers_to(outs, program, x.shape(0));
    nb::gil_scoped_release released;
    return program.run(x.data(), x.shape(0), pointers);
}

void profile(Program& program, const Samples& x, const std::vector<Results>& outs, const Times& ns) {
    expect(x.shape(0) == 1 && x.shape(1) == size_of(program.input()), "x must be (1, input size)");
    expect(ns.shape(1) == program.step_count() + 2, "ns must be (runs, phases)");
    const std::vector<float*> pointers = pointers_to(outs, program, 1);
    nb::gil_scoped_release released;
    for (size_t i = 0; i < ns.shape(0); ++i) program.profile(x.data(), pointers, &ns(i, 0));
}

int per_group(size_t channels, int groups) { return static_cast<int>(channels) / groups; }

void conv(Program& program, size_t source, const Window& window, int groups, const Weight& weight,
          const Floats& bias, bool apart) {
    program.conv(source, window, groups, static_cast<int>(weight.shape(3)),
                 per_group(weight.shape(0), groups), weight.data(), bias.data(), apart);
}

void binary_conv(Program& program, size_t source, const Window& window, int groups, int in_channels,
                 const Words& weight, int pad_value) {
    program.binary_conv(source, window, groups, in_channels, per_group(weight.shape(0), groups),
                        static_cast<int>(weight.shape(3)), weight.data(), pad_value);
}

void upsample_nearest(Program& program, size_t source, Pair in_size, int channels, Pair scale) {
    program.upsample_nearest(source, in_size.first, in_size.second, channels, scale.first, scale.second);
}

Pool pool(const Window& window, int channels, Pair far_padding, bool count_include_pad) {
    return {window, channels, count_include_pad, far_padding.first, far_padding.second};
}

void gather(Program& program, size_t source, const Indices& indices) {
    program.gather(source, static_cast<int>(indices.shape(0)), static_cast<int>(indices.shape(1)),
                   indices.data());
}

template <Stage::Kind kind>
void one_parameter(Program& program, const Floats& a) {
    program.stage(kind, 0, a.data(), a.size(), nullptr);
}

void affine(Program& program, const Floats& scale, const Floats& shift) {
    program.stage(Stage::affine, 0, scale.data(), scale.size(), shift.data());
}

void signs(Program& program, const Buffer& buffer, const Floats& direction, const Floats& threshold) {
    program.stage(Stage::signs, buffer.offset, direction.data(), direction.size(), threshold.data());
}

template <Stage::Kind kind>
void one_buffer(Program& program, const Buffer& buffer) {
    program.stage(kind, buffer);
}

}  // namespace
}  // namespace bitfactor

NB_MODULE(_native, m) {
    using namespace bitfactor;
    m.doc() = "The compiled core; see bitfactor.runtime.build for its use.";
    m.def("instruction_sets", &instruction_sets, "The instruction sets of this machine, best first.");
    nb::class_<Window>(m, "Window");
    m.def("window", &window, "in_size"_a, "out_size"_a, "kernel"_a, "stride"_a, "padding"_a, "dilation"_a);
    nb::class_<Pool>(m, "Pool");
    m.def("pool", &pool, "window"_a, "channels"_a, "far_padding"_a, "count_include_pad"_a);
    nb::class_<Buffer>(m, "Buffer")
        .def(nb::init<size_t, int, int, bool>(), "offset"_a, "pixels"_a, "channels"_a, "signs"_a);
    nb::class_<Program>(m, "Program")
        .def(
            "__init__",
            [](Program* self, const std::string& isa, int threads, size_t arena_bytes) {
                new (self) Program(kernel_set_named(isa), threads, arena_bytes);
            },
            "isa"_a, "threads"_a, "arena_bytes"_a)
        .def("set_input", &Program::set_input, "buffer"_a)
        .def("add_output", &Program::add_output, "buffer"_a)
        .def("allow_bfloat16", &Program::allow_bfloat16, "parts"_a)
        .def("conv", &conv, "source"_a, "window"_a, "groups"_a, "weight"_a.noconvert(), "bias"_a.noconvert(),
             "apart"_a)
        .def("binary_conv", &binary_conv, "source"_a, "window"_a, "groups"_a, "in_channels"_a,
             "weight"_a.noconvert(), "pad_value"_a)
        .def("max_pool", &Program::max_pool, "source"_a, "pool"_a)
        .def("max_pool_of_last", &Program::max_pool_of_last, "pool"_a)
        .def("avg_pool", &Program::avg_pool, "source"_a, "pool"_a)
        .def("upsample_nearest", &upsample_nearest, "source"_a, "in_size"_a, "channels"_a, "scale"_a)
        .def("global_avg_pool", &Program::global_avg_pool, "source"_a)
        .def("flatten", &Program::flatten, "source"_a)
        .def("gather", &gather, "source"_a, "indices"_a.noconvert())
        .def("concat", &Program::concat, "sources"_a)
        .def("softmax", &Program::softmax, "source"_a)
        .def("pointwise", &Program::pointwise, "source"_a)
        .def("run_within_last", &Program::run_within_last, "index"_a)
        .def("scale", &one_parameter<Stage::scale>, "alpha"_a.noconvert())
        .def("affine", &affine, "scale"_a.noconvert(), "shift"_a.noconvert())
        .def("relu", [](Program& program) { program.stage(Stage::relu); })
        .def("prelu", &one_parameter<Stage::prelu>, "slope"_a.noconvert())
        .def("clip", &Program::clip, "lower"_a, "upper"_a)
        .def("sigmoid", [](Program& program) { program.stage(Stage::sigmoid); })
        .def("multiply", &one_buffer<Stage::multiply>, "buffer"_a)
        .def("add", &one_buffer<Stage::add>, "buffer"_a)
        .def("store", &one_buffer<Stage::store>, "buffer"_a)
        .def("signs", &signs, "buffer"_a, "direction"_a.noconvert(), "threshold"_a.noconvert())
        .def("run", &run, "x"_a.noconvert(), "outs"_a.noconvert())
        .def("profile", &profile, "x"_a.noconvert(), "outs"_a.noconvert(), "ns"_a.noconvert())
        .def("phases", &Program::phases)
        .def("step_count", &Program::step_count);
}
