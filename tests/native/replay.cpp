// Runs recorded programs (see record.py) and compares what they give with what they gave, bit for bit.
//
//     replay FILE [SET ...]      by default every instruction set of this machine
//
// Programs run several at a time. Where a thread sanitizer looks, each is run by two threads at once. All
// that a program is given lies in memory of exactly its size: so do the others.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "program/frozen.h"
#include "program/program.h"

namespace bitfactor {
namespace {

// Threads work alike on every set: two are enough to look at them.
#if defined(__SANITIZE_THREAD__)
constexpr bool threads_alone = true;
#else
constexpr bool threads_alone = false;
#endif

struct Case {
    std::vector<uint64_t> memory;
    Frozen frozen;
    std::list<std::unique_ptr<char[]>> arrays;
};

// Each array in memory of its own: a sanitizer sees who reads beyond it.
Instruction apart(const Instruction& instruction, Case& owner) {
    std::map<std::string, Argument> arguments = instruction.arguments();
    for (auto& [name, argument] : arguments) {
        const size_t bytes = argument.size() * bytes_of(argument.type);
        char* copy = owner.arrays.emplace_back(new char[bytes]).get();
        std::memcpy(copy, argument.data, bytes);
        argument.data = copy;
    }
    return {instruction.kind(), std::move(arguments)};
}

class Reader {
  public:
    explicit Reader(const char* path) : file_(path, std::ios::binary) {
        if (!file_) throw std::runtime_error(std::string("cannot read ") + path);
        file_.exceptions(std::ios::badbit);
    }

    bool at_end() { return file_.eof() || file_.peek() == std::ifstream::traits_type::eof(); }

    Case next() {
        FrozenHeader header;
        read(&header, sizeof header);
        if (std::memcmp(header.magic, frozen_magic, sizeof header.magic))
            throw std::runtime_error("something else than frozen programs");
        Case result;
        result.memory.resize(header.bytes / sizeof(uint64_t));
        std::memcpy(result.memory.data(), &header, sizeof header);
        read(reinterpret_cast<char*>(result.memory.data()) + sizeof header, header.bytes - sizeof header);
        result.frozen = read_frozen(result.memory.data(), header.bytes);
        for (Instruction& instruction : result.frozen.instructions) instruction = apart(instruction, result);
        return result;
    }

  private:
    void read(void* to, size_t size) {
        if (!file_.read(static_cast<char*>(to), static_cast<std::streamsize>(size)))
            throw std::runtime_error("the file ends too soon");
    }

    std::ifstream file_;
};

std::unique_ptr<Program> build(const Case& recorded, const KernelSet& set, int bfloat16_parts = 0) {
    auto program = std::make_unique<Program>(set, 2, recorded.frozen.arena_bytes);
    program->allow_bfloat16(bfloat16_parts);
    for (const Instruction& instruction : recorded.frozen.instructions) program->add(instruction);
    return program;
}

using Outputs = std::vector<std::vector<float>>;

Outputs run(Program& program) {
    Outputs outs;
    std::vector<float*> pointers;
    const Golden& x = program.description().golden_inputs.at(0);
    for (const Golden& golden : program.description().golden_outputs)
        pointers.push_back(outs.emplace_back(golden.values.size()).data());
    program.run(x.values.data(), x.samples, pointers.data());
    return outs;
}

// The bits of a NaN depend on the machine.
bool same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

// Prints the first number of each output that differs; true if none does.
bool equal(const Outputs& found, const Description& description, const char* set) {
    bool all = true;
    for (size_t i = 0; i < found.size(); ++i) {
        const std::vector<float>& expected = description.golden_outputs[i].values;
        size_t differing = 0, first = 0;
        for (size_t k = found[i].size(); k-- > 0;) {
            if (same(found[i][k], expected[k])) continue;
            first = k;
            ++differing;
        }
        if (differing == 0) continue;
        all = false;
        std::printf("%s: %s, output %zu: %zu of %zu numbers differ; [%zu] is %.9g, expected %.9g\n", set,
                    description.labels.at(0).c_str(), i, differing, found[i].size(), first,
                    static_cast<double>(found[i][first]), static_cast<double>(expected[first]));
    }
    return all;
}

bool agrees(const Case& recorded, const KernelSet& set) {
    if (!threads_alone && (set.tiles || set.bfloat16())) {  // for the sanitizers: these bits are others
        for (const int parts : {1, 2}) run(*build(recorded, set, parts));
    }
    const auto program = build(recorded, set);
    if (!threads_alone) return equal(run(*program), program->description(), set.name);
    Outputs other;
    std::thread caller([&] { other = run(*program); });
    const Outputs outs = run(*program);
    caller.join();
    return equal(outs, program->description(), set.name) && equal(other, program->description(), set.name);
}

std::vector<const KernelSet*> chosen(const std::vector<std::string>& names) {
    std::vector<const KernelSet*> sets;
    for (auto set = kernel_sets(); *set; ++set) {
        if (names.empty() || std::find(names.begin(), names.end(), (*set)->name) != names.end())
            sets.push_back(*set);
    }
    if (sets.empty() || (!names.empty() && sets.size() != names.size()))
        throw std::runtime_error("this machine does not run every set that was named");
    return threads_alone && names.empty() ? std::vector{sets.front(), sets.back()} : sets;
}

int replay(const char* path, const std::vector<std::string>& names) {
    constexpr int at_once = 3;
    Reader reader(path);
    std::mutex mutex;
    size_t cases = 0, failures = 0;
    const auto sets = chosen(names);
    const auto work = [&](size_t) {
        std::unique_lock<std::mutex> lock(mutex);
        while (!reader.at_end()) {
            const Case recorded = reader.next();
            ++cases;
            lock.unlock();
            size_t failed = 0;
            for (const KernelSet* set : sets) failed += agrees(recorded, *set) ? 0 : 1;
            lock.lock();
            failures += failed;
        }
    };
    ThreadPool(at_once - 1).for_each(at_once, work);
    for (const KernelSet* set : sets) std::printf("%s ", set->name);
    std::printf("on %zu programs: %zu failures\n", cases, failures);
    return cases == 0 || failures != 0;
}

}  // namespace
}  // namespace bitfactor

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s FILE [SET ...]\n", argv[0]);
        return 2;
    }
    try {
        return bitfactor::replay(argv[1], {argv + 2, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
        return 2;
    }
}
