// A network as a list of steps over one arena.
//
// A step gives the rows of a feature map, a strip of pixels at a time, and takes them through its stages
// while they are in the L1 cache. Where each buffer lies in the arena is decided by whoever builds the
// program; a run allocates nothing once there is memory for as many samples as are under way at once.
//
// Threads share out the samples of a batch; of what is left over, and of a single sample, they share out the
// strips of each step. Every number is computed the same way in whichever thread and strip, so results do not
// depend on the threads.

#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "program/description.h"
#include "program/instruction.h"
#include "program/verifier.h"
#include "threads/thread_pool.h"

namespace bitfactor {

class Program {
  public:
    // Weights, arenas and scratch take at most `most_bytes`: std::bad_alloc where they need more.
    Program(const KernelSet& kernels, int threads, size_t arena_bytes, size_t most_bytes = SIZE_MAX);

    // From now on convolutions of real numbers may be sums of products of bfloat16, where the set has them.
    void allow_bfloat16(int parts) { bfloat16_parts_ = parts; }

    // A step, a stage of the last step, the input (channels, pixels), or an output, (channels, pixels) of
    // float; signs are given as -1 and +1. Throws std::invalid_argument where the core does not know the
    // kind, or a rule of it is broken.
    void add(const Instruction& instruction);
    // Throws std::invalid_argument where something is still missing.
    void expect_complete() const { verifier_.expect_complete(); }

    // x (samples, input) -> outs[i] (samples, output i). False, and the outputs mean nothing, if x holds NaN
    // or infinity. May be called from several threads at once.
    bool run(const float* x, size_t samples, float* const* outs);
    // Runs one sample; ns (phases) gets the time that each phase took: the input, the steps, the outputs.
    void profile(const float* x, float* const* outs, double* ns);
    // What runs in each phase: a kernel of the set, or a step of its own.
    std::vector<std::string> phases() const;
    // Why these and no others, empty where there was no choice.
    std::vector<std::string> reasons() const;
    size_t step_count() const { return steps_.size(); }

    const Port& input() const { return input_; }
    const std::vector<Port>& outputs() const { return outputs_; }
    const Description& description() const { return description_; }
    Description& description() { return description_; }

    // What follows is for the kinds of step.

    // What a worker needs for a sample: the arena, which it has in common with the others, and its scratch.
    struct Workspace {
        char* arena;
        AlignedVector<const void*> pointers;
        AlignedVector<float> rows, band;
        AlignedVector<uint32_t> signs;
    };
    // Fills rows (count, channels) for the pixels first ... first + count, or returns where they already
    // stand.
    using Rows = std::function<const float*(Workspace&, int first, int count)>;
    // Takes positions first ... first + count of what tiles make through the stages.
    using Tiles = std::function<void(Workspace&, int first, int count, const TileStages&)>;
    struct Step {
        std::string kernel;
        Rows rows;
        Tiles tiles;
        int out_w = 0, pitch = 0;  // of tiles, whose pixels are positions, see TileStages
        int pixels = 0, channels = 0, strip = 0;
        int piece = 0;    // the pixels that a worker takes at once, where the step is shared
        double work = 0;  // see steps/step.h
        std::vector<Stage> stages;
        std::shared_ptr<const Step> within;
        std::string reason;  // why this kernel and no other, where there was a choice

        int pixel_at(int row) const;
    };

    // `operands` are the numbers, or words of signs, that one number of the result is computed from.
    void add_step(std::string kernel, int pixels, int channels, int taps, double operands, Rows rows);
    // A step that stores what it makes, for the next; each of its `parts` can be made alone.
    void add_parts(std::string kernel, int parts, double work, Rows rows);
    // A layer of one pixel, of which `compute` makes vectors first ... first + count of `lanes` channels.
    using Vectors = std::function<void(Workspace&, int first, int count, float* row)>;
    void add_row(const std::string& kernel, int channels, int lanes, double operands, const Vectors& compute);
    // The strips of the last step are whole multiples of so many pixels.
    void round_strips(int pixels);
    // The last step is made by tiles, not as rows.
    void by_tiles(int out_w, int pitch, Tiles tiles);
    // A stage of the last step; parameters are copied.
    void stage(Stage::Kind kind);
    void stage(Stage::Kind kind, const Buffer& buffer);
    void stage(Stage::Kind kind, size_t buffer, const float* a, size_t a_size, const float* b, size_t b_size);
    // Of whole blocks of channels, behind each other: P, Q, P and Q of a second value, offset.
    void weigh(const AlignedVector<int32_t>& constants, Weigh weigh, const Buffer& second);

    Step& last() { return steps_.back(); }
    // The last step, for one that runs it.
    std::shared_ptr<Step> take_last();
    // Memory behind the arena that is used for nothing else.
    size_t reserve(uint64_t bytes);
    // Scratch of a worker that is at least so large.
    void need_pointers(uint64_t count) { pointer_count_ = std::max(pointer_count_, in_memory(count)); }
    void need_rows(uint64_t floats) { row_floats_ = std::max(row_floats_, in_memory(floats)); }
    void need_signs(uint64_t words) { sign_words_ = std::max(sign_words_, in_memory(words)); }
    void need_band(uint64_t floats) { band_floats_ = std::max(band_floats_, in_memory(floats)); }
    // Memory at `scratch`, behind the arena, that all layers use in turn.
    void need_scratch(uint64_t bytes) { scratch_bytes_ = std::max(scratch_bytes_, in_memory(bytes)); }
    size_t scratch() const { return arena_bytes_; }

    const KernelSet& kernels() const { return kernels_; }
    int workers() const { return static_cast<int>(threads_.workers()); }
    int bfloat16_parts() const { return bfloat16_parts_; }
    // The same for each worker.
    int piece_of(int pixels, int multiple) const;
    // Pixels first ... last; the stages' buffers lie in `arena`.
    void run_strips(const Step& step, int first, int last, Workspace& workspace, char* arena) const;

    // The last step is a shortcut: once the next one is there, it runs within that, which has as many pixels.
    // What it stores of the pixels of a strip, just before that strip, is still in the cache when it is
    // added.
    void end_shortcut() { shortcut_ = steps_.size() - 1; }
    void run_shortcut_within_last();

    void set_input(const Port& port) { input_ = port; }
    void add_output(const Port& port) { outputs_.push_back(port); }

  private:
    // The memory of one sample on its way through the program.
    struct Team {
        AlignedVector<char> arena;
        std::vector<Workspace> workers;
    };
    class Sample;
    class Loan;

    // Sizes are computed in 64 bits: where addresses have 32, a product that is none is refused.
    static size_t in_memory(uint64_t size) {
        if (size > SIZE_MAX / 2) throw std::bad_alloc();
        return static_cast<size_t>(size);
    }
    std::unique_ptr<Team> new_team();
    void prepare(size_t samples);
    bool is_worth_sharing(double work) const;
    void run_strip(const Step& step, int first, int count, Workspace& workspace, char* arena) const;
    void store_output(const Buffer& output, const char* arena, float* out) const;

    const KernelSet& kernels_;
    size_t left_bytes_, arena_bytes_, pointer_count_ = 0, row_floats_ = 0, band_floats_ = 0, sign_words_ = 0,
                                      scratch_bytes_ = 0;
    int bfloat16_parts_ = 0;
    Port input_{};
    std::vector<Port> outputs_;
    Description description_;
    Verifier verifier_;
    std::vector<Step> steps_;
    size_t shortcut_ = 0;
    std::deque<AlignedVector<float>> parameters_;
    std::deque<AlignedVector<int32_t>> integers_;
    std::deque<Weigh> weighers_;
    Mutex mutex_;
    std::vector<std::unique_ptr<Team>> idle_;
    ThreadPool threads_;
};

}  // namespace bitfactor
