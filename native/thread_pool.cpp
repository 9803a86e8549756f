#include "thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

namespace bitfactor {

struct ThreadPool::Job {
    const std::function<void(size_t)>& work;
    const size_t count;
    std::atomic<size_t> next{0};
    size_t done = 0;  // under the mutex of State, as is error
    std::exception_ptr error;

    Job(size_t count, const std::function<void(size_t)>& work) : work(work), count(count) {}
};

struct ThreadPool::State {
    std::mutex mutex;
    std::condition_variable offered, finished;
    std::deque<std::shared_ptr<Job>> jobs;
    bool closing = false;

    void offer(const std::shared_ptr<Job>& job) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            jobs.push_back(job);
        }
        offered.notify_all();
    }

    // Does items of the job until none is left to begin; then no one else need look at it.
    void take_part(const std::shared_ptr<Job>& job) {
        for (size_t i; (i = job->next++) < job->count;) {
            std::exception_ptr error;
            try {
                job->work(i);
            } catch (...) {
                error = std::current_exception();
            }
            std::lock_guard<std::mutex> lock(mutex);
            if (error) job->error = std::move(error);
            if (++job->done == job->count) finished.notify_all();
        }
        std::lock_guard<std::mutex> lock(mutex);
        jobs.erase(std::remove(jobs.begin(), jobs.end(), job), jobs.end());
    }

    void help() {
        for (;;) {
            std::shared_ptr<Job> job;
            {
                std::unique_lock<std::mutex> lock(mutex);
                offered.wait(lock, [&] { return closing || !jobs.empty(); });
                if (closing) return;
                job = jobs.front();
            }
            take_part(job);
        }
    }

    void close() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            closing = true;
        }
        offered.notify_all();
    }
};

ThreadPool::ThreadPool(int helpers) : state_(std::make_unique<State>()), owner_(getpid()) {
    for (int i = 0; i < helpers; ++i) threads_.emplace_back([this] { state_->help(); });
}

ThreadPool::~ThreadPool() {
    if (getpid() == owner_) {
        state_->close();
        for (auto& thread : threads_) thread.join();
        return;
    }
    // A forked child has this object but not its threads: to join them, or to destroy what they were waiting
    // on, would wait for ever.
    for (auto& thread : threads_) thread.detach();
    static_cast<void>(state_.release());
}

void ThreadPool::for_each(size_t count, const std::function<void(size_t)>& work) {
    if (count <= 1 || threads_.empty()) {
        for (size_t i = 0; i < count; ++i) work(i);
        return;
    }
    const auto job = std::make_shared<Job>(count, work);
    state_->offer(job);
    state_->take_part(job);
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->finished.wait(lock, [&] { return job->done == job->count; });
    if (job->error) std::rethrow_exception(std::exchange(job->error, nullptr));
}

}  // namespace bitfactor
