#include "thread_pool.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace bitfactor {
namespace {

// How long a worker looks on before it sleeps: longer than a small step, and than what a caller does between
// two runs; short enough that an idle pool costs nothing. An estimate, not a measured optimum.
constexpr std::chrono::microseconds look_on{100};
constexpr int looks = 32;  // before the core is offered to others: about a microsecond

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Where workers wait for news. The order of all accesses to `version_` and `sleepers_` is one that all
// threads agree on: either the one who brings news sees the sleeper, or the sleeper sees the news.
class Bell {
  public:
    uint32_t version() const { return version_; }

    void ring() {
        ++version_;
        if (!sleepers_) return;
        {
            std::lock_guard<std::mutex> lock(mutex_);
        }  // whoever counts as a sleeper sleeps by now
        rung_.notify_all();
    }

    // Returns when there is news since `version() == seen`.
    void wait(uint32_t seen) {
        if (looked_on(seen)) return;
        std::unique_lock<std::mutex> lock(mutex_);
        ++sleepers_;
        rung_.wait(lock, [&] { return version_ != seen; });
        --sleepers_;
    }

  private:
    bool looked_on(uint32_t seen) const {
        const auto end = std::chrono::steady_clock::now() + look_on;
        do {
            for (int i = 0; i < looks; ++i, pause()) {
                if (version_ != seen) return true;
            }
            std::this_thread::yield();
        } while (std::chrono::steady_clock::now() < end);
        return false;
    }

    std::atomic<uint32_t> version_{0};
    std::atomic<int> sleepers_{0};
    std::mutex mutex_;
    std::condition_variable rung_;
};

// Items first ... end of a phase, taken one by one. Both numbers are in one word, so that an item is taken
// with the phase that it belongs to, or not at all.
class alignas(64) Share {
  public:
    void set(size_t first, size_t end) { left_.store(first | end << 32, std::memory_order_release); }

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
    std::vector<std::thread> threads;
    const pid_t owner = getpid();
    std::mutex taken;  // by the caller for whom the helpers work
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
            if (!took_part) bell.wait(seen);
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
    for (size_t i = 1; i <= helpers; ++i) state_->threads.emplace_back([this, i] { state_->help(i); });
}

ThreadPool::~ThreadPool() {
    if (!state_) return;
    if (getpid() == state_->owner) {
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
    if (!state_ || getpid() != state_->owner) return run_alone(work);
    std::unique_lock<std::mutex> lock(state_->taken, std::try_to_lock);
    if (!lock) return run_alone(work);
    state_->lead(work);
}

}  // namespace bitfactor
