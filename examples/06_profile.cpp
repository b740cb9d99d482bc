// 06_profile: what does a training step consist of, and what does each part cost?
//
// Every op passes one place, and there a profiler scope stands around it. A Session lets some steps
// go by (wait), runs some warm, and then records. `mnist train --profile` prints the table with
// times; here only counts, FLOPs and bytes are shown, which never vary.
#include <cstdio>

#include "nn/mlp.h"
#include "profiler/session.h"
#include "train/trainer.h"

using namespace sinter;

int main() {
  // ---- 1. A step of the default model on one batch of 128 made-up images.
  nn::Mlp model({784, 256, 128, 10});
  nn::Adam optimizer(model.named_parameters());
  Trainer trainer(model, optimizer, {.fused = false});
  const Tensors batch{
      cast(sample_tensor({128, 784}, 1, 0, 1), DType::f32), sample_labels(128, 10, 1)};

  // ---- 2. Three steps warm up, five are recorded. step() tells the session where one ends. Your
  // own scopes would show up too.
  profiler::Session session({.schedule = {.wait = 0, .warmup = 3, .active = 5}});
  while (!session.done()) {
    {
      const profiler::Scope scope("train_step");
      trainer.step(batch);
    }
    session.step();
  }
  const profiler::Report report = session.finish();

  // ---- 3. The report is plain data: one row per op and role. Sums are over the five steps.
  const double steps = double(report.steps.size());
  std::printf("per step, of %zu recorded: %.0f launches\n\n", report.steps.size(),
      report.launches_per_step());
  std::printf("%-22s%7s%11s%11s%12s\n", "op", "calls", "kFLOP", "kB moved", "FLOP/byte");
  double all_flops = 0, all_bytes = 0;
  for (const profiler::Row& row : report.rows().rows) {
    if (row.kind != profiler::ScopeKind::op || row.launches == 0) continue;  // views launch nothing
    const double flops = double(row.cost.flops) / steps, bytes = double(row.cost.bytes()) / steps,
                 calls = double(row.calls) / steps;
    std::printf("%-22s%7.0f%11.1f%11.1f%12.1f\n", row.name.c_str(), calls, flops / 1e3, bytes / 1e3,
        flops / bytes);
    all_flops += flops;
    all_bytes += bytes;
  }
  std::printf("%-29s%11.1f%11.1f\n", "TOTAL", all_flops / 1e3, all_bytes / 1e3);

  // ---- 4. How to read it. The products (linear, matmul) do nearly all arithmetic: many FLOPs per
  // byte, so they are limited by how fast the processor multiplies. Everything else does about one
  // FLOP per byte or less: it is limited by memory, and each op writes a result that the next one
  // reads back. Those are the bytes and launches that fusing takes away (07_fuse).
  std::string by_arithmetic;
  for (const profiler::Row& row : report.rows().rows) {
    if (row.kind == profiler::ScopeKind::op && row.cost.flops > 4 * row.cost.bytes())
      by_arithmetic += (by_arithmetic.empty() ? "" : ", ") + row.name;
  }
  std::printf(
      "\nlimited by arithmetic: %s\nlimited by memory:     all others\n", by_arithmetic.c_str());
}
