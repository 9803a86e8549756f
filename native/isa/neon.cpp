// NEON: every 64-bit ARM.

#include "neon.h"

namespace bitfactor {
namespace {
bool supported() { return true; }
}  // namespace

extern const KernelSet neon;
const KernelSet neon = kernel_set("neon", supported);

}  // namespace bitfactor
