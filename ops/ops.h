// The public functions: one per op, with PyTorch's names and meanings. Shapes: B batch, I in, O
// out, C classes. All are differentiable unless said otherwise, broadcast by NumPy's rule where it
// says so, and throw Error (shape, dtype, device; shape or dtype for an undefined tensor). Losses
// give one value per row; backward() of such a vector differentiates its mean
// (autograd/autograd.h). At the end the ops themselves.
#pragma once

#include <limits>
#include <optional>

#include "ops/op.h"
#include "ops/optim/step_state.h"

namespace sinter {

// ---- pointwise (formulas: ops/pointwise/pointwise.h). Two-operand forms broadcast; operands share
// one floating dtype.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  // the gradient: half to each at a tie, all of it
                                                   // to both where one is NaN
Tensor where(
    const Tensor& condition, const Tensor& a, const Tensor& b);  // any type, non-zero takes a
// x, but `value` where the mask is not zero: where() of them. In place, without a gradient: of an x
// that has one, it is refused.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
void masked_fill_(const Tensor& x, const Tensor& mask, double value);
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor pow(const Tensor& x, double exponent);
Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1.0);
Tensor gelu(const Tensor& x);       // x Phi(x), by erf
Tensor gelu_tanh(const Tensor& x);  // its tanh form
Tensor silu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor softplus(const Tensor& x);
Tensor mish(const Tensor& x);
Tensor scale(const Tensor& x, double factor);  // x * factor, the factor an attribute
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator*(const Tensor& a, double factor) { return scale(a, factor); }
inline Tensor operator*(double factor, const Tensor& a) { return scale(a, factor); }

// Comparisons give 1 where they hold, else 0, and have no gradient. Two floating operands give
// their own type, so mean(x > 0) and x * (x > 0) work as they stand; where() takes the result as a
// condition. With an integer operand both are compared as f64, exactly up to 2^53, and the result
// is f32, as in mean(argmax(logits) == labels). With NaN all give 0, except ne.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);

// A number as a scalar tensor. It stays on the device and is shared by all who ask for this number;
// in a captured step it is a constant. REQUIRES: nobody changes it.
Tensor constant(double value, DType dtype, Device device);
// A number beside x, as in 1 - x: rounded to the type of x; f64 beside integers.
Tensor constant_like(const Tensor& x, double value);
#define SINTER_OPERATOR(symbol, function)                                                    \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return function(a, b); } \
  inline Tensor operator symbol(const Tensor& a, double b) {                                 \
    return function(a, constant_like(a, b));                                                 \
  }                                                                                          \
  inline Tensor operator symbol(double a, const Tensor& b) {                                 \
    return function(constant_like(b, a), b);                                                 \
  }
SINTER_OPERATOR(+, add)
SINTER_OPERATOR(-, sub)
SINTER_OPERATOR(/, div)
SINTER_OPERATOR(==, eq)
SINTER_OPERATOR(!=, ne)
SINTER_OPERATOR(<, lt)
SINTER_OPERATOR(<=, le)
SINTER_OPERATOR(>, gt)
SINTER_OPERATOR(>=, ge)
#undef SINTER_OPERATOR
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }

// ---- views: no copy, no launch
Tensor reshape(
    const Tensor& x, const Shape& shape);  // one size may be -1; a non-contiguous x is copied first
Tensor transpose(const Tensor& x, int64_t dim0 = -2, int64_t dim1 = -1);
Tensor permute(const Tensor& x, const Dims& dims);   // dim d of the result is dim dims[d] of x
Tensor tril(const Tensor& x, int64_t diagonal = 0);  // column c of row r is 0 if c > r + diagonal
Tensor slice(const Tensor& x, int64_t dim, int64_t begin,
    int64_t end);  // [begin, end), negative counts from the end
Tensor broadcast_to(const Tensor& x, const Shape& shape);
Tensor flatten(const Tensor& x, int64_t from_dim = 1);
Tensor detach(const Tensor& x);  // the same values, outside the tape

// ---- tensors side by side: copies. Of one type, rank and, but for `dim`, shape.
Tensor cat(const Tensors& tensors, int64_t dim = 0);
Tensor stack(const Tensors& tensors, int64_t dim = 0);  // along a new dim, which becomes number dim

// ---- products
// x[.., I] W[O, I]^T + b[O] -> [.., O]: one op, the bias is part of the product. bf16 operands may
// give f32 (out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
Tensor linear_to(const Tensor& x, const Tensor& weight, const Tensor& bias, DType out);
// op(a)[.., M, K] op(b)[.., K, N] -> [.., M, N]: a product for each index of the dims in front, of
// which there are up to two; they broadcast. Of a dense a that meets a matrix b any number.
Tensor matmul(const Tensor& a, const Tensor& b, bool trans_a = false, bool trans_b = false);
Tensor matmul_as(
    const Tensor& a, const Tensor& b, bool trans_a, bool trans_b, DType out, Role role);
// sum over all but the last dim: [.., O] -> [O], f32 for bf16 input
Tensor sum_rows(const Tensor& x, Role role = Role::none);
// softmax(scale q k^T) v, a head at a time, and no matrix of weights in memory: q[B, H, S, D],
// k and v[B, G, T, D] -> [B, H, S, D]. H / G heads of q read the same head of k and v. scale: or
// 1 / sqrt(D). causal: row s reads the keys 0..s, as PyTorch has it where S and T differ. Operands
// may be views, as heads are; a row without keys gives 0.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = false,
    std::optional<double> scale = {});
struct AttentionOptions {
  bool causal = false;               // PyTorch's is_causal
  std::optional<double> scale = {};  // or 1 / sqrt(D)
  double dropout = 0;                // of the weights; as PyTorch's, whether one trains or not
  bool enable_gqa = false;           // may G be less than H?
};
// The same in plain ops, as by hand: two products, softmax between them, and the weights in memory.
// Capture makes it `attention`; with dropout it stays as it is. Names and meanings are PyTorch's.
Tensor scaled_dot_product_attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});
struct Conv2dAttrs {
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;  // padding: zeros on both sides
  SINTER_FIELDS(Conv2dAttrs, stride_h, stride_w, pad_h, pad_w)
};
// x[N, C, H, W] * weight[O, C, R, S] + bias[O] -> [N, O, P, Q], a cross-correlation as in PyTorch:
// P = (H + 2 pad_h - R) / stride_h + 1, Q likewise. The bias is part of it; f32 beside bf16 is
// taken.
Tensor conv2d(
    const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Conv2dAttrs& attrs = {});

// ---- reductions over `dims` (one number, a list; none: all)
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x, const Dims& dims = {},
    bool keepdim = false);                         // the gradient goes to the first maximum
Tensor argmax(const Tensor& x, int64_t dim = -1);  // i64, first maximum; no gradient
// Sums x down to `shape` (the adjoint of broadcasting).
Tensor sum_to(const Tensor& x, const Shape& shape);

// ---- rows of classes: over the last dim (another one is transposed there and back). causal: of
// x[.., S, C] row r has the columns 0..r, and no mask is in memory; the others get 0, or -inf.
Tensor softmax(const Tensor& x, int64_t dim = -1, bool causal = false);
Tensor log_softmax(const Tensor& x, int64_t dim = -1, bool causal = false);
// In place of the label of a row that does not count. Not the least number, to which a cast brings
// every i64 below it.
constexpr int32_t kNoLabel = std::numeric_limits<int32_t>::min() + 1;
// log-probabilities [B, C], labels i32 or i64 [B] -> one loss per row: -(1 - s) logp[y] - s/C sum_c
// logp[c]. A row whose label is `ignore_index` does not count: its loss and its gradient are 0, and
// backward() divides by the others alone, mean() by all (Note [Rows that do not count] in
// ops/rows/losses.cpp).
Tensor nll(const Tensor& log_probabilities, const Tensor& labels, double label_smoothing = 0,
    std::optional<int64_t> ignore_index = {});
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing = 0,
    std::optional<int64_t> ignore_index = {});  // nll(log_softmax(..))
// Tells `state`, before the updates of its step, how many rows of this process count, and how many
// of all processes: [1]. Of none, the updates change nothing.
void count_rows(const Tensor& state, const Tensor& own, const Tensor& all);
Tensor mse(
    const Tensor& x, const Tensor& target);  // [B, ..] -> one mean squared difference per row, [B]

// (x - mean) / sqrt(variance + eps) * weight + bias over the last dim; weight, bias [N]
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

// x / sqrt(mean(x^2) + eps) * weight over the last dim; weight [N], or undefined for 1
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-5);

// ---- tables
// The rows of weight[V, D] whose numbers, 0..V-1, are the tokens, i32 or i64 [..] -> [.., D]. The
// gradient of a row is the sum over its tokens in their order.
Tensor embedding(const Tensor& tokens, const Tensor& weight);

// ---- images [N, C, H, W], dense in that order
// Pooling: windows of kernel_h x kernel_w, stride_h and stride_w apart, over x with pad_h and pad_w
// of padding on each side (at most half of the kernel). What no whole window reaches is left out.
struct Pool2dAttrs {
  int64_t kernel_h = 2, kernel_w = 2, stride_h = 2, stride_w = 2, pad_h = 0, pad_w = 0;
  SINTER_FIELDS(Pool2dAttrs, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w)
};
// [N, C, P, Q], P = (H + 2 pad_h - kernel_h) / stride_h + 1. The first maximum has the gradient;
// NaN is the maximum of its window; of windows up to 255 elements.
Tensor max_pool2d(const Tensor& x, const Pool2dAttrs& attrs = {});
Tensor avg_pool2d(const Tensor& x, const Pool2dAttrs& attrs = {});  // padding counts as zeros

struct BatchNormAttrs {
  double momentum = 0.1;  // the share of this batch in the running statistics
  double eps = 1e-5;
  SINTER_FIELDS(BatchNormAttrs, momentum, eps)
};
// Training form: (x - mean) / sqrt(variance + eps) * weight + bias by the moments of each channel
// of x[N, C, ..] in this batch; all others are [C]. Changes in place running_mean, running_var (by
// the variance over n - 1) and num_batches_tracked, i64[], which counts the calls. A channel of one
// value has no variance and is refused.
Tensor batch_norm2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
    const Tensor& running_mean, const Tensor& running_var, const Tensor& num_batches_tracked,
    const BatchNormAttrs& attrs = {});
// Evaluation form: the same by the running statistics, as x * scale + shift; they have no gradient.
Tensor batch_norm2d_eval(const Tensor& x, const Tensor& weight, const Tensor& bias,
    const Tensor& running_mean, const Tensor& running_var, double eps = 1e-5);

// ---- the rest
// Draws from N(0, 1), computed on the host: tensor k since manual_seed(seed)
// (ops/optim/step_state.h) is a pure function of seed and k, the same on every device. Refused
// inside a captured step, where a replay would not draw again.
Tensor randn(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
Tensor dropout(const Tensor& x, double p);  // training form: keeps with 1 - p, scales by 1/(1 - p)
Tensor cast(const Tensor& x, DType dtype);
Tensor copy(const Tensor& x);                              // a dense copy
Tensor contiguous(const Tensor& x);                        // x itself if it is dense
void accumulate(const Tensor& into, const Tensor& value);  // into += value, in place; no gradient
// The bf16 copy of a weight (autograd().bf16_copy), or undefined. The optimizers' ops write it
// along with the weight; after any other write to the weight it is renewed here, in place.
Tensor bf16_copy_of(const Tensor& weight);
// The same for a copy that is known.
void renew_bf16_copy(const Tensor& weight, const Tensor& copy);
// A weight for a product in another type: its bf16 copy, as a view; the gradient passes through.
Tensor low_precision(const Tensor& weight);

// ---- optimizer updates: in place, no gradient. `state` is a StepState in a u8 tensor
// (ops/optim/step_state.h).
// The list of the optimizers: the op that updates one parameter, what the op takes, and the struct
// in ops/optim/optimizers.h that holds the optimizer's formula. VARIANT: the formula and the op are
// those of the optimizer above it, with other default numbers.
#define SINTER_UPDATE_SIGNATURE                                                                 \
  "param!:f32|f64[..] grad[..] state1![..]? state2![..]? bf16_copy!:bf16[..]? skipped:f64[1]? " \
  "state!:u8 losses:f32|f64? rng!:i64[3]?"
#define SINTER_OPTIMIZERS(ROW, VARIANT)                   \
  ROW(kSgdUpdateOp, SINTER_UPDATE_SIGNATURE, Sgd)         \
  ROW(kAdamUpdateOp, SINTER_UPDATE_SIGNATURE, Adam)       \
  VARIANT(AdamW, Adam)                                    \
  ROW(kRMSpropUpdateOp, SINTER_UPDATE_SIGNATURE, RMSprop) \
  ROW(kLionUpdateOp, SINTER_UPDATE_SIGNATURE, Lion)
#define SINTER_NOTHING(...)
#define SINTER_KIND(op, signature, Struct) Struct,
enum class OptimizerKind : uint8_t { SINTER_OPTIMIZERS(SINTER_KIND, SINTER_NOTHING) };
#undef SINTER_KIND
std::span<const std::string_view> names_of(OptimizerKind);

// What the formulas read of an optimizer's numbers. One that has none of this name adds it here.
struct UpdateAttrs {
  // Whose formula an op applies that updates a list of parameters. One that updates a single
  // parameter is an optimizer's own, and does not ask.
  OptimizerKind optimizer = OptimizerKind::Adam;
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, alpha = 0.99, eps = 1e-8;
  bool decoupled = false;  // weight decay acts on the weight, not through the gradient
  bool tail = false;       // the last update of a step: advances the StepState, sums the losses
  SINTER_FIELDS(UpdateAttrs, optimizer, momentum, weight_decay, nesterov, beta1, beta2, alpha, eps,
      decoupled, tail)
};
// One parameter's operands. Of the states those that the optimizer has, in its order; grad is
// undefined where an op makes it; bf16_copy: of param, or undefined; skipped: f64[1], at how many
// of the steps done param had no update, or undefined.
struct UpdateGroup {
  Tensor param{}, grad{}, state1{}, state2{}, bf16_copy{}, skipped{};
};
// By attrs.optimizer. losses and rng (the dropout counter) are given with tail only.
void update_parameter(const UpdateGroup& group, const Tensor& state, const UpdateAttrs& attrs,
    const Tensor& losses = {}, const Tensor& rng = {});
// sum of squares of all elements -> f64[1], which has room for those of every f32; clip_in_place: x
// *= min(1, max_norm / sqrt(total)) with total[1] on the device
Tensor squared_norm(const Tensor& x);
void clip_in_place(const Tensor& x, const Tensor& total_squared, double max_norm);

// ---- between ranks (core/communicator.h): in place, no gradient. Dense f32 or f64 tensors of one
// type. Starts the sum of each over all ranks of the thread's communicator, and waits for it; the
// tensors belong to the sum meanwhile. `bucket`: which of the sums under way. Without a
// communicator the tensors are the sum.
void all_reduce(const Tensors& tensors, int64_t bucket = 0);
void all_reduce_wait(const Tensors& tensors, int64_t bucket = 0);

// ---- the ops behind these functions, for rules, fused ops and tests that name one: attributes,
// and the list. A new op is a pair of files, ops/<op>.cpp and ops/<op>.cu (with its backward), and
// here its function, its attributes and its rows.
struct LinearAttrs {
  DType out = DType::f32;  // of y: that of x, or f32 for bf16 operands
  SINTER_FIELDS(LinearAttrs, out)
};
struct MatmulAttrs {
  bool trans_a = false, trans_b = false;
  DType out = DType::f32;
  SINTER_FIELDS(MatmulAttrs, trans_a, trans_b, out)
};
struct AttentionAttrs {
  double scale = 1;
  bool causal = false;
  // Where the results of a captured step lie: o, dq, dk, dv as rows of layers, [B, S, H, D]; and
  // the last `merged` of dq, dk, dv beside each other in one: 2 are [B, T, 2 G, D]; 3 are
  // [B, S, H + 2 G, D], for which S and T are one number.
  bool by_rows = false;
  int64_t merged = 0;
  SINTER_FIELDS(AttentionAttrs, scale, causal, by_rows, merged)
};
struct Conv2dGradAttrs {  // those of the conv2d, and the two sizes that its gradients cannot know
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  int64_t height = 0, width = 0;  // of x, for conv2d_input_grad; of weight, for conv2d_weight_grad
  bool relu = false;              // of the fused gradients alone, see there
  SINTER_FIELDS(Conv2dGradAttrs, stride_h, stride_w, pad_h, pad_w, height, width, relu)
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
struct SoftmaxAttrs {
  bool causal = false;
  SINTER_FIELDS(SoftmaxAttrs, causal)
};
struct NllAttrs {
  double label_smoothing = 0;
  SINTER_FIELDS(NllAttrs, label_smoothing)
};
struct IgnoreAttrs {
  int64_t ignore_index = 0;
  SINTER_FIELDS(IgnoreAttrs, ignore_index)
};
struct NllBackwardAttrs {
  int64_t classes = 0;
  double label_smoothing = 0;
  DType out = DType::f32;
  SINTER_FIELDS(NllBackwardAttrs, classes, label_smoothing, out)
};
struct LayerNormAttrs {
  double eps = 1e-5;
  SINTER_FIELDS(LayerNormAttrs, eps)
};
struct MaxPool2dAttrs : Pool2dAttrs {
  // y = relu(maximum), and where that lets nothing pass the index has no place (ops/image/pool.h).
  bool relu = false;
  SINTER_FIELDS(MaxPool2dAttrs, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, relu)
};
struct Pool2dBackwardAttrs : Pool2dAttrs {
  int64_t height = 0, width = 0;  // of x
  SINTER_FIELDS(
      Pool2dBackwardAttrs, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, height, width)
};
struct DropoutAttrs {
  double p = 0.5;
  int64_t op_id = 0;
  int64_t first_row = 0;  // of x, in the batch of all ranks: Note [Masks of a part of the batch]
  SINTER_FIELDS(DropoutAttrs, p, op_id, first_row)
};
// The place of the first element of x[rows, ..] in the batch of all ranks.
int64_t first_element(const Tensor& x, const DropoutAttrs& attrs);
struct RmsNormAttrs {
  double eps = 1e-5;
  SINTER_FIELDS(RmsNormAttrs, eps)
};
struct EmbeddingGradAttrs {
  int64_t rows = 0;  // of the table
  SINTER_FIELDS(EmbeddingGradAttrs, rows)
};
struct GatherBatchAttrs {
  DType out = DType::f32;  // or bf16
  bool mnist = false;      // x/255, or (x/255 - 0.1307) / 0.3081
  // Where a cursor says at which index the batch begins: B, and how far the next one is from there.
  int64_t rows = 0, stride = 0;
  SINTER_FIELDS(GatherBatchAttrs, out, mnist, rows, stride)
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
struct TrilAttrs {
  int64_t diagonal = 0;
  SINTER_FIELDS(TrilAttrs, diagonal)
};
struct FillAttrs {
  double value = 0;
  SINTER_FIELDS(FillAttrs, value)
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
struct AllReduceAttrs {
  int64_t bucket = 0;
  SINTER_FIELDS(AllReduceAttrs, bucket)
};

// clang-format off
// The list of the structured ops, in the order of the documents: OP with the function that starts
// its kernel (ops/kernels.h); OTHER for a view, which has none, and for an op whose function stands
// in another row; and what the op takes and gives (ops/signature.h). Declarations and all_ops()
// follow.
#define SINTER_STRUCTURED_OPS(OP, OTHER) \
  OP(kLinearOp, linear, "x[.., I] weight[O, I] bias:same|wide[O]? -> y:out=same|wide[.., O]") \
  OP(kMatmulOp, matmul, "a b -> c:out=same|wide") \
  OP(kSumRowsOp, sum_rows, "x[.., O] -> sums:wide[O]") \
  OP(kAttentionOp, attention, \
    "q[B, H, S, D+] k[B, G, T, D] v[B, G, T, D] -> o lse:wide[B, H, S]") \
  OP(kAttentionBackwardOp, attention_backward, \
    "do[B, H, S, D+] q[B, H, S, D] k[B, G, T, D] v[B, G, T, D] o[B, H, S, D] lse:wide[B, H, S] " \
    "-> dq dk dv") \
  OP(kConv2dOp, conv2d, "x[N, C, H, W] weight[O, C, R, S] bias:same|wide[O]? -> y") \
  OP(kConv2dInputGradOp, conv2d_input_grad, \
    "dy[N, O, P, Q] weight[O, C, R, S] -> dx[N, C, height, width]") \
  OP(kConv2dWeightGradOp, conv2d_weight_grad, \
    "dy[N, O, P, Q] x[N, C, H, W] -> dweight:wide[O, C, height, width]") \
  OP(kConv2dBiasGradOp, conv2d_bias_grad, "dy[N, O, P, Q] -> dbias:wide[O]") \
  OP(kSumOp, sum, "x -> y") \
  OP(kMeanOp, mean, "x -> y") \
  OP(kMaxOp, max, "x -> y") \
  OP(kMaxBackwardOp, max_backward, "dy x[..] y -> dx[..]") \
  OP(kArgmaxOp, argmax, "x -> index:i64") \
  OP(kSoftmaxOp, softmax, "x[.., C] -> y[.., C]") \
  OP(kSoftmaxBackwardOp, softmax_backward, "dy[.., C] y[.., C] -> dx[.., C]") \
  OP(kLogSoftmaxOp, log_softmax, "x[.., C] -> y[.., C]") \
  OP(kLogSoftmaxBackwardOp, log_softmax_backward, "dy[.., C] y[.., C] -> dx[.., C]") \
  OP(kNllOp, nll, "logp[B, C] labels:i32[B] -> loss:wide[B]") \
  OP(kNllBackwardOp, nll_backward, "dloss[B] labels:i32[B] -> dlogp:out=float[B, classes]") \
  OP(kIgnoreLabelsOp, ignore_labels, "labels:i32[B] -> used:i32[B] counts:u8[B] counted:f32[1]") \
  OP(kCountRowsOp, count_rows, "state!:u8[_] own:float[1] all:float[1]") \
  OP(kMseOp, mse, "x[B, ..] target[B, ..] -> loss:wide[B]") \
  OP(kMseBackwardOp, mse_backward, "dloss:float[B] x[B, ..] target[B, ..] -> dx[B, ..]") \
  OP(kLayerNormOp, layer_norm, \
    "x[.., D+] weight[D] bias[D] -> y[.., D] mean:wide[*..] rstd:wide[*..]") \
  OP(kLayerNormBackwardOp, layer_norm_backward, \
    "dy[.., D+] x[.., D+] weight[D] mean:wide[*..] rstd:wide[*..] -> dx[.., D]") \
  OP(kLayerNormWeightGradOp, layer_norm_weight_grad, \
    "dy[.., D+] x[.., D+] mean:wide[*..] rstd:wide[*..] -> dweight:wide[D]") \
  OP(kRmsNormOp, rms_norm, "x[.., D+] weight[D]? -> y[.., D] rstd:wide[*..]") \
  OP(kRmsNormBackwardOp, rms_norm_backward, \
    "dy[.., D+] x[.., D+] rstd:wide[*..] weight[D]? -> dx[.., D]") \
  OP(kRmsNormWeightGradOp, rms_norm_weight_grad, \
    "dy[.., D+] x[.., D+] rstd:wide[*..] -> dweight:wide[D]") \
  OP(kEmbeddingOp, embedding, "tokens:i32[..] weight[V, D] -> y[.., D]") \
  OP(kEmbeddingWeightGradOp, embedding_weight_grad, \
    "dy[.., D] tokens:i32[..] -> dweight:wide[rows, D]") \
  OP(kMaxPool2dOp, max_pool2d, "x[N, C, H, W] -> y index:u8") \
  OP(kMaxPool2dBackwardOp, max_pool2d_backward, \
    "dy[N, C, P, Q] index:u8[N, C, P, Q] -> dx[N, C, height, width]") \
  OP(kAvgPool2dOp, avg_pool2d, "x[N, C, H, W] -> y") \
  OP(kAvgPool2dBackwardOp, avg_pool2d_backward, "dy[N, C, P, Q] -> dx[N, C, height, width]") \
  OP(kBatchNorm2dOp, batch_norm2d, \
    "x[N, C+, ..] weight[C] bias[C] running_mean![C] running_var![C] " \
    "num_batches_tracked!:i64[] -> y[N, C, ..] mean:wide[C] rstd:wide[C]") \
  OP(kBatchNorm2dEvalOp, batch_norm2d_eval, \
    "x[N, C+, ..] weight[C] bias[C] running_mean[C] running_var[C] -> y[N, C, ..]") \
  OP(kBatchNorm2dBackwardOp, batch_norm2d_backward, \
    "dy[N, C+, ..] x[N, C+, ..] weight[C] mean:wide[C] rstd:wide[C] dweight:wide[C] " \
    "dbias:wide[C] -> dx[N, C, ..]") \
  OP(kBatchNorm2dWeightGradOp, batch_norm2d_weight_grad, \
    "dy[N, C+, ..] x[N, C+, ..] mean:wide[C] rstd:wide[C] -> dweight:wide[C] " \
    "dbias:wide[C]") \
  OP(kDropoutOp, dropout, "x[..] rng:i64[3] -> y[..]") \
  OP(kGatherBatchOp, gather_batch, \
    "images:u8[N, ..] labels:i32[N] index:i64[M] cursor!:i64[1]? -> x:out=f32|bf16 y:i32") \
  OP(kCopyOp, copy, "x:any[..] -> y[..]") \
  OP(kCastOp, cast, "x:any[..] -> y:dtype=any[..]") \
  OP(kRenewCopyOp, renew_copy, "weight:float[..] copy!:float[..]") \
  OP(kCatOp, concat, "tensors:any.. -> y") \
  OP(kTrilOp, tril, "x[.., S, T] -> y[.., S, T]") \
  OP(kMaskedFillInPlaceOp, masked_fill_, "x![..] mask:u8") \
  OP(kAccumulateOp, accumulate, "into!:same|wide[..] value[..]") \
  OTHER(kReshapeOp, "x:any -> view") \
  OTHER(kTransposeOp, "x:any -> view") \
  OTHER(kSliceOp, "x:any -> view") \
  OP(kPadSliceOp, pad_slice, "dy:any -> dx") \
  OTHER(kBroadcastToOp, "x:any -> view") \
  OTHER(kLowPrecisionOp, "weight:any -> copy") \
  OTHER(kDetachOp, "x:any -> view") \
  SINTER_OPTIMIZERS(OTHER, SINTER_NOTHING) \
  OP(kSquaredNormOp, squared_norm, "x -> total:f64[1]") \
  OP(kClipInPlaceOp, clip_in_place, "x! total:f64[1]") \
  OTHER(kAllReduceOp, "tensors!..") \
  OTHER(kAllReduceWaitOp, "tensors!..")
// clang-format on
template <const OpDef& op> inline constexpr const char* kSignature = nullptr;  // of the list
#define SINTER_DECLARE_OP(op, ...) extern const OpDef op;
#define SINTER_DECLARE_OTHER(op, signature, ...) \
  SINTER_DECLARE_OP(op)                          \
  template <> inline constexpr const char* kSignature<op> = signature;
#define SINTER_DECLARE_STRUCTURED(op, kernel, signature) SINTER_DECLARE_OTHER(op, signature)
SINTER_STRUCTURED_OPS(SINTER_DECLARE_STRUCTURED, SINTER_DECLARE_OTHER)

}  // namespace sinter
