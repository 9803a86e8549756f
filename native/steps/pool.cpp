// Pools over windows.

#include <algorithm>
#include <utility>

#include "steps/step.h"

namespace bitfactor {
namespace {

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
    const int pitch = from->tile_layout.pitch ? from->tile_layout.pitch : w.in_w;
    const auto rows = [=, &program](Workspace& space, int first, int count) {
        const int top = first / w.out_w * w.stride_h - w.pad_top;
        const int bottom = top + (count / w.out_w - 1) * w.stride_h + w.kernel_h;
        const int begin = std::max(top, 0), end = std::min(bottom * pitch, from->pixels);
        float* map = space.band.data() - static_cast<ptrdiff_t>(begin) * line;
        for (int at = begin * pitch; at < end; at += from->strip) {
            const int part = std::min(from->strip, end - at);
            program.run_strip(*from, at, part, space, reinterpret_cast<char*>(map));
        }
        program.kernels().max_pool(pool, map, first, count, space.rows.data());
        return space.rows.data();
    };
    program.add_step(from->kernel + ", max_pool", pixels_of(w), pool.channels, 0, 0, rows);
    Program::Step& step = program.last();
    step.strip = step.piece = out_lines * w.out_w;
    step.work += from->work;
    program.need_rows(static_cast<size_t>(step.strip) * pool.channels);
    const int lines = std::min((out_lines - 1) * w.stride_h + w.kernel_h, w.in_h);
    program.need_band(static_cast<size_t>(lines) * line);
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
    add_pool(program, i, "max_pool", pool, program.kernels().max_pool);
}

void add_avg_pool(Program& program, const Instruction& i) {
    const Pool pool{i.window(), i.number("channels"), i.flag("count_include_pad"), i.number("far_padding", 0),
                    i.number("far_padding", 1)};
    add_pool(program, i, "avg_pool", pool, program.kernels().avg_pool);
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
                             program.kernels().resize(
                                 layer, at<float>(w.arena, source) + map * map_size, from, part,
                                 w.rows.data() + static_cast<ptrdiff_t>(done) * layer.channels);
                         });
                         return w.rows.data();
                     });
}

const Kind resize_bilinear("resize_bilinear", add_resize_bilinear);
const Kind max_pool("max_pool", add_max_pool);
const Kind avg_pool("avg_pool", add_avg_pool);

}  // namespace
}  // namespace bitfactor
