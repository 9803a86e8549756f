// AMX tiles, and AVX-512 for all else: Intel since Sapphire Rapids.

#include <sys/syscall.h>
#include <unistd.h>

#include "isa/amx_levels.h"
#include "isa/amx_runs.h"
#include "isa/amx_signs.h"
#include "kernels/kernel_set.h"

namespace bitfactor {
namespace {

#if !defined(TILE_STAND_IN)
// Linux lets a process use the tiles' state once it has asked for it.
bool tiles_supported() {
    constexpr int request_permission = 0x1023, tile_data = 18;
    return this_cpu().tiles && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif

bool supported() { return avx512_supported() && this_cpu().avx512bf16 && tiles_supported(); }

constexpr TileKernels tile_kernels = {strip, 24.0, 53.0, expand, tile_conv, split, run_conv};

}  // namespace

extern const KernelSet amx;
const KernelSet amx = kernel_set("amx", supported, &avx512_common, &avx512_popcounts, &level_kernels,
                                 no_bfloat16, &tile_kernels);

}  // namespace bitfactor
