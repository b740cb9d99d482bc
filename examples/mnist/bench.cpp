// mnist bench: the training step of an MLP 784-H-H-10, eager and fused, over batch and hidden
// sizes: the clean rounds of `mnist compare`, and a row of one table for each size.
#include <fmt/format.h>

#include <algorithm>

#include "core/json.h"
#include "core/parallel.h"
#include "examples/cli/messages.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/trainer.h"
#include "measure/comparison.h"

namespace sinter::mnist {
namespace {

constexpr int64_t kPairs = 9, kMostRows = 60'000;  // the synthetic digits for training

struct BenchFlags {
  TrainFlags train;
  std::vector<int64_t> batch{1, 16, 128}, hidden{64, 256, 1024};
};

struct Size {
  int64_t batch, hidden;
  std::string text() const { return fmt::format("batch {}, hidden {}", batch, hidden); }
};

// Both steps from equal weights, recorded and captured.
struct Pair {
  std::shared_ptr<Trainer> eager, fused;
};
Pair make_pair(TrainFlags flags, const Batch& batch) {
  const auto make = [&](const char* mode) {
    flags.mode.mode = mode;
    std::shared_ptr<Trainer> trainer = make_trainer(
        flags, make_model(flags.model, flags.common->seed, batch.images.device()), 1000);
    for (int i = 0; i < 3; ++i) trainer->step(batch);
    return trainer;
  };
  return {make("eager"), make("fused")};
}

// A row of the table; nothing after a signal.
std::optional<profiler::ComparedRow> measure_size(
    const TrainFlags& flags, const Size& size, const Batch& batch, Output& out) {
  const auto steps_of = [&batch](const Pair& pair) -> measure::Twin {
    return {
        [pair, &batch] { pair.eager->step(batch); }, [pair, &batch] { pair.fused->step(batch); }};
  };
  const Pair pair = make_pair(flags, batch);
  const measure::Twin steps = steps_of(pair);
  const measure::Comparison comparison{
      .device = batch.images.device(), .eager = steps.eager, .fused = steps.fused, .again = [&] {
        return steps_of(make_pair(flags, batch));
      }};
  const std::string threads =
      cli::choose_threads(flags.common->threads, comparison.device, [&] { return steps.eager; });
  // Shorter rounds than this are the clock's and the scheduler's.
  constexpr double kRoundUs = 3000;
  const double one_us = measure::round_us(steps.eager, comparison.device, 1, 1);
  const measure::RoundTimes us = measure::time_rounds(
      comparison, {.steps = std::clamp<int64_t>(int64_t(kRoundUs / one_us), 1, 40),
                      .warmup = 1,
                      .rounds = kPairs,
                      .stopped = interrupted});
  if (interrupted()) return {};
  out.note("size", "{}: {}, {}", size.text(), us.factor_text(), threads);
  const capture::Captured& captured = *pair.fused->captured_step()->captured();
  const capture::Graph &eager = captured.recorded, &fused = captured.fused.graph;
  return profiler::ComparedRow{.fused = size.text(),
      .eager = size.text(),
      .verdict = us.distrusted.empty() ? "" : "machine busy",
      .eager_launches = int(eager.nodes.size()),
      .fused_launches = int(fused.nodes.size()),
      .eager_bytes = cost_of(eager).bytes(),
      .fused_bytes = cost_of(fused).bytes(),
      .eager_us = us.eager_us,
      .fused_us = us.fused_us,
      .layouts = us.layouts};
}

int run_bench(const BenchFlags& bench, Output& out) {
  TrainFlags flags = bench.train;
  const Device device = choose_device(flags.common->device).first;
  SINTER_CHECK(device.type != Device::Type::simt, usage,
      "usage: bench needs a device whose times mean something: the device is simt",
      "mnist compare --device simt counts launches and bytes");
  catch_signals();
  Dataset data =
      load_dataset({.what = "synthetic", .val = 0, .limit = std::ranges::max(bench.batch)});
  data.to(device);
  profiler::ComparisonTable table{.names = "Step", .times = "us, clean"};
  table.total.fused = "";
  Json rows = Json::array();
  for (const int64_t batch_size : bench.batch) {
    BatchOptions options = flags.batches(device);
    options.size = batch_size;
    const Batch batch = Batches(data.train, options).next();
    for (const int64_t hidden : bench.hidden) {
      flags.model.hidden = {hidden, hidden};
      const auto row =
          interrupted() ? std::nullopt : measure_size(flags, {batch_size, hidden}, batch, out);
      if (!row) continue;
      rows.push_back({{"batch", batch_size}, {"hidden", hidden}});
      rows.back().update(Json(*row));
      table.add(*row);
    }
  }
  const std::string title = fmt::format("mlp 784-H-H-10, {}, {}, {}, {}, rules {}, {} of rounds",
      flags.model.dtype, flags.optimizer.optimizer, device.str(),
      flags.common->threads > 0 || device != kCpu ? count_of(num_threads(), "thread")
                                                  : "threads by trial for each size",
      flags.mode.rules, count_of(kPairs, "pair"));
  out.result("bench", title);
  out.result_text("\n" + table.text(table_width()));
  out.json("sinter.bench/2", {{"title", title}, {"rows", rows}});
  return interrupted() ? exit_code(Error::Kind::interrupted) : 0;
}

}  // namespace

void add_bench(App& app) {
  static BenchFlags bench;
  Command& command = app.add("bench",
      "Times the whole step of an MLP 784-H-H-10, eager against fused, over batch and hidden "
      "sizes.");
  bench.train.common = &app.common();
  Flags& flags = command.flags;
  flags.topic("sizes");
  flags.number("batch", bench.batch, 1, kMostRows, "images of a step");
  flags.number("hidden", bench.hidden, 1, 1'000'000, "widths H of both hidden layers");
  flags.choice("dtype", bench.train.model.dtype, {"f32", "bf16"},
      "bf16: activations and copies of the weights");
  add_optimizer_flag(flags, bench.train.optimizer.optimizer);
  add_rules_flag(flags, bench.train.mode.rules);
  command.check = [&flags] { resolve_step(flags, bench.train); };
  command.run = [](Output& out) { return run_bench(bench, out); };
}

}  // namespace sinter::mnist
