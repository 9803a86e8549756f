// Threads that live as long as the pool and share out work that comes in phases.
//
// The items of a phase are independent of each other, and need all phases before. Each worker has a share of
// the items of its own, the same part of every phase, so that what it wrote is still in its cache; after that
// it takes from the shares of others. So nobody waits for a worker that has not come or was taken off its
// core, unless that holds an item. A phase of one item is run by whoever completed the one before: it costs
// no handing over.

#pragma once

#include <cstddef>
#include <memory>

#include "threads/threads.h"

namespace bitfactor {

class Work {
  public:
    virtual ~Work() = default;
    virtual size_t phases() const = 0;
    virtual size_t items(size_t phase) const = 0;
    // A worker, 0 being the caller, runs one item at a time.
    virtual void run(size_t phase, size_t item, size_t worker) = 0;
    // All items of the phase are done, and none of the next has begun.
    virtual void completed(size_t phase) = 0;
};

// All of it in the calling thread, as worker 0.
inline void run_alone(Work& work) {
    for (size_t phase = 0; phase < work.phases(); ++phase) {
        for (size_t item = 0; item < work.items(phase); ++item) work.run(phase, item, 0);
        work.completed(phase);
    }
}

class ThreadPool {
  public:
    explicit ThreadPool(size_t helpers);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;

    size_t workers() const { return helpers_ + 1; }

    // Returns when all phases are complete, and allocates nothing. What an item throws, the caller gets; the
    // items after it are left out. May be called from several threads at once: the helpers work for one of
    // them, the others run alone. So does a forked child, which has none of its parent's threads.
    void run(Work& work);

    // Calls f(0) ... f(count - 1), each once, in any order.
    template <class F>
    void for_each(size_t count, F f) {
        struct Items final : Work {
            size_t count;
            F& f;
            Items(size_t count, F& f) : count(count), f(f) {}
            size_t phases() const override { return 1; }
            size_t items(size_t) const override { return count; }
            void run(size_t, size_t item, size_t) override { f(item); }
            void completed(size_t) override {}
        } items(count, f);
        run(items);
    }

  private:
    struct State;

    const size_t helpers_;
    std::unique_ptr<State> state_;  // none where there are no helpers
};

}  // namespace bitfactor
