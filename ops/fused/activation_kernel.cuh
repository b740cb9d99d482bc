// visit_act() for kernels.
#pragma once

#include "core/device/kernel.h"
#include "ops/fused/activation.h"

namespace sinter::SINTER_KERNEL_NS {

// f(struct of act)
template <class F>
SINTER_DEVICE_FN void in_kernel_visit(Act act, const F& f) {
  switch (act) {
    case Act::none: return f(Identity{});
    case Act::relu: return f(pointwise::Relu{});
    case Act::gelu: return f(pointwise::Gelu{});
    case Act::gelu_tanh: return f(pointwise::GeluTanh{});
    case Act::silu: return f(pointwise::Silu{});
    case Act::sigmoid: return f(pointwise::Sigmoid{});
    case Act::tanh: return f(pointwise::Tanh{});
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
