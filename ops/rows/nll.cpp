// nll: log-probabilities [B, C] and labels i32 [B] to one loss per row: -(1 - s) logp[y] - s/C
// sum_c logp[c], s the label smoothing. Its backward needs only the labels: dlogp[b, c] = -dloss[b]
// ((1 - s) [c = y] + s/C).
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

// B batch, C classes
namespace sinter {
namespace {

template <const OpDef& op, class A> void check_smoothing(Operands, const Attrs& attrs) {
  const double s = attrs.as<A>().label_smoothing;
  SINTER_CHECK(s >= 0 && s < 1, usage,
      cat(op.text(), ": label_smoothing out of range: ", s, "; allowed [0, 1)"));
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  const int64_t rows = in[0].size(0), cells = in[0].numel();
  const bool smooth = attrs.as<NllAttrs>().label_smoothing > 0;
  Cost c{.flops = 2 * rows + (smooth ? cells + 2 * rows : 0),
      .bytes_read = bytes_of(in[1]),
      .bytes_written = bytes_of(out[0])};
  c.bytes_read += (smooth ? cells : rows) *
                  int64_t(size_of(in[0].dtype()));  // one picked value a row, or whole rows
  return c;
}

void cpu(const Call& call) {
  const Tensor &logp = call.in[0], &labels = call.in[1];
  const int64_t rows = logp.size(0), cols = logp.size(1);
  const double s = call.as<NllAttrs>().label_smoothing;
  check_range("nll", "label", "in row", labels, "classes", cols);
  visit_float(logp.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T* p = logp.data<T>();
    const int32_t* y = labels.data<int32_t>();
    V* loss = call.out[0].data<V>();
    const on_cpu::Target<V> target(s, cols);
    parallel_for(rows, grain_of(s > 0 ? cols * 4 : 64), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const auto at = [&](int64_t c) { return V(p[b * cols + c]); };
        loss[b] = target.nll(at(y[b]), s > 0 ? row_sum<V>(cols, at) : V(0));
      }
    });
  });
}

Tensors backward(const Saved& saved, Operands grads) {
  const Tensor& logp = saved.in[0];
  return {apply1(kNllBackwardOp, {grads[0], saved.in[1]},
              NllBackwardAttrs{logp.size(1), saved.as<NllAttrs>().label_smoothing, logp.dtype()}),
      {}};
}

Cost backward_cost(Operands in, Operands out, const Attrs&) {
  return {.flops = 0,
      .bytes_read = bytes_unless_broadcast(in[0]) + bytes_of(in[1]),
      .bytes_written = bytes_of(out[0])};
}

void backward_cpu(const Call& call) {
  const Tensor &dloss = call.in[0], &labels = call.in[1];
  const auto& attrs = call.as<NllBackwardAttrs>();
  const int64_t rows = dloss.size(0), cols = attrs.classes, step = dloss.strides()[0];
  check_range("nll_backward", "label", "in row", labels, "classes", cols);
  visit_float(attrs.out, [&]<class T>(T) {
    visit_float(dloss.dtype(), [&]<class D>(D) {
      using V = compute_t<T>;
      const auto* d = dloss.data<D>();
      const int32_t* y = labels.data<int32_t>();
      T* out = call.out[0].data<T>();
      const on_cpu::Target<V> target(attrs.label_smoothing, cols);
      parallel_for(rows, grain_of(cols * int64_t(sizeof(T))), [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          const V g = V(d[b * step]);
          std::fill_n(out + b * cols, cols, T(target.nll_gradient(false, g)));
          out[b * cols + y[b]] = T(target.nll_gradient(true, g));
        }
      });
    });
  });
}

// The labels as the op takes them. What does not fit is refused in the words of the function that
// was called: `op` and its first operand.
Tensor labels_of(
    const char* op, const Signature& rule, const Tensor& scores, const Tensor& labels) {
  check_rank(op, "labels", labels, 1);  // a row of probabilities for each is no label
  rule.check(op, Tensors{scores, labels}, {});
  return labels.dtype() == DType::i64 ? cast(labels, DType::i32) : labels;  // PyTorch's
}

}  // namespace

const OpDef kNllOp{.name = "nll",
    .formula = "loss = -(1 - s) logp[label] - s/C sum(logp), by rows",
    .signature = kSignature<kNllOp>,
    .attrs = attr_type<NllAttrs>(),
    .check = check_smoothing<kNllOp, NllAttrs>,
    .cost = cost,
    .cpu = cpu,
    SINTER_KERNELS(nll),
    .backward = backward,
    .saves_in = 0b10};
const OpDef kNllBackwardOp{.name = "nll_backward",
    .formula = "dlogp[c] = -dloss ((1 - s) [c = label] + s/C)",
    .signature = kSignature<kNllBackwardOp>,
    .attrs = attr_type<NllBackwardAttrs>(),
    .check = check_smoothing<kNllBackwardOp, NllBackwardAttrs>,
    .cost = backward_cost,
    .cpu = backward_cpu,
    SINTER_KERNELS(nll_backward),
    .strided = 0b01};

Tensor nll(const Tensor& log_probabilities, const Tensor& labels, double label_smoothing) {
  return apply1(kNllOp,
      {log_probabilities,
          labels_of("nll", "log_probabilities[B, C] labels:i32|i64[B]", log_probabilities, labels)},
      NllAttrs{label_smoothing});
}
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing) {
  const Tensor classes =
      labels_of("cross_entropy", "logits[B, C] labels:i32|i64[B]", logits, labels);
  return apply1(kNllOp, {log_softmax(logits), classes}, NllAttrs{label_smoothing});
}

}  // namespace sinter
