// The structured ops, by attributes and definition: for rules, fused ops and tests that name an op.
// Users call ops/ops.h instead. A new op is a pair of files, ops/<op>.cpp and ops/<op>.cu (with its
// backward), its attributes, and a row in the list below.
#pragma once

#include "ops/ops.h"

namespace sinter {

struct LinearAttrs {
  DType out = DType::f32;  // of y: that of x, or f32 for bf16 operands
  SINTER_FIELDS(LinearAttrs, out)
};
struct MatmulAttrs {
  bool trans_a = false, trans_b = false;
  DType out = DType::f32;
  SINTER_FIELDS(MatmulAttrs, trans_a, trans_b, out)
};
struct ReduceAttrs {
  Dims dims;  // none: all
  bool keepdim = false;
  SINTER_FIELDS(ReduceAttrs, dims, keepdim)
};
struct DimAttrs {
  int64_t dim = -1;
  SINTER_FIELDS(DimAttrs, dim)
};
struct NllAttrs {
  double label_smoothing = 0;
  SINTER_FIELDS(NllAttrs, label_smoothing)
};
struct NllBackwardAttrs {
  int64_t classes = 0;
  double label_smoothing = 0;
  DType out = DType::f32;
  SINTER_FIELDS(NllBackwardAttrs, classes, label_smoothing, out)
};
struct DropoutAttrs {
  double p = 0.5;
  int64_t op_id = 0;
  SINTER_FIELDS(DropoutAttrs, p, op_id)
};
struct GatherBatchAttrs {
  DType out = DType::f32;  // or bf16
  bool mnist = false;      // x/255, or (x/255 - 0.1307) / 0.3081
  SINTER_FIELDS(GatherBatchAttrs, out, mnist)
};
struct ScatterAttrs {
  int64_t rows = 0;  // of the table
  SINTER_FIELDS(ScatterAttrs, rows)
};
struct CastAttrs {
  DType dtype = DType::f32;
  SINTER_FIELDS(CastAttrs, dtype)
};
struct ShapeAttrs {
  Dims shape;
  SINTER_FIELDS(ShapeAttrs, shape)
};
struct TransposeAttrs {
  int64_t dim0 = -2, dim1 = -1;
  SINTER_FIELDS(TransposeAttrs, dim0, dim1)
};
struct SliceAttrs {
  int64_t dim = 0, begin = 0, end = 0;
  SINTER_FIELDS(SliceAttrs, dim, begin, end)
};
struct PadSliceAttrs {
  int64_t dim = 0, begin = 0, size = 0;  // the whole length of dim
  SINTER_FIELDS(PadSliceAttrs, dim, begin, size)
};
inline constexpr size_t kMostCatInputs = 32;  // the tape counts inputs in a word
struct ClipAttrs {
  double max_norm = 1;
  SINTER_FIELDS(ClipAttrs, max_norm)
};

// clang-format off
// The list of the structured ops, in the order of the documents: each with the function that starts
// its kernel (ops/kernels.h), which a view does not have. Declarations and all_ops() follow.
#define SINTER_STRUCTURED_OPS(OP, VIEW)                                              \
  OP(kLinearOp, linear)                            /* x, weight, [bias] -> y        */ \
  OP(kMatmulOp, matmul)                            /* a, b -> c                     */ \
  OP(kSumRowsOp, sum_rows)                         /* x -> sums                     */ \
  OP(kSumOp, sum)                                  /* x -> y                        */ \
  OP(kMeanOp, mean)                                /* x -> y                        */ \
  OP(kMaxOp, max)                                  /* x -> y                        */ \
  OP(kMaxBackwardOp, max_backward)                 /* dy, x, y -> dx                */ \
  OP(kArgmaxOp, argmax)                            /* x -> index                    */ \
  OP(kSoftmaxOp, softmax)                          /* x -> y                        */ \
  OP(kSoftmaxBackwardOp, softmax_backward)         /* dy, y -> dx                   */ \
  OP(kLogSoftmaxOp, log_softmax)                   /* x -> y                        */ \
  OP(kLogSoftmaxBackwardOp, log_softmax_backward)  /* dy, y -> dx                   */ \
  OP(kNllOp, nll)                                  /* logp, labels -> losses        */ \
  OP(kNllBackwardOp, nll_backward)                 /* dlosses, labels -> dlogp      */ \
  OP(kMseOp, mse)                                  /* x, target -> losses           */ \
  OP(kMseBackwardOp, mse_backward)                 /* dlosses, x, target -> dx      */ \
  OP(kDropoutOp, dropout)                          /* x, rng -> y                   */ \
  OP(kGatherRowsOp, gather_rows)                   /* table, index -> rows          */ \
  OP(kGatherBatchOp, gather_batch)                 /* images, labels, index -> x, y */ \
  OP(kScatterAddRowsOp, scatter_add_rows)          /* rows, index -> table          */ \
  OP(kCopyOp, copy)                                /* x -> y                        */ \
  OP(kCastOp, cast)                                /* x -> y                        */ \
  OP(kCatOp, cat)                                  /* x.. -> y                      */ \
  OP(kAccumulateOp, accumulate)                    /* into (in place), value        */ \
  VIEW(kReshapeOp)                                 /* x -> view                     */ \
  VIEW(kTransposeOp)                               /* x -> view                     */ \
  VIEW(kSliceOp)                                   /* x -> view                     */ \
  OP(kPadSliceOp, pad_slice)                       /* dy -> dx, zeros around dy     */ \
  VIEW(kBroadcastToOp)                             /* x -> view                     */ \
  VIEW(kLowPrecisionOp)                            /* weight -> its copy            */ \
  VIEW(kDetachOp)                                  /* x -> view                     */ \
  OP(kSgdUpdateOp, update)                         /* see ops/update.cpp            */ \
  OP(kAdamUpdateOp, update)                        /* see ops/update.cpp            */ \
  OP(kSquaredNormOp, squared_norm)                 /* x -> total                    */ \
  OP(kClipInPlaceOp, clip_in_place)                /* x (in place), total           */
// clang-format on
#define SINTER_DECLARE_OP(op, ...) extern const OpDef op;
SINTER_STRUCTURED_OPS(SINTER_DECLARE_OP, SINTER_DECLARE_OP)

// The type in which sums over bf16 are kept: f32; other types keep theirs.
constexpr DType wide(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }
// The ops of pointwise::List, each followed by its backward.
std::span<const OpDef* const> pointwise_ops();
// What a shape rule gives for an output of x's shape and type.
inline Tensor meta_like(const Tensor& x) {
  return Tensor::shape_only(x.shape(), x.dtype(), x.device());
}
// Bytes of an operand that may be a scalar spread over a shape by zero strides: that is a constant
// of the step and counts 0.
int64_t bytes_unless_spread(const Tensor& t);
// For shape rules of ops that write input `name` in place: an undefined or strided tensor is
// refused.
void check_writable(const char* op, const char* name, const Tensor& t);

}  // namespace sinter
