// What Python cannot see of the executor: how often it allocates, and what a pool does with exceptions.
// Prints the first fault and exits with 1; `make test-neon` and `make test-sanitize` compile and run it.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "program/program.h"

static std::atomic<long> allocations{0};

void* operator new(size_t size) {
    ++allocations;
    return std::malloc(size);
}
void* operator new(size_t size, std::align_val_t alignment) {
    ++allocations;
    const size_t multiple = static_cast<size_t>(alignment);
    return std::aligned_alloc(multiple, (size + multiple - 1) / multiple * multiple);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

using namespace bitfactor;

void expect(bool condition, const char* what) {
    if (condition) return;
    std::printf("%s\n", what);
    std::exit(1);
}

constexpr int side = 24, channels = 64, pixels = side * side, numbers = pixels * channels;

Argument integers(const std::vector<int64_t>& values) {
    return {Argument::int64, {static_cast<int64_t>(values.size())}, values.data()};
}
Argument text(const char* characters) {
    return {Argument::uint8, {static_cast<int64_t>(std::strlen(characters))}, characters};
}
Argument floats(const std::vector<float>& values) {
    return {Argument::float32, {static_cast<int64_t>(values.size())}, values.data()};
}

// Signs, a binary 3x3 convolution, a sum and a mean: steps that are shared, and one that is not.
void build(Program& program) {
    const int64_t bits = numbers * sizeof(float), sums = bits + pixels * 8, mean = sums + bits;
    const std::vector<int64_t> input{0, pixels, channels, 0}, signs{bits, pixels, channels, 1};
    const std::vector<int64_t> out{sums, pixels, channels, 0}, means{mean, 1, channels, 0};
    const std::vector<int64_t> map{channels, side, side}, single{channels, 1, 1}, groups{1},
        in_channels{channels}, pad_value{0};
    const std::vector<int64_t> window{side, side, side, side, 3, 3, 1, 1, 1, 1, 1, 1};
    const std::vector<float> ones(channels, 1.0f), zeros(channels, 0.0f);
    std::vector<uint32_t> weight(channels * 9 * 2);
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<uint32_t>(i * 2654435761u);
    const Argument packed{Argument::uint32, {channels, 3, 3, 2}, weight.data()};
    const auto port = [&](const char* kind, const std::vector<int64_t>& buffer,
                          const std::vector<int64_t>& shape) {
        program.add({kind,
                     {{"buffer", integers(buffer)},
                      {"name", text(kind)},
                      {"shape", integers(shape)},
                      {"dtype", text("float32")}}});
    };
    port("input", input, map);
    program.add({"pointwise", {{"source", integers(input)}}});
    program.add(
        {"signs", {{"buffer", integers(signs)}, {"direction", floats(ones)}, {"threshold", floats(zeros)}}});
    program.add({"binary_conv",
                 {{"source", integers(signs)},
                  {"window", integers(window)},
                  {"groups", integers(groups)},
                  {"in_channels", integers(in_channels)},
                  {"weight", packed},
                  {"pad_value", integers(pad_value)}}});
    program.add({"store", {{"buffer", integers(out)}}});
    program.add({"global_avg_pool", {{"source", integers(out)}}});
    program.add({"store", {{"buffer", integers(means)}}});
    port("output", out, map);
    port("output", means, single);
}

struct Batch {
    size_t samples;
    std::vector<float> x, sums, means;
    std::vector<float*> outs;

    explicit Batch(size_t samples)
        : samples(samples),
          x(samples * numbers),
          sums(x.size()),
          means(samples * channels),
          outs{sums.data(), means.data()} {
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1009) - 504.0f;
    }
    void run(Program& program) { program.run(x.data(), samples, outs.data()); }
};

const KernelSet& portable() {
    auto set = kernel_sets();
    while (set[1]) ++set;
    return **set;
}

void later_runs_allocate_nothing_and_give_the_same(int threads) {
    const size_t arena = 2 * numbers * sizeof(float) + pixels * 8 + channels * sizeof(float);
    Program alone(portable(), 1, arena), program(portable(), threads, arena);
    build(alone);
    build(program);
    for (const size_t samples : {1, 3, 5}) {
        Batch expected(samples), found(samples);
        expected.run(alone);
        found.run(program);
        const long before = allocations;
        for (int i = 0; i < 20; ++i) found.run(program);
        expect(allocations == before, "a run allocated memory");
        expect(found.sums == expected.sums && found.means == expected.means, "threads changed the result");
    }
}

void an_exception_reaches_the_caller_and_the_pool_goes_on() {
    ThreadPool pool(2);
    for (int round = 0; round < 200; ++round) {
        bool caught = false;
        try {
            pool.for_each(50, [](size_t i) {
                if (i == 31) throw std::runtime_error("31");
            });
        } catch (const std::runtime_error&) {
            caught = true;
        }
        expect(caught, "an exception was lost");
        std::vector<int> times(70);
        pool.for_each(times.size(), [&](size_t i) { ++times[i]; });
        for (const int count : times) expect(count == 1, "an item ran never, or more than once");
    }
}

void callers_at_once_get_their_own() {
    ThreadPool pool(2);
    std::vector<std::thread> callers;
    std::atomic<int> wrong{0};
    for (size_t caller = 0; caller < 3; ++caller) {
        callers.emplace_back([&, caller] {
            for (int round = 0; round < 200; ++round) {
                std::vector<size_t> values(20 + caller);
                pool.for_each(values.size(), [&](size_t i) { values[i] = i + caller; });
                for (size_t i = 0; i < values.size(); ++i) wrong += values[i] != i + caller;
            }
        });
    }
    for (auto& caller : callers) caller.join();
    expect(wrong == 0, "callers at once got each other's items");
}

}  // namespace

int main() {
    for (int threads = 1; threads <= 4; ++threads) later_runs_allocate_nothing_and_give_the_same(threads);
    an_exception_reaches_the_caller_and_the_pool_goes_on();
    callers_at_once_get_their_own();
}
