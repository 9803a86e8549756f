// A program runs: memory for each sample, strips for each worker, stages for each strip.

#include <algorithm>
#include <atomic>
#include <chrono>

#include "steps/step.h"

namespace bitfactor {
namespace {

constexpr double worth_sharing = 1 << 16;  // in operands, see steps/step.h

int pieces(int count, int piece) { return (count + piece - 1) / piece; }

}  // namespace

// The pixel that a row stands for, or the one after it where it stands for none.
int Program::Step::pixel_at(int row) const {
    return pitch ? row / pitch * out_w + std::min(row % pitch, out_w) : row;
}

// Whoever calls holds the lock.
std::unique_ptr<Program::Team> Program::new_team() {
    const Allowance allowance(left_bytes_);
    auto team = std::make_unique<Team>();
    team->arena.resize(arena_bytes_ + scratch_bytes_);
    for (size_t i = 0; i < threads_.workers(); ++i) {
        team->workers.push_back({team->arena.data(), AlignedVector<const void*>(pointer_count_),
                                 AlignedVector<float>(row_floats_), AlignedVector<float>(band_floats_),
                                 AlignedVector<uint32_t>(sign_words_)});
    }
    return team;
}

// Memory for as many samples at once: later runs allocate none, whatever the order of events.
void Program::prepare(size_t samples) {
    std::lock_guard<Mutex> lock(mutex_);
    while (idle_.size() < samples) idle_.push_back(new_team());
}

// Memory for one sample, from those that are idle, or else new.
class Program::Loan {
  public:
    explicit Loan(Program& program) : program_(program) {
        std::lock_guard<Mutex> lock(program.mutex_);
        if (program.idle_.empty()) program.idle_.push_back(program.new_team());
        team_ = std::move(program.idle_.back());
        program.idle_.pop_back();
    }
    Loan(const Loan&) = delete;
    ~Loan() {
        std::lock_guard<Mutex> lock(program_.mutex_);
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
    Sample(const Program& program, Team& team, const float* x, float* const* outs, size_t index, bool alone)
        : program_(program), team_(team), x_(x), outs_(outs), index_(index), alone_(alone) {}

    size_t phases() const override { return program_.steps_.size() + 2; }

    size_t items(size_t phase) const override {
        if (phase == 0) return input_pieces();
        if (phase > program_.steps_.size()) return program_.outputs_.size();
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
        program_.kernels_.common->transpose(from, input.channels, count, input.pixels, to);
        const ptrdiff_t numbers = static_cast<ptrdiff_t>(count) * input.channels;
        if (!program_.kernels_.common->all_finite(to, numbers)) finite_ = false;
    }

    void store_output(size_t i) {
        const Buffer& output = program_.outputs_[i];
        float* to = outs_[i] + index_ * output.pixels * output.channels;
        program_.store_output(output, team_.arena.data(), to);
    }

    const Program& program_;
    Team& team_;
    const float* x_;
    float* const* outs_;
    const size_t index_;
    const bool alone_;
    std::atomic<bool> finite_{true};
    Time* ends_ = nullptr;
};

bool Program::run(const float* x, size_t samples, float* const* outs) {
    expect_complete();
    std::atomic<bool> finite{true};
    const size_t workers = threads_.workers();
    const bool shares = std::any_of(steps_.begin(), steps_.end(),
                                    [&](const Step& step) { return is_worth_sharing(step.work); });
    const size_t whole = workers > 1 ? samples / workers * workers : 0;
    const auto run_sample = [&](size_t index, bool alone) {
        Loan team(*this);
        Sample sample(*this, *team, x, outs, index, alone);
        alone ? run_alone(sample) : threads_.run(sample);
        if (!sample.finite()) finite = false;
    };
    prepare(whole ? workers : 1);
    if (whole) threads_.for_each(whole, [&](size_t index) { run_sample(index, true); });
    for (size_t index = whole; index < samples; ++index) run_sample(index, !shares);
    return finite;
}

void Program::profile(const float* x, float* const* outs, double* ns) {
    expect_complete();
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

std::vector<std::string> Program::reasons() const {
    std::vector<std::string> reasons{""};
    for (const Step& step : steps_) reasons.push_back(step.reason);
    reasons.emplace_back("");
    return reasons;
}

bool Program::is_worth_sharing(double work) const { return threads_.workers() > 1 && work >= worth_sharing; }

void Program::run_strips(const Step& step, int first, int last, Workspace& workspace, char* arena) const {
    for (; first < last; first += step.strip) {
        const int count = std::min(step.strip, last - first);
        run_strip(step, first, count, workspace, arena);
    }
}

void Program::run_strip(const Step& step, int first, int count, Workspace& workspace, char* arena) const {
    if (step.within)
        run_strips(*step.within, step.pixel_at(first), step.pixel_at(first + count), workspace, arena);
    const Stage* stages = step.stages.data();
    const size_t stage_count = step.stages.size();
    if (step.tiles) {
        return step.tiles(workspace, first, count,
                          {stages, stage_count, step.out_w, step.pitch, step.channels, arena});
    }
    const float* rows = step.rows(workspace, first, count);
    kernels_.common->epilogue(stages, stage_count, rows, first, count, step.channels, arena);
}

void Program::store_output(const Buffer& output, const char* arena, float* out) const {
    if (!output.signs) {
        kernels_.common->transpose(reinterpret_cast<const float*>(arena + output.offset), output.pixels,
                                   output.channels, output.channels, out);
        return;
    }
    const uint64_t* words = reinterpret_cast<const uint64_t*>(arena + output.offset);
    const size_t step = words_for(output.channels);
    for (int c = 0; c < output.channels; ++c) {
        const uint64_t* word = words + c / 64;
        for (int pixel = 0; pixel < output.pixels; ++pixel, word += step) {
            *out++ = static_cast<float>(static_cast<int>(*word >> c % 64 & 1) * 2 - 1);
        }
    }
}

}  // namespace bitfactor
