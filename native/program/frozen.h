// A program as one flat piece of memory: the file .bfp, as bitfactor.format.frozen writes it.
//
//     Header
//     Record (records)          instructions, in their order
//     ArrayEntry (arrays)       what they are given; those of a record stand one behind the other
//     data                      of the arrays, each at a multiple of 8 bytes, of 64 where it is so large
//
// All is little-endian. What is read points into the memory; nothing of it is copied but weights that are
// stored in fewer bits than they are computed with: they are expanded, once.

#pragma once

#include <vector>

#include "kernels/pack.h"
#include "program/instruction.h"

namespace bitfactor {

constexpr uint32_t frozen_version = 2;  // 1 has no arrays of the types below, and no integers
constexpr char frozen_magic[8] = {'\x89', 'B', 'F', 'P', '\r', '\n', '\x1a', '\n'};
constexpr size_t frozen_alignment = 8;
constexpr int most_threads = 1024;

struct FrozenHeader {
    char magic[8];
    uint32_t version, byte_order;  // the latter is 0x01020304
    uint64_t bytes;                // of all
    uint32_t checksum, records;    // CRC-32 of all that follows the checksum
    uint64_t arena_bytes;
    uint32_t threads, arrays;
    uint64_t reserved[2];  // 0
};

struct FrozenRecord {
    char kind[32];  // with a zero at its end, as all names
    uint32_t first, count;
};

struct FrozenArray {
    char name[32];
    uint32_t type, dimensions;
    int64_t shape[6];  // 1 beyond the dimensions
    uint64_t offset;
};

// Types of an array beside Argument's, float32 once it is read: float16; or levels, int8, behind the steps of
// the rows, float32 each, by which those of a row are multiplied.
constexpr uint32_t frozen_float16 = 32, frozen_levels = 33;

constexpr size_t frozen_first_checked = offsetof(FrozenHeader, records);

static_assert(sizeof(FrozenHeader) == 64 && sizeof(FrozenRecord) == 40 && sizeof(FrozenArray) == 96);

struct Frozen {
    size_t arena_bytes;
    int threads;
    std::vector<Instruction> instructions;  // whose arrays lie in the memory, or are
    std::vector<AlignedVector<float>> expanded;
};

size_t bytes_of(Argument::Type type);

// CRC-32, as in zlib and PNG.
uint32_t checksum_of(const void* bytes, size_t count);

// Throws std::invalid_argument where the memory holds none: what it says lies within it is there. Whether the
// program can run, Program::add says.
Frozen read_frozen(const void* memory, size_t bytes);

}  // namespace bitfactor
