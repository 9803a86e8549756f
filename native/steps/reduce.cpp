// What looks at all pixels, or at all channels.

#include "steps/step.h"

namespace bitfactor {
namespace {

void add_global_avg_pool(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    program.add_step("global_avg_pool", 1, source.channels, 0, source.pixels,
                     [=, &program](Workspace& w, int, int) {
                         program.kernels().global_avg_pool(at<float>(w.arena, source.offset), source.pixels,
                                                           source.channels, w.rows.data());
                         return w.rows.data();
                     });
}

void add_softmax(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    program.add_step("softmax", source.pixels, source.channels, 0, 8,
                     [=, &program](Workspace& w, int first, int count) {
                         const float* map = row_at(w.arena, source, first);
                         program.kernels().softmax(map, count, source.channels, w.rows.data());
                         return w.rows.data();
                     });
}

void add_layer_norm(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    const float eps = *i.array<float>("eps");
    program.add_step("layer_norm", source.pixels, source.channels, 0, 4,
                     [=, &program](Workspace& w, int first, int count) {
                         const float* map = row_at(w.arena, source, first);
                         program.kernels().layer_norm(map, count, source.channels, eps, w.rows.data());
                         return w.rows.data();
                     });
}

Reduction how_of(const Instruction& i) { return static_cast<Reduction>(i.number("how")); }

void add_reduce_channels(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    const Reduction how = how_of(i);
    program.add_step("reduce_channels", source.pixels, 1, 0, source.channels,
                     [=, &program](Workspace& w, int first, int count) {
                         const float* map = row_at(w.arena, source, first);
                         program.kernels().reduce_channels(how, map, count, source.channels, w.rows.data());
                         return w.rows.data();
                     });
}

void add_reduce_pixels(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    const Reduction how = how_of(i);
    program.add_step("reduce_pixels", 1, source.channels, 0, source.pixels,
                     [=, &program](Workspace& w, int, int) {
                         program.kernels().reduce_pixels(how, at<float>(w.arena, source.offset),
                                                         source.pixels, source.channels, w.rows.data());
                         return w.rows.data();
                     });
}

const Kind layer_norm("layer_norm", add_layer_norm);
const Kind reduce_channels("reduce_channels", add_reduce_channels);
const Kind reduce_pixels("reduce_pixels", add_reduce_pixels);
const Kind global_avg_pool("global_avg_pool", add_global_avg_pool);
const Kind softmax("softmax", add_softmax);

}  // namespace
}  // namespace bitfactor
