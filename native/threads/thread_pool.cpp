#include "threads/thread_pool.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace bitfactor {
namespace {

// Items first ... end of a phase, taken one by one. Both numbers are in one word, so that an item is taken
// with the phase that it belongs to, or not at all.
class alignas(64) Share {
  public:
    void set(size_t first, size_t end) {
        left_.store(first | uint64_t{end} << 32, std::memory_order_release);
    }

    bool take(size_t& item) {
        if (!any(left_.load(std::memory_order_relaxed))) return false;
        const uint64_t left = left_.fetch_add(1, std::memory_order_acquire);
        item = left & UINT32_MAX;
        return any(left);
    }

  private:
    static bool any(uint64_t left) { return (left & UINT32_MAX) < left >> 32; }

    std::atomic<uint64_t> left_{0};
};

}  // namespace

struct ThreadPool::State {
    std::vector<Thread> threads;
    const long owner = this_process();
    Mutex taken;  // by the caller for whom the helpers work
    Bell bell;
    std::vector<Share> shares;
    std::atomic<bool> closing{false}, finished{false}, failed{false};
    std::exception_ptr error;
    // Written between two phases, by whoever completed the first; read by those who hold an item.
    Work* work = nullptr;
    size_t phase = 0, items = 0;
    std::atomic<size_t> done{0};

    explicit State(size_t workers) : shares(workers) {}

    void close() {
        closing = true;
        bell.ring();
    }

    void help(size_t worker) {
        for (;;) {
            const uint32_t seen = bell.version();
            if (closing) return;
            if (!take_part(worker)) bell.wait(seen);
        }
    }

    void lead(Work& own) {
        work = &own;
        phase = 0;
        finished = failed = false;
        bell.ring();  // sleepers wake up while the first phases, if they have one item each, are run here
        proceed(0);
        for (;;) {
            const uint32_t seen = bell.version();
            const bool took_part = take_part(0);
            if (finished) break;
            if (!took_part) wait_for_helpers(bell, seen);
        }
        if (error) std::rethrow_exception(std::exchange(error, nullptr));
    }

    // Runs what can be had of the present phase; false if that was nothing.
    bool take_part(size_t worker) {
        size_t taken = 0, item;
        for (size_t i = 0; i < shares.size(); ++i) {
            Share& share = shares[(worker + i) % shares.size()];
            for (; share.take(item); ++taken) attempt(item, worker);
        }
        if (!taken) return false;
        const size_t all = items;
        if (done.fetch_add(taken, std::memory_order_acq_rel) + taken == all) {
            work->completed(phase++);
            proceed(worker);
        }
        return true;
    }

    // From a phase that no one works on to the next that is worth sharing, or to the end.
    void proceed(size_t worker) {
        for (; phase < work->phases() && !failed; ++phase) {
            items = work->items(phase);
            if (items > 1) return offer();
            if (items) attempt(0, worker);
            work->completed(phase);
        }
        finished = true;
        bell.ring();
    }

    // The first share is never empty and is set last: until then the phase cannot be completed.
    void offer() {
        done.store(0, std::memory_order_relaxed);
        const size_t count = items, workers = shares.size();
        const auto first = [&](size_t worker) { return (count * worker + workers - 1) / workers; };
        for (size_t i = workers; i-- > 0;) shares[i].set(first(i), first(i + 1));
        bell.ring();
    }

    void attempt(size_t item, size_t worker) {
        if (failed) return;
        try {
            work->run(phase, item, worker);
        } catch (...) {
            if (!failed.exchange(true)) error = std::current_exception();
        }
    }
};

ThreadPool::ThreadPool(size_t helpers)
    : helpers_(helpers), state_(helpers ? std::make_unique<State>(helpers + 1) : nullptr) {
    try {
        for (size_t i = 1; i <= helpers; ++i) state_->threads.emplace_back([this, i] { state_->help(i); });
    } catch (...) {  // the system gives no more
        state_->close();
        for (auto& thread : state_->threads) thread.join();
        throw;
    }
}

ThreadPool::~ThreadPool() {
    if (!state_) return;
    if (this_process() == state_->owner) {
        state_->close();
        for (auto& thread : state_->threads) thread.join();
        return;
    }
    // A forked child has this object but not its threads: to join them, or to destroy what they were waiting
    // on, would wait for ever.
    for (auto& thread : state_->threads) thread.detach();
    static_cast<void>(state_.release());
}

void ThreadPool::run(Work& work) {
    if (!state_ || this_process() != state_->owner) return run_alone(work);
    std::unique_lock<Mutex> lock(state_->taken, std::try_to_lock);
    if (!lock) return run_alone(work);
    state_->lead(work);
}

}  // namespace bitfactor
