// Threads that live as long as the pool and share out the items of a job.

#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace bitfactor {

class ThreadPool {
  public:
    explicit ThreadPool(int helpers);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;

    // Calls work(0) ... work(count - 1), each once, in the calling thread and in the helpers that are free; returns
    // when all are done. May be called from several threads at once. What `work` throws, the caller gets.
    void for_each(size_t count, const std::function<void(size_t)>& work);

  private:
    struct Job;
    void help();
    void take_part(Job& job);
    void withdraw(const std::shared_ptr<Job>& job);

    std::mutex mutex_;
    std::condition_variable offered_, finished_;
    std::deque<std::shared_ptr<Job>> jobs_;
    bool closing_ = false;
    std::vector<std::thread> threads_;
    pid_t owner_;
};

}  // namespace bitfactor
