// The structured ops, by definition and attributes: for rules, fused ops and tests that name an op.
// Users call ops/ops.h instead. One file each (or an op and its backward): ops/linear.cpp,
// ops/softmax.cpp, .. Order as in ops/all_ops.cpp.
#pragma once

#include "ops/ops.h"

namespace sinter {

struct LinearAttrs {
  DType out = DType::f32;  // of y: that of x, or f32 for bf16 operands
  bool operator==(const LinearAttrs&) const = default;
  static constexpr auto fields() { return std::tuple(field("out", &LinearAttrs::out)); }
};
struct MatmulAttrs {
  bool trans_a = false, trans_b = false;
  DType out = DType::f32;
  bool operator==(const MatmulAttrs&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("trans_a", &MatmulAttrs::trans_a),
        field("trans_b", &MatmulAttrs::trans_b), field("out", &MatmulAttrs::out));
  }
};
struct ReduceAttrs {
  Dims dims;  // none: all
  bool keepdim = false;
  bool operator==(const ReduceAttrs&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("dims", &ReduceAttrs::dims), field("keepdim", &ReduceAttrs::keepdim));
  }
};
struct DimAttrs {
  int64_t dim = -1;
  bool operator==(const DimAttrs&) const = default;
  static constexpr auto fields() { return std::tuple(field("dim", &DimAttrs::dim)); }
};
struct NllAttrs {
  double label_smoothing = 0;
  bool operator==(const NllAttrs&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("label_smoothing", &NllAttrs::label_smoothing));
  }
};
struct NllBackwardAttrs {
  int64_t classes = 0;
  double label_smoothing = 0;
  DType out = DType::f32;
  bool operator==(const NllBackwardAttrs&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("classes", &NllBackwardAttrs::classes),
        field("label_smoothing", &NllBackwardAttrs::label_smoothing),
        field("out", &NllBackwardAttrs::out));
  }
};
struct DropoutAttrs {
  double p = 0.5;
  int64_t op_id = 0;
  bool operator==(const DropoutAttrs&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("p", &DropoutAttrs::p), field("op_id", &DropoutAttrs::op_id));
  }
};
struct ScatterAttrs {
  int64_t rows = 0;  // of the table
  bool operator==(const ScatterAttrs&) const = default;
  static constexpr auto fields() { return std::tuple(field("rows", &ScatterAttrs::rows)); }
};
struct CastAttrs {
  DType dtype = DType::f32;
  bool operator==(const CastAttrs&) const = default;
  static constexpr auto fields() { return std::tuple(field("dtype", &CastAttrs::dtype)); }
};
struct ShapeAttrs {
  Dims shape;
  bool operator==(const ShapeAttrs&) const = default;
  static constexpr auto fields() { return std::tuple(field("shape", &ShapeAttrs::shape)); }
};
struct TransposeAttrs {
  int64_t dim0 = -2, dim1 = -1;
  bool operator==(const TransposeAttrs&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("dim0", &TransposeAttrs::dim0), field("dim1", &TransposeAttrs::dim1));
  }
};
struct SliceAttrs {
  int64_t dim = 0, begin = 0, end = 0;
  bool operator==(const SliceAttrs&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("dim", &SliceAttrs::dim), field("begin", &SliceAttrs::begin),
        field("end", &SliceAttrs::end));
  }
};
struct PadSliceAttrs {
  int64_t dim = 0, begin = 0, size = 0;  // the whole length of dim
  bool operator==(const PadSliceAttrs&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("dim", &PadSliceAttrs::dim), field("begin", &PadSliceAttrs::begin),
        field("size", &PadSliceAttrs::size));
  }
};
struct ClipAttrs {
  double max_norm = 1;
  bool operator==(const ClipAttrs&) const = default;
  static constexpr auto fields() { return std::tuple(field("max_norm", &ClipAttrs::max_norm)); }
};

extern const OpDef kLinearOp;              // x, weight, [bias] -> y LinearAttrs
extern const OpDef kMatmulOp;              // a, b -> c MatmulAttrs
extern const OpDef kSumRowsOp;             // x -> sums
extern const OpDef kSumOp;                 // x -> y ReduceAttrs
extern const OpDef kMeanOp;                // x -> y ReduceAttrs
extern const OpDef kMaxOp;                 // x -> y ReduceAttrs
extern const OpDef kMaxBackwardOp;         // dy, x, y -> dx ReduceAttrs
extern const OpDef kArgmaxOp;              // x -> index DimAttrs
extern const OpDef kSoftmaxOp;             // x -> y
extern const OpDef kSoftmaxBackwardOp;     // dy, y -> dx
extern const OpDef kLogSoftmaxOp;          // x -> y
extern const OpDef kLogSoftmaxBackwardOp;  // dy, y -> dx
extern const OpDef kNllOp;  // logp, labels -> losses                                       NllAttrs
extern const OpDef kNllBackwardOp;     // dlosses, labels -> dlogp NllBackwardAttrs
extern const OpDef kMseOp;             // x, target -> losses
extern const OpDef kMseBackwardOp;     // dlosses, x, target -> dx
extern const OpDef kDropoutOp;         // x, rng -> y DropoutAttrs
extern const OpDef kGatherRowsOp;      // table, index -> rows
extern const OpDef kScatterAddRowsOp;  // rows, index -> table ScatterAttrs
extern const OpDef kCopyOp;            // x -> y
extern const OpDef kCastOp;            // x -> y CastAttrs
extern const OpDef kAccumulateOp;      // into (in place), value
extern const OpDef kReshapeOp;         // view ShapeAttrs
extern const OpDef kTransposeOp;       // view TransposeAttrs
extern const OpDef kSliceOp;           // view SliceAttrs
extern const OpDef kPadSliceOp;     // dy -> dx: dy inside zeros, the adjoint of slice PadSliceAttrs
extern const OpDef kBroadcastToOp;  // view ShapeAttrs
extern const OpDef kLowPrecisionOp;  // view
extern const OpDef kDetachOp;        // view
extern const OpDef
    kSgdUpdateOp;  // param, grad, momentum, low, state, losses, rng (0 2 3 4 6 in place) SgdAttrs
extern const OpDef kAdamUpdateOp;  // param, grad, avg, avg_sq, low, state, losses, rng (0 2 3 4 5 7
                                   // in place)  AdamAttrs
extern const OpDef kSquaredNormOp;  // x -> total
extern const OpDef kClipInPlaceOp;  // x (in place), total ClipAttrs

// The type in which sums over bf16 are kept: f32; other types keep theirs.
constexpr DType wide(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }
// The ops of pointwise::List, each followed by its backward.
std::span<const OpDef* const> pointwise_ops();
// What a shape rule gives for an output of x's shape and type.
inline Tensor meta_like(const Tensor& x) { return Tensor::meta(x.shape(), x.dtype(), x.device()); }
// Bytes of an operand that may be a scalar spread over a shape by zero strides: that is a constant
// of the step and counts 0.
int64_t bytes_unless_spread(const Tensor& t);
// For shape rules of ops that write input `name` in place: an undefined or strided tensor is
// refused.
void check_writable(const char* op, const char* name, const Tensor& t);
// A Sample that must be refused.
Sample bad_sample(Tensors in, const Attrs& attrs, std::string what);

}  // namespace sinter
