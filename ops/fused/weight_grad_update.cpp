// weight_bias_grad: dW[O, I] = dy[B, O]^T x[B, I] and db[O] = sum_b dy[b, o], both read from one
// pass over dy. f32 from bf16 operands. weight_grad_update: of one or more layers, dW = dy^T x and
// db = sum_b dy applied by the optimizer's formula as they are made; no gradient in memory. In
// place. Reads dy[B, O], x[B, I] and the parameters with their state once, writes parameters, state
// and bf16 copies.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/optim/update.h"
#include "ops/product/matrix_view.h"
#include "ops/rows/row_loops.h"

// B batch, I in, O out
namespace sinter {
namespace {

void weight_bias_grad_cpu(const Call& call) {
  const Tensor &dy = call.in[0], &dw = call.out[0], &db = call.out[1];
  multiply(MatrixView(dy), true, MatrixView(call.in[1]), false, Tensor(), dw.dtype(), dw.raw());
  visit_float(dy.dtype(), [&]<class T>(T) {
    sum_columns(dy.data<T>(), dy.size(0), dy.size(1), db.data<compute_t<T>>());
  });
}

Tensors weight_bias_grad_reference(Operands in, const Attrs&) {
  for (const Tensor& t : in) check_rank("weight_bias_grad", "an operand", t, 2);
  return {matmul_as(in[0], in[1], true, false, wide(in[0].dtype()), Role::wgrad),
      sum_rows(in[0], Role::bgrad)};
}

std::vector<Form> weight_bias_grad_forms() {
  return {{{Tensor::meta({2, 4}), Tensor::meta({2, 3})}, {}}};
}

// ---- weight_grad_update

enum LayerOperand : size_t {
  kDy,
  kX,
  kWeight,
  kBias = 7
};  // of a layer's operands; see ops/fused/fused.h

size_t layers_in(Operands in) { return in.size() / kLayerOperands; }
Operands layer_at(Operands in, size_t l) { return in.subspan(l * kLayerOperands, kLayerOperands); }
UpdateGroup group_at(Operands layer, size_t first) {
  return {layer[first], {}, layer[first + 1], layer[first + 2], layer[first + 3], layer[first + 4]};
}
UpdateGroup weight_of(Operands layer) { return group_at(layer, kWeight); }
UpdateGroup bias_of(Operands layer) { return group_at(layer, kBias); }

bool writes_of(size_t i, size_t n) {
  if (i + kStepOperands >= n) return i != n - 2;
  const size_t operand = i % kLayerOperands;  // a group ends with its skipped steps
  return operand >= kWeight && operand != kBias - 1 && operand != kLayerOperands - 1;
}

// What the plain ops do not say of the list as a whole.
std::string limit(Operands in, const Attrs&) {
  for (size_t l = 0; l < layers_in(in); ++l) {
    const Operands layer = layer_at(in, l);
    const bool absent = !layer[kBias].defined();
    for (size_t i = kBias; i < kLayerOperands; ++i) {
      if (absent && layer[i].defined())
        return str("the state of a bias without the bias: it is ", layer[i].describe());
    }
    if (layer[kDy].dtype() != in[kDy].dtype()) return "element types differ from layer to layer";
  }
  return "";
}

Tensors infer(Operands in, const Attrs& attrs) {
  SINTER_CHECK(in.size() % kLayerOperands == kStepOperands, shape,
      str("weight_grad_update: ", in.size(), " inputs given; it takes ", kLayerOperands,
          " per layer and ", kStepOperands, " more"));
  check_step("weight_grad_update", UpdateEnd(in), attrs.as<UpdateAttrs>());
  for (size_t l = 0; l < layers_in(in); ++l) {
    check_rank("weight_grad_update", "dy", layer_at(in, l)[kDy], 2);
    check_rank("weight_grad_update", "x", layer_at(in, l)[kX], 2);
  }
  return infer_by_reference(kWeightGradUpdateOp, in, attrs);
}

Cost cost(Operands in, Operands, const Attrs& attrs) {
  const auto& a = attrs.as<UpdateAttrs>();
  const OptimizerRow& row = optimizer_row(a.optimizer);
  Cost c;
  for (size_t l = 0; l < layers_in(in); ++l) {
    const Operands layer = layer_at(in, l);
    c += cost_of(2 * layer[kDy].size(0) * layer[kWeight].numel(), layer.first(2), {}) +
         group_cost(row, weight_of(layer), a);
    if (layer[kBias].defined())
      c += Cost{.flops = layer[kDy].numel()} + group_cost(row, bias_of(layer), a);
  }
  return c;
}

Gemm product_of(Operands layer, const MatrixView& x) {
  return gemm_of(MatrixView(layer[kDy]), true, x, false, layer[kWeight].dtype());
}
// Rows of a product's tile, and of the parts that threads share: so small that halves are even, as
// those of the forward pass, and no weight goes from core to core (64 rows as 36 and 28, batch 16,
// two threads of a Sapphire Rapids: 1.27 times the step).
constexpr int64_t kUnit = 12, kPart = 4;
// May threads share the rows of a weight out? Not where each would copy x first, nor one unit of
// more work than two threads' parting, nor, of a long product, where a thread's rows would not pay
// for the panels of x that it makes: it makes all of them (64 x 784 of 1024 terms took a sixth more
// on two threads).
bool shares_rows(Operands layer) {
  constexpr int64_t kLong = 1 << 20, kAlone = 1 << 17, kPays = 72;
  const int64_t rows = layer[kWeight].size(0), terms = layer[kDy].size(0),
                work = layer[kWeight].numel() * terms;
  if (!MatrixView::takes(layer[kX]) ||
      !gemm_rows_stand_alone(product_of(layer, MatrixView(layer[kX]))))
    return false;
  if (rows <= kUnit) return work <= kAlone;
  return work <= kLong || terms <= kBlockTerms || rows >= kPays * num_threads();
}

// Rows from..to of a weight: each block of their gradient is applied by the thread that made it.
template <class T, class V = compute_t<T>>
void run_rows(
    Operands layer, const UpdateAttrs& attrs, const StepState& state, int64_t from, int64_t to) {
  const T* const dy = layer[kDy].data<T>() + from;
  const MatrixView x(layer[kX]);
  const int64_t ins = x.cols, outs = layer[kDy].size(1);
  const UpdateGroup of_weight = weight_of(layer), of_bias = bias_of(layer);
  with_update<V>(attrs.optimizer, attrs, state, [&](const auto& step_of) {
    const UpdatePointers<V> w(of_weight);
    const auto step = step_of(of_weight);
    const auto take = [&](const GemmBlock& block) {
      const V* grad = static_cast<const V*>(block.c);
      const int64_t at = (from + block.i) * ins + block.j;
      if (block.ld == ins) return w.apply(step, at, grad, block.rows * ins);
      for (int64_t r = 0; r < block.rows; ++r)
        w.apply(step, at + r * ins, grad + r * block.ld, block.cols);
    };
    Gemm product = product_of(layer, x);
    product.m = to - from;
    gemm_blocks(product, dy, x.data, std::ref(take));
    if (!of_bias.param.defined()) return;
    parallel_for(to - from, grain_of(2 * x.rows), [&](int64_t begin, int64_t end) {
      V* const sums = thread_buffer<V, BufferFor::sums>(end - begin);
      column_sums<V>(dy + begin, x.rows, outs, end - begin, sums);
      UpdatePointers<V>(of_bias).apply(step_of(of_bias), from + begin, sums, end - begin);
    });
  });
}

// What threads share is one list of all layers' rows: so they part once, and each meets the same
// rows in every step. Other layers' products are shared out one by one.
template <class T> void run(Operands in, const UpdateAttrs& attrs, const StepState& state) {
  int64_t elements = 0;
  for (size_t l = 0; l < layers_in(in); ++l) {
    const Operands layer = layer_at(in, l);
    if (shares_rows(layer)) {
      elements += layer[kWeight].numel();
    } else {
      run_rows<T>(layer, attrs, state, 0, layer[kWeight].size(0));
    }
  }
  parallel_for(elements, grain_of(28 + in[kDy].size(0) / 4), [&](int64_t begin, int64_t end) {
    for (size_t l = 0; l < layers_in(in); ++l) {
      const Operands layer = layer_at(in, l);
      if (!shares_rows(layer)) continue;
      const int64_t outs = layer[kWeight].size(0), ins = layer[kWeight].size(1);
      const auto row_at = [&](int64_t element) {
        const int64_t row = std::clamp<int64_t>(element / ins, 0, outs);
        return row == outs ? outs : std::min(outs, (row + kPart / 2) / kPart * kPart);
      };
      const int64_t from = row_at(begin), to = row_at(end);
      if (from < to) run_rows<T>(layer, attrs, state, from, to);
      begin -= outs * ins;
      end -= outs * ins;
    }
  });
}

void cpu(const Call& call) {
  const auto& attrs = call.as<UpdateAttrs>();
  const UpdateEnd end(call.in);
  visit_float(call.in[kDy].dtype(), [&]<class T>(T) { run<T>(call.in, attrs, end.step()); });
  end.finish(optimizer_row(attrs.optimizer), attrs);
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<UpdateAttrs>();
  const UpdateEnd end(in);
  for (size_t l = 0; l < layers_in(in); ++l) {
    const Operands layer = layer_at(in, l);
    const bool tail = a.tail && l + 1 == layers_in(in);
    UpdateGroup weight = weight_of(layer), bias = bias_of(layer);
    weight.grad =
        matmul_as(layer[kDy], layer[kX], true, false, wide(layer[kDy].dtype()), Role::wgrad);
    reference_update(weight, end, a, tail && !bias.param.defined());
    if (!bias.param.defined()) continue;
    bias.grad = sum_rows(layer[kDy], Role::bgrad);
    reference_update(bias, end, a, tail);
  }
  return {};
}

}  // namespace

const OpDef kWeightBiasGradOp = listed<kWeightBiasGradOp>(
    {.formula = "dW = dy^T x, db = sum of dy's rows, from one pass over dy",
        .min_inputs = 2,
        .cpu = weight_bias_grad_cpu,
        .strided = 0b10,
        .reference = weight_bias_grad_reference,
        .forms = weight_bias_grad_forms});
const OpDef kWeightGradUpdateOp = listed<kWeightGradUpdateOp>(
    {.formula =
            "dW = dy^T x, db = sum of dy's rows, and W, b updated by them at once: no gradient is "
            "stored",
        .min_inputs = kLayerOperands + kStepOperands,
        .max_inputs = 1 << 20,
        .attrs = attr_type<UpdateAttrs>(),
        .infer = infer,
        .cost = cost,
        .cpu = cpu,
        .writes_of = writes_of,
        .strided_of =
            [](size_t i, size_t n, const Attrs&) {
              return i + kStepOperands < n && i % kLayerOperands == kX;
            },
        .reference = reference,
        .limit = limit});

}  // namespace sinter
