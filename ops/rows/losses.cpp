// The losses, one for each row (formulas: ops/rows/row_formulas.h).
//   nll: log-probabilities [B, C] and labels i32[B] -> [B]: -(1 - s) logp[y] - s/C sum_c logp[c], s
//   the label smoothing. Its backward needs only the labels.
//   mse: x and target [B, ..] -> [B]: the mean of (x - target)^2 over the row; d target = -dx.
//
// Note [Rows that do not count]
//   With an ignore_index, ignore_labels says which rows count, and how many: a number of the
//   device, which the losses carry (AutogradMeta::counted). The label of a row that does not is
//   kNoLabel from then on, for which nll and its fused kinds give a loss and a gradient of 0. Who
//   takes a mean divides by that number:
//     backward()      of losses that are all there are
//     average_counted of nn/clip.h, at the end, where parts of a batch or ranks each have some
//     rows:
//                     how many count in all of them is not known before
//     StepState       is told by count_rows, which Optimizer::step() launches before its updates.
//   Of no rows the mean is 0, not NaN as PyTorch's; an update by it is left out, and StepState
//   counts such steps.
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/rows/row_cpu.h"

// B batch, C classes
namespace sinter {
namespace {

template <const OpDef& op, class A> void check_smoothing(Operands, const Attrs& attrs) {
  const double s = attrs.as<A>().label_smoothing;
  SINTER_CHECK(s >= 0 && s < 1, usage,
      str(op.text(), ": label_smoothing out of range: ", s, "; allowed [0, 1)"));
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
  check_range("nll", "label", "in row", call.in[1], "classes", call.in[0].size(1), kNoLabel);
  on_cpu::run_op<on_cpu::Nll>(call);
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
  check_range(
      "nll_backward", "label", "in row", call.in[1], "classes", call.out[0].size(1), kNoLabel);
  on_cpu::run_gradient<on_cpu::NllBackward>(call);
}

Cost mse_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(3 * in[0].numel() + out[0].numel(), in, out);
}

Tensors mse_backward(const Saved& saved, Operands grads) {
  const Tensor &x = saved.in[0], &target = saved.in[1];
  Tensors out(2);
  if (saved.wants(0)) out[0] = apply1(kMseBackwardOp, {grads[0], x, target});
  if (saved.wants(1)) out[1] = apply1(kMseBackwardOp, {grads[0], target, x});
  return out;
}

Cost mse_backward_cost(Operands in, Operands out, const Attrs&) {
  Cost c = cost_of(2 * in[1].numel() + in[0].numel(), in.subspan(1), out);
  c.bytes_read += bytes_unless_broadcast(in[0]);
  return c;
}

void ignore_cpu(const Call& call) {
  const Tensor& labels = call.in[0];
  const int64_t ignored = call.as<IgnoreAttrs>().ignore_index;
  const int32_t* label = labels.data<int32_t>();
  int32_t* used = call.out[0].data<int32_t>();
  auto* counts = call.out[1].data<uint8_t>();
  int64_t counted = 0;
  for (int64_t b = 0; b < labels.numel(); ++b) {
    counts[b] = label[b] != ignored;
    used[b] = counts[b] ? label[b] : kNoLabel;
    counted += counts[b];
  }
  *call.out[2].data<float>() = static_cast<float>(counted);
}

void count_rows_cpu(const Call& call) {
  StepState& state = host_step_state(call.in[0]);
  state.counted = static_cast<int64_t>(call.in[1].to_double());
  state.idle = call.in[2].to_double() == 0;
}

// What `losses_of` gives for the labels; 0 for a row that is ignored.
template <class LossesOf>
Tensor of_rows_that_count(
    const Tensor& labels, std::optional<int64_t> ignore_index, const LossesOf& losses_of) {
  if (!ignore_index) return losses_of(labels);
  const Tensors rows = apply(kIgnoreLabelsOp, {labels}, IgnoreAttrs{*ignore_index});
  const Tensor losses = losses_of(rows[0]);
  losses.autograd().counts = rows[1];
  losses.autograd().counted = rows[2];
  return losses;
}

// The labels as the op takes them. What does not fit is refused in the words of the function that
// was called: `op` and its first operand.
Tensor labels_of(
    const char* op, const Signature& rule, const Tensor& scores, const Tensor& labels) {
  const bool of_places = scores.defined() && labels.defined() && scores.rank() > 2 &&
                         labels.rank() == scores.rank() - 1;
  SINTER_CHECK(!of_places, shape,
      str(op, ": wrong rank: scores are ", scores.describe(), ", labels ", labels.describe(),
          "; a row of scores for each label, [B, C] and [B]"),
      "reshape(scores, {-1, C}) and reshape(labels, {-1})");
  check_rank(op, "labels", labels, 1);  // a row of probabilities for each is no label
  rule.check(op, Tensors{scores, labels}, {});
  return labels.dtype() == DType::i64 ? cast(labels, DType::i32) : labels;  // PyTorch's
}

}  // namespace

const OpDef kNllOp =
    listed<kNllOp>({.formula = "loss = -(1 - s) logp[label] - s/C sum(logp), by rows",
        .attrs = attr_type<NllAttrs>(),
        .check = check_smoothing<kNllOp, NllAttrs>,
        .cost = cost,
        .cpu = cpu,
        .backward = backward,
        .saves_in = 0b10});
const OpDef kNllBackwardOp =
    listed<kNllBackwardOp>({.formula = "dlogp[c] = -dloss ((1 - s) [c = label] + s/C)",
        .attrs = attr_type<NllBackwardAttrs>(),
        .check = check_smoothing<kNllBackwardOp, NllBackwardAttrs>,
        .cost = backward_cost,
        .cpu = backward_cpu,
        .strided = 0b01});
const OpDef kIgnoreLabelsOp = listed<kIgnoreLabelsOp>(
    {.formula = "used = label, or none of a row that is ignored; counts; counted = sum(counts)",
        .attrs = attr_type<IgnoreAttrs>(),
        .cost = cost_per_element<2>,
        .cpu = ignore_cpu});
const OpDef kCountRowsOp =
    listed<kCountRowsOp>({.formula = "the step's losses have so many rows, none: no update",
        .check = [](Operands in, const Attrs&) { check_step_state("count_rows", in[0]); },
        .cost = cost_per_element<kCountRowsOp, 0>,
        .cpu = count_rows_cpu});
const OpDef kMseOp = listed<kMseOp>({.formula = "loss = mean((x - target)^2), by rows",
    .cost = mse_cost,
    .cpu = on_cpu::run_op<on_cpu::Mse>,
    .backward = mse_backward,
    .saves_in = 0b11});
const OpDef kMseBackwardOp =
    listed<kMseBackwardOp>({.formula = "dx = 2 dloss (x - target) / D, dtarget = -dx",
        .cost = mse_backward_cost,
        .cpu = on_cpu::run_gradient<on_cpu::MseBackward>,
        .strided = 0b001});

Tensor nll(const Tensor& log_probabilities, const Tensor& labels, double label_smoothing,
    std::optional<int64_t> ignore_index) {
  const Tensor classes =
      labels_of("nll", "log_probabilities[B, C] labels:i32|i64[B]", log_probabilities, labels);
  return of_rows_that_count(classes, ignore_index, [&](const Tensor& used) {
    return apply1(kNllOp, {log_probabilities, used}, NllAttrs{label_smoothing});
  });
}
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing,
    std::optional<int64_t> ignore_index) {
  const Tensor classes =
      labels_of("cross_entropy", "logits[B, C] labels:i32|i64[B]", logits, labels);
  return of_rows_that_count(classes, ignore_index, [&](const Tensor& used) {
    return apply1(kNllOp, {log_softmax(logits), used}, NllAttrs{label_smoothing});
  });
}
void count_rows(const Tensor& state, const Tensor& own, const Tensor& all) {
  apply(kCountRowsOp, {state, own, all});
}
Tensor mse(const Tensor& x, const Tensor& target) { return apply1(kMseOp, {x, target}); }

}  // namespace sinter
