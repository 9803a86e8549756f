// Threads of a web page: workers that share its memory. The page's script starts them beforehand; each then
// runs one body.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace bitfactor {

// It is held for moments, or tried: a page's own thread must not sleep.
class Mutex {
  public:
    void lock() {
        while (!try_lock()) {
        }
    }
    bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
    void unlock() { held_.store(false, std::memory_order_release); }

  private:
    std::atomic<bool> held_{false};
};

constexpr int threads_at_first(int) { return 1; }  // a page does not know beforehand how many it may have

inline long this_process() { return 0; }

struct ThreadBody {
    std::function<void()> run;
    std::atomic<bool> ended{false};
};

class Thread {
  public:
    explicit Thread(std::function<void()> run);
    void join() {
        while (!body_->ended) {
        }
    }
    void detach() {}

  private:
    std::unique_ptr<ThreadBody> body_;
};

// Where workers wait for news, as on other systems.
class Bell {
  public:
    uint32_t version() const { return version_; }

    void ring() {
        ++version_;
        if (sleepers_) __builtin_wasm_memory_atomic_notify(address(), UINT32_MAX);
    }

    void wait(uint32_t seen) {
        for (int look = 0; look < looks; ++look) {
            if (version_ != seen) return;
        }
        ++sleepers_;
        __builtin_wasm_memory_atomic_wait32(address(), static_cast<int>(seen), -1);  // not if there is news
        --sleepers_;
    }

  private:
    static constexpr int looks = 1 << 16;  // some 100 microseconds

    int* address() { return reinterpret_cast<int*>(&version_); }

    std::atomic<uint32_t> version_{0};
    std::atomic<int> sleepers_{0};
};

// A worker's script sets it where the worker cannot go on: what that held, if anything, is never completed.
extern "C" std::atomic<int> bf_thread_lost;

// A page's own thread must not sleep.
inline void wait_for_helpers(Bell&, uint32_t) {
    if (bf_thread_lost) __builtin_trap();
}

}  // namespace bitfactor
