// The only file that knows Python. Arrays are taken as they are (`noconvert`): a silent conversion would make
// a copy, and results would be written to that.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>

#include "api/image.h"
#include "program/program.h"
#include "training/training.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bitfactor {
namespace {

using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Samples = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Results = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Times = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

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

void expect(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
}

std::vector<float*> pointers_to(const std::vector<Results>& outs, const Program& program, size_t samples) {
    expect(outs.size() == program.outputs().size(), "one array is needed for each output");
    std::vector<float*> pointers;
    for (size_t i = 0; i < outs.size(); ++i) {
        expect(outs[i].shape(0) == samples && outs[i].shape(1) == program.outputs()[i].size(),
               "an output array must be (samples, output size)");
        pointers.push_back(outs[i].data());
    }
    return pointers;
}

bool run(Program& program, const Samples& x, const std::vector<Results>& outs) {
    expect(x.shape(1) == program.input().size(), "x must be (samples, input size)");
    const std::vector<float*> pointers = pointers_to(outs, program, x.shape(0));
    nb::gil_scoped_release released;
    return program.run(x.data(), x.shape(0), pointers.data());
}

void profile(Program& program, const Samples& x, const std::vector<Results>& outs, const Times& ns) {
    expect(x.shape(0) == 1 && x.shape(1) == program.input().size(), "x must be (1, input size)");
    expect(ns.shape(1) == program.step_count() + 2, "ns must be (runs, phases)");
    const std::vector<float*> pointers = pointers_to(outs, program, 1);
    nb::gil_scoped_release released;
    for (size_t i = 0; i < ns.shape(0); ++i) program.profile(x.data(), pointers.data(), &ns(i, 0));
}

using Pixels = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Resized = nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void resize(const Pixels& image, int height, int width, const Resized& out) {
    expect(image.size() > 0 && height >= 1 && width >= 1, "an image must have pixels");
    const auto side = [&](const auto& array, size_t axis) { return static_cast<int>(array.shape(axis)); };
    const int channels = side(image, 2), wanted = side(out, 2);
    expect(channels == 1 || channels == 3, "an image must have 1 or 3 channels");
    expect(wanted == 1 || wanted == 3, "a resized image must have 1 or 3 channels");
    expect(side(out, 0) <= height && side(out, 1) <= width, "what is cut out must lie within");
    nb::gil_scoped_release released;
    resize_image({image.data(), side(image, 0), side(image, 1), channels}, {height, width},
                 {side(out, 0), side(out, 1)}, wanted, out.data());
}

Argument::Type type_of(const Array& array) {
    const auto type = array.dtype();
    if (type == nb::dtype<int64_t>()) return Argument::int64;
    if (type == nb::dtype<int32_t>()) return Argument::int32;
    if (type == nb::dtype<uint32_t>()) return Argument::uint32;
    if (type == nb::dtype<float>()) return Argument::float32;
    if (type == nb::dtype<uint8_t>()) return Argument::uint8;
    throw std::invalid_argument("an argument must be int64, int32, uint32, float32 or uint8");
}

void add(Program& program, const std::string& kind, const std::map<std::string, Array>& arrays) {
    std::map<std::string, Argument> arguments;
    for (const auto& [name, array] : arrays) {
        const std::vector<int64_t> shape(array.shape_ptr(), array.shape_ptr() + array.ndim());
        arguments[name] = {type_of(array), shape, array.data()};
    }
    program.add({kind, std::move(arguments)});
}

struct Maps {
    int samples, pixels, groups, channels;
    bool channels_last, bfloat16, closed;

    Maps(int samples, int pixels, int groups, int channels, bool channels_last, bool bfloat16, bool closed)
        : samples(samples),
          pixels(pixels),
          groups(groups),
          channels(channels),
          channels_last(channels_last),
          bfloat16(bfloat16),
          closed(closed) {}

    SignMap of() const { return {pixels, groups, channels, channels_last, bfloat16, closed}; }
};

template <class T>
T* pointer(size_t address) {
    return reinterpret_cast<T*>(address);
}

// A core and the factors of `grid` modes, of outputs, of channels and of the taps; `sizes` are two a factor.
TuckerOperands operands_of(int grid, const std::vector<int>& sizes, const std::vector<size_t>& addresses) {
    expect(sizes.size() == 2 * (addresses.size() - 1) && addresses.size() >= static_cast<size_t>(grid) + 3,
           "a core comes with two sizes for each factor");
    std::vector<Matrix> factors;
    for (size_t i = 1; i < addresses.size(); ++i) {
        factors.push_back({sizes[2 * i - 2], sizes[2 * i - 1], pointer<float>(addresses[i])});
    }
    const auto channels = factors.begin() + grid;
    return {pointer<float>(addresses[0]),
            {factors.begin(), channels},
            channels[0],
            channels[1],
            {channels + 2, factors.end()}};
}

template <class T>
std::vector<T*> pointers(const std::vector<size_t>& addresses) {
    std::vector<T*> found;
    for (const size_t address : addresses) found.push_back(pointer<T>(address));
    return found;
}

}  // namespace
}  // namespace bitfactor

NB_MODULE(_native, m) {
    using namespace bitfactor;
    m.doc() = "The compiled core; see bitfactor.runtime.program for its use.";
    m.def("instruction_sets", &instruction_sets, "The instruction sets of this machine, best first.");
    m.def("resize_image", &resize, "image"_a, "height"_a, "width"_a, "out"_a,
          "Writes the middle of a resized image, (h, w, channels), to `out`; 3 channels become 1 as grey.");
    nb::class_<Program>(m, "Program")
        .def(
            "__init__",
            [](Program* self, const std::string& isa, int threads, size_t arena_bytes, size_t most_bytes) {
                new (self) Program(kernel_set_named(isa), threads, arena_bytes, most_bytes);
            },
            "isa"_a, "threads"_a, "arena_bytes"_a, "most_bytes"_a = SIZE_MAX)
        .def("allow_bfloat16", &Program::allow_bfloat16, "parts"_a)
        .def("add", &add, "kind"_a, "arguments"_a.noconvert())
        .def("run", &run, "x"_a.noconvert(), "outs"_a.noconvert())
        .def("profile", &profile, "x"_a.noconvert(), "outs"_a.noconvert(), "ns"_a.noconvert())
        .def("phases", &Program::phases)
        .def("reasons", &Program::reasons)
        .def("step_count", &Program::step_count);

    // Tensors come as addresses: whoever calls has checked what lies there.
    nb::class_<Trainer>(m, "Trainer")
        .def(
            "__init__",
            [](Trainer* self, const std::string& isa, int threads) {
                new (self) Trainer(kernel_set_named(isa), threads);
            },
            "isa"_a, "threads"_a)
        .def(
            "pack",
            [](Trainer& self, const Maps& maps, size_t x, size_t signs, size_t inside) {
                nb::gil_scoped_release released;
                return self.pack(maps.of(), maps.samples, pointer<void>(x), pointer<uint32_t>(signs),
                                 pointer<uint32_t>(inside));
            },
            "maps"_a, "x"_a, "signs"_a, "inside"_a)
        .def(
            "unpack",
            [](Trainer& self, const Maps& maps, size_t signs, size_t out) {
                nb::gil_scoped_release released;
                self.unpack(maps.of(), maps.samples, pointer<uint32_t>(signs), pointer<void>(out));
            },
            "maps"_a, "signs"_a, "out"_a)
        .def(
            "mask",
            [](Trainer& self, const Maps& maps, size_t inside, size_t gradient) {
                nb::gil_scoped_release released;
                self.mask(maps.of(), maps.samples, pointer<uint32_t>(inside), pointer<void>(gradient));
            },
            "maps"_a, "inside"_a, "gradient"_a)
        .def(
            "prelu",
            [](Trainer& self, const Maps& maps, size_t x, size_t gradient, size_t slope, size_t of_x,
               size_t of_slope) {
                nb::gil_scoped_release released;
                self.prelu(maps.of(), maps.samples, pointer<void>(x), pointer<void>(gradient),
                           pointer<float>(slope), pointer<void>(of_x), pointer<float>(of_slope));
            },
            "maps"_a, "x"_a, "gradient"_a, "slope"_a, "of_x"_a, "of_slope"_a)
        .def(
            "normalise",
            [](Trainer& self, const Maps& maps, int repeats, double eps, bool clip, size_t weight,
               size_t bias, size_t x, size_t added, size_t statistics, size_t y) {
                nb::gil_scoped_release released;
                self.normalise(maps.of(), maps.samples,
                               {repeats, pointer<float>(weight), pointer<float>(bias), eps, clip},
                               pointer<void>(x), pointer<void>(added), pointer<float>(statistics),
                               pointer<void>(y));
            },
            "maps"_a, "repeats"_a, "eps"_a, "clip"_a, "weight"_a, "bias"_a, "x"_a, "added"_a, "statistics"_a,
            "y"_a)
        .def(
            "normalise_backward",
            [](Trainer& self, const Maps& maps, int repeats, size_t weight, size_t x, size_t y,
               size_t gradient, size_t statistics, size_t kept, size_t of_x, size_t of_weight,
               size_t of_bias) {
                nb::gil_scoped_release released;
                self.normalise_backward(maps.of(), maps.samples,
                                        {repeats, pointer<float>(weight), nullptr, 0, y != 0},
                                        pointer<void>(x), pointer<void>(y), pointer<void>(gradient),
                                        pointer<float>(statistics), pointer<void>(kept), pointer<void>(of_x),
                                        pointer<float>(of_weight), pointer<float>(of_bias));
            },
            "maps"_a, "repeats"_a, "weight"_a, "x"_a, "y"_a, "gradient"_a, "statistics"_a, "kept"_a, "of_x"_a,
            "of_weight"_a, "of_bias"_a)
        .def(
            "tanh_gradient",
            [](Trainer& self, const Maps& maps, size_t x, size_t gradient, float height, float steepness,
               size_t of_x) {
                nb::gil_scoped_release released;
                self.tanh_gradient(maps.of(), maps.samples, pointer<void>(x), pointer<void>(gradient), height,
                                   steepness, pointer<void>(of_x));
            },
            "maps"_a, "x"_a, "gradient"_a, "height"_a, "steepness"_a, "of_x"_a)
        .def("couples", &Trainer::couples)
        .def(
            "weights",
            [](Trainer& self, int grid, const std::vector<int>& sizes, bool coupled,
               const std::vector<size_t>& operands, size_t x, size_t y, const std::vector<size_t>& weights) {
                const TuckerOperands of = operands_of(grid, sizes, operands);
                const auto W = pointers<float>(weights);
                nb::gil_scoped_release released;
                self.weights(of, coupled, pointer<float>(x), pointer<float>(y), W);
            },
            "grid"_a, "sizes"_a, "coupled"_a, "operands"_a, "x"_a, "y"_a, "weights"_a)
        .def(
            "of_weights",
            [](Trainer& self, int grid, const std::vector<int>& sizes, bool coupled,
               const std::vector<size_t>& operands, size_t x, size_t y, const std::vector<size_t>& of_weights,
               const std::vector<size_t>& of_operands) {
                const TuckerOperands of = operands_of(grid, sizes, operands);
                const TuckerOperands gradients = operands_of(grid, sizes, of_operands);
                const auto of_W = pointers<const float>(of_weights);
                nb::gil_scoped_release released;
                self.of_weights(of, coupled, pointer<float>(x), pointer<float>(y), of_W, gradients);
            },
            "grid"_a, "sizes"_a, "coupled"_a, "operands"_a, "x"_a, "y"_a, "of_weights"_a, "of_operands"_a)
        .def(
            "conv",
            [](Trainer& self, const Maps& out, const std::vector<int>& window, int channels, size_t signs,
               size_t weight, size_t scale, size_t y) {
                expect(window.size() == 12, "a window has 12 numbers");
                const int* w = window.data();
                const Window sliding{w[0], w[1], w[2], w[3], w[4],  w[5],
                                     w[6], w[7], w[8], w[9], w[10], w[11]};
                nb::gil_scoped_release released;
                self.conv(out.of(), out.samples, sliding, channels, pointer<uint32_t>(signs),
                          pointer<uint32_t>(weight), pointer<float>(scale), pointer<void>(y));
            },
            "out"_a, "window"_a, "channels"_a, "signs"_a, "weight"_a, "scale"_a, "y"_a);
    nb::class_<Maps>(m, "Maps").def(nb::init<int, int, int, int, bool, bool, bool>(), "samples"_a, "pixels"_a,
                                    "groups"_a, "channels"_a, "channels_last"_a, "bfloat16"_a,
                                    "closed"_a = false);
}
