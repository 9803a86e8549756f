// Compiled for each file of isa/ that CMake gives as VOCABULARY.

#include VOCABULARY
#include "training/normalise.h"
#include "training/products.h"
#include "training/signs.h"

namespace bitfactor {

extern const TrainingKernels TABLE;
const TrainingKernels TABLE = {Simd::lanes,       training_supported, sign_kernels,
                               normalise_kernels, mixing_kernels,     product_kernels};

}  // namespace bitfactor
