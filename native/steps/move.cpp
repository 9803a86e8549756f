// Steps that compute nothing: who goes where.

#include <algorithm>
#include <utility>

#include "steps/step.h"

namespace bitfactor {
namespace {

constexpr int most_length = 1 << 15;  // of a side: products of two are ints
constexpr int most_rows = 1 << 24;    // of a table: a float holds each of their places

// Repeats each pixel so many times down, and to the right.
void add_upsample_nearest(Program& program, const Instruction& i) {
    const size_t source = i.source();
    const int in_h = i.number("in_size", 0), in_w = i.number("in_size", 1), channels = i.number("channels");
    const int scale_h = i.number("scale", 0), scale_w = i.number("scale", 1), out_w = in_w * scale_w;
    program.add_step("upsample_nearest", in_h * scale_h * out_w, channels, 0, 1,
                     [=](Workspace& w, int first, int count) {
                         const float* map = at<float>(w.arena, source);
                         float* row = w.rows.data();
                         for (int pixel = first; pixel < first + count; ++pixel, row += channels) {
                             const int y = pixel / out_w / scale_h, x = pixel % out_w / scale_w;
                             std::copy_n(map + (static_cast<size_t>(y) * in_w + x) * channels, channels, row);
                         }
                         return w.rows.data();
                     });
}

void add_flatten(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    program.add_step("flatten", 1, source.pixels * source.channels, 0, 1,
                     [=, &program](Workspace& w, int, int) {
                         program.kernels().common->transpose(at<float>(w.arena, source.offset), source.pixels,
                                                             source.channels, source.channels, w.rows.data());
                         return w.rows.data();
                     });
}

// The result, in the order (pixels, channels), is runs of numbers, each of which begins at number indices[i]
// of the source and what lies behind it; -1 stands for `fill`.
void add_gather(Program& program, const Instruction& i) {
    const size_t source = i.source();
    const int run = i.number("run"), channels = i.number("channels"), runs = channels / run;
    const int pixels = static_cast<int>(i.size("indices")) / runs;
    const float fill = *i.array<float>("fill");
    const int32_t* indices = i.array<int32_t>("indices");
    auto own = std::make_shared<const std::vector<int32_t>>(indices, indices + i.size("indices"));
    program.add_step("gather", pixels, channels, 0, 1, [=](Workspace& w, int first, int count) {
        const float* map = at<float>(w.arena, source);
        const int32_t* from = own->data() + static_cast<size_t>(first) * runs;
        const size_t total = static_cast<size_t>(count) * runs;
        float* rows = w.rows.data();
        if (run == 1) {
            for (size_t k = 0; k < total; ++k) rows[k] = from[k] < 0 ? fill : map[from[k]];
            return w.rows.data();
        }
        for (size_t k = 0; k < total; ++k, rows += run) {
            from[k] < 0 ? std::fill_n(rows, run, fill) : std::copy_n(map + from[k], run, rows);
        }
        return w.rows.data();
    });
}

void add_constant(Program& program, const Instruction& i) {
    const int pixels = i.length("value", 0), channels = i.length("value", 1);
    const float* value = i.array<float>("value");
    auto own = std::make_shared<const AlignedVector<float>>(value, value + i.size("value"));
    program.add_step("constant", pixels, channels, 0, 1, [=](Workspace&, int first, int) {
        return own->data() + static_cast<size_t>(first) * channels;
    });
}

// The rows of a table that numbers stand for; one outside of it stands for the nearest, which whoever runs
// the program has refused before.
void add_embedding(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    const int rows = i.length("table", 0), channels = i.length("table", 1);
    const float* table = i.array<float>("table");
    auto own = std::make_shared<const AlignedVector<float>>(table, table + i.size("table"));
    program.add_step("embedding", source.pixels * source.channels, channels, 0, 1,
                     [=](Workspace& w, int first, int count) {
                         const float* index = at<float>(w.arena, source.offset) + first;
                         float* row = w.rows.data();
                         for (int k = 0; k < count; ++k, row += channels) {
                             const float wanted = index[k] > 0 ? index[k] : 0.0f;  // 0 for NaN, too
                             const int place =
                                 static_cast<int>(std::min(wanted, static_cast<float>(rows - 1)));
                             std::copy_n(own->data() + static_cast<size_t>(place) * channels, channels, row);
                         }
                         return w.rows.data();
                     });
}

// The channels of several maps, one behind the other.
void add_concat(Program& program, const Instruction& i) {
    std::vector<Buffer> sources;
    int channels = 0;
    for (size_t k = 0; k < i.size("sources") / 4; ++k) {
        sources.push_back(i.buffer("sources", k));
        channels += sources.back().channels;
    }
    program.add_step("concat", sources.at(0).pixels, channels, 0, 1, [=](Workspace& w, int first, int count) {
        float* row = w.rows.data();
        for (int pixel = first; pixel < first + count; ++pixel) {
            for (const Buffer& source : sources) {
                row = std::copy_n(row_at(w.arena, source, pixel), source.channels, row);
            }
        }
        return w.rows.data();
    });
}

std::vector<Buffer> real_sources(Verifier& v) {
    const size_t count = v.size("sources") / 4;
    v.expect(count > 0, "a source");
    std::vector<Buffer> sources;
    for (size_t k = 0; k < count; ++k) {
        sources.push_back(v.buffer("sources", k, count));
        v.expect(!sources.back().signs, "sources of numbers");
    }
    return sources;
}

void check_upsample_nearest(Verifier& v) {
    const std::vector<int> size = v.numbers("in_size", 2, 1, most_length);
    const std::vector<int> scale = v.numbers("scale", 2, 1, most_length);
    const int channels = v.number("channels", 1);
    const Buffer source = v.real_buffer("source");
    v.expect_map(source, size[0] * size[1], channels, false);
    v.begin(int64_t{source.pixels} * scale[0] * scale[1], channels, {source});
}

void check_flatten(Verifier& v) {
    const Buffer source = v.real_buffer("source");
    v.begin(1, static_cast<int64_t>(source.size()), {source});
}

// The numbers of the sources, as stretches [begin, end) behind the first; those that touch are one.
std::vector<std::pair<int64_t, int64_t>> stretches_of(std::vector<Buffer> sources) {
    std::sort(sources.begin(), sources.end(),
              [](const Buffer& a, const Buffer& b) { return a.offset < b.offset; });
    std::vector<std::pair<int64_t, int64_t>> stretches;
    for (const Buffer& source : sources) {
        const int64_t begin = static_cast<int64_t>((source.offset - sources[0].offset) / sizeof(float));
        const int64_t end = begin + static_cast<int64_t>(source.size());
        if (stretches.empty() || stretches.back().second < begin) stretches.emplace_back(begin, end);
        stretches.back().second = std::max(stretches.back().second, end);
    }
    return stretches;
}

// `source` is the first of the sources in memory.
void check_gather(Verifier& v) {
    const std::vector<Buffer> sources = real_sources(v);
    const Buffer first = v.real_buffer("source");
    for (const Buffer& source : sources) v.expect(source.offset >= first.offset, "the first source");
    v.expect(std::any_of(sources.begin(), sources.end(),
                         [&](const Buffer& source) { return source.offset == first.offset; }),
             "one of the sources");
    const int channels = v.number("channels", 1), run = v.number("run", 1, channels);
    v.expect(channels % run == 0, "runs that fill a pixel");
    v.elements<float>("fill", 1);
    const size_t count = v.size("indices"), runs = static_cast<size_t>(channels / run);
    v.expect(count >= 1 && count % runs == 0, "whole pixels");
    const int32_t* indices = v.elements<int32_t>("indices", count);
    const auto stretches = stretches_of(sources);
    const bool all = std::all_of(indices, indices + count, [&](int64_t index) {
        const auto holds = [&](const auto& s) { return s.first <= index && index + run <= s.second; };
        return index == -1 || std::any_of(stretches.begin(), stretches.end(), holds);
    });
    v.expect(all, "indices of elements of the sources");
    std::vector<Buffer> read = sources;
    read.push_back(first);
    v.begin(static_cast<int64_t>(count / runs), channels, read);
}

void check_constant(Verifier& v) {
    const int64_t pixels = v.length("value", 0, 2), channels = v.length("value", 1, 2);
    v.array<float>("value", {pixels, channels});
    v.begin(pixels, channels, {});
}

void check_embedding(Verifier& v) {
    const Buffer source = v.real_buffer("source");
    const int64_t rows = v.length("table", 0, 2), channels = v.length("table", 1, 2);
    v.expect(rows >= 1 && rows <= most_rows, "a table of 1 to 2^24 rows");
    v.array<float>("table", {rows, channels});
    v.begin(static_cast<int64_t>(source.size()), channels, {source});
}

void check_concat(Verifier& v) {
    const std::vector<Buffer> sources = real_sources(v);
    int64_t channels = 0;
    for (const Buffer& source : sources) {
        v.expect_map(source, sources[0].pixels, source.channels, false);
        channels += source.channels;
    }
    v.begin(sources[0].pixels, channels, sources);
}

}  // namespace

Kinds move_kinds() {
    return {{"upsample_nearest", check_upsample_nearest, add_upsample_nearest},
            {"flatten", check_flatten, add_flatten},
            {"gather", check_gather, add_gather},
            {"concat", check_concat, add_concat},
            {"embedding", check_embedding, add_embedding},
            {"constant", check_constant, add_constant}};
}

}  // namespace bitfactor
