// For libFuzzer: whatever the bytes, a network loads and runs, or there is a sentence. Size and checksum are
// made right first, so that what lies behind them is reached. Memory is scarce, as on a small machine.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "bitfactor.h"
#include "program/frozen.h"

static constexpr size_t most_bytes = 1 << 26;

void* operator new(size_t size) {
    void* memory = size > most_bytes ? nullptr : std::malloc(size);
    return memory ? memory : throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t alignment) {
    const size_t multiple = static_cast<size_t>(alignment);
    void* memory = size > most_bytes
                       ? nullptr
                       : std::aligned_alloc(multiple, (size + multiple - 1) / multiple * multiple);
    return memory ? memory : throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }  // libFuzzer's
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

void expect(bool condition) {
    if (!condition) std::abort();
}

// The bytes in memory of just their size, with what a program must say of itself.
std::unique_ptr<char, void (*)(void*)> made_right(const uint8_t* data, size_t size) {
    std::unique_ptr<char, void (*)(void*)> memory(static_cast<char*>(std::malloc(size)), std::free);
    std::copy(data, data + size, memory.get());
    if (size < sizeof(bitfactor::FrozenHeader)) return memory;
    auto* header = reinterpret_cast<bitfactor::FrozenHeader*>(memory.get());
    header->bytes = size;
    header->threads = std::clamp(header->threads, 0u, 2u);
    const size_t first = bitfactor::frozen_first_checked;
    header->checksum = bitfactor::checksum_of(memory.get() + first, size - first);
    return memory;
}

void run(bf_network* network) {
    bf_tensor tensor;
    bf_error error;
    expect(bf_input(network, 0, &tensor, &error) == BF_OK);
    const std::vector<float> x(tensor.size, 0.5f);
    std::vector<std::vector<float>> values;
    std::vector<float*> outs;
    for (size_t i = 0; i < bf_output_count(network); ++i) {
        expect(bf_output(network, i, &tensor, &error) == BF_OK);
        outs.push_back(values.emplace_back(tensor.size).data());
    }
    const float* ins[] = {x.data()};
    const bf_status status = bf_run(network, 1, ins, outs.data(), &error);
    expect(status == BF_OK || (status == BF_NO_MEMORY && error.text[0]));
    bf_verify(network, nullptr, &error);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto memory = made_right(data, size);
    bf_error error;
    bf_network* network = bf_load(memory.get(), size, &error);
    if (!network) {
        expect(error.status != BF_OK && error.text[0]);
        return 0;
    }
    for (size_t i = 0; bf_instruction_sets(i); ++i) {
        if (bf_set_instruction_set(network, bf_instruction_sets(i), &error) != BF_OK) continue;
        try {
            run(network);
        } catch (const std::bad_alloc&) {  // of this driver's own memory
        }
    }
    bf_free(network);
    return 0;
}
