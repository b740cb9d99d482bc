// The device kernels of the ops: for each structured op one host function that launches them, per
// world. It is defined at the end of ops/<op>.cu, which is compiled for CUDA and for the emulator;
// an OpDef names both:
//
//   .cuda = SINTER_IF_CUDA(on_cuda::softmax), .simt = on_simt::softmax,
#pragma once

#include "ops/op.h"

#if SINTER_HAS_CUDA
#define SINTER_IF_CUDA(function) function
#else
#define SINTER_IF_CUDA(function) nullptr
#endif

// clang-format off
#define SINTER_DEVICE_OPS(X) \
  X(linear) X(matmul) X(sum_rows) X(sum) X(mean) X(max) X(max_backward) X(argmax) X(softmax) \
  X(softmax_backward) X(log_softmax) X(log_softmax_backward) X(nll) X(nll_backward) X(mse) \
  X(mse_backward) X(dropout) X(gather_rows) X(gather_batch) X(scatter_add_rows) X(copy) X(cast) \
  X(accumulate) X(pad_slice) X(sgd_update) X(adam_update) X(squared_norm) X(clip_in_place) \
  X(linear_act) X(input_grad_act) X(weight_bias_grad) X(weight_grad_update) \
  X(multi_tensor_update) X(softmax_xent) X(merge_linear) X(classifier_head) \
  X(glu) X(glu_backward) X(gated_linear) X(gated_linear_backward) \
  X(narrow_mlp) X(pointwise_chain) X(clip_norm)
// clang-format on

#define SINTER_DECLARE(op) void op(const Call& call);
namespace sinter::on_cuda {
SINTER_DEVICE_OPS(SINTER_DECLARE)
}
namespace sinter::on_simt {
SINTER_DEVICE_OPS(SINTER_DECLARE)
}
#undef SINTER_DECLARE
