// weight_grad_update: dW = dy^T x and db = sum_b dy applied by the optimizer's formula as they are made; no gradient in memory. In place.
// Reads dy[B, O], x[B, I] and the parameters with their state once, writes parameters, state and bf16 copies.
#include "core/device/cpu_gemm.h"
#include "ops/fused/cpu_product.h"
#include "ops/fused/update.h"
#include "ops/kernels.h"
#include "ops/matrix_view.h"
#include "ops/row_loops.h"

// B batch, I in, O out
namespace sinter {
namespace {

// Operand numbers; see ops/fused/fused.h.
enum : size_t { kDy, kX, kWeight, kBias = 6, kEnd = 10 };

UpdateGroup weight_of(Operands in) { return {in[kWeight], {}, in[kWeight + 1], in[kWeight + 2], in[kWeight + 3]}; }
UpdateGroup bias_of(Operands in) { return {in[kBias], {}, in[kBias + 1], in[kBias + 2], in[kBias + 3]}; }

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<UpdateAttrs>();
  const Tensor &dy = in[kDy], &x = in[kX], &weight = in[kWeight], &bias = in[kBias];
  check_floating("weight_grad_update", "dy", dy);
  check_rank("weight_grad_update", "dy", dy, 2);
  check_rank("weight_grad_update", "x", x, 2);
  check_same_dtype("weight_grad_update", "dy", dy, "x", x);
  const std::string facts = describe({{"dy", &dy}, {"x", &x}, {"weight", &weight}});
  SINTER_CHECK(dy.size(0) == x.size(0), shape,
               cat("weight_grad_update: rows differ: ", facts, "; dy.shape[0] is ", dy.size(0), ", x.shape[0] is ", x.size(0)));
  check_dtype("weight_grad_update", "weight", weight, wide(dy.dtype()));
  SINTER_CHECK(weight.shape() == Shape({dy.size(1), x.size(1)}), shape,
               cat("weight_grad_update: the gradient does not fit: ", facts, "; it is ", Shape({dy.size(1), x.size(1)}).str()));
  check_group("weight_grad_update", weight_of(in), UpdateEnd(in, kEnd), a);
  if (bias.defined()) {
    check_dtype("weight_grad_update", "bias", bias, wide(dy.dtype()));
    SINTER_CHECK(bias.shape() == Shape({dy.size(1)}), shape,
                 cat("weight_grad_update: the bias gradient does not fit: ", describe({{"dy", &dy}, {"bias", &bias}}), "; it is [",
                     dy.size(1), "]"));
    check_group("weight_grad_update", bias_of(in), UpdateEnd(in, kEnd), a);
  }
  return {};
}

Cost cost(Operands in, Operands, const Attrs& attrs) {
  const auto& a = attrs.as<UpdateAttrs>();
  Cost c = cost_of(2 * in[kDy].size(0) * in[kWeight].numel(), in.first(2), {}) + group_cost(weight_of(in), a);
  if (in[kBias].defined()) c += Cost{.flops = in[kDy].numel()} + group_cost(bias_of(in), a);
  return c;
}

// f32: each tile of the gradient is applied while it is in cache; a thread owns whole rows of W, so the same ones step after step.
void run_tiles(const Call& call, const MatrixView& x) {
  const Tensor &dy = call.in[kDy], &weight = call.in[kWeight];
  const int64_t batch = dy.size(0), outs = dy.size(1), ins = weight.size(1);
  const UpdatePointers<float> w(weight_of(call.in)), bias(bias_of(call.in));
  with_update<float>(call.as<UpdateAttrs>(), UpdateEnd(call.in, kEnd).step(), [&](const auto& piece) {
    for_product_tiles(
        {.m = outs,
         .n = ins,
         .k = batch,
         .a = dy.data<float>(),
         .lda = outs,
         .b = static_cast<const float*>(x.data),
         .ldb = x.ld},
        28,
        [&](int64_t i, int64_t j, int rows, int cols, const float* grad) {
          for (int r = 0; r < rows; ++r) w.apply(piece, (i + r) * ins + j, grad + r * product_detail::kCols, cols);
        },
        [&](int64_t begin, int64_t end) {
          if (!bias.p) return;
          float* sums = scratch<float, 1>(end - begin);
          column_sums(dy.data<float>() + begin, batch, outs, end - begin, sums);
          bias.apply(piece, begin, sums, end - begin);
        });
  });
}

// Other types: the gradient by gemm(), then one pass.
template <class T, class V = compute_t<T>>
void run_whole(const Call& call, const MatrixView& x) {
  const Tensor &dy = call.in[kDy], &weight = call.in[kWeight];
  const int64_t batch = dy.size(0), outs = dy.size(1), ins = weight.size(1);
  const Gemm desc{.m = outs,
                  .n = ins,
                  .k = batch,
                  .trans_a = true,
                  .trans_b = x.trans,
                  .lda = std::max<int64_t>(outs, 1),
                  .ldb = x.ld,
                  .ldc = std::max<int64_t>(ins, 1),
                  .in = dy.dtype(),
                  .out = weight.dtype()};
  V* grad = scratch<V, 1>(outs * ins + outs);
  gemm(desc, dy.raw(), x.data, nullptr, grad);
  column_sums<V>(dy.data<T>(), batch, outs, outs, grad + outs * ins);
  with_update<V>(call.as<UpdateAttrs>(), UpdateEnd(call.in, kEnd).step(), [&](const auto& piece) {
    const UpdatePointers<V> w(weight_of(call.in));
    parallel_for(outs * ins, grain_of(7 * sizeof(V)),
                 [&](int64_t begin, int64_t end) { w.apply(piece, begin, grad + begin, end - begin); });
    if (call.in[kBias].defined()) UpdatePointers<V>(bias_of(call.in)).apply(piece, 0, grad + outs * ins, outs);
  });
}

void cpu(const Call& call) {
  const MatrixView x(call.in[kX]);
  switch (call.in[kDy].dtype()) {
    case DType::f32:
      call.in[kDy].size(0) <= kTileTerms && !x.trans ? run_tiles(call, x) : run_whole<float>(call, x);
      break;
    case DType::f64:
      run_whole<double>(call, x);
      break;
    default:
      run_whole<bf16>(call, x);
  }
  UpdateEnd(call.in, kEnd).finish(call.as<UpdateAttrs>());
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<UpdateAttrs>();
  const UpdateEnd end(in, kEnd);
  UpdateGroup weight = weight_of(in), bias = bias_of(in);
  weight.grad = matmul_as(in[kDy], in[kX], true, false, wide(in[kDy].dtype()), Role::wgrad);
  reference_update(weight, end, a, a.tail && !bias.param.defined());
  if (bias.param.defined()) {
    bias.grad = sum_rows(in[kDy], Role::bgrad);
    reference_update(bias, end, a, a.tail);
  }
  return {};
}

std::vector<Sample> samples() {
  const auto make = [](int64_t b, int64_t o, int64_t i, const UpdateAttrs& attrs, bool bias, bool low, const char* what) {
    const UpdateGroup w = sample_group({o, i}, attrs, low, 10), c = bias ? sample_group({o}, attrs, low, 20) : UpdateGroup{};
    Sample s{.in = {sample_tensor({b, o}, 1), sample_tensor({b, i}, 2), w.param, w.state1, w.state2, w.low, c.param, c.state1, c.state2,
                    c.low, sample_step_state(attrs), Tensor(), Tensor()},
             .attrs = attrs,
             .what = what,
             .differentiable = false};
    if (attrs.tail) s.in[kEnd + 1] = sample_tensor({b}, 5), s.in[kEnd + 2] = Tensor::zeros({3}, DType::i64);
    return s;
  };
  const UpdateAttrs adam{.adam = true, .tail = true}, adamw{.adam = true, .weight_decay = 0.01, .decoupled = true}, sgd{},
      momentum{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
  Sample rows = make(4, 5, 7, sgd, true, false, "rows differ"), weight = make(4, 5, 7, sgd, true, false, "weight of another shape");
  rows.in[kX] = sample_tensor({3, 7}, 2);
  weight.in[kWeight] = sample_tensor({7, 5}, 2);
  rows.bad = weight.bad = true;
  return {make(17, 77, 333, adam, true, false, "odd, adam"),
          make(97, 333, 77, adamw, true, true, "ragged, adamw with copies"),
          make(1, 77, 333, adam, true, false, "one row"),
          make(0, 5, 7, adam, true, false, "empty batch"),
          make(97, 77, 33, sgd, false, false, "sgd, no bias"),
          make(7, 77, 333, momentum, true, true, "sgd, nesterov"),
          make(600, 33, 65, momentum, true, false, "large batch"),
          make(64, 128, 256, adam, true, false, "whole tiles"),
          rows,
          weight};
}

}  // namespace

const OpDef kWeightGradUpdateOp{.name = "weight_grad_update",
                                .min_inputs = kWeightGradUpdateInputs,
                                .max_inputs = kWeightGradUpdateInputs,
                                .attrs = attr_type<UpdateAttrs>(),
                                .infer = infer,
                                .cost = cost,
                                .cpu = cpu,
                                .cuda = SINTER_IF_CUDA(on_cuda::weight_grad_update),
                                .simt = on_simt::weight_grad_update,
                                .writes = 0b1011111111100,
                                .strided = 0b1111111111110,
                                .samples = samples,
                                .reference = reference};

}  // namespace sinter
