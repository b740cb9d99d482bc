// bench: the training step of a job, eager and fused, over sizes of a batch and of the model: the
// clean rounds of `compare`, and a row of one table for each size.
#include <fmt/format.h>

#include <algorithm>

#include "cli/job.h"
#include "cli/process.h"
#include "core/json.h"
#include "core/parallel.h"
#include "measure/comparison.h"

namespace sinter::cli {
namespace {

constexpr int64_t kPairs = 9;

// Both steps from equal weights, recorded and captured.
std::vector<std::shared_ptr<Trainer>> make_pair(Job& job, const Tensors& batch) {
  TrainFlags flags = job.flags;
  std::vector<std::shared_ptr<Trainer>> pair;
  for (const char* mode : {"eager", "fused"}) {
    flags.mode.mode = mode;
    pair.push_back(job.make_trainer(flags, batch[0].device(), 1000));
    for (int i = 0; i < 3; ++i) pair.back()->step(batch);
  }
  return pair;
}

// A row of the table; nothing after a signal.
std::optional<profiler::ComparedRow> measure_size(
    Job& job, const std::string& size, const Tensors& batch, Output& out) {
  const auto twin = [&batch](const std::vector<std::shared_ptr<Trainer>>& pair) -> measure::Twin {
    return {[pair, &batch] { pair[0]->step(batch); }, [pair, &batch] { pair[1]->step(batch); }};
  };
  const std::string threads = job.choose_threads(batch);
  const auto pair = make_pair(job, batch);
  const auto [eager_step, fused_step] = twin(pair);
  const measure::Comparison comparison{
      .device = batch[0].device(), .eager = eager_step, .fused = fused_step, .again = [&] {
        return twin(make_pair(job, batch));
      }};
  // Shorter rounds than this are the clock's and the scheduler's.
  constexpr double kRoundUs = 3000;
  const double one_us = measure::round_us(comparison.eager, comparison.device, 1, 1);
  const measure::RoundTimes us = measure::time_rounds(
      comparison, {.steps = std::clamp<int64_t>(int64_t(kRoundUs / one_us), 1, 40),
                      .warmup = 1,
                      .rounds = kPairs,
                      .stopped = interrupted});
  if (interrupted()) return {};
  out.note("size", "{}: {}, {}", size, us.factor_text(), threads);
  const capture::Captured& captured = *pair[1]->captured_step()->captured();
  const capture::Graph &eager = captured.recorded, &fused = captured.fused.graph;
  return profiler::ComparedRow{.fused = size,
      .eager = size,
      .verdict = us.distrusted.empty() ? "" : "machine busy",
      .eager_launches = int(eager.nodes.size()),
      .fused_launches = int(fused.nodes.size()),
      .eager_bytes = eager.cost().bytes(),
      .fused_bytes = fused.cost().bytes(),
      .eager_us = us.eager_us,
      .fused_us = us.fused_us,
      .layouts = us.layouts};
}

int run_bench(const Sizes& sizes, Job& job, const Flags& given, Output& out) {
  const TrainFlags& flags = job.flags;
  const Device device = choose_device(flags.common->device).first;
  SINTER_CHECK(device.type != Device::Type::simt, usage,
      "usage: bench needs a device whose times mean something: the device is simt",
      program_name() + " compare --device simt counts launches and bytes");
  catch_signals();
  Output::Options no_notes = *flags.common;
  no_notes.quiet = true;
  Output silent(no_notes);
  profiler::ComparisonTable table{.names = "Step", .times = "us, clean"};
  table.total.fused = "";
  Json rows = Json::array();
  for (const int64_t batch_size : sizes.batches) {
    job.flags.optimizer.batch = batch_size;
    const Tensors batch = load_first_batch(job, given, device, silent);
    for (const int64_t other : sizes.others) {
      sizes.set(other);
      const std::string size = fmt::format("batch {}, {} {}", batch_size, sizes.name, other);
      const auto row = interrupted() ? std::nullopt : measure_size(job, size, batch, out);
      if (!row) continue;
      rows.push_back({{"batch", batch_size}, {sizes.name, other}, {"threads", num_threads()}});
      rows.back().update(Json(*row));
      table.add(*row);
    }
  }
  const std::string title = fmt::format("{}, {}, {}, {}, {}, rules {}, {} of rounds", sizes.title,
      job.dtype(), flags.optimizer.optimizer, device.str(),
      flags.common->threads > 0 || device != kCpu ? count_of(num_threads(), "thread")
                                                  : "threads by trial for each size",
      flags.mode.rules, count_of(kPairs, "pair"));
  out.result("bench", title);
  out.result_text("\n" + table.text(table_width()));
  out.json("sinter.bench/2", {{"title", title}, {"rows", rows}});
  if (!interrupted()) return 0;
  return out.stopped(str("after ", rows.size(), " of ",
      count_of(std::ssize(sizes.batches) * std::ssize(sizes.others), "size")));
}

}  // namespace

void add_bench(App&, Command& command, std::shared_ptr<Job> job, Sizes of_job) {
  const auto sizes = std::make_shared<Sizes>(std::move(of_job));
  Flags& flags = command.flags;
  flags.topic("sizes");
  flags.number("batch", sizes->batches, 1, sizes->most_rows, job->rows().first + " of a step");
  flags.number(sizes->name, sizes->others, 1, 1'000'000, sizes->help);
  sizes->add_flags(flags);
  flags.choice("optimizer", job->flags.optimizer.optimizer, nn::optimizer_names(), "");
  add_rules_flag(flags, job->flags.mode.rules);
  command.check = [&flags, job] { check_flags(flags, *job, Use::step); };
  command.run = [&flags, job, sizes](Output& out) { return run_bench(*sizes, *job, flags, out); };
}

}  // namespace sinter::cli
