// What the pool takes of the system: locks, threads, and a place to wait. A web page has them of its own.

#pragma once

#ifdef __wasm__
#include "web/threads.h"
#else

#ifdef _WIN32
#include <process.h>
#else
#include <unistd.h>
#endif

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace bitfactor {

using Mutex = std::mutex;
using Thread = std::thread;

constexpr int threads_at_first(int of_file) { return of_file; }

#ifdef _WIN32
inline long this_process() { return _getpid(); }
#else
inline long this_process() { return getpid(); }
#endif

// How long a worker looks on before it sleeps: longer than a small step, and than what a caller does between
// two runs; short enough that an idle pool costs nothing. An estimate, not a measured optimum.
constexpr std::chrono::microseconds look_on{100};
constexpr int looks = 32;  // before the core is offered to others: about a microsecond

inline void pause() {
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

inline void wait_for_helpers(Bell& bell, uint32_t seen) { bell.wait(seen); }

}  // namespace bitfactor

#endif
