#include "thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>

namespace bitfactor {

struct ThreadPool::Job {
    const std::function<void(size_t)>& work;
    const size_t count;
    std::atomic<size_t> next{0};
    size_t done = 0;  // under the pool's mutex, as is error
    std::exception_ptr error;

    Job(size_t count, const std::function<void(size_t)>& work) : work(work), count(count) {}
};

ThreadPool::ThreadPool(int helpers) : owner_(getpid()) {
    for (int i = 0; i < helpers; ++i) threads_.emplace_back([this] { help(); });
}

ThreadPool::~ThreadPool() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    offered_.notify_all();
    // A forked child has this object but not its threads, and to join them would wait for ever.
    const bool forked = getpid() != owner_;
    for (auto& thread : threads_) forked ? thread.detach() : thread.join();
}

void ThreadPool::for_each(size_t count, const std::function<void(size_t)>& work) {
    if (count <= 1 || threads_.empty()) {
        for (size_t i = 0; i < count; ++i) work(i);
        return;
    }
    auto job = std::make_shared<Job>(count, work);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        jobs_.push_back(job);
    }
    offered_.notify_all();
    take_part(*job);
    withdraw(job);
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [&] { return job->done == job->count; });
    if (job->error) std::rethrow_exception(job->error);
}

void ThreadPool::help() {
    for (;;) {
        std::shared_ptr<Job> job;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            offered_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
            if (closing_) return;
            job = jobs_.front();
        }
        take_part(*job);
        withdraw(job);
    }
}

void ThreadPool::take_part(Job& job) {
    for (size_t i; (i = job.next++) < job.count;) {
        std::exception_ptr error;
        try {
            job.work(i);
        } catch (...) {
            error = std::current_exception();
        }
        std::lock_guard<std::mutex> lock(mutex_);
        if (error) job.error = error;
        if (++job.done == job.count) finished_.notify_all();
    }
}

void ThreadPool::withdraw(const std::shared_ptr<Job>& job) {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), job), jobs_.end());
}

}  // namespace bitfactor
