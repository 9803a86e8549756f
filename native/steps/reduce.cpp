// What looks at all pixels, or at all channels.

#include "steps/step.h"

namespace bitfactor {
namespace {

void add_global_avg_pool(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    program.add_step(
        "global_avg_pool", 1, source.channels, 0, source.pixels, [=, &program](Workspace& w, int, int) {
            program.kernels().common->global_avg_pool(at<float>(w.arena, source.offset), source.pixels,
                                                      source.channels, w.rows.data());
            return w.rows.data();
        });
}

void add_softmax(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    program.add_step("softmax", source.pixels, source.channels, 0, 8,
                     [=, &program](Workspace& w, int first, int count) {
                         const float* map = row_at(w.arena, source, first);
                         program.kernels().common->softmax(map, count, source.channels, w.rows.data());
                         return w.rows.data();
                     });
}

void add_layer_norm(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    const float eps = *i.array<float>("eps");
    program.add_step("layer_norm", source.pixels, source.channels, 0, 4,
                     [=, &program](Workspace& w, int first, int count) {
                         const float* map = row_at(w.arena, source, first);
                         program.kernels().common->layer_norm(map, count, source.channels, eps,
                                                              w.rows.data());
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
                         program.kernels().common->reduce_channels(how, map, count, source.channels,
                                                                   w.rows.data());
                         return w.rows.data();
                     });
}

void add_reduce_pixels(Program& program, const Instruction& i) {
    const Buffer source = i.buffer("source");
    const Reduction how = how_of(i);
    program.add_step(
        "reduce_pixels", 1, source.channels, 0, source.pixels, [=, &program](Workspace& w, int, int) {
            program.kernels().common->reduce_pixels(how, at<float>(w.arena, source.offset), source.pixels,
                                                    source.channels, w.rows.data());
            return w.rows.data();
        });
}

void check_global_avg_pool(Verifier& v) {
    const Buffer source = v.real_buffer("source");
    v.begin(1, source.channels, {source});
}

void check_softmax(Verifier& v) {
    const Buffer source = v.real_buffer("source");
    v.begin(source.pixels, source.channels, {source});
}

void check_layer_norm(Verifier& v) {
    v.elements<float>("eps", 1);
    check_softmax(v);
}

void check_reduce_channels(Verifier& v) {
    v.number("how", 0, static_cast<int>(Reduction::min));
    const Buffer source = v.real_buffer("source");
    v.begin(source.pixels, 1, {source});
}

void check_reduce_pixels(Verifier& v) {
    v.number("how", 0, static_cast<int>(Reduction::min));
    check_global_avg_pool(v);
}

}  // namespace

Kinds reduce_kinds() {
    return {{"global_avg_pool", check_global_avg_pool, add_global_avg_pool},
            {"softmax", check_softmax, add_softmax},
            {"layer_norm", check_layer_norm, add_layer_norm},
            {"reduce_channels", check_reduce_channels, add_reduce_channels},
            {"reduce_pixels", check_reduce_pixels, add_reduce_pixels}};
}

}  // namespace bitfactor
