// A program is put together: what all kinds of step have in common.

#include "program/program.h"

#include <algorithm>
#include <map>
#include <utility>

#include "steps/step.h"

namespace bitfactor {
namespace {

constexpr int strip_floats = 4096;  // 16 KiB of rows: half of an L1 cache, the rest is for weights

// So few strips by tiles are shared out evenly; of more, whoever is ready takes the next.
constexpr int few_strips = 8;

constexpr size_t most_dimensions = 6;

thread_local size_t* allowed = nullptr;

const std::map<std::string, Kind>& kinds() {
    static const auto known = [] {
        std::map<std::string, Kind> table;
        for (const auto kinds_of :
             {end_kinds, description_kinds, binary_conv_kinds, conv_kinds, move_kinds, pointwise_kinds,
              pool_kinds, quantised_conv_kinds, reduce_kinds, integer_kinds}) {
            for (const Kind& kind : kinds_of()) table.emplace(kind.name, kind);
        }
        return table;
    }();
    return known;
}

// A name, the shape of a sample, channels first, and what its numbers are.
Buffer check_port(Verifier& v) {
    const Buffer buffer = v.buffer("buffer");
    v.expect(v.size("name") > 0 && v.text("name").find('\0') == std::string::npos, "a name");
    const size_t dimensions = v.size("shape");
    v.expect(dimensions >= 1 && dimensions <= most_dimensions, "a shape of 1 to 6 lengths");
    int64_t pixels = 1;
    const std::vector<int> shape = v.numbers("shape", dimensions, 1);
    for (size_t axis = 1; axis < dimensions; ++axis) {
        pixels *= shape[axis];
        v.expect(pixels <= Verifier::most_numbers, "a shape of fewer numbers");
    }
    v.expect_map(buffer, pixels, shape[0], buffer.signs);
    const std::string dtype = v.text("dtype");
    v.expect(buffer.signs ? dtype == "bit" : dtype == "float32" || dtype == "int32", "the dtype of the map");
    return buffer;
}

void check_input(Verifier& v) {
    const Buffer buffer = check_port(v);
    v.expect(v.input_count() == 0 && !buffer.signs, "one input of numbers");
    v.input(buffer);
}

Port port(const Instruction& i) {
    const int64_t* shape = i.array<int64_t>("shape");
    return {i.buffer("buffer"), i.text("name"), {shape, shape + i.size("shape")}, i.text("dtype")};
}

}  // namespace

Allowance::Allowance(size_t& left) : before_(std::exchange(allowed, &left)) {}

Allowance::~Allowance() { allowed = before_; }

void Allowance::take(size_t bytes) {
    if (!allowed) return;
    if (bytes > *allowed) throw std::bad_alloc();
    *allowed -= bytes;
}

Kinds end_kinds() {
    return {{"input", check_input, [](Program& p, const Instruction& i) { p.set_input(port(i)); }},
            {"output", [](Verifier& v) { v.output(check_port(v)); },
             [](Program& p, const Instruction& i) { p.add_output(port(i)); }},
            {"end_shortcut", [](Verifier& v) { v.end_shortcut(); },
             [](Program& p, const Instruction&) { p.end_shortcut(); }},
            {"run_shortcut_within_last", [](Verifier& v) { v.run_shortcut_within_last(); },
             [](Program& p, const Instruction&) { p.run_shortcut_within_last(); }}};
}

Program::Program(const KernelSet& kernels, int threads, size_t arena_bytes, size_t most_bytes)
    : kernels_(kernels),
      left_bytes_(most_bytes),
      arena_bytes_((arena_bytes + 63) / 64 * 64),
      verifier_(arena_bytes),
      threads_(static_cast<size_t>(threads) - 1) {}

void Program::add(const Instruction& instruction) {
    const auto kind = kinds().find(instruction.kind());
    if (kind == kinds().end()) throw std::invalid_argument("no instruction is called " + instruction.kind());
    verifier_.check(kind->second, instruction);
    const Allowance allowance(left_bytes_);
    kind->second.add(*this, instruction);
    if (arena_bytes_ > left_bytes_ || scratch_bytes_ > left_bytes_ - arena_bytes_) throw std::bad_alloc();
}

void Program::add_step(std::string kernel, int pixels, int channels, int taps, double operands, Rows rows) {
    const int tile = kernels_.tile;
    const int longest = std::max(tile, strip_floats / std::max(channels, 1) / tile * tile);
    const int strips = round_up((pixels + longest - 1) / longest, workers());
    const int strip = std::min(longest, round_up((pixels + strips - 1) / strips, tile));
    need_pointers(static_cast<uint64_t>(strip) * taps);
    need_rows(static_cast<uint64_t>(std::min(strip, pixels)) * channels);
    Step& step = steps_.emplace_back();
    step.kernel = std::move(kernel);
    step.rows = std::move(rows);
    step.pixels = pixels;
    step.channels = channels;
    step.strip = step.piece = strip;
    step.work = static_cast<double>(pixels) * channels * (operands + epilogue_operands);
}

void Program::round_strips(int pixels) {
    Step& step = steps_.back();
    step.strip = step.piece = std::min(round_up(step.strip, pixels), step.pixels);
    need_rows(static_cast<uint64_t>(step.strip) * step.channels);
}

void Program::by_tiles(int out_w, int pitch, Tiles tiles) {
    Step& step = steps_.back();
    const int even = piece_of(step.pixels, tile_rows), strip = kernels_.tiles->strip;
    step.piece = even <= few_strips * strip ? even : strip;
    step.strip = step.pixels;
    step.out_w = out_w;
    step.pitch = pitch;
    step.tiles = std::move(tiles);
}

void Program::run_shortcut_within_last() {
    const auto step = steps_.begin() + static_cast<ptrdiff_t>(shortcut_);
    steps_.back().work += step->work;
    steps_.back().kernel = step->kernel + ", " + steps_.back().kernel;
    steps_.back().reason = step->reason + "\n" + steps_.back().reason;
    steps_.back().within = std::make_shared<Step>(std::move(*step));
    if (steps_.back().tiles) steps_.back().strip = kernels_.tiles->strip;
    steps_.erase(step);
}

std::shared_ptr<Program::Step> Program::take_last() {
    auto last = std::make_shared<Step>(std::move(steps_.back()));
    steps_.pop_back();
    return last;
}

void Program::add_parts(std::string kernel, int parts, double work, Rows rows) {
    Step& step = steps_.emplace_back();
    step.kernel = std::move(kernel);
    step.rows = std::move(rows);
    step.pixels = step.strip = parts;
    step.piece = piece_of(parts, 1);
    step.work = work;
}

void Program::add_row(const std::string& kernel, int channels, int lanes, double operands,
                      const Vectors& compute) {
    const int vectors = (channels + lanes - 1) / lanes;
    const size_t offset = reserve(static_cast<uint64_t>(vectors) * lanes * sizeof(float));
    add_parts(kernel, vectors, channels * operands, [=](Workspace& w, int first, int count) {
        compute(w, first, count, at<float>(w.arena, offset) + static_cast<ptrdiff_t>(first) * lanes);
        return w.rows.data();
    });
    add_step(kernel, 1, channels, 0, 0, [=](Workspace& w, int, int) { return at<float>(w.arena, offset); });
}

size_t Program::reserve(uint64_t bytes) {
    const size_t offset = arena_bytes_;
    arena_bytes_ = in_memory(arena_bytes_ + (in_memory(bytes) + uint64_t{63}) / 64 * 64);
    return offset;
}

int Program::piece_of(int pixels, int multiple) const {
    return round_up((pixels + workers() - 1) / workers(), multiple);
}

void Program::stage(Stage::Kind kind) {
    steps_.back().stages.push_back({kind, nullptr, nullptr, 0, 0, 0, false});
}

void Program::stage(Stage::Kind kind, const Buffer& buffer) {
    const bool spread = buffer.pixels == 1 && steps_.back().pixels > 1;
    steps_.back().stages.push_back({kind, nullptr, nullptr, 0, 0, buffer.offset, spread});
}

void Program::weigh(const AlignedVector<int32_t>& constants, Weigh weigh, const Buffer& second) {
    const int32_t* own = integers_.emplace_back(constants).data();
    const size_t part = constants.size() / 5;
    for (int i = 0; i < 2; ++i, own += 2 * part) {
        weigh.positive[i] = own;
        weigh.negative[i] = own + part;
    }
    weigh.offset = own;
    stage(Stage::weigh, second);
    steps_.back().stages.back().weigher = &weighers_.emplace_back(weigh);
}

void Program::stage(Stage::Kind kind, size_t buffer, const float* a, size_t a_size, const float* b,
                    size_t b_size) {
    Step& step = steps_.back();
    const size_t channels = static_cast<size_t>(step.channels);
    const auto keep = [this](const float* values, size_t size) -> const float* {
        return values ? parameters_.emplace_back(values, values + size).data() : nullptr;
    };
    const auto step_of = [&](size_t size) { return size > channels ? ptrdiff_t{step.channels} : 0; };
    step.stages.push_back(
        {kind, keep(a, a_size), keep(b, b_size), step_of(a_size), step_of(b_size), buffer, false});
}

}  // namespace bitfactor
