// Compiled for each file of isa/ that CMake gives as VOCABULARY.

#include VOCABULARY
#include "mixing.h"
#include "signs.h"

namespace bitfactor {

extern const TrainingKernels TABLE;
const TrainingKernels TABLE = {Simd::lanes, sign_kernels, mixing_kernels};

}  // namespace bitfactor
