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

const Kind global_avg_pool("global_avg_pool", add_global_avg_pool);
const Kind softmax("softmax", add_softmax);

}  // namespace
}  // namespace bitfactor
