// mnist compare: the same step eager and fused: are the numbers the same, what became fewer, and how much time does it take.
//
// Parity is judged on one step from equal weights. Clean rounds then run in pairs, A B B A, for the headline; as many profiled rounds only
// apportion the time to the rows of the ledger. On other devices than the CPU kernels are counted as they are launched, and the ledger has
// no times; on the emulator nothing is timed.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "capture/explain.h"
#include "capture/ledger.h"
#include "core/device/launch_log.h"
#include "core/device/memory.h"
#include "core/parallel.h"
#include "examples/cli/messages.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/graph_file.h"
#include "examples/mnist/trainer.h"
#include "nn/named_tensor.h"
#include "profiler/session.h"

namespace sinter::mnist {
namespace {

struct CompareFlags {
  TrainFlags train;
  int64_t steps = 20, warmup = 3, rounds = 9;
  std::optional<double> max_rel;
};

// The largest difference of one kind of tensor, relative to the tensor's largest value, and where.
struct Worst {
  double relative = 0, absolute = 0;
  std::string name{}, where{};

  void see(const std::string& seen, const Tensor& fused, const Tensor& eager) {
    const std::vector<double> a = fused.to_vector<double>(), b = eager.to_vector<double>();
    double scale = 0, difference = 0;
    size_t at = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double d = std::abs(a[i] - b[i]);
      if (!(d <= difference)) difference = std::isnan(d) ? INFINITY : d, at = i;
      scale = std::max(scale, std::abs(b[i]));
    }
    const double r = difference == 0 ? 0 : difference / std::max(scale, 1e-30);
    absolute = std::max(absolute, difference);
    if (r <= relative) return;
    relative = r;
    name = seen;
    where.clear();
    for (int d = eager.rank() - 1; d >= 0; --d) {
      where = cat(static_cast<int64_t>(at) % eager.size(d), where.empty() ? "" : ", ", where);
      at /= static_cast<size_t>(eager.size(d));
    }
    where = cat(name, " at [", where, "]");
  }
};

struct Parity {
  Worst loss, gradients, state, weights;
  double in_lr(double lr) const { return weights.absolute == 0 ? 0 : weights.absolute / lr; }  // the weights' difference
};

// The three trainers of a comparison: eager; fused; and fused without weight_grad_update, which leaves no gradient to look at.
struct Contest {
  Trainer eager, fused, gradients;

  static TrainFlags with_mode(TrainFlags flags, const char* mode, const std::string& extra_rule) {
    flags.mode.mode = mode;
    if (!extra_rule.empty() && flags.mode.rules != "none") flags.mode.rules += extra_rule;
    return flags;
  }
  Contest(const TrainFlags& flags, Device device, int64_t steps)
      : eager(with_mode(flags, "eager", ""), make_model(flags.model, flags.common->seed, device), steps),
        fused(with_mode(flags, "fused", ""), make_model(flags.model, flags.common->seed, device), steps),
        gradients(with_mode(flags, "fused", ",-weight_grad_update"), make_model(flags.model, flags.common->seed, device), steps) {}
};

void copy_state(Trainer& to, Trainer& from) {
  const auto copy_all = [](const nn::NamedTensors& a, const nn::NamedTensors& b) {
    for (size_t i = 0; i < a.size(); ++i) nn::copy_values(a[i].tensor, b[i].tensor, "compare");
  };
  copy_all(to.model().named_parameters(), from.model().named_parameters());
  copy_all(to.optimizer().state_tensors(), from.optimizer().state_tensors());
  to.optimizer().set_steps(from.optimizer().steps());
}

Parity check_parity(Contest& contest, const Batch& batch) {
  // Two recorded steps, then all three start the judged step from the state of the eager one and from the same draws.
  for (int i = 0; i < 2; ++i) contest.fused.step(batch), contest.gradients.step(batch);
  copy_state(contest.fused, contest.eager);
  copy_state(contest.gradients, contest.eager);
  const Tensor rng = rng_state(batch.images.device()), draws = rng.to(kCpu);
  const auto step = [&](Trainer& trainer) {
    nn::copy_values(rng, draws, "compare");
    restart_random_ops();
    return copy(detach(trainer.step(batch)));
  };
  Parity parity;
  const Tensor loss = step(contest.eager);
  parity.loss.see("loss", step(contest.fused), loss);
  step(contest.gradients);
  const auto each = [](Worst& worst, const nn::NamedTensors& fused, const nn::NamedTensors& eager) {
    for (size_t i = 0; i < eager.size(); ++i) worst.see(eager[i].name, fused[i].tensor, eager[i].tensor);
  };
  const auto grads = [](Trainer& trainer) {
    nn::NamedTensors out;
    for (const auto& [name, p] : trainer.model().named_parameters()) out.push_back({name, p.grad()});
    return out;
  };
  each(parity.gradients, grads(contest.gradients), grads(contest.eager));
  each(parity.state, contest.fused.optimizer().state_tensors(), contest.eager.optimizer().state_tensors());
  each(parity.weights, contest.fused.model().named_parameters(), contest.eager.model().named_parameters());
  return parity;
}

void judge(const Parity& parity, const CompareFlags& flags, double lr) {
  const double allowed = flags.max_rel.value_or(flags.train.model.dtype == "bf16" ? 2e-2 : 1e-5);
  const bool adam = flags.train.optimizer.optimizer != "sgd";
  for (const Worst* w : {&parity.loss, &parity.gradients, &parity.state}) {
    SINTER_CHECK(w->relative <= allowed, check,
                 cat("compare: results differ: ", w == &parity.gradients ? "grad of " : "", w->where, ", max rel ",
                     fmt::format("{:.1e}", w->relative), "; allowed ", allowed));
  }
  // Adam's first step, lr g / (|g| + eps), magnifies the rounding of tiny gradients: there weights may differ by lr/20 more.
  const bool close = parity.weights.relative <= allowed || (adam && parity.weights.absolute <= lr / 20);
  SINTER_CHECK(close, check,
               cat("compare: results differ: ", parity.weights.where, ", max rel ", fmt::format("{:.1e}", parity.weights.relative), ", ",
                   fmt::format("{:.1e}", parity.in_lr(lr)), " lr; allowed ", allowed, adam ? " or 0.05 lr" : ""));
}

using Clock = std::chrono::steady_clock;

double round_us(Trainer& trainer, const Batch& batch, const CompareFlags& flags) {
  for (int64_t i = 0; i < flags.warmup; ++i) trainer.step(batch);
  synchronize(batch.images.device());
  std::vector<double> times;
  for (int64_t i = 0; i < flags.steps; ++i) {
    const auto begin = Clock::now();
    trainer.step(batch);
    synchronize(batch.images.device());
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return profiler::median(times);
}

struct ProfiledRound {
  std::vector<double> launch_us;  // of each of the wanted launches; empty if a step had another number
  double step_us = 0;
  int64_t launches = 0;  // counted in the first step
};

ProfiledRound profiled_round(Trainer& trainer, const Batch& batch, const CompareFlags& flags, size_t launches) {
  profiler::Session session({.schedule = {.wait = 0, .warmup = static_cast<int>(flags.warmup), .active = static_cast<int>(flags.steps)},
                             .threads = num_threads()});
  while (!session.done()) {
    trainer.step(batch);
    session.step();
  }
  const profiler::Report report = session.finish();
  std::vector<double> steps;
  for (const profiler::StepSample& s : report.steps) steps.push_back(static_cast<double>(s.ns()) * 1e-3);
  const profiler::Rows rows = report.rows();
  const auto launched = [&](const profiler::OpCall& c) {
    return c.step_index == rows.calls[0].step_index && rows.rows[c.row].launches > 0;
  };
  return {.launch_us = capture::launch_times_us(report, launches),
          .step_us = profiler::median(steps),
          .launches = std::count_if(rows.calls.begin(), rows.calls.end(), launched)};
}

// Kernels of one step; those of a CUDA graph were counted when it was made.
int64_t counted_launches(Trainer& trainer, const Batch& batch) {
  const capture::Executor* executor = trainer.captured_step() ? trainer.captured_step()->captured()->executor.get() : nullptr;
  const int64_t before = launch_count();
  trainer.step(batch);
  return executor && executor->calls() < executor->launches() ? static_cast<int64_t>(executor->launches()) : launch_count() - before;
}

int run_compare(const cli::CommonFlags& common, CompareFlags& compare, cli::Output& out) {
  const TrainFlags& flags = compare.train;
  const Device device = choose_device(common.device).first;
  const bool timed = device.type != Device::Type::simt, profiles = device == kCpu;
  if (common.threads > 0) set_num_threads(static_cast<int>(common.threads));
  manual_seed(common.seed);
  DataOptions wanted = flags.data.options(flags.model.classes);
  wanted.limit = wanted.limit ? std::min(wanted.limit, flags.optimizer.batch) : flags.optimizer.batch;
  Dataset data = load_dataset(wanted);
  data.to(device);
  Batches batches(data.train, {.size = flags.optimizer.batch,
                               .shuffle = true,
                               .seed = common.seed,
                               .dtype = flags.model.batch_dtype(),
                               .normalize = flags.data.normalization()});
  const Batch batch = batches.next();
  const std::string title =
      fmt::format("{}   batch {}   {}   {}   {}, {}   rules {}", flags.model.describe(), batch.labels.numel(), flags.model.dtype,
                  flags.optimizer.optimizer, device.str(), count_of(num_threads(), "thread"), flags.mode.rules);
  const std::string rounds = timed ? fmt::format("{} of rounds x {}, {} warm-up", count_of(compare.rounds, "pair"),
                                                 count_of(compare.steps, "step"), compare.warmup)
                                   : "one step of each";
  out.note("data", fmt::format("{}: one batch of {}", data.description, batch.labels.numel()));
  if (profiles) out.note("rounds", fmt::format("{}; as many again under the profiler", rounds));
  note_emulator(device, out);

  Contest contest(flags, device, 2 * (compare.rounds + 1) * (compare.steps + compare.warmup));
  const Parity parity = check_parity(contest, batch);
  const capture::Step& step = *contest.fused.captured_step();
  const capture::Captured& captured = *step.captured();
  const size_t eager_launches = captured.recorded.nodes.size(), fused_launches = captured.executor->launches();

  std::vector<double> eager_us, fused_us, profiled_eager, profiled_fused;
  std::vector<std::pair<std::vector<double>, std::vector<double>>> profiled;
  int64_t counted_eager = 0, counted_fused = 0;
  for (int64_t round = 0; timed && round < compare.rounds && !cli::interrupted(); ++round) {
    for (const bool fused : {round % 2 == 1, round % 2 == 0})
      (fused ? fused_us : eager_us).push_back(round_us(fused ? contest.fused : contest.eager, batch, compare));
  }
  bool complete = true;
  for (int64_t round = 0; profiles && round < compare.rounds && !cli::interrupted(); ++round) {
    std::pair<std::vector<double>, std::vector<double>> times;
    for (const bool fused : {round % 2 == 1, round % 2 == 0}) {
      ProfiledRound r = profiled_round(fused ? contest.fused : contest.eager, batch, compare, fused ? fused_launches : eager_launches);
      (fused ? times.second : times.first) = std::move(r.launch_us);
      (fused ? profiled_fused : profiled_eager).push_back(r.step_us);
      (fused ? counted_fused : counted_eager) = r.launches;
    }
    complete = complete && !times.first.empty() && !times.second.empty();
    if (complete) profiled.push_back(std::move(times));
  }
  if (cli::interrupted()) return cli::exit_code(Error::Kind::interrupted);
  if (!profiles) {
    counted_eager = counted_launches(contest.eager, batch);
    counted_fused = counted_launches(contest.fused, batch);
    complete = counted_eager == static_cast<int64_t>(eager_launches) && counted_fused == static_cast<int64_t>(fused_launches);
  }

  const capture::Ledger ledger = capture::make_ledger(captured, profiled);
  const profiler::Estimate ratio = timed ? profiler::paired_ratio(eager_us, fused_us) : profiler::Estimate{};
  const double e = profiler::median(eager_us), f = profiler::median(fused_us), saved = e - f;
  out.result("compare", fmt::format("{}   {}", title, rounds));
  out.result_text("\n" + ledger.table() + "\n");
  const bool shown = ratio.has_interval && !ratio.contains(1);  // a difference
  const std::string step_text =
      timed ? fmt::format("{:.1f} -> {:.1f} us{}{}", e, f, shown ? " = " : ", ", profiler::factor_text(ratio, eager_us.size()))
            : "- -> -, not timed on simt";
  out.result_text(fmt::format("step {}   launches: claimed {}, counted {}{}\n", step_text, fused_launches, counted_fused,
                              complete ? "" : cat("   INCOMPLETE: a ", profiles ? "profiled " : "", "step has other launches")));
  if (profiles) {
    out.result_text(fmt::format("profiled {:.1f} and {:.1f} us: distortion {:+.1f} % and {:+.1f} %; the ledger only apportions\n",
                                profiler::median(profiled_eager), profiler::median(profiled_fused),
                                100 * (profiler::median(profiled_eager) / e - 1), 100 * (profiler::median(profiled_fused) / f - 1)));
  }
  out.result_text(fmt::format(
      "capture {:.1f} ms, shape-specialised{}; arena {:.1f} kB\n", step.stats().capture_ms,
      shown && saved > 0 ? ", pays back after " + count_of(std::llround(std::ceil(step.stats().capture_ms * 1e3 / saved)), "replay") : "",
      static_cast<double>(captured.executor->plan().bytes) * 1e-3));
  const double lr = contest.eager.lr_of(0);
  const auto mflop = [](int64_t flops) { return fmt::format("{:.3f}", static_cast<double>(flops) * 1e-6); };
  const std::string eager_mflop = mflop(ledger.total.eager_flops), fused_mflop = mflop(ledger.total.fused_flops);
  const std::string worst = parity.gradients.name.empty() ? "" : fmt::format(" ({})", parity.gradients.name);
  out.result_text(fmt::format(
      "{}   parity: loss {:.0e}, gradients {:.0e}{}, state {:.0e}, weights {:.0e} lr\n",
      eager_mflop == fused_mflop ? fmt::format("same: {} MFLOP", eager_mflop) : fmt::format("MFLOP {} -> {}", eager_mflop, fused_mflop),
      parity.loss.relative, parity.gradients.relative, worst, parity.state.relative, parity.in_lr(lr)));
  const std::vector<capture::Group>& groups = captured.fused.groups;
  const auto kept = std::count_if(groups.begin(), groups.end(), [](const capture::Group& g) { return g.kept_unfused; });
  if (kept || !captured.fused.misses.empty()) {
    out.result_text(fmt::format("not fused: {}, {} not faster here{}\n",
                                count_of(static_cast<int64_t>(captured.fused.misses.size()), "near miss", "es"), count_of(kept, "group"),
                                flags.mode.explain ? "" : " (--explain)"));
  }
  if (flags.mode.explain) out.result_text("\n" + capture::explain(captured, capture::RuleSet(flags.mode.rules)));
  if (!flags.mode.dump_graph.empty()) {
    write_graph(suffixed(flags.mode.dump_graph, "_eager"), captured.recorded);
    write_graph(suffixed(flags.mode.dump_graph, "_fused"), captured.fused.graph);
  }
  const auto number = [](double x, bool known) { return known ? nlohmann::ordered_json(x) : nlohmann::ordered_json(); };
  nlohmann::ordered_json object = {{"schema", "sinter.compare/1"},
                                   {"model", flags.model.describe()},
                                   {"batch", batch.labels.numel()},
                                   {"dtype", flags.model.dtype},
                                   {"optimizer", flags.optimizer.optimizer},
                                   {"device", device.str()},
                                   {"threads", num_threads()},
                                   {"rules", flags.mode.rules},
                                   {"eager_us", number(e, timed)},
                                   {"fused_us", number(f, timed)},
                                   {"ratio",
                                    {{"value", number(ratio.value, ratio.has_interval)},
                                     {"low", number(ratio.low, ratio.has_interval)},
                                     {"high", number(ratio.high, ratio.has_interval)}}},
                                   {"launches", {{"eager", counted_eager}, {"fused", counted_fused}, {"complete", complete}}},
                                   {"bytes", {{"eager", ledger.total.eager_bytes}, {"fused", ledger.total.fused_bytes}}},
                                   {"flops", {{"eager", ledger.total.eager_flops}, {"fused", ledger.total.fused_flops}}},
                                   {"capture_ms", step.stats().capture_ms},
                                   {"near_misses", captured.fused.misses.size()},
                                   {"kept_unfused", kept},
                                   {"parity",
                                    {{"loss", parity.loss.relative},
                                     {"gradients", parity.gradients.relative},
                                     {"state", parity.state.relative},
                                     {"weights_lr", parity.in_lr(lr)}}},
                                   {"ledger", nlohmann::ordered_json::array()}};
  for (const capture::LedgerRow& row : ledger.rows) {
    const bool timed = !row.eager_us.empty();
    object["ledger"].push_back({{"fused", row.fused},
                                {"eager", row.eager},
                                {"verdict", row.verdict},
                                {"launches", {row.eager_launches, row.fused_launches}},
                                {"self_us", {number(profiler::median(row.eager_us), timed), number(profiler::median(row.fused_us), timed)}},
                                {"bytes", {row.eager_bytes, row.fused_bytes}}});
  }
  out.json(object);
  judge(parity, compare, lr);
  return 0;
}

}  // namespace

void add_compare(cli::App& app) {
  static CompareFlags compare;
  cli::Command& command = app.add(
      "compare",
      "Runs the same training step eager and fused, interleaved: what became fewer, how long it takes, and that the numbers are the same.");
  compare.train.common = &app.common();
  compare.train.mode.measure = "on";  // training takes the rules as they are, so that two runs are equal to the bit
  add_data_flags(command.flags, compare.train.data);
  add_model_flags(command.flags, compare.train.model);
  add_step_flags(command.flags, compare.train.optimizer);
  command.flags.topic("comparison");
  add_fusion_flags(command.flags, compare.train.mode);
  command.flags.integer("steps", compare.steps, 1, 1'000'000, "of a round");
  command.flags.integer("warmup", compare.warmup, 0, 1'000'000, "steps before each round, not measured");
  command.flags.integer("rounds", compare.rounds, 1, 10'000, "pairs of rounds; fewer than 6 give no factor");
  command.flags.number("max-rel", compare.max_rel, 0, 1, "1e-5, bf16 2e-2",
                       "largest difference allowed, relative to the tensor's largest value");
  command.check = [] { resolve_step(compare.train); };
  command.run = [&app](cli::Output& out) { return run_compare(app.common(), compare, out); };
}

}  // namespace sinter::mnist
