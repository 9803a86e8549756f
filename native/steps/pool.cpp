// Pools over windows.

#include <algorithm>
#include <utility>

#include "steps/step.h"

namespace bitfactor {
namespace {

constexpr int most_length = 1 << 15;  // of a side: products of two are ints
constexpr int band_floats = 1 << 17;  // 512 KiB of a map: a quarter of an L2 cache, or all of a small one

// Of the map that the last step stores as its last stage, and that nothing else reads. It is a part of the
// map at a time, at offset 0 of other memory than the arena, as are all buffers of that step's stages. The
// map never stands in memory as a whole: each strip makes the lines that it needs, those on the edge of two
// strips twice.
void add_max_pool_of_last(Program& program, const Pool& pool) {
    const Window& w = pool.window;
    const auto from = program.take_last();
    const int line = w.in_w * pool.channels;
    const int most = (band_floats / line - w.kernel_h) / w.stride_h + 1;
    const int strips = round_up((w.out_h - 1) / std::max(most, 1) + 1, program.workers());
    const int out_lines = (w.out_h - 1) / strips + 1;
    const int pitch = from->pitch ? from->pitch : w.in_w;
    const auto rows = [=, &program](Workspace& space, int first, int count) {
        const int top = first / w.out_w * w.stride_h - w.pad_top;
        const int bottom = top + (count / w.out_w - 1) * w.stride_h + w.kernel_h;
        const int begin = std::max(top, 0), end = std::min(bottom * pitch, from->pixels);
        float* map = space.band.data() - static_cast<ptrdiff_t>(begin) * line;
        program.run_strips(*from, begin * pitch, end, space, reinterpret_cast<char*>(map));
        program.kernels().common->max_pool(pool, map, first, count, space.rows.data());
        return space.rows.data();
    };
    program.add_step(from->kernel + ", max_pool", pixels_of(w), pool.channels, 0, 0, rows);
    Program::Step& step = program.last();
    step.strip = step.piece = out_lines * w.out_w;
    step.work += from->work;
    program.need_rows(static_cast<size_t>(step.strip) * pool.channels);
    const int lines = std::min((out_lines - 1) * w.stride_h + w.kernel_h, w.in_h);
    program.need_band(static_cast<uint64_t>(lines) * line);
}

using PoolKernel = void (*)(const Pool&, const float* map, int first, int count, float* rows);

// Of each map by itself.
void add_pool(Program& program, const Instruction& i, const char* name, const Pool& pool, PoolKernel kernel) {
    const size_t source = i.source();
    const int pixels = pixels_of(pool.window);
    const ptrdiff_t map_size = static_cast<ptrdiff_t>(pool.window.in_h) * pool.window.in_w * pool.channels;
    program.add_step(name, i.maps() * pixels, pool.channels, 0, taps_of(pool.window),
                     [=](Workspace& w, int first, int count) {
                         for_each_map(pixels, first, count, [&](int map, int from, int part, int done) {
                             kernel(pool, at<float>(w.arena, source) + map * map_size, from, part,
                                    w.rows.data() + static_cast<ptrdiff_t>(done) * pool.channels);
                         });
                         return w.rows.data();
                     });
}

void add_max_pool(Program& program, const Instruction& i) {
    const Pool pool{i.window(), i.number("channels"), false, 0, 0};
    if (i.flag("of_last")) return add_max_pool_of_last(program, pool);
    add_pool(program, i, "max_pool", pool, program.kernels().common->max_pool);
}

Pool avg_pool_of(const Instruction& i) {
    return {i.window(), i.number("channels"), i.flag("count_include_pad"), i.number("far_padding", 0),
            i.number("far_padding", 1)};
}

void add_avg_pool(Program& program, const Instruction& i) {
    add_pool(program, i, "avg_pool", avg_pool_of(i), program.kernels().common->avg_pool);
}

void add_integer_avg_pool(Program& program, const Instruction& i) {
    add_pool(program, i, "integer_avg_pool", avg_pool_of(i), program.kernels().common->integer_avg_pool);
}

void add_resize_bilinear(Program& program, const Instruction& i) {
    struct Constants {
        std::vector<int32_t> top, bottom, left, right;
        std::vector<float> down, along;
    };
    const auto places = [&](const char* name) {
        return std::vector<int32_t>(i.array<int32_t>(name), i.array<int32_t>(name) + i.size(name));
    };
    const auto weights = [&](const char* name) {
        return std::vector<float>(i.array<float>(name), i.array<float>(name) + i.size(name));
    };
    auto own = std::make_shared<const Constants>(Constants{
        places("top"), places("bottom"), places("left"), places("right"), weights("down"), weights("along")});
    const Resize layer{i.number("in_size", 0),
                       i.number("in_size", 1),
                       static_cast<int>(own->top.size()),
                       static_cast<int>(own->left.size()),
                       i.number("channels"),
                       own->top.data(),
                       own->bottom.data(),
                       own->left.data(),
                       own->right.data(),
                       own->down.data(),
                       own->along.data()};
    const size_t source = i.source();
    const int pixels = layer.out_h * layer.out_w;
    const ptrdiff_t map_size = static_cast<ptrdiff_t>(layer.in_h) * layer.in_w * layer.channels;
    program.add_step("resize_bilinear", i.maps() * pixels, layer.channels, 0, 4,
                     [=, own = own, &program](Workspace& w, int first, int count) {
                         for_each_map(pixels, first, count, [&](int map, int from, int part, int done) {
                             program.kernels().common->resize(
                                 layer, at<float>(w.arena, source) + map * map_size, from, part,
                                 w.rows.data() + static_cast<ptrdiff_t>(done) * layer.channels);
                         });
                         return w.rows.data();
                     });
}

// Each window reads at least one pixel of the map.
Buffer check_pool(Verifier& v, Window& w, int& maps, int& channels) {
    channels = v.number("channels", 1);
    maps = v.maps();
    w = v.window(channels, maps);
    v.expect(w.dilation_h == 1 && w.dilation_w == 1, "a pool without dilation");
    v.expect(w.pad_top < w.kernel_h && w.pad_left < w.kernel_w &&
                 (w.out_h - 1) * w.stride_h - w.pad_top < w.in_h &&
                 (w.out_w - 1) * w.stride_w - w.pad_left < w.in_w,
             "windows that reach into the map");
    const Buffer source = v.real_buffer("source");
    v.expect_map(source, maps * w.in_h * w.in_w, channels, false);
    return source;
}

void check_max_pool(Verifier& v) {
    Window w;
    int maps, channels;
    const Buffer source = check_pool(v, w, maps, channels);
    if (v.flag("of_last")) {
        v.expect(maps == 1, "one map");
        return v.begin_of_last(pixels_of(w), source);
    }
    v.begin(maps * pixels_of(w), channels, {source});
}

void check_avg_pool(Verifier& v) {
    Window w;
    int maps, channels;
    const Buffer source = check_pool(v, w, maps, channels);
    v.numbers("far_padding", 2, 0, std::max(w.kernel_h, w.kernel_w) - 1);
    v.flag("count_include_pad");
    v.begin(maps * pixels_of(w), channels, {source});
}

// Twice the sum of 16-bit integers fits 32 bits.
void check_integer_avg_pool(Verifier& v) {
    check_avg_pool(v);
    const std::vector<int> window = v.numbers("window", 12, 0);
    v.expect(int64_t{window[4]} * window[5] <= most_length, "means of at most 32768 values");
}

// Each pixel of the result lies between two rows and two columns.
void check_resize_bilinear(Verifier& v) {
    const std::vector<int> size = v.numbers("in_size", 2, 1, most_length);
    const int channels = v.number("channels", 1), maps = v.maps();
    const auto length = [&](const char* name, const char* other, const char* weights, int least_outside) {
        const size_t count = v.size(name);
        v.elements<float>(weights, count);
        for (const char* places : {name, other}) {
            const int32_t* from = v.elements<int32_t>(places, count);
            v.expect(std::all_of(from, from + count, [&](int32_t i) { return i >= 0 && i < least_outside; }),
                     "places within the map");
        }
        v.expect(count >= 1 && count <= most_length, "fewer pixels");
        return static_cast<int64_t>(count);
    };
    const int64_t rows = length("top", "bottom", "down", size[0]);
    const int64_t columns = length("left", "right", "along", size[1]);
    v.expect_numbers(int64_t{maps} * rows * columns, channels);
    const Buffer source = v.real_buffer("source");
    v.expect_map(source, int64_t{maps} * size[0] * size[1], channels, false);
    v.begin(maps * rows * columns, channels, {source});
}

}  // namespace

Kinds pool_kinds() {
    return {{"max_pool", check_max_pool, add_max_pool},
            {"avg_pool", check_avg_pool, add_avg_pool},
            {"integer_avg_pool", check_integer_avg_pool, add_integer_avg_pool},
            {"resize_bilinear", check_resize_bilinear, add_resize_bilinear}};
}

}  // namespace bitfactor
