// An instruction of a program: a kind, and arrays by name. Whoever builds it owns their memory; a program
// copies what it keeps.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"

namespace bitfactor {

// Where a value lies in the arena, and its size: float rows, or signs.
struct Buffer {
    size_t offset;
    int pixels, channels;
    bool signs;

    size_t size() const { return static_cast<size_t>(pixels) * channels; }
};

// What a program takes or gives, and what it is called.
struct Port : Buffer {
    std::string name;
    std::vector<int64_t> shape;  // of a sample, as in torch
    std::string dtype;           // float32; int32 and bit are given as float all the same
};

struct Argument {
    enum Type { int64, int32, uint32, float32, uint8 } type;  // as files have it: new ones at the end
    std::vector<int64_t> shape;
    const void* data;

    size_t size() const {
        size_t product = 1;
        for (const int64_t length : shape) product *= static_cast<size_t>(length);
        return product;
    }
};

template <class T>
constexpr Argument::Type type_of();
template <>
constexpr Argument::Type type_of<int64_t>() {
    return Argument::int64;
}
template <>
constexpr Argument::Type type_of<int32_t>() {
    return Argument::int32;
}
template <>
constexpr Argument::Type type_of<uint32_t>() {
    return Argument::uint32;
}
template <>
constexpr Argument::Type type_of<float>() {
    return Argument::float32;
}
template <>
constexpr Argument::Type type_of<uint8_t>() {
    return Argument::uint8;
}

// What is asked for throws std::invalid_argument where it is not there, or is something else.
class Instruction {
  public:
    Instruction(std::string kind, std::map<std::string, Argument> arguments)
        : kind_(std::move(kind)), arguments_(std::move(arguments)) {}

    const std::string& kind() const { return kind_; }
    const std::map<std::string, Argument>& arguments() const { return arguments_; }

    size_t size(const char* name) const { return argument(name).size(); }

    int length(const char* name, size_t axis) const {
        const Argument& found = argument(name);
        if (axis >= found.shape.size()) throw wrong(name, "of more dimensions");
        return static_cast<int>(found.shape[axis]);
    }

    template <class T>
    const T* array(const char* name) const {
        const Argument& found = argument(name);
        if (found.type != type_of<T>()) throw wrong(name, "of another type");
        return static_cast<const T*>(found.data);
    }

    int64_t integer(const char* name, size_t index = 0) const {
        if (index >= size(name)) throw wrong(name, "that is longer");
        return array<int64_t>(name)[index];
    }

    int number(const char* name, size_t index = 0) const { return static_cast<int>(integer(name, index)); }

    // Where it is not given, it is false.
    bool flag(const char* name) const { return has(name) && integer(name); }

    bool has(const char* name) const { return arguments_.count(name) != 0; }

    std::string text(const char* name) const {
        return {reinterpret_cast<const char*>(array<uint8_t>(name)), size(name)};
    }

    // How many maps a window slides over, each by itself: one where it is not given.
    int maps() const { return has("maps") ? number("maps") : 1; }

    size_t source() const { return static_cast<size_t>(integer("source")); }

    Buffer buffer(const char* name, size_t index = 0) const {
        const size_t at = 4 * index;
        return {static_cast<size_t>(integer(name, at)), number(name, at + 1), number(name, at + 2),
                number(name, at + 3) != 0};
    }

    Window window() const {
        const auto at = [&](size_t i) { return number("window", i); };
        return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11)};
    }

  private:
    std::invalid_argument wrong(const char* name, const char* what) const {
        return std::invalid_argument(kind_ + " needs " + name + " " + what);
    }

    const Argument& argument(const char* name) const {
        const auto found = arguments_.find(name);
        if (found == arguments_.end()) throw std::invalid_argument(kind_ + " needs " + name);
        return found->second;
    }

    std::string kind_;
    std::map<std::string, Argument> arguments_;
};

class Program;
class Verifier;

// A kind of instruction: its rules, see verifier.h, and what it does to a program, once they hold.
struct Kind {
    const char* name;
    void (*check)(Verifier&);
    void (*add)(Program&, const Instruction&);
};

// The kinds of each file. A new one stands here, and in the table of program.cpp.
using Kinds = std::vector<Kind>;
Kinds end_kinds();
Kinds description_kinds();
Kinds binary_conv_kinds();
Kinds conv_kinds();
Kinds move_kinds();
Kinds pointwise_kinds();
Kinds pool_kinds();
Kinds quantised_conv_kinds();
Kinds reduce_kinds();
Kinds integer_kinds();

}  // namespace bitfactor
