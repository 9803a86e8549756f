#include "threads/threads.h"

#define FROM_SCRIPT(name) __attribute__((import_module("env"), import_name(#name)))

extern "C" {

std::atomic<int> bf_thread_lost{0};

FROM_SCRIPT(bf_start) void bf_start(bitfactor::ThreadBody* body);  // by a worker that calls bf_thread

void bf_thread(bitfactor::ThreadBody* body) {
    body->run();
    body->ended = true;
}
}

bitfactor::Thread::Thread(std::function<void()> run) : body_(new ThreadBody{std::move(run)}) {
    bf_start(body_.get());
}
