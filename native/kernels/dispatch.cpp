// Which instruction sets are compiled in, and which of them this machine runs. CMake writes kernel_sets.inc,
// one line `SET(name)` for each, best first.

#include <vector>

#include "kernels/kernels.h"

namespace bitfactor {

#define SET(name) extern const KernelSet name;
#include "kernel_sets.inc"
#undef SET

namespace {

std::vector<const KernelSet*> runnable() {
    std::vector<const KernelSet*> sets;
#define SET(name) \
    if (name.supported()) sets.push_back(&name);
#include "kernel_sets.inc"
#undef SET
    sets.push_back(nullptr);
    return sets;
}

}  // namespace

const KernelSet* const* kernel_sets() {
    static const std::vector<const KernelSet*> sets = runnable();
    return sets.data();
}

}  // namespace bitfactor
