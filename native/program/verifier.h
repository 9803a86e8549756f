// What a program must be before any of it runs: nothing that is said of it is taken on trust.
//
// Each kind of instruction has rules, a function that asks the verifier for the arguments one by one and says
// what the instruction does. An argument that no rule asks for is refused. What a step reads must have been
// written before, as a map of the same place and size, and not have been overwritten since; what a step
// writes must not lie where it, or another thread, still reads: only stages, which go through a map pixel by
// pixel, may write where they have read.

#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "program/instruction.h"

namespace bitfactor {

class Verifier {
  public:
    explicit Verifier(size_t arena_bytes);

    // Throws std::invalid_argument where the instruction breaks a rule.
    void check(const Kind& kind, const Instruction& instruction);

    // Throws unless there is an output, after which the program can run.
    void expect_complete() const;

    // What follows is for the rules of a kind.

    [[noreturn]] void refuse(const std::string& expected, const std::string& found) const;
    void expect(bool holds, const char* expected) const;

    bool has(const char* name);
    size_t size(const char* name);
    int64_t length(const char* name, size_t axis, size_t dimensions);
    int number(const char* name, int least, int most = most_numbers);
    std::vector<int> numbers(const char* name, size_t count, int least, int most = most_numbers);
    bool flag(const char* name);
    std::string text(const char* name);
    template <class T>
    const T* array(const char* name, std::initializer_list<int64_t> shape) {
        return static_cast<const T*>(data(name, type_of<T>(), &shape));
    }
    // Of any shape, of so many elements.
    template <class T>
    const T* elements(const char* name, size_t count) {
        expect_size(name, count);
        return static_cast<const T*>(data(name, type_of<T>(), nullptr));
    }
    // A window over a map of so many channels; every sum of its sizes is an int.
    Window window(int channels, int maps = 1);
    int maps() { return has("maps") ? number("maps", 1) : 1; }
    Buffer buffer(const char* name, size_t index = 0, size_t count = 1);
    Buffer real_buffer(const char* name);
    // That a map of such a size can be.
    void expect_numbers(int64_t pixels, int64_t channels) const;
    void expect_map(const Buffer& buffer, int64_t pixels, int64_t channels, bool signs) const;

    // A step that gives so many pixels and channels, of what it reads.
    void begin(int64_t pixels, int64_t channels, const std::vector<Buffer>& sources);
    // It may run within the next one.
    void stands_apart() { step_.apart = true; }
    // It takes what the last one stores, `map`, in bands.
    void begin_of_last(int64_t pixels, const Buffer& map);
    void end_shortcut();
    void run_shortcut_within_last();
    int pixels() const;
    int channels() const;
    // Stages, pixel by pixel.
    void reads(const Buffer& buffer);
    void writes(const Buffer& buffer);

    void input(const Buffer& buffer);
    void output(const Buffer& buffer);
    size_t input_count() const { return inputs_.size(); }
    const std::vector<Buffer>& inputs() const { return inputs_; }
    const std::vector<Buffer>& outputs() const { return outputs_; }
    void expect_described() const;

    size_t labels = 0, golden_inputs = 0, golden_outputs = 0;
    int64_t golden_samples = 0;

    // Of a map, its channels filled up to words of 64: their sums are ints.
    static constexpr int most_numbers = 0x7ff00000;

  private:
    struct Access {
        Buffer buffer;
        bool writes;
    };
    struct Step {
        bool begun = false, apart = false, of_last = false;
        int pixels = 0, channels = 0;
        std::vector<Buffer> sources;
        std::vector<Access> accesses;  // in their order
    };

    const Argument& argument(const char* name);
    const void* data(const char* name, Argument::Type type, const std::initializer_list<int64_t>* shape);
    void expect_size(const char* name, size_t count);
    void expect_in_arena(const Buffer& buffer);
    void expect_live(const Buffer& buffer);
    void expect_apart(const Access& earlier, const Access& later) const;
    void commit();

    size_t arena_bytes_, used_bytes_ = 0, index_ = 0;
    const Instruction* instruction_ = nullptr;
    std::set<std::string> asked_;
    std::vector<Buffer> live_, inputs_, outputs_;
    Step step_, shortcut_;
};

}  // namespace bitfactor
