// fuzz.cpp without libFuzzer, for compilers that have none: mutations of files, drawn at random, for some
// seconds. The same seed draws the same again.
//
// mutate SECONDS SEED FILE ...

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// A finding aborts, so that its input is kept.
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1"; }

namespace {

using Bytes = std::vector<uint8_t>;

Bytes input;  // under way

void keep(int) {
    std::ofstream("mutate.found", std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    std::fprintf(stderr, "the input is in mutate.found\n");
}

// A field of 1, 4 or 8 bytes becomes a number at the edge of what a check may forget, or any.
void change_field(Bytes& bytes, std::mt19937_64& draw) {
    const uint64_t edge = uint64_t{1} << draw() % 64;
    const uint64_t values[] = {0, 1, 2, edge, edge - 1, ~uint64_t{0}, draw(), draw() % 256};
    const uint64_t value = values[draw() % std::size(values)];
    const size_t size = size_t{1} << "\0\2\3"[draw() % 3];
    if (bytes.size() < size) return;
    std::memcpy(&bytes[draw() % (bytes.size() / size) * size], &value, size);
}

Bytes mutated(const std::vector<Bytes>& seeds, std::mt19937_64& draw) {
    Bytes bytes = seeds[draw() % seeds.size()];
    const Bytes& other = seeds[draw() % seeds.size()];
    for (size_t i = 1 + draw() % 4; i > 0; --i) {
        const size_t at = draw() % (bytes.size() + 1);
        const size_t how = draw() % 16;
        if (how == 0)
            bytes.resize(at);
        else if (how == 1 && at < other.size())  // the end of another
            bytes.assign(other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
        else
            change_field(bytes, draw);
    }
    return bytes;
}

}  // namespace

int main(int count, char** words) {
    std::vector<Bytes> seeds;
    for (int i = 3; i < count; ++i) {
        std::ifstream file(words[i], std::ios::binary);
        seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    if (seeds.empty()) return 2;
    std::signal(SIGABRT, keep);
    std::mt19937_64 draw(std::strtoull(words[2], nullptr, 10));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(words[1]));
    size_t runs = 0;
    for (; std::chrono::steady_clock::now() < end; ++runs) {
        input = mutated(seeds, draw);
        LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    std::printf("%zu inputs\n", runs);
}
