// ThreadPool in all the ways that it may be used, for ThreadSanitizer to watch; each check can fail without
// it too.

#include "threads/thread_pool.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using bitfactor::ThreadPool;

void expect(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

// What the items write needs no lock: each has its own place, and for_each returns when all are done.
void each_item_once(ThreadPool& pool, size_t count) {
    std::vector<int> times(count, 0);
    pool.for_each(count, [&](size_t i) { ++times[i]; });
    for (const int t : times) expect(t == 1, "each item is done once");
}

void throws_what_work_throws(ThreadPool& pool) {
    try {
        pool.for_each(20, [&](size_t i) {
            if (i == 7) throw std::runtime_error("seven");
        });
        expect(false, "an exception reaches the caller");
    } catch (const std::runtime_error& error) {
        expect(error.what() == std::string("seven"), "the exception is that of the item");
    }
}

void many_callers(ThreadPool& pool) {
    std::vector<std::thread> callers;
    for (size_t caller = 0; caller < 4; ++caller) {
        callers.emplace_back([&pool, caller] {
            for (size_t i = 0; i < 50; ++i) each_item_once(pool, i + caller);
            throws_what_work_throws(pool);
        });
    }
    for (auto& caller : callers) caller.join();
}

// A pool may go before its threads have begun, or while they look for the next job.
void come_and_go(size_t helpers) {
    for (size_t i = 0; i < 50; ++i) {
        ThreadPool pool(helpers);
        if (i % 2) each_item_once(pool, i);
    }
}

}  // namespace

int main() {
    for (const size_t helpers : {0, 1, 3}) {
        ThreadPool pool(helpers);
        for (size_t count = 0; count < 50; ++count) each_item_once(pool, count);
        throws_what_work_throws(pool);
        many_callers(pool);
        come_and_go(helpers);
    }
    std::vector<std::thread> owners;
    for (int i = 0; i < 3; ++i) owners.emplace_back(come_and_go, 2);
    for (auto& owner : owners) owner.join();
    std::puts("thread pool: no failure");
}
