// Threads that live as long as the pool and share out the items of a job.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace bitfactor {

class ThreadPool {
  public:
    explicit ThreadPool(int helpers);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;

    // Calls work(0) ... work(count - 1), each once, in the calling thread and in the helpers that are free;
    // returns when all are done. May be called from several threads at once. What `work` throws, the caller
    // gets.
    void for_each(size_t count, const std::function<void(size_t)>& work);

  private:
    struct Job;
    struct State;

    std::unique_ptr<State> state_;
    std::vector<std::thread> threads_;
    pid_t owner_;
};

}  // namespace bitfactor
