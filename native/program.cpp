#include "program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "border.h"
#include "byte_map.h"
#include "run_map.h"

namespace bitfactor {
namespace {

constexpr int strip_floats = 4096;  // 16 KiB of rows: half of an L1 cache, the rest is for weights

// Work is counted in operands: a multiply-add of real numbers, or a word of 32 signs by another. What follows
// a layer is worth some more for each number.
constexpr double epilogue_operands = 4;
constexpr double worth_sharing = 1 << 16;

double layout_work(size_t numbers) { return epilogue_operands * static_cast<double>(numbers); }

// So few strips by tiles are shared out evenly; of more, whoever is ready takes the next.
constexpr int few_strips = 8;

constexpr int band_floats = 1 << 17;  // 512 KiB of a map: a quarter of an L2 cache, or all of a small one

// With fewer pixels tiles of 16 are too empty for numbers of two parts. Those of one have half the weights to
// read, which is what so few pixels wait for.
constexpr int least_pixels = 9;

int taps_of(const Window& window) { return window.kernel_h * window.kernel_w; }
int pixels_of(const Window& window) { return window.out_h * window.out_w; }

int pieces(int count, int piece) { return (count + piece - 1) / piece; }
int round_up(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }

size_t words_for(int channels) { return (static_cast<size_t>(channels) + 63) / 64; }

// Copies `count` bits from bit `first` of `from` to the start of `to`, with zeros behind them.
void copy_bits(const uint64_t* from, size_t first, size_t count, uint64_t* to) {
    std::fill(to, to + (count + 63) / 64, 0);
    for (size_t i = 0; i < count; ++i) {
        const uint64_t bit = from[(first + i) / 64] >> ((first + i) % 64) & 1;
        to[i / 64] |= bit << (i % 64);
    }
}

// By what was measured of each, for a whole map: tiles compute 16 positions, 64 channels and 16 outputs at a
// time, missing ones too.
bool tiles_are_faster(const TileKernels& tiles, const ByteMap& map, const Window& w, int words, int outputs) {
    const double vectors = (outputs + 15) / 16 * taps_of(w);
    const double steps = map.pixel_bytes / 64 * ((map.out_positions + 15) / 16);
    return vectors * steps * tiles.cycles < vectors * words / 2 * pixels_of(w) / 16 * tiles.popcount_cycles;
}

template <class T>
T* at(char* arena, size_t offset) {
    return reinterpret_cast<T*>(arena + offset);
}

}  // namespace

Program::Program(const KernelSet& kernels, int threads, size_t arena_bytes)
    : kernels_(kernels),
      arena_bytes_((arena_bytes + 63) / 64 * 64),
      threads_(static_cast<size_t>(threads) - 1) {}

void Program::add_step(std::string kernel, int pixels, int channels, int taps, double operands, Rows rows) {
    const int tile = kernels_.tile;
    const int longest = std::max(tile, strip_floats / std::max(channels, 1) / tile * tile);
    const int workers = static_cast<int>(threads_.workers());
    const int strips = round_up((pixels + longest - 1) / longest, workers);
    const int strip = std::min(longest, round_up((pixels + strips - 1) / strips, tile));
    const double work = static_cast<double>(pixels) * channels * (operands + epilogue_operands);
    pointer_count_ = std::max(pointer_count_, static_cast<size_t>(strip) * taps);
    row_floats_ = std::max(row_floats_, static_cast<size_t>(std::min(strip, pixels)) * channels);
    steps_.push_back({std::move(kernel), std::move(rows), pixels, channels, strip, strip, work, {}, {}, {}});
    shares_steps_ = shares_steps_ || is_worth_sharing(steps_.back().work);
}

void Program::conv(size_t source, const Window& window, int groups, int in_channels, int out_channels,
                   const float* weight, const float* bias, bool apart) {
    if (bfloat16_parts_ && kernels_.tiles && groups == 1 && RunMap::fits(window) &&
        (pixels_of(window) >= least_pixels || bfloat16_parts_ == 1)) {
        return run_conv(source, window, in_channels, out_channels, weight, bias, apart);
    }
    struct Constants {
        AlignedVector<float> weight, bias, padding;
    };
    const size_t depth = static_cast<size_t>(taps_of(window)) * in_channels;
    auto own = std::make_shared<Constants>(Constants{
        pack_lanes(weight, groups, out_channels, depth, kernels_.lanes),
        pack_lanes(bias, groups, out_channels, 1, kernels_.lanes), AlignedVector<float>(in_channels, 0.0f)});
    const Conv layer{
        window, groups, in_channels, out_channels, own->weight.data(), own->bias.data(), own->padding.data()};
    if (pixels_of(window) == 1 && groups == 1) {
        const int lanes = kernels_.lanes;
        pointer_count_ = std::max(pointer_count_, static_cast<size_t>(kernels_.tile * taps_of(window)));
        return add_row("conv", out_channels, lanes, depth,
                       [this, own, layer, source, depth, lanes, out_channels](Workspace& w, int first,
                                                                              int count, float* row) {
                           Conv part = layer;
                           part.weight += first * depth * lanes;
                           part.bias += static_cast<ptrdiff_t>(first) * lanes;
                           part.out_channels = std::min(count * lanes, out_channels - first * lanes);
                           kernels_.conv(part, at<float>(w.arena, source), 0, 1, w.pointers.data(), row);
                       });
    }
    add_step("conv", pixels_of(window), groups * out_channels, taps_of(window), depth,
             [this, own, layer, source](Workspace& w, int first, int count) {
                 kernels_.conv(layer, at<float>(w.arena, source), first, count, w.pointers.data(),
                               w.rows.data());
                 return w.rows.data();
             });
}

void Program::binary_conv(size_t source, const Window& window, int groups, int in_channels, int out_channels,
                          int words, const uint32_t* weight, int pad_value) {
    if (groups == 1 && kernels_.tiles) {
        const ByteMap map(window, in_channels, pad_value);
        if (tiles_are_faster(*kernels_.tiles, map, window, words, out_channels)) {
            return tile_conv(source, window, map, out_channels, words, weight);
        }
    }
    struct Constants {
        AlignedVector<uint32_t> weight, padding;
        Border border;
    };
    const int lanes = kernels_.lanes;
    const size_t depth = static_cast<size_t>(taps_of(window)) * words;
    auto own = std::make_shared<Constants>(
        Constants{pack_lanes(weight, groups, out_channels, depth, lanes), AlignedVector<uint32_t>(words, 0u),
                  border_of(window, groups, out_channels, words, in_channels, weight, pad_value, lanes)});
    if (pad_value == 1) {
        for (int i = 0; i < in_channels; ++i) own->padding[i / 32] |= 1u << (i % 32);
    }
    if (groups > 1 && in_channels % 64)
        source = regroup(source, window.in_h * window.in_w, groups, in_channels);
    const int group_words = static_cast<int>(2 * words_for(in_channels));
    const BinaryConv layer{window,
                           groups,
                           words,
                           out_channels,
                           group_words,
                           groups * group_words,
                           own->weight.data(),
                           own->padding.data(),
                           own->border.base.data(),
                           own->border.row_class.data(),
                           own->border.column_class.data()};
    add_step("binary_conv", pixels_of(window), groups * out_channels, taps_of(window), depth,
             [this, own, layer, source](Workspace& w, int first, int count) {
                 kernels_.binary_conv(layer, at<uint32_t>(w.arena, source), first, count, w.pointers.data(),
                                      w.rows.data());
                 return w.rows.data();
             });
}

// The rows of the last step are those of tiles.
void Program::by_tiles(int out_w, int pitch, bool sums) {
    Step& step = steps_.back();
    step.strip = kernels_.tiles->strip;
    const int even = piece_of(step.pixels, tile_rows);
    step.piece = even <= few_strips * step.strip ? even : step.strip;
    step.tile_layout = {out_w, pitch, sums};
    row_floats_ = std::max(row_floats_, words_for(step.channels) * 64 * step.strip);
}

// The signs become bytes in a step of their own, in memory behind the arena that all layers use in turn.
void Program::tile_conv(size_t source, const Window& window, const ByteMap& layout, int out_channels,
                        int words, const uint32_t* weight) {
    struct Constants {
        ByteMap map;
        AlignedVector<uint64_t> weight;
        std::vector<ptrdiff_t> offsets;
    };
    auto own = std::make_shared<Constants>(
        Constants{layout, pack_tiles(weight, out_channels, taps_of(window), words), {}});
    for (const ptrdiff_t tap : own->map.taps) {
        for (int byte = 0; byte < own->map.pixel_bytes; byte += 64) own->offsets.push_back(tap + byte);
    }
    const TileConv layer{static_cast<int>(own->offsets.size()), (out_channels + 15) / 16,
                         own->map.pixel_bytes, own->offsets.data(), own->weight.data()};
    tile_bytes_ = std::max(tile_bytes_, own->map.bytes());
    const size_t bytes = static_cast<size_t>(own->map.positions) * own->map.pixel_bytes;
    add_parts("expand", own->map.positions, layout_work(bytes),
              [this, own, source](Workspace& w, int first, int count) {
                  kernels_.tiles->expand(own->map, at<uint64_t>(w.arena, source), first, count,
                                         at<int8_t>(w.arena, arena_bytes_));
                  return w.rows.data();
              });
    add_step("binary_conv by tiles", own->map.out_positions, out_channels, 0, taps_of(window) * words,
             [this, own, layer](Workspace& w, int first, int count) {
                 kernels_.tiles->conv(layer, at<int8_t>(w.arena, arena_bytes_), first, count,
                                      reinterpret_cast<int32_t*>(w.rows.data()));
                 return w.rows.data();
             });
    by_tiles(window.out_w, own->map.pitch, true);
}

void Program::run_conv(size_t source, const Window& window, int in_channels, int out_channels,
                       const float* weight, const float* bias, bool apart) {
    struct Constants {
        RunMap map;
        AlignedVector<uint16_t> weight;
        AlignedVector<float> bias;
    };
    auto own = std::make_shared<Constants>(Constants{
        RunMap(window, in_channels, bfloat16_parts_),
        pack_runs(weight, out_channels, window.kernel_h, window.kernel_w * in_channels, bfloat16_parts_),
        pack_lanes(bias, 1, out_channels, 1, kernels_.lanes)});
    const RunMap& map = own->map;
    const RunConv layer{static_cast<int>(map.steps.size()),
                        (out_channels + 15) / 16,
                        map.parts,
                        map.position_numbers,
                        static_cast<ptrdiff_t>(map.part_numbers),
                        map.steps.data(),
                        own->weight.data(),
                        own->bias.data()};
    const size_t own_place = apart ? reserve(map.bytes()) : 0;
    const auto place = [this, apart, own_place] { return apart ? own_place : arena_bytes_; };
    if (!apart) tile_bytes_ = std::max(tile_bytes_, map.bytes());
    add_parts("split", map.lines + 1, layout_work(map.parts * map.part_numbers),
              [this, own, source, place](Workspace& w, int first, int count) {
                  kernels_.tiles->split(own->map, at<float>(w.arena, source), first, count,
                                        at<uint16_t>(w.arena, place()));
                  return w.rows.data();
              });
    if (pixels_of(window) == 1) {
        const int strip = kernels_.tiles->strip;
        const ptrdiff_t vector_numbers = static_cast<ptrdiff_t>(layer.steps) * map.parts * 512;
        row_floats_ = std::max(row_floats_, static_cast<size_t>(layer.vectors) * strip * 16);
        return add_row(
            "conv by tiles", out_channels, 16, taps_of(window) * in_channels,
            [this, own, layer, place, vector_numbers, strip](Workspace& w, int first, int count, float* row) {
                RunConv part = layer;
                part.vectors = count;
                part.weight += first * vector_numbers;
                part.bias += static_cast<ptrdiff_t>(first) * 16;
                kernels_.tiles->run_conv(part, at<uint16_t>(w.arena, place()), 0, 1, w.rows.data());
                for (int v = 0; v < count; ++v) std::copy_n(w.rows.data() + v * strip * 16, 16, row + 16 * v);
            });
    }
    add_step("conv by tiles", map.out_positions, out_channels, 0, taps_of(window) * in_channels,
             [this, own, layer, place](Workspace& w, int first, int count) {
                 kernels_.tiles->run_conv(layer, at<uint16_t>(w.arena, place()), first, count, w.rows.data());
                 return w.rows.data();
             });
    by_tiles(window.out_w, map.pitch, false);
}

// Copies the signs so that each group starts at a word of its own: (pixels, groups, words). Gives their
// offset.
size_t Program::regroup(size_t source, int pixels, int groups, int channels) {
    const size_t from_words = words_for(groups * channels), to_words = words_for(channels);
    const size_t offset = reserve(pixels * groups * to_words * sizeof(uint64_t));
    add_step("regroup", 1, 0, 0, 0, [=](Workspace& w, int, int) {
        const uint64_t* from = at<uint64_t>(w.arena, source);
        uint64_t* to = at<uint64_t>(w.arena, offset);
        for (int pixel = 0; pixel < pixels; ++pixel, from += from_words) {
            for (int group = 0; group < groups; ++group, to += to_words) {
                copy_bits(from, static_cast<size_t>(group) * channels, channels, to);
            }
        }
        return w.rows.data();
    });
    return offset;
}

void Program::max_pool(size_t source, const Pool& pool) {
    add_step("max_pool", pixels_of(pool.window), pool.channels, 0, taps_of(pool.window),
             [=](Workspace& w, int first, int count) {
                 kernels_.max_pool(pool, at<float>(w.arena, source), first, count, w.rows.data());
                 return w.rows.data();
             });
}

// The map of the last step never stands in memory as a whole: each strip makes the lines that it needs, those
// on the edge of two strips twice.
void Program::max_pool_of_last(const Pool& pool) {
    const Window& w = pool.window;
    const auto from = std::make_shared<Step>(std::move(steps_.back()));
    steps_.pop_back();
    const int line = w.in_w * pool.channels;
    const int most = (band_floats / line - w.kernel_h) / w.stride_h + 1;
    const int workers = static_cast<int>(threads_.workers());
    const int strips = round_up((w.out_h - 1) / std::max(most, 1) + 1, workers);
    const int out_lines = (w.out_h - 1) / strips + 1;
    const int pitch = from->tile_layout.pitch ? from->tile_layout.pitch : w.in_w;
    const auto rows = [=](Workspace& space, int first, int count) {
        const int top = first / w.out_w * w.stride_h - w.pad_top;
        const int bottom = top + (count / w.out_w - 1) * w.stride_h + w.kernel_h;
        const int begin = std::max(top, 0), end = std::min(bottom * pitch, from->pixels);
        float* map = space.band.data() - static_cast<ptrdiff_t>(begin) * line;
        for (int at = begin * pitch; at < end; at += from->strip) {
            const int part = std::min(from->strip, end - at);
            run_strip(*from, at, part, space, reinterpret_cast<char*>(map));
        }
        kernels_.max_pool(pool, map, first, count, space.rows.data());
        return space.rows.data();
    };
    add_step(from->kernel + ", max_pool", pixels_of(w), pool.channels, 0, 0, rows);
    Step& step = steps_.back();
    step.strip = step.piece = out_lines * w.out_w;
    step.work += from->work;
    shares_steps_ = shares_steps_ || is_worth_sharing(step.work);
    row_floats_ = std::max(row_floats_, static_cast<size_t>(step.strip) * pool.channels);
    const int lines = std::min((out_lines - 1) * w.stride_h + w.kernel_h, w.in_h);
    band_floats_ = std::max(band_floats_, static_cast<size_t>(lines) * line);
}

void Program::avg_pool(size_t source, const Pool& pool) {
    add_step("avg_pool", pixels_of(pool.window), pool.channels, 0, taps_of(pool.window),
             [=](Workspace& w, int first, int count) {
                 kernels_.avg_pool(pool, at<float>(w.arena, source), first, count, w.rows.data());
                 return w.rows.data();
             });
}

void Program::upsample_nearest(size_t source, int in_h, int in_w, int channels, int scale_h, int scale_w) {
    const int out_w = in_w * scale_w;
    add_step("upsample_nearest", in_h * scale_h * out_w, channels, 0, 1,
             [=](Workspace& w, int first, int count) {
                 const float* map = at<float>(w.arena, source);
                 float* row = w.rows.data();
                 for (int pixel = first; pixel < first + count; ++pixel, row += channels) {
                     const int y = pixel / out_w / scale_h, x = pixel % out_w / scale_w;
                     std::copy_n(map + (static_cast<size_t>(y) * in_w + x) * channels, channels, row);
                 }
                 return w.rows.data();
             });
}

void Program::global_avg_pool(const Buffer& source) {
    add_step("global_avg_pool", 1, source.channels, 0, source.pixels, [=](Workspace& w, int, int) {
        kernels_.global_avg_pool(at<float>(w.arena, source.offset), source.pixels, source.channels,
                                 w.rows.data());
        return w.rows.data();
    });
}

void Program::flatten(const Buffer& source) {
    add_step("flatten", 1, source.pixels * source.channels, 0, 1, [=](Workspace& w, int, int) {
        kernels_.transpose(at<float>(w.arena, source.offset), source.pixels, source.channels, source.channels,
                           w.rows.data());
        return w.rows.data();
    });
}

void Program::gather(size_t source, int pixels, int channels, const int32_t* indices) {
    const size_t size = static_cast<size_t>(pixels) * channels;
    auto own = std::make_shared<const std::vector<int32_t>>(indices, indices + size);
    add_step("gather", pixels, channels, 0, 1, [=](Workspace& w, int first, int count) {
        const float* map = at<float>(w.arena, source);
        const int32_t* from = own->data() + static_cast<size_t>(first) * channels;
        float* rows = w.rows.data();
        for (size_t i = 0; i < static_cast<size_t>(count) * channels; ++i) rows[i] = map[from[i]];
        return w.rows.data();
    });
}

void Program::concat(const std::vector<Buffer>& sources) {
    int channels = 0;
    for (const Buffer& source : sources) channels += source.channels;
    add_step("concat", sources.front().pixels, channels, 0, 1, [=](Workspace& w, int first, int count) {
        float* row = w.rows.data();
        for (int pixel = first; pixel < first + count; ++pixel) {
            for (const Buffer& source : sources) {
                const float* from =
                    at<float>(w.arena, source.offset) + static_cast<size_t>(pixel) * source.channels;
                row = std::copy_n(from, source.channels, row);
            }
        }
        return w.rows.data();
    });
}

void Program::softmax(const Buffer& source) {
    add_step("softmax", source.pixels, source.channels, 0, 8, [=](Workspace& w, int first, int count) {
        const float* map = at<float>(w.arena, source.offset) + static_cast<size_t>(first) * source.channels;
        kernels_.softmax(map, count, source.channels, w.rows.data());
        return w.rows.data();
    });
}

void Program::pointwise(const Buffer& source) {
    add_step("pointwise", source.pixels, source.channels, 0, 1, [=](Workspace& w, int first, int) {
        return at<float>(w.arena, source.offset) + static_cast<size_t>(first) * source.channels;
    });
}

void Program::run_within_last(size_t index) {
    const auto step = steps_.begin() + static_cast<ptrdiff_t>(index);
    steps_.back().work += step->work;
    steps_.back().kernel = step->kernel + ", " + steps_.back().kernel;
    steps_.back().within = std::make_shared<Step>(std::move(*step));
    steps_.erase(step);
    shares_steps_ = shares_steps_ || is_worth_sharing(steps_.back().work);
}

// The pixel that a row stands for, or the one after it where it stands for none.
int Program::Step::pixel_at(int row) const {
    const auto [out_w, pitch, sums] = tile_layout;
    return pitch ? row / pitch * out_w + std::min(row % pitch, out_w) : row;
}

void Program::add_parts(std::string kernel, int parts, double work, Rows rows) {
    steps_.push_back(
        {std::move(kernel), std::move(rows), parts, 0, parts, piece_of(parts, 1), work, {}, {}, {}});
    shares_steps_ = shares_steps_ || is_worth_sharing(work);
}

void Program::add_row(const std::string& kernel, int channels, int lanes, double operands,
                      const Vectors& compute) {
    const int vectors = (channels + lanes - 1) / lanes;
    const size_t offset = reserve(static_cast<size_t>(vectors) * lanes * sizeof(float));
    add_parts(kernel, vectors, channels * operands, [=](Workspace& w, int first, int count) {
        compute(w, first, count, at<float>(w.arena, offset) + static_cast<ptrdiff_t>(first) * lanes);
        return w.rows.data();
    });
    add_step(kernel, 1, channels, 0, 0, [=](Workspace& w, int, int) { return at<float>(w.arena, offset); });
}

// Memory behind the arena that is used for nothing else.
size_t Program::reserve(size_t bytes) {
    const size_t offset = arena_bytes_;
    arena_bytes_ += (bytes + 63) / 64 * 64;
    return offset;
}

// The same for each worker.
int Program::piece_of(int pixels, int multiple) const {
    const int workers = static_cast<int>(threads_.workers());
    return round_up((pixels + workers - 1) / workers, multiple);
}

void Program::stage(Stage::Kind kind) {
    steps_.back().stages.push_back({kind, nullptr, nullptr, 0, 0, false});
}

void Program::stage(Stage::Kind kind, const Buffer& buffer) {
    const bool spread = buffer.pixels == 1 && steps_.back().pixels > 1;
    steps_.back().stages.push_back({kind, nullptr, nullptr, 0, buffer.offset, spread});
}

void Program::clip(float lower, float upper) {
    const size_t channels = static_cast<size_t>(steps_.back().channels);
    const std::vector<float> lowest(channels, lower), highest(channels, upper);
    stage(Stage::clip, 0, lowest.data(), channels, highest.data());
}

void Program::stage(Stage::Kind kind, size_t buffer, const float* a, size_t a_size, const float* b) {
    Step& step = steps_.back();
    const size_t channels = static_cast<size_t>(step.channels);
    const auto keep = [this](const float* values, size_t size) -> const float* {
        return values ? parameters_.emplace_back(values, values + size).data() : nullptr;
    };
    const ptrdiff_t a_step = a_size > channels ? step.channels : 0;
    step.stages.push_back({kind, keep(a, a_size), keep(b, channels), a_step, buffer, false});
}

std::unique_ptr<Program::Team> Program::new_team() const {
    auto team = std::make_unique<Team>();
    team->arena.resize(arena_bytes_ + tile_bytes_);
    for (size_t i = 0; i < threads_.workers(); ++i) {
        team->workers.push_back({team->arena.data(), AlignedVector<const void*>(pointer_count_),
                                 AlignedVector<float>(row_floats_), AlignedVector<float>(band_floats_)});
    }
    return team;
}

// Memory for as many samples at once: later runs allocate none, whatever the order of events.
void Program::prepare(size_t samples) {
    std::lock_guard<std::mutex> lock(mutex_);
    while (idle_.size() < samples) idle_.push_back(new_team());
}

// Memory for one sample, from those that are idle, or else new.
class Program::Loan {
  public:
    explicit Loan(Program& program) : program_(program) {
        {
            std::lock_guard<std::mutex> lock(program.mutex_);
            if (!program.idle_.empty()) {
                team_ = std::move(program.idle_.back());
                program.idle_.pop_back();
                return;
            }
        }
        team_ = program.new_team();
    }
    Loan(const Loan&) = delete;
    ~Loan() {
        std::lock_guard<std::mutex> lock(program_.mutex_);
        program_.idle_.push_back(std::move(team_));
    }

    Team& operator*() const { return *team_; }

  private:
    Program& program_;
    std::unique_ptr<Team> team_;
};

// One sample: the input is laid out as (pixels, channels), the steps follow, and the outputs are laid out as
// (channels, pixels).
class Program::Sample final : public Work {
  public:
    Sample(const Program& program, Team& team, const float* x, const std::vector<float*>& outs, size_t index,
           bool alone)
        : program_(program), team_(team), x_(x), outs_(outs), index_(index), alone_(alone) {}

    size_t phases() const override { return program_.steps_.size() + 2; }

    size_t items(size_t phase) const override {
        if (phase == 0) return input_pieces();
        if (phase > program_.steps_.size()) return outs_.size();
        const Step& step = program_.steps_[phase - 1];
        return is_shared(step) ? pieces(step.pixels, step.piece) : 1;
    }

    void run(size_t phase, size_t item, size_t worker) override {
        if (phase == 0) return load_input(static_cast<int>(item));
        if (phase > program_.steps_.size()) return store_output(item);
        const Step& step = program_.steps_[phase - 1];
        const int piece = is_shared(step) ? step.piece : step.pixels;
        const int first = static_cast<int>(item) * piece;
        program_.run_strips(step, first, std::min(first + piece, step.pixels), team_.workers[worker],
                            team_.arena.data());
    }

    void completed(size_t) override {
        if (ends_) *ends_++ = std::chrono::steady_clock::now();
    }

    // Whether all numbers of the input were.
    bool finite() const { return finite_; }

    // From now on, when each phase is completed.
    using Time = std::chrono::steady_clock::time_point;
    void note(Time* ends) { ends_ = ends; }

  private:
    bool is_shared(const Step& step) const { return !alone_ && program_.is_worth_sharing(step.work); }

    int input_piece() const {
        const Buffer& input = program_.input_;
        const bool shared = !alone_ && program_.is_worth_sharing(layout_work(input.pixels * input.channels));
        return shared ? program_.piece_of(input.pixels, program_.kernels_.lanes) : input.pixels;
    }

    int input_pieces() const { return pieces(program_.input_.pixels, input_piece()); }

    void load_input(int item) {
        const Buffer& input = program_.input_;
        const int first = item * input_piece(), count = std::min(input_piece(), input.pixels - first);
        const float* from = x_ + index_ * input.pixels * input.channels + first;
        float* to =
            at<float>(team_.arena.data(), input.offset) + static_cast<ptrdiff_t>(first) * input.channels;
        program_.kernels_.transpose(from, input.channels, count, input.pixels, to);
        const ptrdiff_t numbers = static_cast<ptrdiff_t>(count) * input.channels;
        if (!program_.kernels_.all_finite(to, numbers)) finite_ = false;
    }

    void store_output(size_t i) {
        const Buffer& output = program_.outputs_[i];
        float* to = outs_[i] + index_ * output.pixels * output.channels;
        program_.store_output(output, team_.arena.data(), to);
    }

    const Program& program_;
    Team& team_;
    const float* x_;
    const std::vector<float*>& outs_;
    const size_t index_;
    const bool alone_;
    std::atomic<bool> finite_{true};
    Time* ends_ = nullptr;
};

bool Program::run(const float* x, size_t samples, const std::vector<float*>& outs) {
    std::atomic<bool> finite{true};
    const size_t workers = threads_.workers();
    const size_t whole = workers > 1 ? samples / workers * workers : 0;
    const auto run_sample = [&](size_t index, bool alone) {
        Loan team(*this);
        Sample sample(*this, *team, x, outs, index, alone);
        alone ? run_alone(sample) : threads_.run(sample);
        if (!sample.finite()) finite = false;
    };
    prepare(whole ? workers : 1);
    if (whole) threads_.for_each(whole, [&](size_t index) { run_sample(index, true); });
    for (size_t index = whole; index < samples; ++index) run_sample(index, !shares_steps_);
    return finite;
}

void Program::profile(const float* x, const std::vector<float*>& outs, double* ns) {
    Loan team(*this);
    Sample sample(*this, *team, x, outs, 0, false);
    std::vector<Sample::Time> ends(sample.phases());
    sample.note(ends.data());
    Sample::Time begin = std::chrono::steady_clock::now();
    threads_.run(sample);
    for (const Sample::Time end : ends) {
        *ns++ = std::chrono::duration<double, std::nano>(end - begin).count();
        begin = end;
    }
}

std::vector<std::string> Program::phases() const {
    std::vector<std::string> names{"input"};
    for (const Step& step : steps_) names.push_back(step.kernel);
    names.emplace_back("outputs");
    return names;
}

bool Program::is_worth_sharing(double work) const { return threads_.workers() > 1 && work >= worth_sharing; }

// Pixels first ... last, a strip at a time; the stages' buffers lie in `arena`.
void Program::run_strips(const Step& step, int first, int last, Workspace& workspace, char* arena) const {
    for (; first < last; first += step.strip) {
        const int count = std::min(step.strip, last - first);
        run_strip(step, first, count, workspace, arena);
    }
}

void Program::run_strip(const Step& step, int first, int count, Workspace& workspace, char* arena) const {
    if (step.within)
        run_strips(*step.within, step.pixel_at(first), step.pixel_at(first + count), workspace, arena);
    finish(step, step.rows(workspace, first, count), first, count, arena);
}

// Takes the rows of a strip through the stages.
void Program::finish(const Step& step, const float* rows, int first, int count, char* arena) const {
    const Stage* stages = step.stages.data();
    const auto [out_w, pitch, sums] = step.tile_layout;
    if (!pitch) {
        kernels_.epilogue(stages, step.stages.size(), rows, first, count, step.channels, arena);
    } else if (sums) {
        kernels_.tiles->epilogue(stages, step.stages.size(), reinterpret_cast<const int32_t*>(rows), out_w,
                                 pitch, first, count, step.channels, arena);
    } else {
        kernels_.tiles->run_epilogue(stages, step.stages.size(), rows, out_w, pitch, first, count,
                                     step.channels, arena);
    }
}

void Program::store_output(const Buffer& output, const char* arena, float* out) const {
    if (!output.signs) {
        kernels_.transpose(reinterpret_cast<const float*>(arena + output.offset), output.pixels,
                           output.channels, output.channels, out);
        return;
    }
    const uint64_t* words = reinterpret_cast<const uint64_t*>(arena + output.offset);
    for (int pixel = 0; pixel < output.pixels; ++pixel, words += words_for(output.channels)) {
        for (int c = 0; c < output.channels; ++c) {
            const bool plus = words[c / 64] >> (c % 64) & 1;
            out[static_cast<size_t>(c) * output.pixels + pixel] = plus ? 1.0f : -1.0f;
        }
    }
}

}  // namespace bitfactor
