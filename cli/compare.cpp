// compare: a job's step eager and fused: are the numbers the same, what became fewer, and
// how much time does it take. Parity is checked on one step from equal weights; what follows is the
// comparison of measure/comparison.h.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "cli/comparison.h"
#include "cli/job.h"
#include "cli/process.h"
#include "core/json.h"
#include "core/parallel.h"
#include "measure/parity.h"
#include "nn/named_tensor.h"
#include "ops/ops.h"
#include "ops/product/gemm_library.h"

namespace sinter::cli {
namespace {

using measure::Parity, measure::ParityPair;

// Note [How far eager and fused may part]
//   Both take one step from the same weights and draws, and round differently.
//   Gradients may differ by `limit` times the largest of their tensor: 1e-5 in f32, more where
//   operands are cut (CompareRun::allowed()). Averages of gradients are gradients, an average of
//   their squares has twice their relative difference.
//   In TF32 on a card the limit is at least twice what differs from the eager step in f32. A unit
//   whose sum is about 0 passes there and not here, as it may where cuBLASLt, cuDNN and own kernels
//   cut operands each its way, and takes a row's whole term along.
//   A gradient whose terms cancel has rounding to show, and little else: that of a bias, or of a
//   weight of one element, before batch norm, which takes mean and scale away. If all its elements
//   part by no more than rounding_of_terms() allows, neither it nor its averages are compared, and
//   its update by the largest of these bounds. Only a parameter that differs is asked.
//   Weights: see measure::update_bound(), with d = `limit` times the largest gradient, or that
//   bound.
struct Agreement {
  Parity parity;
  // Parameters whose gradients part by rounding, and how far that may be.
  std::map<std::string, double> not_compared{};
};

// Makes the trainers of a comparison, all from the same weights.
struct Maker {
  Job& job;
  const ComparisonFlags& rounds;
  Device device;

  std::unique_ptr<Trainer> operator()(const char* mode, const std::string& rules, bool clip = true,
      std::vector<capture::Refused> choices = {}) const {
    TrainFlags flags = job.flags;
    if (!clip) flags.optimizer.clip = 0;
    flags.mode.mode = mode;
    flags.mode.rules = rules;
    return job.make_trainer(flags, device, 2 * (rounds.rounds + 1) * (rounds.steps + rounds.warmup),
        std::move(choices));
  }
};

nn::NamedTensors gradients_of(Trainer& trainer) {
  nn::NamedTensors out;
  for (const auto& [name, p] : trainer.model().named_parameters()) out.push_back({name, p.grad()});
  return out;
}

double largest(const Tensor& t) {
  double most = 0;
  for (const double v : t.to_vector<double>()) most = std::max(most, std::abs(v));
  return most;
}

// One step each, from equal weights and draws.
class ParityCheck {
 public:
  ParityCheck(const Maker& make, const Tensors& batch, const CompareRun& compare_run)
      : make_(make), batch_(batch), allowed_(compare_run.allowed()) {}
  // `gradients` runs fused without weight_grad_update, which leaves no gradient to look at;
  // `exact`, if there is one, eager without TF32.
  Agreement run(Trainer& eager, Trainer& fused, Trainer& gradients, Trainer* exact);

 private:
  Tensor step(Trainer& trainer) const {
    nn::copy_values(rng_, draws_, "compare");
    restart_random_ops();
    return copy(detach(trainer.step(batch_)[0]));
  }
  void find_parted(const nn::NamedTensors& ours, const nn::NamedTensors& wanted, double limit);
  // Of what is compared: "grad of 0.weight", "exp_avg/0.weight".
  std::vector<ParityPair> pairs(const std::string& kind, const std::string& prefix,
      const nn::NamedTensors& ours, const nn::NamedTensors& wanted, double limit) const;

  const Maker& make_;
  const Tensors& batch_;
  const double allowed_;
  const Tensor rng_ = rng_state(batch_[0].device()), draws_ = rng_.to(kCpu);
  std::map<std::string, double> parted_;
};

std::vector<ParityPair> ParityCheck::pairs(const std::string& kind, const std::string& prefix,
    const nn::NamedTensors& ours, const nn::NamedTensors& wanted, double limit) const {
  std::vector<ParityPair> all;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string& name = wanted[i].name;
    if (parted_.contains(name.substr(name.find('/') + 1))) continue;  // of a state, too
    all.push_back({.name = prefix + name,
        .fused = ours[i].tensor,
        .eager = wanted[i].tensor,
        .limit = limit,
        .kind = kind});
  }
  return all;
}

// Of the parameters whose gradients differ, those that part by rounding alone.
void ParityCheck::find_parted(
    const nn::NamedTensors& ours, const nn::NamedTensors& wanted, double limit) {
  const Parity seen = measure::parity(pairs("", "", ours, wanted, limit));
  if (seen.holds()) return;
  const auto again = make_("eager", "none", false);  // its gradients are not clipped
  const measure::GradientRounding rounding;
  step(*again);
  const nn::NamedTensors whole = gradients_of(*again);
  double clipped = 0, unclipped = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    clipped = std::max(clipped, largest(wanted[i].tensor));
    unclipped = std::max(unclipped, largest(whole[i].tensor));
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    if (seen.rows[i].share <= 1) continue;
    Tensor bound = rounding.of(whole[i].tensor);
    if (!bound.defined() || unclipped == 0) continue;
    bound = scale(bound, clipped / unclipped);
    const Parity within =
        measure::parity({{.fused = ours[i].tensor, .eager = wanted[i].tensor, .bound = bound}});
    if (within.holds()) parted_[ours[i].name] = largest(bound);
  }
}

Agreement ParityCheck::run(Trainer& eager, Trainer& fused, Trainer& gradients, Trainer* exact) {
  // Two recorded steps, then all three start the compared step from the state of the eager one.
  for (int i = 0; i < 2; ++i) {
    fused.step(batch_);
    gradients.step(batch_);
  }
  for (Trainer* trainer : {&fused, &gradients, exact}) {
    if (trainer) trainer->copy_from(eager);
  }
  const Tensor loss = step(eager);
  step(gradients);
  const nn::NamedTensors ours = gradients_of(gradients), wanted = gradients_of(eager),
                         state = eager.optimizer().state_tensors(),
                         weights = eager.model().named_parameters();
  const auto twice = [&](const nn::NamedTensors& a, const nn::NamedTensors& b) {
    return 2 * measure::parity(pairs("", "", a, b, 0)).relative("");
  };
  double limit = allowed_;
  if (exact) {
    set_allow_tf32(false);
    step(*exact);
    set_allow_tf32(true);
    limit = std::max(limit, twice(gradients_of(*exact), wanted));
  }
  find_parted(ours, wanted, limit);
  const double of_state = exact ? twice(exact->optimizer().state_tensors(), state) : 0;
  nn::Optimizer& optimizer = fused.optimizer();  // its step is still to come
  optimizer.set_lr(fused.lr_of(0));
  Tensors updates;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto rounding = parted_.find(wanted[i].name);
    const double d =
        rounding == parted_.end() ? limit * largest(wanted[i].tensor) : rounding->second;
    const Tensor gradient = cast(wanted[i].tensor.to(kCpu), DType::f64);
    updates.push_back(measure::update_bound(optimizer.parameters()[i].tensor, weights[i].tensor,
        optimizer.after_step(i, gradient + -d), optimizer.after_step(i, gradient + d)));
  }
  std::vector<ParityPair> all{
      {.name = "loss", .fused = step(fused), .eager = loss, .limit = allowed_, .kind = "loss"}};
  const auto add = [&](const std::vector<ParityPair>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(pairs("gradients", "grad of ", ours, wanted, limit));
  for (ParityPair& pair : pairs("state", "", optimizer.state_tensors(), state, limit)) {
    for (const OptimizerState& average : optimizer.row().states) {
      if (average.degree == 2 && pair.name.starts_with(str(average.name, "/"))) pair.limit *= 2;
    }
    pair.limit = std::max(pair.limit, of_state);
    add({pair});
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    all.push_back({.name = weights[i].name,
        .fused = fused.model().named_parameters()[i].tensor,
        .eager = weights[i].tensor,
        .bound = updates[i],
        .kind = "weights",
        .unit = fused.lr_of(0),
        .unit_name = "lr",
        .reason = ", which is what differences of the gradients explain"});
  }
  return {measure::parity(all), parted_};
}

// Takes steps op by op from the weights of the start; in which one, and which op, makes the first
// NaN: "step 2, linear: ..", or 0 and "".
std::pair<int64_t, std::string> first_nan(const Maker& make, const Tensors& batch, int64_t steps) {
  const auto trainer = make("eager", "none");
  int64_t i = 0;
  // An update's NaN is one of the next step's loss; before these two searching is time lost.
  while (++i < steps - 1) trainer->step(batch);
  for (; i <= steps; ++i) {
    const std::string found = cli::first_nan([&] { trainer->step(batch); });
    if (!found.empty()) return {i, str("step ", i, ", ", found)};
  }
  return {};
}

int run_compare(
    const Flags& given, Job& job, const ComparisonFlags& comparison_flags, Output& out) {
  const TrainFlags& flags = job.flags;
  const CommonFlags& common = *flags.common;
  const Device device = choose_device(common.device).first;
  CompareRun compare_run{common, flags.mode, comparison_flags, out, "compare", "", job.name(),
      flags.optimizer.rows_of_step()};
  Comparison& comparison = compare_run.comparison;
  comparison.device = device;
  comparison.rules = flags.mode.rules;
  comparison.dtype = job.dtype();
  compare_run.check_flags(given);
  const Tensors batch = load_batch(job, given, out);
  const int64_t rows = batch[0].size(0);
  compare_run.workload = job.workload();
  comparison.title = fmt::format("{}   batch {}{}   {}   {}   {}, {}   rules {}", job.describe(),
      rows, flags.optimizer.accum > 1 ? fmt::format(" in parts of {}", flags.optimizer.batch) : "",
      job.dtype(), flags.optimizer.optimizer, device.str(), count_of(num_threads(), "thread"),
      flags.mode.rules);
  comparison.rules_option = "--rules ";
  compare_run.next = job.next();
  if (compare_run.next.empty())
    compare_run.next = comparison.timed()
                           ? "what was fused and why: --explain; the kernels' times: --profile"
                           : "what was fused and why: --explain";

  const Maker make{job, comparison_flags, device};
  const auto eager = make("eager", "none"), fused = make("fused", comparison.rules),
             gradients = make("fused", comparison.rules == "none"
                                           ? comparison.rules
                                           : comparison.rules + ",-weight_grad_update");
  if (const std::string weights = job.weights(); !weights.empty()) out.note("model", weights);
  comparison.step = fused->captured_step();
  compare_run.inputs = batch;
  compare_run.picture = job.picture();
  if (comparison_flags.blame) {
    for (int i = 0; i < 2; ++i) fused->step(batch);
    // A NaN is in all weights a step later: so the step that has the first one is looked at.
    const auto [step, nan] = first_nan(make, batch, 2);
    if (step > 0) {
      out.warning(nan);
      for (int64_t i = 1; i < step; ++i) eager->step(batch);
      fused->copy_from(*eager);
    }
    compare_run.blame();
    return 0;
  }
  const bool cuts_differ = job.dtype() == "tf32" && device.type == Device::Type::cuda;
  const auto exact = cuts_differ ? make("eager", "none") : nullptr;
  const auto [parity, parted] =
      ParityCheck(make, batch, compare_run).run(*eager, *fused, *gradients, exact.get());
  std::vector<std::string> not_compared;
  for (const auto& [name, rounding] : parted) not_compared.push_back(name);
  if (!not_compared.empty())
    out.note("parity", "not compared: {}, whose gradients differ by no more than rounding explains",
        join(not_compared));
  comparison.eager = [&] { eager->step(batch); };
  comparison.fused = [&] { fused->step(batch); };
  comparison.again = [&]() -> measure::Twin {
    const std::shared_ptr<Trainer> a = make("eager", "none"),
                                   b = make("fused", comparison.rules, true,
                                       fused->captured_step()->choices());
    return {[a, &batch] { a->step(batch); }, [b, &batch] { b->step(batch); }};
  };
  catch_signals();
  const Outcome outcome = compare_run.run(parity.text());
  const double weights = parity.absolute("weights");
  Json object = {{"model", job.describe()}, {"batch", rows}, {"dtype", job.dtype()},
      {"optimizer", flags.optimizer.optimizer}, {"device", device.str()},
      {"threads", num_threads()}, {"rules", flags.mode.rules},
      {"parity", {{"loss", parity.relative("loss")}, {"gradients", parity.relative("gradients")},
                     {"state", parity.relative("state")},
                     {"weights_lr", weights == 0 ? 0 : weights / eager->lr_of(0)},
                     {"not_compared", not_compared}, {"tensors", parity.rows}}}};
  add_json(object, comparison, outcome);
  out.json("sinter.compare/1", object);
  if (interrupted()) return compare_run.stopped(std::ssize(outcome.eager_us));
  compare_run.check(parity);
  // That both sides have a NaN says nothing of the rest: as train, it is no success.
  SINTER_CHECK(parity.nan().empty(), numeric,
      str("compare: nan on both sides: ", parity.nan(), "; ", first_nan(make, batch, 1).second),
      "results that are nan cannot be compared: a smaller learning rate, or other weights");
  if (const int64_t bad = eager->state().first_bad_step; bad >= 0) {
    const std::string nan = first_nan(make, batch, bad + 1).second;
    out.warning(
        fmt::format("only the first steps are compared: the loss of step {} is not finite{}",
            bad + 1, nan.empty() ? "" : "; " + nan));
  }
  compare_run.check(outcome);
  return 0;
}

}  // namespace

void add_compare(App& app, const JobMaker& make) {
  app.add("compare",
      "Runs the same training step eager and fused, interleaved: what became fewer, how long it "
      "takes, and that the numbers are the same.",
      [make](App& here, Command& command) {
        static ComparisonFlags comparison;
        static const std::unique_ptr<Job> job = make(here.common());
        add_step_flags(command, *job);
        add_comparison_flags(command.flags, job->flags.mode, comparison);
        command.check = [&command] { check_flags(command.flags, *job, Use::step); };
        command.run = [&command](Output& out) {
          return run_compare(command.flags, *job, comparison, out);
        };
      });
}

}  // namespace sinter::cli
