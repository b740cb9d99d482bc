// merge_linear: linear under its own name; its kernels are linear's.
#include "ops/kernel_args.h"

namespace sinter::SINTER_KERNEL_NS {

void merge_linear(const Call& call) { linear(call); }

}  // namespace sinter::SINTER_KERNEL_NS
