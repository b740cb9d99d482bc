// mnist compare: the same step eager and fused: are the numbers the same, what became fewer, and
// how much time does it take. Parity is judged on one step from equal weights; what follows is the
// contest of measure/contest.h.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/parallel.h"
#include "examples/cli/contest.h"
#include "examples/cli/messages.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/model_file.h"
#include "examples/mnist/trainer.h"
#include "nn/named_tensor.h"
#include "ops/gemm_library.h"

namespace sinter::mnist {
namespace {

using measure::Worst;

struct CompareFlags {
  TrainFlags train;
  std::string from;
  std::optional<SavedModel> saved{};  // what is there
  ContestFlags contest;
};

struct Parity {
  Worst loss, gradients, state, weights;
  std::set<std::string> not_judged{};  // see gradients_of_rounding()
  // In TF32 on a card: what differs from the eager step in f32. A unit whose sum is about 0 passes
  // there and not here, as it may where cuBLASLt, cuDNN and own kernels cut operands each its way,
  // and takes a row's whole term along.
  Worst f32_gradients{}, f32_state{};
  // The weights' difference.
  double in_lr(double lr) const { return weights.absolute == 0 ? 0 : weights.absolute / lr; }
  std::string text(double lr) const;
};

std::string Parity::text(double lr) const {
  return fmt::format("loss {:.0e}, gradients {:.0e}{}{}, state {:.0e}, weights {:.0e} lr",
      loss.relative, gradients.relative,
      gradients.name.empty() ? "" : fmt::format(" ({})", gradients.name),
      f32_gradients.name.empty() ? "" : fmt::format(", by TF32 {:.0e}", f32_gradients.relative),
      state.relative, in_lr(lr));
}

// Makes the trainers of a comparison, all from the same weights.
struct Maker {
  const CompareFlags& compare;
  Device device;

  std::unique_ptr<Trainer> operator()(
      const char* mode, const std::string& rules, bool cuda_graph = true) const {
    TrainFlags flags = compare.train;
    flags.mode.mode = mode;
    flags.mode.rules = rules;
    flags.mode.cuda_graph = cuda_graph;
    const ContestFlags& rounds = compare.contest;
    auto model = make_model(flags.model, flags.common->seed, device);
    if (compare.saved) take_weights(*model, *compare.saved);
    return std::make_unique<Trainer>(
        flags, model, 2 * (rounds.rounds + 1) * (rounds.steps + rounds.warmup));
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

nn::NamedTensors gradients_of(Trainer& trainer) {
  nn::NamedTensors out;
  for (const auto& [name, p] : trainer.model().named_parameters()) out.push_back({name, p.grad()});
  return out;
}

// Parameters whose gradients are, on both sides, below what may differ in the largest of their
// layer's. A bias before batch norm has none but rounding, as the mean is taken away; Adam makes
// whole steps of it.
std::set<std::string> gradients_of_rounding(
    const nn::NamedTensors& a, const nn::NamedTensors& b, double allowed) {
  const auto layer_of = [](const std::string& name) { return name.substr(0, name.rfind('.') + 1); };
  std::map<std::string, double> largest;  // of a parameter, and of a layer: "4." of "4.bias"
  for (const nn::NamedTensors* side : {&a, &b}) {
    for (const auto& [name, gradient] : *side) {
      for (const double g : gradient.to_vector<double>()) {
        for (const std::string& of : {name, layer_of(name)})
          largest[of] = std::max(largest[of], std::isnan(g) ? INFINITY : std::abs(g));
      }
    }
  }
  std::set<std::string> names;
  for (const auto& [name, gradient] : a) {
    if (largest[name] < allowed * largest[layer_of(name)]) names.insert(name);
  }
  return names;
}

// `gradients` runs fused without weight_grad_update, which leaves no gradient to look at; `exact`,
// if there is one, eager without TF32.
Parity check_parity(Trainer& eager, Trainer& fused, Trainer& gradients, Trainer* exact,
    const Batch& batch, double allowed) {
  // Two recorded steps, then all three start the judged step from the state of the eager one and
  // from the same draws.
  for (int i = 0; i < 2; ++i) {
    fused.step(batch);
    gradients.step(batch);
  }
  copy_state(fused, eager);
  copy_state(gradients, eager);
  if (exact) copy_state(*exact, eager);
  const Tensor rng = rng_state(batch.images.device()), draws = rng.to(kCpu);
  const auto step = [&](Trainer& trainer) {
    nn::copy_values(rng, draws, "compare");
    restart_random_ops();
    return copy(detach(trainer.step(batch)));
  };
  Parity parity;
  const Tensor loss = step(eager);
  parity.loss.see("loss", step(fused), loss);
  step(gradients);
  const nn::NamedTensors ours = gradients_of(gradients), wanted = gradients_of(eager);
  parity.not_judged = gradients_of_rounding(ours, wanted, allowed);
  const auto see = [&](Worst& worst, const nn::NamedTensors& a, const nn::NamedTensors& b) {
    for (size_t i = 0; i < b.size(); ++i) {
      const std::string parameter = b[i].name.substr(b[i].name.find('/') + 1);  // of a state, too
      if (!parity.not_judged.contains(parameter)) worst.see(b[i].name, a[i].tensor, b[i].tensor);
    }
  };
  see(parity.gradients, ours, wanted);
  see(parity.state, fused.optimizer().state_tensors(), eager.optimizer().state_tensors());
  see(parity.weights, fused.model().named_parameters(), eager.model().named_parameters());
  if (exact) {
    set_allow_tf32(false);
    step(*exact);
    set_allow_tf32(true);
    see(parity.f32_gradients, gradients_of(*exact), wanted);
    see(parity.f32_state, exact->optimizer().state_tensors(), eager.optimizer().state_tensors());
  }
  return parity;
}

void judge(const Parity& parity, const Comparison& comparison, bool adam, double lr) {
  comparison.check_close(parity.loss);
  comparison.check_close(parity.gradients, "grad of ", 2 * parity.f32_gradients.relative);
  comparison.check_close(parity.state, "", 2 * parity.f32_state.relative);
  // Adam's first step, lr g / (|g| + eps), magnifies the rounding of tiny gradients: there weights
  // may differ by lr/20 more. In TF32 by both signs of a step: a last bit decides to which side an
  // operand is cut to 10 bits, so a gradient below what may differ of the largest has any sign.
  const bool tf32 = comparison.contest.dtype == "tf32";
  const double magnified = tf32 ? 2.01 : 0.05, allowed = comparison.allowed();
  const bool close =
      parity.weights.relative <= allowed || (adam && parity.weights.absolute <= magnified * lr);
  SINTER_CHECK(close, check,
      cat("compare: results differ: ", parity.weights.where, ", max rel ",
          fmt::format("{:.1e}", parity.weights.relative), ", ",
          fmt::format("{:.1e}", parity.in_lr(lr)), " lr; allowed ", allowed,
          adam ? cat(" or ", magnified, " lr") : ""));
}

int run_compare(const CommonFlags& common, CompareFlags& compare, Output& out) {
  TrainFlags& flags = compare.train;
  const Device device = choose_device(common.device).first;
  Dataset data = load_one_step(flags, compare.saved);
  Comparison comparison{common, flags.mode, compare.contest, out, "compare",
      flags.model.describe() + ", " + flags.optimizer.optimizer, flags.model.name(),
      flags.optimizer.batch};
  Contest& contest = comparison.contest;
  contest.device = device;
  contest.rules = flags.mode.rules;
  contest.dtype = flags.model.dtype;
  comparison.check_flags();
  data.to(device);
  const Batch batch = Batches(data.train, flags.batches(device)).next();
  const std::string threads = choose_threads(flags, batch);
  manual_seed(common.seed);
  contest.title = fmt::format("{}   batch {}{}   {}   {}   {}, {}   rules {}",
      flags.model.describe(), batch.labels.numel(),
      flags.optimizer.accum > 1 ? fmt::format(" in parts of {}", flags.optimizer.batch) : "",
      flags.model.dtype, flags.optimizer.optimizer, device.str(), count_of(num_threads(), "thread"),
      flags.mode.rules);
  contest.rules_option = "--rules ";
  comparison.next =
      flags.model.model == "mlp" && flags.optimizer.batch > 16
          ? "where fusing pays more: a small step, --batch 1 --hidden 64,64; or --model lenet"
          : "what was fused and why: --explain; the kernels' times: --profile";
  out.note("data", "{}: one batch of {}", data.description, batch.labels.numel());

  if (device == kCpu) out.note("threads", threads);

  const Maker make{compare, device};
  const auto eager = make("eager", "none"), fused = make("fused", contest.rules),
             gradients = make("fused",
                 contest.rules == "none" ? contest.rules : contest.rules + ",-weight_grad_update");
  if (compare.saved)
    out.note("model", "{} ({})", escaped(compare.saved->path),
        take_weights(eager->model(), *compare.saved));
  contest.step = fused->captured_step();
  if (compare.contest.blame) {
    for (int i = 0; i < 2; ++i) fused->step(batch);
    comparison.blame({batch.images, batch.labels});
    return 0;
  }
  const bool cuts_differ = flags.model.dtype == "tf32" && device.type == Device::Type::cuda;
  const auto exact = cuts_differ ? make("eager", "none") : nullptr;
  const Parity parity =
      check_parity(*eager, *fused, *gradients, exact.get(), batch, comparison.allowed());
  if (!parity.not_judged.empty())
    out.note("parity", "not judged, as their gradients are rounding: {}", join(parity.not_judged));
  contest.eager = [&] { eager->step(batch); };
  contest.fused = [&] { fused->step(batch); };
  contest.make = [&](const std::string& rules, bool cuda_graph) -> measure::Contestant {
    const std::shared_ptr<Trainer> made = make("fused", rules, cuda_graph);
    return {[made, &batch] { made->step(batch); }, made->captured_step()};
  };
  if (contest.timed())
    out.note("rounds", "{}; as many again under the profiler", compare.contest.describe(contest));
  note_emulator(device, out);
  catch_signals();
  const double lr = eager->lr_of(0);
  const Outcome outcome = comparison.run(parity.text(lr));
  Json object = {{"schema", "sinter.compare/1"}, {"model", flags.model.describe()},
      {"batch", batch.labels.numel()}, {"dtype", flags.model.dtype},
      {"optimizer", flags.optimizer.optimizer}, {"device", device.str()},
      {"threads", num_threads()}, {"rules", flags.mode.rules},
      {"parity", {{"loss", parity.loss.relative}, {"gradients", parity.gradients.relative},
                     {"state", parity.state.relative}, {"weights_lr", parity.in_lr(lr)},
                     {"not_judged", parity.not_judged}}}};
  cli::add_json(object, contest, outcome);
  out.json(object);
  if (interrupted()) return exit_code(Error::Kind::interrupted);  // the tables so far are out
  judge(parity, comparison, flags.optimizer.optimizer != "sgd", lr);
  comparison.judge(outcome);
  return 0;
}

}  // namespace

void add_compare(App& app) {
  static CompareFlags compare;
  Command& command = app.add("compare",
      "Runs the same training step eager and fused, interleaved: what became fewer, how long it "
      "takes, and that the numbers are the same.");
  compare.train.common = &app.common();
  add_data_flags(command.flags, compare.train.data);
  add_model_flags(command.flags, compare.train.model);
  command.flags.word("from", compare.from, "RUN|FILE", "a run folder or a safetensors file")
      .standard = "new weights";
  add_step_flags(command.flags, compare.train.optimizer);
  add_contest_flags(command.flags, compare.train.mode, compare.contest);
  command.check = [&command] {
    if (!compare.from.empty())
      adopt_model(command.flags, compare.train, compare.saved.emplace(read_model(compare.from)));
    resolve_step(command.flags, compare.train);
  };
  command.run = [&app](Output& out) { return run_compare(app.common(), compare, out); };
}

}  // namespace sinter::mnist
