// A network as a list of steps over one arena.
//
// A step gives the rows of a feature map, a strip of pixels at a time, and takes each strip through its
// stages while it is in the L1 cache. Where each buffer lies in the arena is decided by whoever builds the
// program; a run allocates nothing once there is memory for as many samples as are under way at once.
//
// Threads share out the samples of a batch; of what is left over, and of a single sample, they share out the
// strips of each step. Every number is computed the same way in whichever thread and strip, so results do not
// depend on the threads.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels.h"
#include "pack.h"
#include "thread_pool.h"

namespace bitfactor {

// Where a value lies, and its size: float rows, or signs.
struct Buffer {
    size_t offset;
    int pixels, channels;
    bool signs;
};

struct ByteMap;

class Program {
  public:
    Program(const KernelSet& kernels, int threads, size_t arena_bytes);

    // The input (channels, pixels) and the outputs, (channels, pixels) of float; signs are given as -1 and
    // +1.
    void set_input(const Buffer& buffer) { input_ = buffer; }
    void add_output(const Buffer& buffer) { outputs_.push_back(buffer); }

    // From now on convolutions of real numbers may be sums of products of bfloat16, where the set has them.
    void allow_bfloat16(int parts) { bfloat16_parts_ = parts; }

    // Weights are (groups * out_channels, kh, kw, in_channels or words), biases (groups * out_channels).
    // What a layer `apart` has laid out is still there when the next one runs.
    void conv(size_t source, const Window& window, int groups, int in_channels, int out_channels,
              const float* weight, const float* bias, bool apart);
    // `words` 32-bit words of weight hold the `in_channels` signs of a group; unused bits are 0.
    void binary_conv(size_t source, const Window& window, int groups, int in_channels, int out_channels,
                     int words, const uint32_t* weight, int pad_value);
    void max_pool(size_t source, const Pool& pool);
    // Of the map that the last step stores as its last stage, and that nothing else reads. It is a part of
    // the map at a time, at offset 0 of other memory than the arena, as are all buffers of that step's
    // stages.
    void max_pool_of_last(const Pool& pool);
    void avg_pool(size_t source, const Pool& pool);
    // Repeats each pixel scale_h times down and scale_w times to the right.
    void upsample_nearest(size_t source, int in_h, int in_w, int channels, int scale_h, int scale_w);
    void global_avg_pool(const Buffer& source);
    void flatten(const Buffer& source);
    // The result's number i, in the order (pixels, channels), is number indices[i] of the source.
    void gather(size_t source, int pixels, int channels, const int32_t* indices);
    // The channels of several maps, one behind the other.
    void concat(const std::vector<Buffer>& sources);
    void softmax(const Buffer& source);
    // No operation of its own: the stages take their rows from a buffer.
    void pointwise(const Buffer& source);
    // From now on step `index`, of as many pixels, runs within the last one: what it stores of the pixels of
    // a strip, just before that strip, is still in the cache when the last one adds it.
    void run_within_last(size_t index);

    // Adds a stage to the last step. Parameters are copied.
    void stage(Stage::Kind kind);
    void stage(Stage::Kind kind, const Buffer& buffer);
    void stage(Stage::Kind kind, size_t buffer, const float* a, size_t a_size, const float* b);
    void clip(float lower, float upper);

    // x (samples, input) -> outs[i] (samples, output i). False, and the outputs mean nothing, if x holds NaN
    // or infinity. May be called from several threads at once.
    bool run(const float* x, size_t samples, const std::vector<float*>& outs);
    // Runs one sample; ns (phases) gets the time that each phase took: the input, the steps, the outputs.
    void profile(const float* x, const std::vector<float*>& outs, double* ns);
    // What runs in each phase: a kernel of the set, or a step of its own.
    std::vector<std::string> phases() const;
    size_t step_count() const { return steps_.size(); }

    const Buffer& input() const { return input_; }
    const std::vector<Buffer>& outputs() const { return outputs_; }

  private:
    // What a worker needs for a sample: the arena, which it has in common with the others, and its scratch.
    struct Workspace {
        char* arena;
        AlignedVector<const void*> pointers;
        AlignedVector<float> rows, band;
    };
    // The memory of one sample on its way through the program.
    struct Team {
        AlignedVector<char> arena;
        std::vector<Workspace> workers;
    };
    class Sample;
    class Loan;
    // Fills rows (count, channels) for the pixels first ... first + count, or returns where they already
    // stand.
    using Rows = std::function<const float*(Workspace&, int first, int count)>;
    // Where `pitch` is not 0, rows come from tiles, and a step's pixels are positions, see TileKernels; where
    // `sums` is true, they are integers.
    struct TileLayout {
        int out_w, pitch;
        bool sums;
    };
    struct Step {
        std::string kernel;
        Rows rows;
        int pixels, channels, strip;
        int piece;    // the pixels that a worker takes at once, where the step is shared
        double work;  // see worth_sharing
        std::vector<Stage> stages;
        TileLayout tile_layout;
        std::shared_ptr<const Step> within;

        int pixel_at(int row) const;
    };

    // `operands` are the numbers, or words of signs, that one number of the result is computed from.
    void add_step(std::string kernel, int pixels, int channels, int taps, double operands, Rows rows);
    // A step that stores what it makes, for the next; each of its `parts` can be made alone.
    void add_parts(std::string kernel, int parts, double work, Rows rows);
    // A layer of one pixel, of which `compute` makes vectors first ... first + count of `lanes` channels.
    using Vectors = std::function<void(Workspace&, int first, int count, float* row)>;
    void add_row(const std::string& kernel, int channels, int lanes, double operands, const Vectors& compute);
    void tile_conv(size_t source, const Window& window, const ByteMap& layout, int out_channels, int words,
                   const uint32_t* weight);
    void run_conv(size_t source, const Window& window, int in_channels, int out_channels, const float* weight,
                  const float* bias, bool apart);
    void by_tiles(int out_w, int pitch, bool sums);
    size_t reserve(size_t bytes);
    size_t regroup(size_t source, int pixels, int groups, int channels);
    std::unique_ptr<Team> new_team() const;
    void prepare(size_t samples);
    bool is_worth_sharing(double work) const;
    int piece_of(int pixels, int multiple) const;
    void run_strips(const Step& step, int first, int last, Workspace& workspace, char* arena) const;
    void run_strip(const Step& step, int first, int count, Workspace& workspace, char* arena) const;
    void finish(const Step& step, const float* rows, int first, int count, char* arena) const;
    void store_output(const Buffer& output, const char* arena, float* out) const;

    const KernelSet& kernels_;
    size_t arena_bytes_, pointer_count_ = 0, row_floats_ = 0, band_floats_ = 0, tile_bytes_ = 0;
    int bfloat16_parts_ = 0;
    Buffer input_{};
    std::vector<Buffer> outputs_;
    std::vector<Step> steps_;
    bool shares_steps_ = false;
    std::deque<AlignedVector<float>> parameters_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Team>> idle_;
    ThreadPool threads_;
};

}  // namespace bitfactor
