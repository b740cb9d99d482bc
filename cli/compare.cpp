// compare: a job's step eager and fused: are the numbers the same, what became fewer, and
// how much time does it take. Parity is checked on one step from equal weights; what follows is the
// comparison of measure/comparison.h.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/comparison.h"
#include "cli/job.h"
#include "cli/process.h"
#include "core/context.h"
#include "core/parallel.h"
#include "measure/rounding.h"
#include "nn/named_tensor.h"
#include "ops/ops.h"
#include "ops/product/gemm_library.h"

namespace sinter::cli {
namespace {

// Note [How far eager and fused may part]
//   Both take one step from the same weights and draws, and round differently.
//   Gradients may differ by `limit` times the largest of their tensor: 1e-5 in f32, more where
//   operands are cut (CompareRun::allowed()). Averages of gradients are gradients, an average of
//   their squares has twice their relative difference.
//   A gradient whose terms cancel has rounding to show, and little else: that of a bias, or of a
//   weight of one element, before batch norm, which takes mean and scale away. If all its elements
//   part by no more than rounding_of_terms() allows, neither it nor its averages are compared, and
//   its update by the largest of these bounds. Only a parameter that differs is asked.
//   Weights: see measure::WorstUpdate, with d = `limit` times the largest gradient, or
//   that bound.
struct Parity {
  Worst loss, gradients, state, squares, weights;
  // Parameters whose gradients part by rounding, and how far that may be.
  std::map<std::string, double> not_compared{};
  // In TF32 on a card: what differs from the eager step in f32. A unit whose sum is about 0 passes
  // there and not here, as it may where cuBLASLt, cuDNN and own kernels cut operands each its way,
  // and takes a row's whole term along.
  Worst f32_gradients{}, f32_state{};
  measure::WorstUpdate updates{};

  double state_relative() const { return std::max(state.relative, squares.relative); }
  double limit(double allowed) const { return std::max(allowed, 2 * f32_gradients.relative); }
  // The weights' difference.
  double in_lr(double lr) const { return weights.absolute == 0 ? 0 : weights.absolute / lr; }
  // Where both sides have a NaN, or "".
  std::string nan() const {
    for (const Worst* worst : {&loss, &gradients, &state, &squares, &weights}) {
      if (!worst->nan.empty()) return worst->nan;
    }
    return "";
  }
  std::string text(double lr) const;
};

std::string Parity::text(double lr) const {
  return fmt::format("loss {:.0e}, gradients {:.0e}{}{}, state {:.0e}, weights {:.0e} lr",
      loss.relative, gradients.relative,
      gradients.name.empty() ? "" : fmt::format(" ({})", gradients.name),
      f32_gradients.name.empty() ? "" : fmt::format(", by TF32 {:.0e}", f32_gradients.relative),
      state_relative(), in_lr(lr));
}

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

// Which calls made the gradients of a step: by the memory of their results.
class GradientCalls : public Recorder {
 public:
  GradientCalls() { Context::current().recorders.push_back(this); }
  ~GradientCalls() override { std::erase(Context::current().recorders, this); }
  GradientCalls(const GradientCalls&) = delete;
  GradientCalls& operator=(const GradientCalls&) = delete;

  void record(const Call& call) override {
    if (&call.op == &kAccumulateOp) {  // the parts of a batch
      const std::vector<Made> part = made_[call.in[1].storage().get()];
      std::vector<Made>& all = made_[call.in[0].storage().get()];
      all.insert(all.end(), part.begin(), part.end());
    }
    for (size_t r = 0; r < call.out.size(); ++r) {
      made_[call.out[r].storage().get()] = {};
      if (call.role != Role::wgrad && call.role != Role::bgrad) continue;
      made_[call.out[r].storage().get()] = {
          {&call.op, Tensors(call.in.begin(), call.in.end()), call.attrs, r}};
    }
  }
  // rounding_of_terms() of each element; empty for one that no such call made.
  std::vector<double> rounding_of(const Tensor& gradient) const {
    std::vector<double> sum;
    const auto at = made_.find(gradient.storage().get());
    for (const Made& made : at == made_.end() ? std::vector<Made>{} : at->second) {
      Tensors in = made.in;
      for (Tensor& t : in) t = t.defined() ? t.to(kCpu) : t;
      const Tensor part = rounding_of_terms(*made.op, in, made.attrs)[made.result];
      const std::vector<double> values = part.to_vector<double>();
      const int64_t offset = gradient.offset();  // a row of what a call made
      sum.resize(size_t(gradient.numel()));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[size_t(offset) + i];
    }
    return sum;
  }

 private:
  struct Made {
    const OpDef* op;
    Tensors in;
    Attrs attrs;
    size_t result;
  };
  std::map<const Storage*, std::vector<Made>> made_;
};

// One step each, from equal weights and draws.
class ParityCheck {
 public:
  ParityCheck(const Maker& make, const Tensors& batch, const CompareRun& compare_run)
      : make_(make), batch_(batch), allowed_(compare_run.allowed()) {}
  // `gradients` runs fused without weight_grad_update, which leaves no gradient to look at;
  // `exact`, if there is one, eager without TF32.
  Parity run(Trainer& eager, Trainer& fused, Trainer& gradients, Trainer* exact);

 private:
  Tensor step(Trainer& trainer) const {
    nn::copy_values(rng_, draws_, "compare");
    restart_random_ops();
    return copy(detach(trainer.step(batch_)[0]));
  }
  std::map<std::string, double> parted_by_rounding(
      const nn::NamedTensors& ours, const nn::NamedTensors& wanted, double limit) const;

  const Maker& make_;
  const Tensors& batch_;
  const double allowed_;
  const Tensor rng_ = rng_state(batch_[0].device()), draws_ = rng_.to(kCpu);
};

// Of the parameters whose gradients differ.
std::map<std::string, double> ParityCheck::parted_by_rounding(
    const nn::NamedTensors& ours, const nn::NamedTensors& wanted, double limit) const {
  std::vector<size_t> differ;
  for (size_t i = 0; i < ours.size(); ++i) {
    Worst worst;
    worst.see("", ours[i].tensor, wanted[i].tensor);
    if (worst.relative > limit) differ.push_back(i);
  }
  if (differ.empty()) return {};
  const auto again = make_("eager", "none", false);  // its gradients are not clipped
  const GradientCalls calls;
  step(*again);
  const nn::NamedTensors whole = gradients_of(*again);
  double clipped = 0, unclipped = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    clipped = std::max(clipped, largest(wanted[i].tensor));
    unclipped = std::max(unclipped, largest(whole[i].tensor));
  }
  std::map<std::string, double> parted;
  for (const size_t i : differ) {
    const std::vector<double> a = ours[i].tensor.to_vector<double>(),
                              b = wanted[i].tensor.to_vector<double>(),
                              rounding = calls.rounding_of(whole[i].tensor);
    bool within = !rounding.empty() && unclipped > 0;
    double most = 0;
    for (size_t k = 0; within && k < a.size(); ++k) {
      const double allowed = rounding[k] * clipped / unclipped;
      within = std::abs(a[k] - b[k]) <= allowed;
      most = std::max(most, allowed);
    }
    if (within) parted[ours[i].name] = most;
  }
  return parted;
}

// Where a weight is before a step, and behind one by gradients that differ by d.
struct UpdateRange {
  Tensor before, less, more;
};

// Of the step that `trainer` is about to take, by the gradients that the eager one had.
std::vector<UpdateRange> ranges_of_updates(
    Trainer& trainer, const nn::NamedTensors& gradients, const Parity& parity, double limit) {
  nn::Optimizer& optimizer = trainer.optimizer();
  optimizer.set_lr(trainer.lr_of(0));
  std::vector<UpdateRange> ranges;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto& [name, given] = gradients[i];
    const auto rounding = parity.not_compared.find(name);
    const double d =
        rounding == parity.not_compared.end() ? limit * largest(given) : rounding->second;
    const Tensor gradient = cast(given.to(kCpu), DType::f64);
    ranges.push_back({copy(optimizer.parameters()[i].tensor.to(kCpu)),
        optimizer.after_step(i, gradient + -d), optimizer.after_step(i, gradient + d)});
  }
  return ranges;
}

Parity ParityCheck::run(Trainer& eager, Trainer& fused, Trainer& gradients, Trainer* exact) {
  // Two recorded steps, then all three start the compared step from the state of the eager one.
  for (int i = 0; i < 2; ++i) {
    fused.step(batch_);
    gradients.step(batch_);
  }
  for (Trainer* trainer : {&fused, &gradients, exact}) {
    if (trainer) trainer->copy_from(eager);
  }
  Parity parity;
  const Tensor loss = step(eager);
  step(gradients);
  const nn::NamedTensors ours = gradients_of(gradients), wanted = gradients_of(eager);
  if (exact) {
    set_allow_tf32(false);
    step(*exact);
    set_allow_tf32(true);
  }
  const std::span<const OptimizerState> averages = eager.optimizer().row().states;
  const auto see = [&](Worst& worst, const nn::NamedTensors& a, const nn::NamedTensors& b,
                       Worst* squares = nullptr) {
    for (size_t i = 0; i < b.size(); ++i) {
      const std::string& name = b[i].name;
      if (parity.not_compared.contains(name.substr(name.find('/') + 1)))
        continue;  // of a state, too
      const auto is = [&](const OptimizerState& s) { return name.starts_with(str(s.name, "/")); };
      const auto of = std::ranges::find_if(averages, is);
      const bool square = squares && of != averages.end() && of->degree == 2;
      (square ? *squares : worst).see(name, a[i].tensor, b[i].tensor);
    }
  };
  const nn::NamedTensors state = eager.optimizer().state_tensors(),
                         weights = eager.model().named_parameters(),
                         fused_weights = fused.model().named_parameters();
  if (exact) see(parity.f32_gradients, gradients_of(*exact), wanted);
  const double limit = parity.limit(allowed_);
  parity.not_compared = parted_by_rounding(ours, wanted, limit);
  const std::vector<UpdateRange> ranges = ranges_of_updates(fused, wanted, parity, limit);
  parity.loss.see("loss", step(fused), loss);
  if (exact) see(parity.f32_state, exact->optimizer().state_tensors(), state);
  see(parity.gradients, ours, wanted);
  see(parity.state, fused.optimizer().state_tensors(), state, &parity.squares);
  see(parity.weights, fused_weights, weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto& [before, less, more] = ranges[i];
    parity.updates.see(
        weights[i].name, before, fused_weights[i].tensor, weights[i].tensor, less, more);
  }
  return parity;
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

void check_agreement(const Parity& parity, const CompareRun& compare_run, double lr) {
  const double limit = parity.limit(compare_run.allowed());
  const double f32_state = 2 * parity.f32_state.relative;
  compare_run.check_close(parity.loss);
  compare_run.check_close(parity.gradients, "grad of ", limit);
  compare_run.check_close(parity.state, "", std::max(limit, f32_state));
  compare_run.check_close(parity.squares, "", std::max(2 * limit, f32_state));
  const measure::WorstUpdate& updates = parity.updates;
  SINTER_CHECK(updates.share <= 1, check,
      fmt::format("compare: results differ: {}, by {:.1e} lr; allowed {:.1e} lr, which is what "
                  "differences of the gradients explain",
          updates.where, updates.apart / lr, updates.allowed / lr));
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
  compare_run.check_flags();
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
  const Parity parity =
      ParityCheck(make, batch, compare_run).run(*eager, *fused, *gradients, exact.get());
  std::vector<std::string> not_compared;
  for (const auto& [name, rounding] : parity.not_compared) not_compared.push_back(name);
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
  const double lr = eager->lr_of(0);
  const Outcome outcome = compare_run.run(parity.text(lr));
  Json object = {{"model", job.describe()}, {"batch", rows}, {"dtype", job.dtype()},
      {"optimizer", flags.optimizer.optimizer}, {"device", device.str()},
      {"threads", num_threads()}, {"rules", flags.mode.rules},
      {"parity", {{"loss", parity.loss.relative}, {"gradients", parity.gradients.relative},
                     {"state", parity.state_relative()}, {"weights_lr", parity.in_lr(lr)},
                     {"not_compared", not_compared}}}};
  add_json(object, comparison, outcome);
  out.json("sinter.compare/1", object);
  if (interrupted()) return exit_code(Error::Kind::interrupted);  // the tables so far are out
  check_agreement(parity, compare_run, lr);
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

void add_compare(App& app, Command& command, const JobMaker& make) {
  static ComparisonFlags comparison;
  static const std::unique_ptr<Job> job = make(app.common());
  add_step_flags(command.flags, *job);
  add_comparison_flags(command.flags, job->flags.mode, comparison);
  command.check = [&command] { check_flags(command.flags, *job, Use::step); };
  command.run = [&command](
                    Output& out) { return run_compare(command.flags, *job, comparison, out); };
}

}  // namespace sinter::cli
