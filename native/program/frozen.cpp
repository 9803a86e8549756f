#include "program/frozen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace bitfactor {
namespace {

constexpr uint32_t byte_order = 0x01020304, swapped_byte_order = 0x04030201;

std::invalid_argument bad(const std::string& found) {
    return std::invalid_argument("expected a frozen program of bitfactor, found " + found +
                                 "; write it again with `bitfactor freeze`");
}

template <size_t length>
std::string name_of(const char (&name)[length]) {
    const char* end = static_cast<const char*>(std::memchr(name, 0, length));
    if (!end || end == name) throw bad("a name that does not end, or is empty");
    return {name, end};
}

uint64_t known_size(uint32_t type) {
    if (type == frozen_float16) return 2;
    if (type == frozen_levels) return 1;
    if (type > Argument::uint8) throw bad("an array of unknown type " + std::to_string(type));
    return bytes_of(static_cast<Argument::Type>(type));
}

// Without infinities, which no weight is.
float widened(uint16_t half) {
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    const float magnitude = exponent ? std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25)
                                     : std::ldexp(static_cast<float>(mantissa), -24);
    return half >> 15 ? -magnitude : magnitude;
}

class Reader {
  public:
    Reader(const void* memory, size_t bytes) : memory_(static_cast<const char*>(memory)), bytes_(bytes) {
        if (!memory) throw bad("a null pointer");
        if (reinterpret_cast<uintptr_t>(memory) % frozen_alignment)
            throw bad("memory that does not begin at a multiple of 8 bytes");
    }

    FrozenHeader header() const {
        FrozenHeader header;
        const size_t start = std::min(bytes_, sizeof header.magic);
        if (!bytes_ || std::memcmp(memory_, frozen_magic, start)) throw bad("something else");
        if (bytes_ < sizeof header) throw bad("a truncated one");
        std::memcpy(&header, memory_, sizeof header);
        if (header.byte_order == swapped_byte_order) throw bad("one of the other byte order");
        if (header.byte_order != byte_order) throw bad("a damaged one");
        if (header.version < 1 || header.version > frozen_version)
            throw bad("one of version " + std::to_string(header.version) +
                      ", where this library reads 1 to " + std::to_string(frozen_version));
        if (header.bytes != bytes_)
            throw bad("one that is " + std::to_string(bytes_) + " bytes long and says " +
                      std::to_string(header.bytes));
        if (header.checksum != checksum_of(memory_ + frozen_first_checked, bytes_ - frozen_first_checked))
            throw bad("contents that do not match their checksum");
        if (header.reserved[0] || header.reserved[1]) throw bad("reserved bytes that are not 0");
        return header;
    }

    // `count` entries at `offset`.
    template <class T>
    const T* table(size_t offset, uint64_t count) const {
        if (offset > bytes_ || count > (bytes_ - offset) / sizeof(T)) throw bad("a table past its end");
        return reinterpret_cast<const T*>(memory_ + offset);
    }

    // `total` counts the values of all that is expanded.
    Argument argument(const FrozenArray& entry, std::vector<AlignedVector<float>>& expanded,
                      size_t& total) const {
        uint64_t size = known_size(entry.type);
        if (entry.offset % frozen_alignment) throw bad("an array at an odd place");
        if (entry.dimensions > std::size(entry.shape)) throw bad("an array of too many dimensions");
        for (size_t axis = 0; axis < std::size(entry.shape); ++axis) {
            const int64_t length = entry.shape[axis];
            if (axis < entry.dimensions ? length < 0 || static_cast<uint64_t>(length) > bytes_ : length != 1)
                throw bad("an array of impossible lengths");
            if (length && size > bytes_ / static_cast<uint64_t>(length))
                throw bad("an array larger than the file");
            size *= static_cast<uint64_t>(length);
        }
        const std::vector<int64_t> shape(entry.shape, entry.shape + entry.dimensions);
        const size_t rows = entry.type == frozen_levels ? static_cast<size_t>(entry.shape[0]) : 0;
        size += rows * sizeof(float);
        if (entry.offset > bytes_ || size > bytes_ - entry.offset) throw bad("an array past its end");
        const char* data = memory_ + entry.offset;
        if (entry.type == frozen_float16) expanded.push_back(of_halves(data, size / 2));
        if (entry.type == frozen_levels)
            expanded.push_back(of_levels(data, rows, size - rows * sizeof(float)));
        if (entry.type <= Argument::uint8) return {static_cast<Argument::Type>(entry.type), shape, data};
        total += expanded.back().size();
        if (total > bytes_) throw bad("arrays that share what they are expanded from");
        return {Argument::float32, shape, expanded.back().data()};
    }

  private:
    static AlignedVector<float> of_halves(const char* data, size_t size) {
        AlignedVector<float> values(size);
        for (size_t i = 0; i < size; ++i) {
            uint16_t half;
            std::memcpy(&half, data + 2 * i, sizeof half);
            values[i] = widened(half);
        }
        return values;
    }

    static AlignedVector<float> of_levels(const char* data, size_t rows, size_t size) {
        AlignedVector<float> values(size);
        const auto* levels = reinterpret_cast<const int8_t*>(data + rows * sizeof(float));
        for (size_t i = 0; i < size; ++i) {
            float step;
            std::memcpy(&step, data + i / (size / rows) * sizeof step, sizeof step);
            values[i] = step * levels[i];
        }
        return values;
    }

    const char* memory_;
    size_t bytes_;
};

}  // namespace

size_t bytes_of(Argument::Type type) {
    constexpr size_t sizes[] = {8, 4, 4, 4, 1};  // in their order
    return sizes[type];
}

uint32_t checksum_of(const void* bytes, size_t count) {
    static const auto table = [] {
        std::array<uint32_t, 256> values{};
        for (uint32_t i = 0; i < 256; ++i) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
            values[i] = value;
        }
        return values;
    }();
    const auto* from = static_cast<const unsigned char*>(bytes);
    uint32_t value = ~0u;
    for (size_t i = 0; i < count; ++i) value = value >> 8 ^ table[(value ^ from[i]) & 255];
    return ~value;
}

Frozen read_frozen(const void* memory, size_t bytes) {
    const Reader reader(memory, bytes);
    const FrozenHeader header = reader.header();
    const auto* records = reader.table<FrozenRecord>(sizeof header, header.records);
    const size_t after = sizeof header + header.records * sizeof *records;
    const auto* arrays = reader.table<FrozenArray>(after, header.arrays);
    if (header.threads < 1 || header.threads > most_threads)
        throw bad("one for " + std::to_string(header.threads) + " threads");
    Frozen frozen{static_cast<size_t>(header.arena_bytes), static_cast<int>(header.threads), {}, {}};
    uint32_t next = 0;
    size_t total = 0;
    for (uint32_t r = 0; r < header.records; ++r) {
        const FrozenRecord& record = records[r];
        if (record.first != next || record.count > header.arrays - next)
            throw bad("an instruction whose arrays are not the next ones");
        next += record.count;
        std::map<std::string, Argument> arguments;
        for (uint32_t a = record.first; a < record.first + record.count; ++a) {
            if (!arguments
                     .emplace(name_of(arrays[a].name), reader.argument(arrays[a], frozen.expanded, total))
                     .second)
                throw bad("an array that stands twice");
        }
        frozen.instructions.emplace_back(name_of(record.kind), std::move(arguments));
    }
    return frozen;
}

}  // namespace bitfactor
