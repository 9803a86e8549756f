// The interface to C: nothing is thrown across it, and nothing is global.

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "api/image.h"
#include "bitfactor.h"
#include "program/frozen.h"
#include "program/program.h"

using namespace bitfactor;

namespace {

constexpr int most_side = 1 << 15;  // of an image, in pixels

struct Failure {
    bf_status status;
    std::string text;
};

[[noreturn]] void fail(bf_status status, const std::string& text) { throw Failure{status, text}; }

bf_status report(bf_error* error, bf_status status, const char* text) {
    if (error) {
        error->status = status;
        std::snprintf(error->text, sizeof error->text, "%s", text);
        // Names of the file may be in it, and must not steer a terminal.
        unsigned char before = 0;
        for (char* c = error->text; *c; ++c) {
            const auto byte = static_cast<unsigned char>(*c);
            const bool later =
                before == 0xc2 || before < 0x80;  // 0x80 to 0x9f steer, but for parts of a letter
            if (byte < ' ' || byte == 127 || (byte >= 0x80 && byte < 0xa0 && later)) *c = '?';
            before = byte;
        }
    }
    return status;
}

// Calls f; what it throws becomes a status and a text. `invalid` is the status of an argument that is.
template <class F>
bf_status guarded(bf_error* error, bf_status invalid, F f) {
    try {
        f();
        return report(error, BF_OK, "");
    } catch (const Failure& failure) {
        return report(error, failure.status, failure.text.c_str());
    } catch (const std::invalid_argument& wrong) {
        return report(error, invalid, wrong.what());
    } catch (const std::bad_alloc&) {
        return report(error, BF_NO_MEMORY,
                      "the network needs more memory than there is, or than it may take");
    } catch (const std::exception& other) {
        return report(error, BF_FAILED, other.what());
    } catch (...) {
        return report(error, BF_FAILED, "an unknown error");
    }
}

// What is longer than `most` is not read.
AlignedVector<char> contents_of(const char* path, size_t most) {
    const auto close = [](std::FILE* file) { std::fclose(file); };
    const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path, "rb"), close);
    if (!file) fail(BF_NOT_FOUND, std::string(path) + ": " + std::strerror(errno));
    // A pipe has no size, and a folder's is LONG_MAX on Linux.
    const long told = std::fseek(file.get(), 0, SEEK_END) ? 0 : std::ftell(file.get());
    std::rewind(file.get());
    if (told > 0 && told<LONG_MAX&& static_cast<size_t>(told)> most) throw std::bad_alloc();
    AlignedVector<char> contents(told > 0 && told < LONG_MAX ? static_cast<size_t>(told) + 1 : 4096);
    size_t size = 0;
    while ((size += std::fread(&contents[size], 1, contents.size() - size, file.get())) == contents.size()) {
        if (size > most) throw std::bad_alloc();
        contents.resize(2 * size);
    }
    if (std::ferror(file.get())) fail(BF_NOT_FOUND, std::string(path) + ": cannot be read");
    contents.resize(size);
    return contents;
}

// Numbers from -2 to 2 that look random, from the one at `first` on, as bitfactor.format.model.golden_input
// gives.
std::vector<float> hashed(size_t first, size_t size) {
    std::vector<float> numbers(size);
    for (size_t i = 0; i < size; ++i) {
        uint64_t mixed = (2 * static_cast<uint64_t>(first + i) + 1) * 0x9e3779b97f4a7c15u;
        mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u >> 40;
        numbers[i] = static_cast<float>(mixed) / (1 << 22) - 2;
    }
    return numbers;
}

bf_tensor described(const Port& port) {
    bf_tensor tensor{port.name.c_str(), BF_REAL, port.shape.size(), {}, port.size()};
    if (port.dtype == "int32") tensor.values = BF_INTEGERS;
    if (port.dtype == "bit") tensor.values = BF_SIGNS;
    std::copy(port.shape.begin(), port.shape.end(), tensor.shape);
    return tensor;
}

}  // namespace

struct bf_network {
    AlignedVector<char> own;  // of a file
    size_t left_bytes;
    Frozen frozen;
    const KernelSet* set = kernel_sets()[0];
    int threads;
    std::unique_ptr<Program> program;
    // As the first program says it: names that were given out stay where they are.
    Port input;
    std::vector<Port> outputs;
    Description description;

    bf_network(const void* memory, size_t bytes, size_t most)
        : left_bytes(most), frozen(read(memory, bytes)), threads(threads_at_first(frozen.threads)) {
        build(*set, threads);
    }
    bf_network(AlignedVector<char> contents, size_t most)
        : bf_network(contents.data(), contents.size(), most - std::min(most, contents.size())) {
        own = std::move(contents);  // which stays where it is
    }

    Frozen read(const void* memory, size_t bytes) {
        const Allowance allowance(left_bytes);
        return read_frozen(memory, bytes);
    }

    void build(const KernelSet& with, int count) {
        if (count < 1 || count > most_threads)
            fail(BF_BAD_ARGUMENT, "expected 1 to " + std::to_string(most_threads) + " threads, found " +
                                      std::to_string(count));
        auto built = std::make_unique<Program>(with, count, frozen.arena_bytes, left_bytes);
        for (const Instruction& instruction : frozen.instructions) built->add(instruction);
        built->expect_complete();
        if (!program) {
            input = built->input();
            outputs = built->outputs();
            description = std::move(built->description());
        }
        built->description() = {};
        program = std::move(built);
        set = &with;
        threads = count;
    }
};

namespace {

void expect(const void* pointer, const char* name) {
    if (!pointer) fail(BF_BAD_ARGUMENT, std::string("expected ") + name + ", found a null pointer");
}

void expect(size_t i, size_t count, const char* what) {
    if (i >= count)
        fail(BF_NOT_FOUND,
             "expected one of " + std::to_string(count) + " " + what + ", found number " + std::to_string(i));
}

template <class Make>
bf_network* loaded(bf_error* error, Make make) {
    bf_network* network = nullptr;
    guarded(error, BF_BAD_FILE, [&] { network = make(); });
    return network;
}

const ImageRule& rule_of(const bf_network* network) {
    expect(network, "a network");
    if (network->description.image.empty())
        fail(BF_NOT_FOUND, "the file does not say how an image becomes its input");
    return network->description.image[0];
}

struct Memory {
    uintptr_t at;
    size_t bytes;

    Memory(const void* start, size_t count, size_t size)
        : at(reinterpret_cast<uintptr_t>(start)), bytes(count * size) {}
};

// What is written would change what is still to be read.
void expect_apart(const Memory& written, const Memory& other, const char* names) {
    const bool meet =
        written.at < other.at ? other.at - written.at < written.bytes : written.at - other.at < other.bytes;
    if (meet && written.bytes && other.bytes)
        fail(BF_BAD_ARGUMENT, std::string("expected ") + names +
                                  " in memory of their own, found that they overlap; " + "give each its own");
}

void run(bf_network& network, size_t samples, const float* const* inputs, float* const* outputs) {
    expect(inputs, "inputs");
    expect(outputs, "outputs");
    expect(inputs[0], "an input");
    const std::vector<Port>& ports = network.program->outputs();
    const auto memory_of = [&](const float* start, const Port& port) {
        return Memory(start, samples, port.size() * sizeof(float));
    };
    for (size_t i = 0; i < ports.size(); ++i) {
        expect(outputs[i], "an output");
        const Memory output = memory_of(outputs[i], ports[i]);
        expect_apart(output, memory_of(inputs[0], network.program->input()), "an input and an output");
        for (size_t k = 0; k < i; ++k) expect_apart(output, memory_of(outputs[k], ports[k]), "two outputs");
    }
    if (!network.program->run(inputs[0], samples, outputs))
        fail(BF_NOT_FINITE, "expected finite numbers as input, found NaN or infinity");
    for (size_t i = 0; i < ports.size(); ++i) {
        const float *begin = outputs[i], *end = begin + samples * ports[i].size();
        if (std::any_of(begin, end, [](float y) { return std::isnan(y); }))
            fail(BF_NOT_FINITE, "expected numbers in output " + ports[i].name +
                                    ", found NaN; look for what " + "divides by 0 or grows without bound");
    }
}

// The largest difference to the golden outputs; `same` gets whether all bits are.
float difference_of(bf_network& network, bool& same) {
    const std::vector<Golden>& inputs = network.description.golden_inputs;
    const std::vector<Golden>& expected = network.description.golden_outputs;
    if (expected.size() != network.outputs.size())
        fail(BF_NOT_FOUND, "the file does not have golden values of each output");
    const size_t size = network.input.size();
    std::vector<std::vector<float>> found;
    std::vector<float*> outs;
    for (const Port& port : network.outputs) outs.push_back(found.emplace_back(port.size()).data());
    float most = 0;
    for (size_t sample = 0; sample < expected[0].samples; ++sample) {
        const std::vector<float> made = inputs.empty() ? hashed(sample * size, size) : std::vector<float>();
        const float* in = inputs.empty() ? made.data() : inputs[0].values.data() + sample * size;
        run(network, 1, &in, outs.data());
        for (size_t i = 0; i < found.size(); ++i) {
            const float* golden = expected[i].values.data() + sample * found[i].size();
            same = same && !std::memcmp(found[i].data(), golden, found[i].size() * sizeof(float));
            for (size_t k = 0; k < found[i].size(); ++k)
                most = std::max(most, std::fabs(found[i][k] - golden[k]));
        }
    }
    return most;
}

}  // namespace

bf_network* bf_load_within(const void* memory, size_t bytes, size_t most_bytes, bf_error* error) {
    return loaded(error, [&] { return new bf_network(memory, bytes, most_bytes); });
}

bf_network* bf_open_within(const char* path, size_t most_bytes, bf_error* error) {
    return loaded(error, [&] {
        expect(path, "a path");
        return new bf_network(contents_of(path, most_bytes), most_bytes);
    });
}

bf_network* bf_load(const void* memory, size_t bytes, bf_error* error) {
    return bf_load_within(memory, bytes, SIZE_MAX, error);
}

bf_network* bf_open(const char* path, bf_error* error) { return bf_open_within(path, SIZE_MAX, error); }

void bf_free(bf_network* network) { delete network; }

bf_status bf_set_threads(bf_network* network, int threads, bf_error* error) {
    return guarded(error, BF_BAD_ARGUMENT, [&] {
        expect(network, "a network");
        network->build(*network->set, threads);
    });
}

bf_status bf_set_instruction_set(bf_network* network, const char* name, bf_error* error) {
    return guarded(error, BF_BAD_ARGUMENT, [&] {
        expect(network, "a network");
        expect(name, "the name of an instruction set");
        std::string known;
        for (auto set = kernel_sets(); *set; ++set) {
            if (!std::strcmp(name, (*set)->name)) return network->build(**set, network->threads);
            known += (known.empty() ? "" : ", ") + std::string((*set)->name);
        }
        fail(BF_BAD_ARGUMENT, "expected an instruction set of this machine (" + known + "), found " + name);
    });
}

const char* bf_instruction_set(const bf_network* network) { return network ? network->set->name : nullptr; }

const char* bf_instruction_sets(size_t i) {
    const auto sets = kernel_sets();
    for (size_t k = 0; sets[k]; ++k) {
        if (k == i) return sets[k]->name;
    }
    return nullptr;
}

size_t bf_input_count(const bf_network* network) { return network ? 1 : 0; }

size_t bf_output_count(const bf_network* network) { return network ? network->outputs.size() : 0; }

bf_status bf_input(const bf_network* network, size_t i, bf_tensor* tensor, bf_error* error) {
    return guarded(error, BF_BAD_ARGUMENT, [&] {
        expect(network, "a network");
        expect(tensor, "a tensor");
        expect(i, bf_input_count(network), "inputs");
        *tensor = described(network->input);
    });
}

bf_status bf_output(const bf_network* network, size_t i, bf_tensor* tensor, bf_error* error) {
    return guarded(error, BF_BAD_ARGUMENT, [&] {
        expect(network, "a network");
        expect(tensor, "a tensor");
        expect(i, bf_output_count(network), "outputs");
        *tensor = described(network->outputs[i]);
    });
}

size_t bf_label_count(const bf_network* network) { return network ? network->description.labels.size() : 0; }

const char* bf_label(const bf_network* network, size_t i) {
    return i < bf_label_count(network) ? network->description.labels[i].c_str() : nullptr;
}

size_t bf_edge_count(const bf_network* network) {
    return network ? network->description.edges.size() / 2 : 0;
}

bf_status bf_edge(const bf_network* network, size_t i, int32_t pair[2], bf_error* error) {
    return guarded(error, BF_BAD_ARGUMENT, [&] {
        expect(network, "a network");
        expect(pair, "a pair");
        expect(i, bf_edge_count(network), "edges");
        std::copy_n(network->description.edges.data() + 2 * i, 2, pair);
    });
}

bf_status bf_prepare_image(const bf_network* network, const uint8_t* pixels, int height, int width,
                           int channels, float* input, bf_error* error) {
    return guarded(error, BF_BAD_ARGUMENT, [&] {
        const ImageRule& rule = rule_of(network);
        expect(pixels, "pixels");
        expect(input, "room for the input");
        if (std::min(height, width) < 1 || std::max(height, width) > most_side)
            fail(BF_BAD_ARGUMENT, "expected an image of 1 to " + std::to_string(most_side) +
                                      " pixels a side, found " + std::to_string(height) + " by " +
                                      std::to_string(width));
        if (channels != 1 && channels != 3 && channels != 4)
            fail(BF_BAD_ARGUMENT, "expected 1, 3 or 4 channels, found " + std::to_string(channels));
        const size_t pixel_count = static_cast<size_t>(height) * width;
        expect_apart(Memory(input, network->program->input().size(), sizeof(float)),
                     Memory(pixels, pixel_count, channels), "pixels and the input");
        prepare_image(rule, {pixels, height, width, channels}, input);
    });
}

bf_status bf_image_of(const bf_network* network, bf_image* image, bf_error* error) {
    return guarded(error, BF_BAD_ARGUMENT, [&] {
        const ImageRule& rule = rule_of(network);
        expect(image, "an image");
        *image = {rule.height,
                  rule.width,
                  rule.resize_height,
                  rule.resize_width,
                  rule.keep_aspect,
                  static_cast<int>(rule.mean.size()),
                  {},
                  {}};
        std::copy(rule.mean.begin(), rule.mean.end(), image->mean);
        std::copy(rule.std.begin(), rule.std.end(), image->std);
    });
}

bf_status bf_run(bf_network* network, size_t samples, const float* const* inputs, float* const* outputs,
                 bf_error* error) {
    return guarded(error, BF_BAD_ARGUMENT, [&] {
        expect(network, "a network");
        run(*network, samples, inputs, outputs);
    });
}

bf_status bf_verify(bf_network* network, float* difference, bf_error* error) {
    return guarded(error, BF_BAD_ARGUMENT, [&] {
        expect(network, "a network");
        bool same = true;
        const float most = difference_of(*network, same);
        if (difference) *difference = most;
        if (!same)
            fail(BF_DIFFERENT,
                 "expected the golden outputs of the file, found a difference of " + std::to_string(most));
    });
}
