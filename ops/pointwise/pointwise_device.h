// Where pointwise_op.h finds the device kernels of an op: those of pointwise::List exist, in tables
// made from the list by ops/pointwise/pointwise_arithmetic.cu and
// ops/pointwise/pointwise_activations.cu. A struct of a program's own has none (a null Kernel).
#pragma once

#include "ops/kernels.h"
#include "ops/pointwise/pointwise.h"

namespace sinter {

struct PointwiseKernels {
  Kernel forward = nullptr, backward = nullptr;
};

#define SINTER_POINTWISE_KERNELS(world)                                               \
  namespace world {                                                                   \
  PointwiseKernels arithmetic_kernels(size_t index);                                  \
  PointwiseKernels activation_kernels(size_t index);                                  \
  template <class Op> PointwiseKernels pointwise_kernels() {                          \
    using namespace pointwise;                                                        \
    constexpr size_t a = index_in<Op>(Arithmetic{}), b = index_in<Op>(Activations{}); \
    if constexpr (a < std::tuple_size_v<Arithmetic>) return arithmetic_kernels(a);    \
    if constexpr (b < std::tuple_size_v<Activations>) return activation_kernels(b);   \
    return {};                                                                        \
  }                                                                                   \
  }
SINTER_POINTWISE_KERNELS(on_cuda)
SINTER_POINTWISE_KERNELS(on_simt)
#undef SINTER_POINTWISE_KERNELS

}  // namespace sinter
