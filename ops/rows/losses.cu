// nll, mse and their backwards (formulas: ops/rows/row_formulas.h): a block for a row. A label out
// of range is a fault. And which rows count: Note [Rows that do not count] in ops/rows/losses.cpp.
#include "ops/rows/block_reduce.cuh"
#include "ops/rows/row.cuh"

namespace sinter::SINTER_KERNEL_NS {

void nll(const Call& call) { run_op<Nll>(call); }
void nll_backward(const Call& call) { run_gradient<NllBackward>(call); }
void mse(const Call& call) { run_op<Mse>(call); }
void mse_backward(const Call& call) { run_gradient<MseBackward>(call); }

// One block, whose threads take turns: labels are few beside what they are the labels of.
SINTER_KERNEL ignore_rows(int64_t n, int64_t ignored, In<int32_t> labels, Out<int32_t> used,
    Out<uint8_t> counts, Out<float> counted) {
  int own = 0;
  for (int64_t b = thread_x(); b < n; b += threads_per_block()) {
    const int32_t label = labels[b];
    const bool yes = label != ignored;
    used.put(b, yes ? label : kNoLabel);
    counts.put(b, yes);
    own += yes;
  }
  const int all = block_join<SumOf>(own, shared<Shared<int, 32>>());
  if (thread_x() == 0) counted.put(0, static_cast<float>(all));
}
void ignore_labels(const Call& call) {
  const int64_t n = call.in[0].numel();
  const int block = block_for(n, 512);
  launch<ignore_rows>({1}, block, sizeof(Shared<int, 32>), n, call.as<IgnoreAttrs>().ignore_index,
      in<int32_t>(call.in[0]), out<int32_t>(call.out[0]), out<uint8_t>(call.out[1]),
      out<float>(call.out[2]));
}

// counted, idle: of StepState.
template <class T, class U>
SINTER_KERNEL tell_counts(Out<int64_t> counted, Out<int64_t> idle, In<T> own, In<U> all) {
  if (thread_x() != 0) return;
  counted.put(0, static_cast<int64_t>(compute_t<T>(own[0])));
  idle.put(0, compute_t<U>(all[0]) == 0);
}
void count_rows(const Call& call) {
  auto* state = static_cast<StepState*>(call.in[0].raw());
  visit_float(call.in[1].dtype(), [&]<class T>(T) {
    visit_float(call.in[2].dtype(), [&]<class U>(U) {
      launch<tell_counts<T, U>>({1}, 32, 0, Out<int64_t>{&state->counted, 1},
          Out<int64_t>{&state->idle, 1}, in<T>(call.in[1]), in<U>(call.in[2]));
    });
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
