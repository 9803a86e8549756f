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

void add_max_pool(Program& program, const Instruction& i) {
    const Pool pool{i.window(), i.number("channels"), false, 0, 0};
    if (i.flag("of_last")) return add_max_pool_of_last(program, pool);
    const size_t source = i.source();
    program.add_step("max_pool", pixels_of(pool.window), pool.channels, 0, taps_of(pool.window),
                     [=, &program](Workspace& w, int first, int count) {
                         program.kernels().max_pool(pool, at<float>(w.arena, source), first, count,
                                                    w.rows.data());
                         return w.rows.data();
                     });
}

void add_avg_pool(Program& program, const Instruction& i) {
    const Pool pool{i.window(), i.number("channels"), i.flag("count_include_pad"), i.number("far_padding", 0),
                    i.number("far_padding", 1)};
    const size_t source = i.source();
    program.add_step("avg_pool", pixels_of(pool.window), pool.channels, 0, taps_of(pool.window),
                     [=, &program](Workspace& w, int first, int count) {
                         program.kernels().avg_pool(pool, at<float>(w.arena, source), first, count,
                                                    w.rows.data());
                         return w.rows.data();
                     });
}

const Kind max_pool("max_pool", add_max_pool);
const Kind avg_pool("avg_pool", add_avg_pool);

}  // namespace
}  // namespace bitfactor
