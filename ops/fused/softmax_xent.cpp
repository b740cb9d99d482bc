// softmax_xent: a row's cross entropy and its gradient in one pass over the logits z[B, C] (f32
// inside):
//   loss = log sum exp(z - max) - (1 - s) (z[y] - max) - s/C sum_c (z[c] - max)
//   dz[c] = (softmax(z)[c] - (1 - s) [c = y] - s/C) * grad_output, s the label smoothing
// Reads z, labels and the grad_output, writes a loss a row and dz. 16 rows are worked on side by
// side.
#include "core/math.h"
#include "ops/fused/fused.h"
#include "ops/fused/reference.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_loops.h"

// B batch, C classes
namespace sinter {
namespace {

template <class T, class V = compute_t<T>> void run(const Call& call) {
  const Tensor& logits = call.in[0];
  const auto& [smoothing, grad, low] = call.as<SoftmaxXentAttrs>();
  const int64_t rows = logits.size(0), cols = logits.size(1),
                grad_output_step = grad ? call.in[2].strides()[0] : 0;
  const int32_t* y = call.in[1].data<int32_t>();
  const V* grad_output = grad ? call.in[2].data<V>() : nullptr;
  V* losses = call.out[0].data<V>();
  const V others = V(smoothing / double(std::max<int64_t>(cols, 1))), own = V(1 - smoothing);
  for_row_tiles(rows, cols * 8 * int64_t(sizeof(V)), [&](int64_t row, int64_t n) {
    alignas(64) V m[kLanes], sum[kLanes], shifted[kLanes] = {}, factor[kLanes] = {};
    V* z = thread_buffer<V, BufferFor::kernel>(2 * cols * kLanes);
    V* e = z + cols * kLanes;
    load_tile(logits.data<T>() + row * cols, n, cols, z);
    tile_max(z, cols, m);
    tile_sum(cols, sum, [&](int64_t c, int64_t l) {
      return e[c * kLanes + l] = math::exp(z[c * kLanes + l] -= m[l]);
    });
    if (smoothing > 0)
      tile_sum(cols, shifted, [&](int64_t c, int64_t l) { return z[c * kLanes + l]; });
    for (int64_t l = 0; l < kLanes; ++l) shifted[l] = math::log(sum[l]) - others * shifted[l];
    for (int64_t l = 0; l < n; ++l) losses[row + l] = shifted[l] - own * z[y[row + l] * kLanes + l];
    if (!grad) return;
    for (int64_t l = 0; l < n; ++l) factor[l] = grad_output[(row + l) * grad_output_step];
    for (int64_t l = 0; l < kLanes; ++l) sum[l] = V(1) / sum[l];
    V at_label[kLanes];
    for (int64_t l = 0; l < n; ++l)
      at_label[l] = (e[y[row + l] * kLanes + l] * sum[l] - others - own) * factor[l];
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t l = 0; l < kLanes; ++l)
        e[c * kLanes + l] = (e[c * kLanes + l] * sum[l] - others) * factor[l];
    }
    for (int64_t l = 0; l < n; ++l) e[y[row + l] * kLanes + l] = at_label[l];
    if (low) {
      store_tile(e, n, cols, call.out[1].template data<bf16>() + row * cols);
    } else {
      store_tile(e, n, cols, call.out[1].template data<T>() + row * cols);
    }
  });
}

void cpu(const Call& call) {
  check_range("softmax_xent", "label", "in row", call.in[1], "classes", call.in[0].size(1));
  visit_float(call.in[0].dtype(), [&]<class T>(T) { run<T>(call); });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [smoothing, grad, low] = attrs.as<SoftmaxXentAttrs>();
  const Tensor logp = log_softmax(in[0]);
  Tensors out{nll(logp, in[1], smoothing)};
  if (grad) {
    const Tensor dlogp = apply1(kNllBackwardOp, {optional_input(in, 2), in[1]},
        NllBackwardAttrs{logp.size(1), smoothing, logp.dtype()});
    out.push_back(apply1(kLogSoftmaxBackwardOp, {dlogp, logp}));
    if (low) out[1] = cast(out[1], DType::bf16);
  }
  return out;
}

std::string limit(Operands in, const Attrs& attrs) {
  const Tensor grad_output = optional_input(in, 2);
  const DType type = wide(in[0].dtype());
  if (!attrs.as<SoftmaxXentAttrs>().grad)
    return grad_output.defined() ? "there is a grad_output; none without grad" : "";
  if (grad_output.dtype() == type) return "";
  return cat("the grad_output is ", grad_output.describe(), "; it must be ", name_of(type));
}

std::vector<Form> forms() {
  const Tensor logits = Tensor::meta({2, 3}), labels = Tensor::meta({2}, DType::i32);
  return {{{logits, labels, Tensor::meta({2})}, SoftmaxXentAttrs{.grad = true}},
      {{logits, labels, {}}, SoftmaxXentAttrs{.grad = false}}};
}

}  // namespace

const OpDef kSoftmaxXentOp{.name = "softmax_xent",
    .formula = "p = softmax(z), loss = -ln p[label], dz = (p - [label]) dloss",
    .min_inputs = 2,
    .max_inputs = 3,
    .attrs = attr_type<SoftmaxXentAttrs>(),
    .infer = infer_of<kSoftmaxXentOp>,
    .cost = cost_of_reference<kSoftmaxXentOp>,
    .cpu = cpu,
    SINTER_KERNELS(softmax_xent),
    .strided = 0b100,
    .reference = reference,
    .limit = limit,
    .forms = forms};

}  // namespace sinter
