// Runs recorded programs (see record.py) and compares what they give with what they gave, bit for bit.
//
//     replay FILE [SET ...]      by default every instruction set of this machine
//
// Programs run several at a time, and each is run by two threads at once: thread sanitizers find what to look
// at. All that a program is given lies in memory of exactly its size: so do the others.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "program.h"

namespace bitfactor {
namespace {

struct Array {
    Argument::Type type;
    std::vector<int64_t> shape;
    std::vector<char> bytes;

    template <class T>
    const T* as() const {
        return reinterpret_cast<const T*>(bytes.data());
    }
    template <class T>
    size_t size() const {
        return bytes.size() / sizeof(T);
    }
};

struct Call {
    std::string kind;
    std::map<std::string, Array> arguments;

    Instruction instruction() const {
        std::map<std::string, Argument> given;
        for (const auto& [name, array] : arguments)
            given[name] = {array.type, array.shape, array.bytes.data()};
        return {kind, given};
    }
};

struct Case {
    std::string test;
    size_t arena_bytes = 0;
    std::vector<Call> calls;
    Array x;
    std::vector<Array> outs;

    size_t samples() const { return static_cast<size_t>(x.shape[0]); }
};

class Reader {
  public:
    explicit Reader(const char* path) : file_(path, std::ios::binary) {
        if (!file_) throw std::runtime_error(std::string("cannot read ") + path);
        file_.exceptions(std::ios::badbit);
    }

    bool at_end() { return file_.eof() || file_.peek() == std::ifstream::traits_type::eof(); }

    Case next() {
        Case result;
        result.test = text();
        result.arena_bytes = static_cast<size_t>(integer());
        result.calls.resize(static_cast<size_t>(integer()));
        for (Call& call : result.calls) call = this->call();
        result.x = array();
        result.outs.resize(static_cast<size_t>(integer()));
        for (Array& out : result.outs) out = array();
        return result;
    }

  private:
    void read(void* to, size_t size) {
        if (!file_.read(static_cast<char*>(to), static_cast<std::streamsize>(size)))
            throw std::runtime_error("the file ends too soon");
    }

    int64_t integer() {
        int64_t value;
        read(&value, sizeof value);
        return value;
    }

    std::vector<char> bytes() {
        std::vector<char> values(static_cast<size_t>(integer()));
        read(values.data(), values.size());
        return values;
    }

    std::string text() {
        const std::vector<char> characters = bytes();
        return {characters.begin(), characters.end()};
    }

    Array array() {
        Array result;
        result.type = static_cast<Argument::Type>(integer());
        result.shape.resize(static_cast<size_t>(integer()));
        for (int64_t& size : result.shape) size = integer();
        result.bytes = bytes();
        return result;
    }

    Call call() {
        Call result{text(), {}};
        for (int64_t count = integer(); count > 0; --count) {
            const std::string name = text();
            result.arguments[name] = array();
        }
        return result;
    }

    std::ifstream file_;
};

std::unique_ptr<Program> build(const Case& recorded, const KernelSet& set) {
    auto program = std::make_unique<Program>(set, 2, recorded.arena_bytes);
    for (const Call& call : recorded.calls) program->add(call.instruction());
    return program;
}

using Outputs = std::vector<std::vector<float>>;

Outputs run(Program& program, const Case& recorded) {
    Outputs outs;
    std::vector<float*> pointers;
    for (const Array& out : recorded.outs) outs.emplace_back(out.size<float>());
    for (auto& out : outs) pointers.push_back(out.data());
    program.run(recorded.x.as<float>(), recorded.samples(), pointers.data());
    return outs;
}

// The bits of a NaN depend on the machine.
bool same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

// Prints the first number of each output that differs; true if none does.
bool equal(const Outputs& found, const Case& recorded, const char* set) {
    bool all = true;
    for (size_t i = 0; i < found.size(); ++i) {
        const float* expected = recorded.outs[i].as<float>();
        size_t differing = 0, first = 0;
        for (size_t k = found[i].size(); k-- > 0;) {
            if (same(found[i][k], expected[k])) continue;
            first = k;
            ++differing;
        }
        if (differing == 0) continue;
        all = false;
        std::printf("%s: %s, output %zu: %zu of %zu numbers differ; [%zu] is %.9g, expected %.9g\n", set,
                    recorded.test.c_str(), i, differing, found[i].size(), first,
                    static_cast<double>(found[i][first]), static_cast<double>(expected[first]));
    }
    return all;
}

bool agrees(const Case& recorded, const KernelSet& set) {
    const auto program = build(recorded, set);
    Outputs other;
    std::thread caller([&] { other = run(*program, recorded); });
    const Outputs outs = run(*program, recorded);
    caller.join();
    return equal(outs, recorded, set.name) && equal(other, recorded, set.name);
}

std::vector<const KernelSet*> chosen(const std::vector<std::string>& names) {
    std::vector<const KernelSet*> sets;
    for (auto set = kernel_sets(); *set; ++set) {
        if (names.empty() || std::find(names.begin(), names.end(), (*set)->name) != names.end())
            sets.push_back(*set);
    }
    if (sets.empty() || (!names.empty() && sets.size() != names.size()))
        throw std::runtime_error("this machine does not run every set that was named");
    return sets;
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
