// 09: comparing. The training step of 06 against itself: op by op, and captured. Which launches
// became fewer, which bytes are no longer moved, and how much time that is worth on this machine.
//
// A time alone says little: another program, or the clock of the processor, moves it by more than
// most changes do. So the two run in turns, and the factor comes with the interval that it lies in.
#include <cstdio>

#include "measure/comparison.h"
#include "measure/parity.h"
#include "nn/mlp.h"
#include "train/trainer.h"

using namespace sinter;

int main() {
  const Tensors batch{
      cast(sample_tensor({128, 784}, 1, 0, 1), DType::f32), sample_labels(128, 10, 2)};

  // ---- 1. Two trainings from the same weights. One is captured; see 06.
  nn::Mlp eager_model({784, 256, 128, 10}), fused_model({784, 256, 128, 10});
  nn::Adam eager_adam(eager_model.named_parameters()), fused_adam(fused_model.named_parameters());
  Trainer eager(eager_model, eager_adam, {.fused = false}), fused(fused_model, fused_adam);

  // ---- 2. Are the numbers the same? After three steps, two of them replays:
  bool agree = true;
  for (int i = 0; i < 3; ++i)
    agree &=
        measure::parity({{"losses", fused.step(batch)[0], eager.step(batch)[0], 1e-5}}).holds();
  std::printf("losses of three steps agree to 1e-5: %s\n", agree ? "yes" : "no");

  // ---- 3. Seven pairs of rounds, five steps each, A B B A. Then the table: a row for each fused
  // op, mapped to the ops that it stands for; FLOPs stay, launches and kB go.
  const measure::Comparison comparison{.eager = [&] { eager.step(batch); },
      .fused = [&] { fused.step(batch); },
      .step = fused.captured_step()};
  const measure::Outcome outcome =
      measure::compare(comparison, {.steps = 5, .warmup = 1, .rounds = 7});
  std::printf("\n%s\nstep %s\n", outcome.table.text(140).c_str(), outcome.headline.c_str());

  // ---- 4. Times are this machine's, today's; counts are not. measure::report() says more, such as
  // which row limits the fused step.
  std::printf("launches: %d -> %d, and the profiled rounds had as many: %s\n",
      outcome.table.total.eager_launches, outcome.table.total.fused_launches,
      outcome.complete ? "yes" : "no");
}
