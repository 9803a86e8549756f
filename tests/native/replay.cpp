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
#include <functional>
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
    std::string method;
    std::map<std::string, Array> arguments;

    const Array& operator[](const char* name) const {
        const auto found = arguments.find(name);
        if (found == arguments.end()) throw std::runtime_error(method + " without " + name);
        return found->second;
    }
    int integer(const char* name, int index = 0) const {
        return static_cast<int>((*this)[name].as<int64_t>()[index]);
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

Buffer buffer_at(const Call& call, const char* name, int index = 0) {
    const int64_t* numbers = call[name].as<int64_t>() + 4 * index;
    return {static_cast<size_t>(numbers[0]), static_cast<int>(numbers[1]), static_cast<int>(numbers[2]),
            numbers[3] != 0};
}

Window window_of(const Call& call, const char* name) {
    const auto at = [&](int i) { return call.integer(name, i); };
    return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11)};
}

Pool pool_of(const Call& call) {
    const auto at = [&](int i) { return call.integer("pool", 12 + i); };
    return {window_of(call, "pool"), at(0), at(3) != 0, at(1), at(2)};
}

size_t source_of(const Call& call) { return static_cast<size_t>(call["source"].as<int64_t>()[0]); }

int size_at(const Call& call, const char* name, int axis) {
    return static_cast<int>(call[name].shape[static_cast<size_t>(axis)]);
}

void conv(Program& program, const Call& call) {
    const int groups = call.integer("groups");
    program.conv(source_of(call), window_of(call, "window"), groups, size_at(call, "weight", 3),
                 size_at(call, "weight", 0) / groups, call["weight"].as<float>(), call["bias"].as<float>(),
                 call.integer("apart"));
}

void binary_conv(Program& program, const Call& call) {
    const int groups = call.integer("groups");
    program.binary_conv(source_of(call), window_of(call, "window"), groups, call.integer("in_channels"),
                        size_at(call, "weight", 0) / groups, size_at(call, "weight", 3),
                        call["weight"].as<uint32_t>(), call.integer("pad_value"));
}

void concat(Program& program, const Call& call) {
    std::vector<Buffer> sources;
    const int count = static_cast<int>(call["sources"].size<int64_t>() / 4);
    for (int i = 0; i < count; ++i) sources.push_back(buffer_at(call, "sources", i));
    program.concat(sources);
}

void upsample_nearest(Program& program, const Call& call) {
    program.upsample_nearest(source_of(call), call.integer("in_size"), call.integer("in_size", 1),
                             call.integer("channels"), call.integer("scale"), call.integer("scale", 1));
}

void gather(Program& program, const Call& call) {
    program.gather(source_of(call), size_at(call, "indices", 0), size_at(call, "indices", 1),
                   call["indices"].as<int32_t>());
}

void stage(Program& program, Stage::Kind kind, const Call& call, const char* a) {
    program.stage(kind, 0, call[a].as<float>(), call[a].size<float>(), nullptr);
}

void affine(Program& program, const Call& call) {
    program.stage(Stage::affine, 0, call["scale"].as<float>(), call["scale"].size<float>(),
                  call["shift"].as<float>());
}

void signs(Program& program, const Call& call) {
    program.stage(Stage::signs, buffer_at(call, "buffer").offset, call["direction"].as<float>(),
                  call["direction"].size<float>(), call["threshold"].as<float>());
}

using Method = std::function<void(Program&, const Call&)>;

const std::map<std::string, Method> methods = {
    {"set_input", [](Program& p, const Call& c) { p.set_input(buffer_at(c, "buffer")); }},
    {"add_output", [](Program& p, const Call& c) { p.add_output(buffer_at(c, "buffer")); }},
    {"conv", conv},
    {"binary_conv", binary_conv},
    {"max_pool", [](Program& p, const Call& c) { p.max_pool(source_of(c), pool_of(c)); }},
    {"max_pool_of_last", [](Program& p, const Call& c) { p.max_pool_of_last(pool_of(c)); }},
    {"avg_pool", [](Program& p, const Call& c) { p.avg_pool(source_of(c), pool_of(c)); }},
    {"upsample_nearest", upsample_nearest},
    {"global_avg_pool", [](Program& p, const Call& c) { p.global_avg_pool(buffer_at(c, "source")); }},
    {"flatten", [](Program& p, const Call& c) { p.flatten(buffer_at(c, "source")); }},
    {"gather", gather},
    {"concat", concat},
    {"softmax", [](Program& p, const Call& c) { p.softmax(buffer_at(c, "source")); }},
    {"pointwise", [](Program& p, const Call& c) { p.pointwise(buffer_at(c, "buffer")); }},
    {"run_within_last", [](Program& p, const Call& c) { p.run_within_last(c.integer("index")); }},
    {"scale", [](Program& p, const Call& c) { stage(p, Stage::scale, c, "alpha"); }},
    {"affine", affine},
    {"relu", [](Program& p, const Call&) { p.stage(Stage::relu); }},
    {"prelu", [](Program& p, const Call& c) { stage(p, Stage::prelu, c, "slope"); }},
    {"clip", [](Program& p, const Call& c) { p.clip(*c["lower"].as<float>(), *c["upper"].as<float>()); }},
    {"sigmoid", [](Program& p, const Call&) { p.stage(Stage::sigmoid); }},
    {"add", [](Program& p, const Call& c) { p.stage(Stage::add, buffer_at(c, "buffer")); }},
    {"multiply", [](Program& p, const Call& c) { p.stage(Stage::multiply, buffer_at(c, "buffer")); }},
    {"store", [](Program& p, const Call& c) { p.stage(Stage::store, buffer_at(c, "buffer")); }},
    {"signs", signs},
};

std::unique_ptr<Program> build(const Case& recorded, const KernelSet& set) {
    auto program = std::make_unique<Program>(set, 2, recorded.arena_bytes);
    for (const Call& call : recorded.calls) {
        const auto method = methods.find(call.method);
        if (method == methods.end()) throw std::runtime_error("no method " + call.method);
        method->second(*program, call);
    }
    return program;
}

using Outputs = std::vector<std::vector<float>>;

Outputs run(Program& program, const Case& recorded) {
    Outputs outs;
    std::vector<float*> pointers;
    for (const Array& out : recorded.outs) outs.emplace_back(out.size<float>());
    for (auto& out : outs) pointers.push_back(out.data());
    program.run(recorded.x.as<float>(), recorded.samples(), pointers);
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
