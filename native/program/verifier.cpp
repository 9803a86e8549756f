#include "program/verifier.h"

#include <algorithm>

#include "steps/step.h"

namespace bitfactor {
namespace {

// Of the addresses of a small machine, a quarter.
constexpr uint64_t most_arena = std::min(uint64_t{1} << 32, uint64_t{SIZE_MAX / 4 + 1});
constexpr size_t alignment = 64;

uint64_t bytes_of(const Buffer& buffer) {
    const uint64_t row = buffer.signs ? words_for(buffer.channels) * uint64_t{sizeof(uint64_t)}
                                      : static_cast<uint64_t>(buffer.channels) * sizeof(float);
    return buffer.pixels * row;
}

bool same(const Buffer& a, const Buffer& b) {
    return a.offset == b.offset && a.pixels == b.pixels && a.channels == b.channels && a.signs == b.signs;
}

// The same numbers in another shape.
bool is_view(const Buffer& a, const Buffer& b) {
    return a.offset == b.offset && !a.signs && !b.signs && a.size() == b.size();
}

bool overlap(const Buffer& a, const Buffer& b) {
    return a.offset < b.offset + bytes_of(b) && b.offset < a.offset + bytes_of(a);
}

std::string shown(const Buffer& b) {
    return std::to_string(b.pixels) + " pixels of " + std::to_string(b.channels) +
           (b.signs ? " signs at " : " numbers at ") + std::to_string(b.offset);
}

}  // namespace

Verifier::Verifier(size_t arena_bytes) : arena_bytes_(arena_bytes) {
    if (arena_bytes > most_arena)
        throw std::invalid_argument("expected an arena of at most " + std::to_string(most_arena >> 30) +
                                    " GiB, found " + std::to_string(arena_bytes) + " bytes");
}

void Verifier::check(const Kind& kind, const Instruction& instruction) {
    instruction_ = &instruction;
    asked_.clear();
    kind.check(*this);
    for (const auto& [name, argument] : instruction.arguments()) {
        if (!asked_.count(name)) refuse("no " + name, "one");
    }
    ++index_;
}

void Verifier::expect_complete() const {
    if (outputs_.empty()) throw std::invalid_argument("expected a program with an output, found none");
}

void Verifier::refuse(const std::string& expected, const std::string& found) const {
    throw std::invalid_argument("instruction " + std::to_string(index_) + " (" + instruction_->kind() +
                                "): expected " + expected + ", found " + found +
                                "; write the program again with `bitfactor freeze`");
}

void Verifier::expect(bool holds, const char* expected) const {
    if (!holds) refuse(expected, "something else");
}

bool Verifier::has(const char* name) {
    asked_.insert(name);
    return instruction_->has(name);
}

const Argument& Verifier::argument(const char* name) {
    if (!has(name)) refuse(name, "none");
    return instruction_->arguments().at(name);
}

size_t Verifier::size(const char* name) { return argument(name).size(); }

int64_t Verifier::length(const char* name, size_t axis, size_t dimensions) {
    const Argument& found = argument(name);
    if (found.shape.size() != dimensions)
        refuse(std::string(name) + " of " + std::to_string(dimensions) + " dimensions",
               std::to_string(found.shape.size()));
    return found.shape[axis];
}

void Verifier::expect_size(const char* name, size_t count) {
    if (size(name) != count)
        refuse(std::to_string(count) + " elements of " + name, std::to_string(size(name)));
}

const void* Verifier::data(const char* name, Argument::Type type,
                           const std::initializer_list<int64_t>* shape) {
    const Argument& found = argument(name);
    if (found.type != type)
        refuse(std::string(name) + " of another type", "type " + std::to_string(found.type));
    if (shape && !std::equal(shape->begin(), shape->end(), found.shape.begin(), found.shape.end())) {
        std::string wanted;
        for (const int64_t one : *shape) wanted += (wanted.empty() ? "" : "x") + std::to_string(one);
        refuse(std::string(name) + " shaped " + wanted, "another shape");
    }
    return found.data;
}

std::vector<int> Verifier::numbers(const char* name, size_t count, int least, int most) {
    const int64_t* values = elements<int64_t>(name, count);
    for (size_t i = 0; i < count; ++i) {
        if (values[i] < least || values[i] > most)
            refuse(std::string(name) + " of " + std::to_string(least) + " to " + std::to_string(most),
                   std::to_string(values[i]));
    }
    return {values, values + count};
}

int Verifier::number(const char* name, int least, int most) { return numbers(name, 1, least, most)[0]; }

bool Verifier::flag(const char* name) { return has(name) && number(name, 0, 1); }

std::string Verifier::text(const char* name) {
    const size_t length = size(name);
    return {reinterpret_cast<const char*>(elements<uint8_t>(name, length)), length};
}

void Verifier::expect_numbers(int64_t pixels, int64_t channels) const {
    const bool positive = pixels >= 1 && channels >= 1;
    if (!positive || channels > most_numbers - 63 || pixels > most_numbers / ((channels + 63) / 64 * 64))
        refuse("a map of 1 to " + std::to_string(most_numbers) + " numbers",
               std::to_string(pixels) + " pixels of " + std::to_string(channels));
}

Window Verifier::window(int channels, int maps) {
    numbers("window", 12, 0);
    const Window w = instruction_->window();
    const auto extent = [&](int in, int out, int kernel, int stride, int padding, int dilation) {
        if (std::min({in, out, kernel, stride, dilation}) < 1) refuse("sizes of 1 or more", "0");
        const int64_t reach = (out - int64_t{1}) * stride + (kernel - int64_t{1}) * dilation + 1;
        return std::max(reach, int64_t{in} + padding) + 2 * int64_t{stride};
    };
    const int64_t rows = extent(w.in_h, w.out_h, w.kernel_h, w.stride_h, w.pad_top, w.dilation_h);
    const int64_t columns = extent(w.in_w, w.out_w, w.kernel_w, w.stride_w, w.pad_left, w.dilation_w);
    if (std::max(rows, columns) > most_numbers) refuse("a smaller window", "one of too many pixels");
    expect_numbers(rows * columns, channels);
    expect_numbers(rows * columns * maps, channels);
    return w;
}

Buffer Verifier::buffer(const char* name, size_t index, size_t count) {
    const int64_t* values = elements<int64_t>(name, 4 * count) + 4 * index;
    expect_numbers(values[1], values[2]);
    if (values[3] != 0 && values[3] != 1) refuse("a map of numbers or of signs", "neither");
    if (values[0] < 0 || values[0] % alignment) refuse("a multiple of 64 bytes", std::to_string(values[0]));
    return instruction_->buffer(name, index);
}

Buffer Verifier::real_buffer(const char* name) {
    const Buffer found = buffer(name);
    if (found.signs) refuse("a map of numbers", shown(found));
    return found;
}

void Verifier::expect_map(const Buffer& buffer, int64_t pixels, int64_t channels, bool signs) const {
    if (buffer.pixels != pixels || buffer.channels != channels || buffer.signs != signs)
        refuse(std::to_string(pixels) + " pixels of " + std::to_string(channels) +
                   (signs ? " signs" : " numbers"),
               shown(buffer));
}

void Verifier::expect_in_arena(const Buffer& buffer) {
    if (buffer.offset > arena_bytes_ || bytes_of(buffer) > arena_bytes_ - buffer.offset)
        refuse("a map within the arena of " + std::to_string(arena_bytes_) + " bytes", shown(buffer));
    used_bytes_ = std::max(used_bytes_, static_cast<size_t>(buffer.offset + bytes_of(buffer)));
}

void Verifier::expect_live(const Buffer& buffer) {
    expect_in_arena(buffer);
    const bool live = std::any_of(live_.begin(), live_.end(),
                                  [&](const Buffer& b) { return same(b, buffer) || is_view(b, buffer); });
    if (!live) refuse("a map that has been written", shown(buffer));
}

void Verifier::begin(int64_t pixels, int64_t channels, const std::vector<Buffer>& sources) {
    if (inputs_.empty() || !outputs_.empty()) refuse("steps between inputs and outputs", "one elsewhere");
    expect_numbers(pixels, channels);
    if (shortcut_.begun && step_.begun) refuse("a shortcut that runs within the next step", "another step");
    if (!shortcut_.begun) commit();
    step_ = {true, false, false, static_cast<int>(pixels), static_cast<int>(channels), sources, {}};
}

void Verifier::begin_of_last(int64_t pixels, const Buffer& map) {
    if (!step_.begun || step_.of_last || shortcut_.begun) refuse("a step before it that it can take", "none");
    const std::vector<Access>& passed = step_.accesses;
    const bool all = std::all_of(passed.begin(), passed.end(),
                                 [&](const Access& access) { return same(access.buffer, map); });
    if (!all || passed.empty() || !passed.front().writes || !passed.back().writes || map.offset)
        refuse("one map, which the step before stores at 0", shown(map));
    expect_map(map, step_.pixels, step_.channels, false);
    step_.of_last = true;
    step_.apart = false;
    step_.pixels = static_cast<int>(pixels);
    step_.accesses.clear();
}

void Verifier::end_shortcut() {
    if (!step_.begun || !step_.apart || step_.of_last || shortcut_.begun)
        refuse("a convolution that stands apart", "none");
    shortcut_ = std::move(step_);
    step_ = {};
}

void Verifier::run_shortcut_within_last() {
    if (!shortcut_.begun || !step_.begun || step_.of_last || step_.pixels != shortcut_.pixels)
        refuse("a shortcut, and a step of as many pixels", "others");
    step_.sources.insert(step_.sources.end(), shortcut_.sources.begin(), shortcut_.sources.end());
    step_.accesses.insert(step_.accesses.begin(), shortcut_.accesses.begin(), shortcut_.accesses.end());
    step_.apart = false;
    shortcut_ = {};
}

int Verifier::pixels() const {
    if (!step_.begun) refuse("a step before its stages", "none");
    return step_.pixels;
}

int Verifier::channels() const {
    if (!step_.begun) refuse("a step before its stages", "none");
    return step_.channels;
}

void Verifier::reads(const Buffer& buffer) { step_.accesses.push_back({buffer, false}); }

void Verifier::writes(const Buffer& buffer) { step_.accesses.push_back({buffer, true}); }

void Verifier::expect_apart(const Access& earlier, const Access& later) const {
    if ((earlier.writes || later.writes) && overlap(earlier.buffer, later.buffer) &&
        !same(earlier.buffer, later.buffer))
        refuse("maps that lie apart", shown(earlier.buffer) + " and " + shown(later.buffer));
}

// The last step is whole: what it does to memory.
void Verifier::commit() {
    if (shortcut_.begun) refuse("a step that the shortcut runs within", "none");
    const std::vector<Access>& accesses = step_.accesses;
    constexpr size_t most_accesses = 1 << 12;  // each is compared with all others
    if (accesses.size() > most_accesses)
        refuse("a step of " + std::to_string(most_accesses) + " stages at most",
               std::to_string(accesses.size()));
    for (const Buffer& source : step_.sources) expect_live(source);
    for (size_t i = 0; i < accesses.size(); ++i) {
        const Buffer& buffer = accesses[i].buffer;
        expect_in_arena(buffer);
        for (size_t k = 0; k < i; ++k) expect_apart(accesses[k], accesses[i]);
        const bool made = std::any_of(accesses.begin(), accesses.begin() + static_cast<ptrdiff_t>(i),
                                      [&](const Access& a) { return a.writes && same(a.buffer, buffer); });
        if (!accesses[i].writes && !made) expect_live(buffer);
        for (const Buffer& source : step_.sources) {
            if (accesses[i].writes && overlap(source, buffer))
                refuse("a step that does not write what it reads", shown(source) + " and " + shown(buffer));
        }
    }
    for (const Access& access : accesses) {
        if (!access.writes) continue;
        const auto gone = [&](const Buffer& b) { return overlap(b, access.buffer); };
        live_.erase(std::remove_if(live_.begin(), live_.end(), gone), live_.end());
        live_.push_back(access.buffer);
    }
    step_ = {};
}

void Verifier::input(const Buffer& buffer) {
    if (step_.begun || shortcut_.begun || !outputs_.empty()) refuse("inputs before all steps", "one later");
    expect_in_arena(buffer);
    for (const Buffer& other : inputs_) {
        if (overlap(other, buffer)) refuse("inputs that lie apart", shown(other) + " and " + shown(buffer));
    }
    inputs_.push_back(buffer);
    live_.push_back(buffer);
}

void Verifier::output(const Buffer& buffer) {
    commit();
    expect_live(buffer);
    const size_t used = (used_bytes_ + alignment - 1) / alignment * alignment;
    if (arena_bytes_ != used)
        refuse("an arena of the " + std::to_string(used) + " bytes that are used",
               std::to_string(arena_bytes_));
    outputs_.push_back(buffer);
}

void Verifier::expect_described() const {
    if (outputs_.empty()) refuse("outputs before what is said of them", "none");
}

}  // namespace bitfactor
