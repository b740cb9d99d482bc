// mnist compare: the same step eager and fused: are the numbers the same, what became fewer, and
// how much time does it take. Parity is judged on one step from equal weights; what follows is the
// contest of measure/contest.h.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/device/memory.h"
#include "core/parallel.h"
#include "examples/cli/contest.h"
#include "examples/cli/messages.h"
#include "examples/cli/profile_files.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/model_file.h"
#include "examples/mnist/trainer.h"
#include "nn/named_tensor.h"

namespace sinter::mnist {
namespace {

using measure::Worst;

struct CompareFlags {
  TrainFlags train;
  std::string from;
  std::optional<SavedModel> saved{};  // what is there
  cli::ContestFlags contest;
  cli::ExportFlags files;
};

struct Parity {
  Worst loss, gradients, state, weights;
  double in_lr(double lr) const {
    return weights.absolute == 0 ? 0 : weights.absolute / lr;
  }  // the weights' difference
};

// The trainers of a comparison: eager; fused; fused without weight_grad_update, which leaves no
// gradient to look at; and on cuda those of the middle run and of the unfused replay.
struct Trainers {
  Trainer eager, fused, gradients;
  std::unique_ptr<Trainer> listed, replayed;

  Trainers(const TrainFlags& flags, Device device, int64_t steps)
      : eager(make(flags, device, steps, "eager", "none")),
        fused(make(flags, device, steps, "fused", flags.mode.rules)),
        gradients(make(flags, device, steps, "fused",
            flags.mode.rules + (flags.mode.rules == "none" ? "" : ",-weight_grad_update"))) {
    if (device.type != Device::Type::cuda) return;
    listed.reset(new Trainer(
        make(flags, device, steps, "fused", flags.mode.rules, false)));  // a Trainer cannot move
    replayed.reset(new Trainer(make(flags, device, steps, "fused", "none")));
  }
  std::string take_weights(const SavedModel& saved) {
    std::string how;
    for (Trainer* trainer : {&eager, &fused, &gradients, listed.get(), replayed.get()}) {
      if (trainer) how = mnist::take_weights(trainer->model(), saved);
    }
    return how;
  }

 private:
  static Trainer make(TrainFlags flags, Device device, int64_t steps, const char* mode,
      const std::string& rules, bool cuda_graph = true) {
    flags.mode.mode = mode;
    flags.mode.rules = rules;
    flags.mode.cuda_graph = cuda_graph;
    return Trainer(flags, make_model(flags.model, flags.common->seed, device), steps);
  }
};

void copy_state(Trainer& to, Trainer& from) {
  const auto copy_all = [](const nn::NamedTensors& a, const nn::NamedTensors& b) {
    for (size_t i = 0; i < a.size(); ++i) nn::copy_values(a[i].tensor, b[i].tensor, "compare");
  };
  copy_all(to.model().named_parameters(), from.model().named_parameters());
  copy_all(to.optimizer().state_tensors(), from.optimizer().state_tensors());
  to.optimizer().set_steps(from.optimizer().steps());
  to.set_step(from.step_number());
}

Parity check_parity(Trainers& trainers, const Batch& batch) {
  // Two recorded steps, then all three start the judged step from the state of the eager one and
  // from the same draws.
  for (int i = 0; i < 2; ++i) {
    trainers.fused.step(batch);
    trainers.gradients.step(batch);
  }
  copy_state(trainers.fused, trainers.eager);
  copy_state(trainers.gradients, trainers.eager);
  const Tensor rng = rng_state(batch.images.device()), draws = rng.to(kCpu);
  const auto step = [&](Trainer& trainer) {
    nn::copy_values(rng, draws, "compare");
    restart_random_ops();
    return copy(detach(trainer.step(batch)));
  };
  Parity parity;
  const Tensor loss = step(trainers.eager);
  parity.loss.see("loss", step(trainers.fused), loss);
  step(trainers.gradients);
  const auto each = [](Worst& worst, const nn::NamedTensors& fused, const nn::NamedTensors& eager) {
    for (size_t i = 0; i < eager.size(); ++i)
      worst.see(eager[i].name, fused[i].tensor, eager[i].tensor);
  };
  const auto grads = [](Trainer& trainer) {
    nn::NamedTensors out;
    for (const auto& [name, p] : trainer.model().named_parameters())
      out.push_back({name, p.grad()});
    return out;
  };
  each(parity.gradients, grads(trainers.gradients), grads(trainers.eager));
  each(parity.state, trainers.fused.optimizer().state_tensors(),
      trainers.eager.optimizer().state_tensors());
  each(parity.weights, trainers.fused.model().named_parameters(),
      trainers.eager.model().named_parameters());
  return parity;
}

void judge(const Parity& parity, const CompareFlags& flags, Device device, double lr) {
  const std::string& dtype = flags.train.model.dtype;
  const double allowed = flags.contest.max_rel.value_or(dtype == "f32"    ? 1e-5
                                                        : dtype == "tf32" ? 2e-3
                                                                          : 2e-2);
  const bool adam = flags.train.optimizer.optimizer != "sgd";
  for (const Worst* w : {&parity.loss, &parity.gradients, &parity.state}) {
    SINTER_CHECK(w->relative <= allowed, check,
        cat("compare: results differ: ", w == &parity.gradients ? "grad of " : "", w->where,
            ", max rel ", fmt::format("{:.1e}", w->relative), "; allowed ", allowed));
  }
  // Adam's first step, lr g / (|g| + eps), magnifies the rounding of tiny gradients: there weights
  // may differ by lr/20 more, and by both signs of a step where a library, on one side, may cut
  // operands to TF32 in a way of its own.
  const double magnified = dtype == "tf32" && device.type == Device::Type::cuda ? 2.01 : 0.05;
  const bool close =
      parity.weights.relative <= allowed || (adam && parity.weights.absolute <= magnified * lr);
  SINTER_CHECK(close, check,
      cat("compare: results differ: ", parity.weights.where, ", max rel ",
          fmt::format("{:.1e}", parity.weights.relative), ", ",
          fmt::format("{:.1e}", parity.in_lr(lr)), " lr; allowed ", allowed,
          adam ? cat(" or ", magnified, " lr") : ""));
}

int run_compare(const cli::CommonFlags& common, CompareFlags& compare, cli::Output& out) {
  const TrainFlags& flags = compare.train;
  const Device device = choose_device(common.device).first;
  const char* type = device.type == Device::Type::cuda ? "cuda" : device == kCpu ? "cpu" : "simt";
  const profiler::Exports files =
      compare.files.exports(fmt::format("{}_b{}_{}_{}", flags.model.model, flags.optimizer.batch,
                                flags.model.dtype, type),
          true);
  if (!files.formats.empty()) files.check(compare.files.force);
  manual_seed(common.seed);
  DataOptions wanted = flags.data.options(flags.model.classes);
  const int64_t rows = flags.optimizer.rows_of_step();
  wanted.limit = wanted.limit ? std::min(wanted.limit, rows) : rows;
  Dataset data = load_dataset(wanted);
  data.to(device);
  Batches batches(data.train, {.size = rows,
                                  .shuffle = true,
                                  .seed = common.seed,
                                  .dtype = flags.model.batch_dtype(),
                                  .normalize = flags.data.normalization(),
                                  .device = device});
  const Batch batch = batches.next();
  const std::string title = fmt::format("{}   batch {}{}   {}   {}   {}, {}   rules {}",
      flags.model.describe(), batch.labels.numel(),
      flags.optimizer.accum > 1 ? fmt::format(" in parts of {}", flags.optimizer.batch) : "",
      flags.model.dtype, flags.optimizer.optimizer, device.str(), count_of(num_threads(), "thread"),
      flags.mode.rules);
  out.note("data", fmt::format("{}: one batch of {}", data.description, batch.labels.numel()));

  const cli::ContestFlags& rounds = compare.contest;
  Trainers trainers(flags, device, 2 * (rounds.rounds + 1) * (rounds.steps + rounds.warmup));
  if (compare.saved)
    out.note("model", fmt::format("{} ({})", escaped(compare.saved->path),
                          trainers.take_weights(*compare.saved)));
  const Parity parity = check_parity(trainers, batch);
  cli::Contest contest{.device = device,
      .title = title,
      .eager = [&] { trainers.eager.step(batch); },
      .fused = [&] { trainers.fused.step(batch); },
      .step = trainers.fused.captured_step(),
      .rules = flags.mode.rules,
      .dtype = flags.model.dtype};
  if (trainers.listed) {
    contest.listed = [&] { trainers.listed->step(batch); };
    contest.eager_replayed = [&] { trainers.replayed->step(batch); };
    contest.eager_step = trainers.replayed->captured_step();
    for (int i = 0; i < 3; ++i) {
      contest.listed();
      contest.eager_replayed();
    }
  }
  if (contest.timed())
    out.note(
        "rounds", fmt::format("{}; as many again under the profiler", rounds.describe(contest)));
  note_emulator(device, out);
  cli::catch_signals();
  const cli::Outcome outcome = cli::run_contest(contest, rounds, out);
  const double lr = trainers.eager.lr_of(0);
  const std::string worst =
      parity.gradients.name.empty() ? "" : fmt::format(" ({})", parity.gradients.name);
  cli::print_contest(contest, rounds, outcome,
      fmt::format("parity: loss {:.0e}, gradients {:.0e}{}, state {:.0e}, weights {:.0e} lr",
          parity.loss.relative, parity.gradients.relative, worst, parity.state.relative,
          parity.in_lr(lr)),
      flags.mode.explain, out);
  cli::write_files(files, outcome, rounds,
      {flags.model.describe() + ", " + flags.optimizer.optimizer, common.command, cli::build_name(),
          std::to_string(common.seed), flags.optimizer.batch},
      out);
  if (!flags.mode.dump_graph.empty()) cli::write_graphs(flags.mode.dump_graph, contest.captured());
  nlohmann::ordered_json object = {{"schema", "sinter.compare/1"},
      {"model", flags.model.describe()}, {"batch", batch.labels.numel()},
      {"dtype", flags.model.dtype}, {"optimizer", flags.optimizer.optimizer},
      {"device", device.str()}, {"threads", num_threads()}, {"rules", flags.mode.rules},
      {"parity", {{"loss", parity.loss.relative}, {"gradients", parity.gradients.relative},
                     {"state", parity.state.relative}, {"weights_lr", parity.in_lr(lr)}}}};
  cli::add_json(object, contest, outcome);
  out.json(object);
  if (cli::interrupted())
    return cli::exit_code(Error::Kind::interrupted);  // the tables so far are out
  judge(parity, compare, device, lr);
  cli::judge("compare", rounds.view, cli::measured(contest, outcome));
  return 0;
}

}  // namespace

void add_compare(cli::App& app) {
  static CompareFlags compare;
  cli::Command& command = app.add("compare",
      "Runs the same training step eager and fused, interleaved: what became fewer, how long it "
      "takes, and that the numbers are the same.");
  compare.train.common = &app.common();
  add_data_flags(command.flags, compare.train.data);
  add_model_flags(command.flags, compare.train.model);
  command.flags.word("from", compare.from, "RUN|FILE", "a run folder or a safetensors file")
      .standard = "new weights";
  add_step_flags(command.flags, compare.train.optimizer);
  command.flags.topic("comparison");
  cli::add_fusion_flags(command.flags, compare.train.mode);
  cli::add_contest_flags(command.flags, compare.contest);
  cli::add_export_flags(command.flags, compare.files);
  command.check = [&command] {
    if (!compare.from.empty())
      adopt_model(command.flags, compare.train, compare.saved.emplace(read_model(compare.from)));
    resolve_step(compare.train);
    compare.contest.tables = compare.files.exports("", true).has("table");
  };
  command.run = [&app](cli::Output& out) { return run_compare(app.common(), compare, out); };
}

}  // namespace sinter::mnist
