#include "cli/block.h"

#include <fmt/format.h>

#include "capture/explain.h"
#include "cli/comparison.h"
#include "cli/process.h"
#include "core/json.h"
#include "core/parallel.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "profiler/thresholds.h"
#include "train/trainer.h"

namespace sinter::cli {
namespace {

struct BlockFlags {
  std::string pass = "forward+backward", mode = "both", dtype = "auto";
  FusionFlags fusion;
  ComparisonFlags comparison;

  bool backward() const { return pass != "forward"; }
  bool both() const { return mode == "both"; }
};

// A module, what it reads, and the step of both.
struct Passes {
  std::shared_ptr<nn::Module> module;
  Tensors inputs;  // x and the gradient of y
  bool with_backward;
  Trainer trainer;

  Passes(const Block& block, bool backward, uint64_t seed, DType dtype, Device device,
      TrainerOptions how)
      : module(moved(block.make_module(seed), dtype, device)),
        with_backward(backward),
        trainer(module, nullptr, with_step(std::move(how))) {
    nn::init::Stream stream{seed, 1};
    for (const Shape& shape : {block.input(), block.result()}) {
      const Tensor t = Tensor::empty(shape);
      nn::init::uniform(t, -1, 1, stream);
      inputs.push_back(cast(t, dtype).to(device));
    }
    inputs[0].set_requires_grad(with_backward);
  }
  const Tensors& operator()() { return trainer.step(inputs); }
  // Copies, by name, of y and all gradients.
  nn::NamedTensors results() {
    const Tensors& step = (*this)();
    nn::NamedTensors all{{"y", copy(step[0])}};
    if (!with_backward) return all;
    all.push_back({"grad of x", copy(step[1])});
    for (const auto& [name, p] : module->named_parameters())
      all.push_back({"grad of " + name, copy(p.grad())});
    return all;
  }

 private:
  static std::shared_ptr<nn::Module> moved(
      std::shared_ptr<nn::Module> module, DType dtype, Device device) {
    module->to(dtype);
    module->to(device);
    return module;
  }
  TrainerOptions with_step(TrainerOptions how) {
    how.step = [this](const Tensors& in) { return forward_and_backward(in); };
    return how;
  }
  // y and, after backward, the gradient of x; those of the weights are theirs.
  Tensors forward_and_backward(const Tensors& in) {
    if (!with_backward) {
      const NoGrad off;
      return {(*module)(in[0])};
    }
    module->zero_grad();
    in[0].autograd().grad = {};
    const Tensor y = (*module)(in[0]);
    backward(y, {.gradient = in[1]});
    return {detach(y), in[0].grad()};
  }
};

// Says what a step costs before it takes any.
void tell_cost(const Block& block, const BlockFlags& flags, Device device, Output& out) {
  constexpr double kManyOnSimt = 1e9;
  const double forward = block.forward_flops();
  out.note("cost", "{:.4g} GFLOP forward{}", 1e-9 * forward,
      flags.backward() ? fmt::format(", {:.4g} with backward", 3e-9 * forward) : "");
  note_emulator(device, out);
  if (device.type == Device::Type::simt && forward > kManyOnSimt)
    out.note("note", "a size that suits simt: {}", block.suits_emulator());
}

// Fits the rounds to the time that a step takes.
void fit_time(const Flags& given, const Block& block, BlockFlags& flags,
    const std::function<void()>& step, const CompareRun& run) {
  ComparisonFlags& comparison = flags.comparison;
  const Device device = run.comparison.device;
  const double seconds = run.comparison.timed() ? 1e-6 * measure::round_us(step, device, 1, 1) : 0;
  // A comparison runs each round of both modes twice, clean and profiled.
  const int passes = flags.both() ? 4 : 1;
  if (comparison.steps == 0 && device == kCpu) {
    const int64_t fewest = flags.both() ? profiler::kMinPairs : 3;
    fit_rounds(comparison, given, 10 / seconds / passes, fewest);
  } else if (comparison.steps == 0) {
    comparison.steps = 20;
  }
  const double all =
      seconds * double(comparison.rounds * (comparison.steps + comparison.warmup) * passes);
  if (all > 20) {
    run.out.note("note", "takes about {}; --batch {} takes less", cli::seconds(all),
        std::max<int64_t>(block.batch() / 8, 1));
  }
}

// Rounds of one mode: a time without a factor.
std::vector<double> time_one(const BlockFlags& flags, const CompareRun& run) {
  const Comparison& comparison = run.comparison;
  measure::RoundTimes times;
  if (comparison.timed()) times = measure::time_rounds(comparison, flags.comparison);
  const std::vector<double> us = flags.mode == "eager" ? times.eager_us : times.fused_us;
  if (interrupted()) return us;
  const capture::Graph& graph = comparison.captured().fused.graph;
  const Cost cost = graph.cost();
  run.out.result(flags.mode, comparison.title);
  run.out.result("step", "{}   {}   {:.3f} GFLOP   {:.1f} MB",
      comparison.timed() ? cli::seconds(1e-6 * profiler::median(us)) : "not timed on simt",
      count_of(int64_t(graph.nodes.size()), "launch", "es"), 1e-9 * double(cost.flops),
      1e-6 * double(cost.bytes()));
  if (flags.fusion.explain && flags.mode == "fused") {
    run.out.result_text(
        "\n" + capture::explain(comparison.captured(), capture::RuleSet(flags.fusion.rules)));
  }
  if (!flags.fusion.dump_graph.empty()) write_graph(flags.fusion.dump_graph, graph);
  return us;
}

// What the step costs, what it gives, how long it takes.
int run_block(
    const Flags& given, const CommonFlags& common, Block& block, BlockFlags& flags, Output& out) {
  const Device device = choose_device(common.device).first;
  const bool both = flags.both();
  const DType dtype =
      flags.dtype == "bf16" || (flags.dtype == "auto" && device.type == Device::Type::cuda)
          ? DType::bf16
          : DType::f32;
  block.suit(device);
  const auto make = [&](TrainerOptions how) {
    return std::make_shared<Passes>(
        block, flags.backward(), common.seed, dtype, device, std::move(how));
  };
  // Recorded twice, so it is captured.
  const auto capture = [&](const std::string& rules) {
    const auto passes =
        make({.capture = {.rules = capture::RuleSet(rules), .measure = flags.fusion.measures()}});
    for (int i = 0; i < 2; ++i) (*passes)();
    return passes;
  };
  CompareRun run{common, flags.fusion, flags.comparison, out, block.name(),
      str(block.workload(), ", ", flags.pass), block.name(), block.batch()};
  run.comparison = {.device = device,
      .rules = flags.fusion.rules,
      .dtype = std::string(name_of(dtype)),
      .rules_option = "--rules "};
  const ViewFlags& view = flags.comparison.view;
  for (const auto& [what, is_given] :
      {std::pair{"--profile needs", !flags.comparison.files.formats.empty()},
          {"--expect and --fail-on need", !view.expect.empty() || !view.fail_on.empty()}})
    SINTER_CHECK(
        both || !is_given, usage, str("usage: ", what, " --mode both: the mode is ", flags.mode));
  run.check_flags(given, both);
  tell_cost(block, flags, device, out);

  const auto eager = make({.fused = false});
  const std::string threads = choose_threads(common.threads, device,
      str(run.workload, ", batch ", block.batch(), ", ", run.comparison.dtype),
      [&] { return [&] { (*eager)(); }; });
  if (device == kCpu) out.note("threads", threads);
  fit_time(
      given, block, flags, [&] { (*eager)(); }, run);
  run.comparison.title =
      fmt::format("{}   {}   {}   {}, {}   rules {}", block.describe(), name_of(dtype), flags.pass,
          device.str(), count_of(num_threads(), "thread"), flags.fusion.rules);
  const auto fused = capture(flags.mode == "eager" ? "none" : flags.fusion.rules);
  if (flags.mode != "fused") run.comparison.eager = [&] { (*eager)(); };
  if (flags.mode != "eager") run.comparison.fused = [&] { (*fused)(); };
  run.comparison.step = fused->trainer.captured_step();
  run.inputs = fused->inputs;
  if (flags.comparison.blame) {
    run.blame();
    return 0;
  }
  std::vector<measure::ParityPair> pairs;
  if (flags.mode != "eager") {
    const nn::NamedTensors want = eager->results(), got = fused->results();
    for (size_t i = 0; i < want.size(); ++i)
      pairs.push_back({want[i].name, got[i].tensor, want[i].tensor, run.allowed()});
  }
  const measure::Parity parity = measure::parity(pairs);
  catch_signals();
  Json json = {{"pass", flags.pass}, {"rules", flags.fusion.rules}, {"rows", Json::array()}};
  json.update(block.facts());
  const auto add_row = [&](const std::string& mode, const std::vector<double>& us,
                           const capture::Graph& graph) {
    Json row = {{"peer", "sinter"}, {"block", block.name()}, {"mode", mode},
        {"dtype", std::string(name_of(dtype))}, {"batch", block.input()[0]},
        {"device", device.str()}, {"threads", num_threads()},
        {"median_us", profiler::as_told(profiler::median(us))}, {"launches", graph.nodes.size()}};
    row.update(block.facts());
    json["rows"].push_back(row);
  };
  const capture::Captured& captured = run.comparison.captured();
  std::optional<measure::Outcome> outcome;
  int64_t pairs_done = 0;
  if (both) {
    outcome = run.run(parity.text());
    pairs_done = std::ssize(outcome->eager_us);
    add_row("eager", outcome->eager_us, captured.recorded);
    add_row("fused", outcome->fused_us, captured.fused.graph);
    json["parity"] = {{"relative", parity.relative("")}, {"tensors", parity.rows}};
    add_json(json, run.comparison, *outcome);
  } else {
    const std::vector<double> us = time_one(flags, run);
    pairs_done = std::ssize(us);
    add_row(flags.mode, us, captured.fused.graph);
  }
  out.json(str("sinter.", block.name(), "/1"), json);
  if (interrupted()) return run.stopped(pairs_done);
  run.check(parity);
  if (outcome) run.check(*outcome);
  return 0;
}

}  // namespace

void add_block(App& app, Command& command, Block& block) {
  static BlockFlags flags;
  flags.comparison.steps = 0;  // what fits the time
  command.flags.topic("block");
  block.add_flags(command.flags);
  command.flags.choice(
      "dtype", flags.dtype, {"auto", "f32", "bf16"}, "weights too; auto: bf16 on cuda, else f32");
  command.flags.topic("comparison");
  command.flags.choice("pass", flags.pass, {"forward+backward", "forward"}, "");
  command.flags.choice("mode", flags.mode, {"both", "eager", "fused"}, "");
  add_comparison_flags(command.flags, flags.fusion, flags.comparison, 0);
  command.flags.find("steps")->standard = "0: 20; on cpu what fits 10 s, one at least";
  command.run = [&app, &command, &block](Output& out) {
    return run_block(command.flags, app.common(), block, flags, out);
  };
}

}  // namespace sinter::cli
