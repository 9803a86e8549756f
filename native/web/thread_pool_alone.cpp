// Where there are no threads: in a web page.

#include <stdexcept>
#include <string>

#include "thread_pool.h"

namespace bitfactor {

struct ThreadPool::State {};

ThreadPool::ThreadPool(size_t helpers) : helpers_(helpers) {
    if (helpers) throw std::invalid_argument("expected 1 thread, found " + std::to_string(helpers + 1));
}

ThreadPool::~ThreadPool() = default;

void ThreadPool::run(Work& work) { run_alone(work); }

}  // namespace bitfactor
