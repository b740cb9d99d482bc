#include "ops/update_op.h"

namespace sinter {

void check_update(const UpdateLayout& layout, Operands in, bool tail) {
  const char* op = layout.op;
  const Tensor &param = in[0], &grad = in[1], &low = in[2 + layout.moments],
               &state = in[3 + layout.moments];
  SINTER_CHECK(param.defined() && grad.defined(), shape,
      cat(op, ": an operand is undefined: ", describe({{"param", &param}, {"grad", &grad}})));
  SINTER_CHECK(param.dtype() == DType::f32 || param.dtype() == DType::f64, dtype,
      cat(op, ": wrong element type: param is ", param.describe(), "; it must be f32 or f64"),
      "bf16 training updates an f32 master weight");
  const auto check_like = [&](const char* name, const Tensor& t, DType wanted) {
    SINTER_CHECK(t.shape() == param.shape(), shape,
        cat(op, ": shapes differ: ", describe({{"param", &param}, {name, &t}}),
            "; they must be equal"));
    check_dtype(op, name, t, wanted);
  };
  check_writable(op, "param", param);
  check_like("grad", grad, param.dtype());
  for (int i = 0; i < layout.moments; ++i) {
    const Tensor& moment = in[2 + i];
    if (!moment.defined() && layout.optional_moments) continue;
    check_writable(op, "moment", moment);
    check_like("moment", moment, param.dtype());
  }
  if (low.defined()) {
    check_writable(op, "low", low);
    check_like("low", low, DType::bf16);
  }
  check_writable(op, "state", state);
  check_dtype(op, "state", state, DType::u8);
  SINTER_CHECK(state.numel() == sizeof(StepState) &&
                   state.offset() % static_cast<int64_t>(alignof(StepState)) == 0,
      shape,
      cat(op, ": no step state: state is ", state.describe(), " at byte ", state.offset(),
          " of its storage; it must have ", sizeof(StepState), " bytes, from a multiple of ",
          alignof(StepState), " on"));
  const size_t end = static_cast<size_t>(4 + layout.moments);
  for (size_t i = end; i < in.size(); ++i) {
    SINTER_CHECK(tail || !in[i].defined(), usage,
        cat(op, ": losses and rng belong to the last update of a step: input ", i, " is ",
            in[i].describe(), "; tail is 0"));
  }
  if (in.size() > end && in[end].defined()) {
    SINTER_CHECK(in[end].dtype() == DType::f32 || in[end].dtype() == DType::f64, dtype,
        cat(op, ": wrong element type: losses is ", in[end].describe(), "; it must be f32 or f64"));
  }
  if (in.size() > end + 1 && in[end + 1].defined()) {
    const Tensor& rng = in[end + 1];
    check_writable(op, "rng", rng);
    check_dtype(op, "rng", rng, DType::i64);
    SINTER_CHECK(rng.shape() == Shape{3}, shape,
        cat(op, ": no rng state: rng is ", rng.describe(), "; it must be i64[3]"));
  }
}

Cost update_cost(const UpdateLayout& layout, Operands in, int64_t flops_per_parameter) {
  Cost cost{.flops = flops_per_parameter * in[0].numel()};
  for (int i = 0; i < 2 + layout.moments; ++i) {
    cost.bytes_read += bytes_of(in[i]);
    if (i != 1) cost.bytes_written += bytes_of(in[i]);
  }
  cost.bytes_written += bytes_of(in[2 + layout.moments]);
  return cost;
}

const StepState& update_state(const UpdateLayout& layout, Operands in) {
  return *static_cast<const StepState*>(in[3 + layout.moments].raw());
}

void finish_step(const UpdateLayout& layout, const Call& call, double beta1, double beta2) {
  const auto operand = [&](int i) {
    return i < static_cast<int>(call.in.size()) ? call.in[i] : Tensor();
  };
  StepState& state = *static_cast<StepState*>(operand(3 + layout.moments).raw());
  advance_step_state(state, operand(4 + layout.moments), operand(5 + layout.moments), beta1, beta2);
}

std::vector<Sample> update_samples(
    const UpdateLayout& layout, Attrs (*attrs)(bool moments, bool tail)) {
  const auto make = [&](const Shape& shape, bool moments, bool low, bool tail, const char* what) {
    Sample s{.in = {sample_tensor(shape, 1), sample_tensor(shape, 2)},
        .attrs = attrs(moments, tail),
        .what = what,
        .differentiable = false};
    for (int i = 0; i < layout.moments; ++i) {
      // The second one is an average of squares.
      s.in.push_back(moments || !layout.optional_moments
                         ? sample_tensor(shape, 3 + i, i ? 0.1 : -1, 1)
                         : Tensor());
    }
    s.in.push_back(low ? cast(s.in[0], DType::bf16) : Tensor());
    s.in.push_back(make_step_state());
    StepState& state = host_step_state(s.in.back());
    reset_step_state(state, 0.9, 0.999);
    state.lr = 0.1;
    if (tail) s.in.insert(s.in.end(), {sample_tensor({3}, 5), Tensor::zeros({3}, DType::i64)});
    return s;
  };
  Sample shapes = make({5, 7}, true, false, false, "grad of another shape");
  shapes.in[1] = sample_tensor({7, 5}, 2);
  Sample strided = make({4, 6}, true, false, false, "strided param");
  strided.in[0] = transpose(sample_tensor({6, 4}, 1));
  Sample type = make({4, 6}, true, false, false, "bf16 param");
  type.in[0] = cast(type.in[0], DType::bf16);
  for (Sample* s : {&shapes, &strided, &type}) s->bad = true;
  return {make({5, 7}, true, false, false, "odd"),
      make({33}, false, true, true, "ragged, with copy and tail"),
      make({33}, true, true, true, "ragged, moments, copy and tail"),
      make({0, 3}, true, false, false, "no parameters"), shapes, strided, type};
}

}  // namespace sinter
