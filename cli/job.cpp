#include "cli/job.h"

#include <fmt/format.h>

#include "core/parallel.h"
#include "nn/optim.h"
#include "ops/product/gemm_library.h"

namespace sinter::cli {
namespace {

std::unique_ptr<nn::Optimizer> make_optimizer(
    const OptimizerFlags& flags, const nn::Module& model) {
  const nn::OptimizerChoice& choice = nn::optimizer_named(flags.optimizer);
  return choice.make(model.named_parameters(), flags.lr.value(),
      flags.weight_decay.value_or(choice.weight_decay), flags.momentum,
      flags.betas.empty() ? choice.betas : nn::Betas{flags.betas[0], flags.betas[1]});
}

}  // namespace

std::unique_ptr<Trainer> make_trainer(const TrainFlags& flags, std::shared_ptr<nn::Module> model,
    std::function<Tensor(const Tensor& output, const Tensor& target)> loss,
    const std::string& dtype, int64_t steps, std::vector<capture::Refused> choices) {
  set_allow_tf32(dtype == "tf32");
  const OptimizerFlags& optimizer = flags.optimizer;
  auto made = make_optimizer(optimizer, *model);
  return std::make_unique<Trainer>(std::move(model), std::move(made),
      TrainerOptions{.loss = std::move(loss),
          .fused = flags.mode.mode == "fused",
          .capture = {.rules = capture::RuleSet(flags.mode.rules),
              .measure = flags.mode.measures(),
              .choices = std::move(choices)},
          .schedule = optimizer.schedule_of(steps),
          .clip = optimizer.clip,
          .part = optimizer.accum > 1 ? optimizer.batch : 0});
}

std::string choose_threads(const TrainFlags& flags, const std::string& model,
    const std::string& dtype, const Tensors& batch,
    const std::function<std::unique_ptr<Trainer>(const TrainFlags& eager)>& make_scratch) {
  const std::string work = fmt::format("{}, rows {}{}, {}", model, batch[0].shape().str(),
      flags.optimizer.accum > 1 ? str(" in parts of ", flags.optimizer.batch) : "", dtype);
  return choose_threads(flags.common->threads, batch[0].device(), work, [&] {
    TrainFlags eager = flags;
    eager.mode.mode = "eager";
    const std::shared_ptr<Trainer> scratch = make_scratch(eager);
    return [scratch, &batch] { scratch->step(batch); };
  });
}

std::string Job::workload() { return flags().workload(describe()); }

std::unique_ptr<Trainer> Job::make_trainer(
    const TrainFlags& flags, Device device, int64_t steps, std::vector<capture::Refused> choices) {
  return cli::make_trainer(flags, make_model(device), loss(), dtype(), steps, std::move(choices));
}

Tensors first_batch(Job& job, Output& out) {
  const TrainFlags& flags = job.flags();
  const Device device = choose_device(flags.common->device).first;
  const Tensors batch = job.batch(device, out);
  const int64_t rows = flags.optimizer.rows_of_step(), found = batch[0].size(0);
  if (found < rows) {
    out.note(
        "note", "a batch of {} rows was asked for; the set has {}", grouped(rows), grouped(found));
  }
  note_emulator(device, out);
  const std::string threads = choose_threads(flags, job.describe(), job.dtype(), batch,
      [&](const TrainFlags& eager) { return job.make_trainer(eager, device, 1000); });
  if (device == kCpu) out.note("threads", threads);
  manual_seed(flags.common->seed);
  return batch;
}

}  // namespace sinter::cli
