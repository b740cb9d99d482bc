// geglu: the gated block of a transformer (GeGLU, no biases), forward and backward from a fixed
// random output gradient, eager and fused. The study workload: six products that fusing cannot make
// faster, and the pointwise work between them, which it can. Prints what a step costs before it
// takes any; then as `mnist compare`: parity of y and of every gradient, the table, the headline.
#include <fmt/format.h>

#include "capture/explain.h"
#include "cli/comparison.h"
#include "cli/process.h"
#include "core/json.h"
#include "core/parallel.h"
#include "nn/glu.h"
#include "nn/init.h"
#include "profiler/thresholds.h"
#include "train/trainer.h"

namespace sinter {
namespace {

struct GegluFlags {
  std::optional<int64_t> batch;  // what suits the device
  int64_t seq = 128, dim = 768, hidden = 3072;
  std::string pass = "forward+backward", mode = "both", dtype = "auto", gelu = "tanh";
  cli::FusionFlags fusion;
  cli::ComparisonFlags comparison;

  int64_t rows() const { return *batch * seq; }
  bool backward() const { return pass != "forward"; }
  bool both() const { return mode == "both"; }
};

std::shared_ptr<nn::Glu> make_glu(
    const GegluFlags& flags, uint64_t seed, DType dtype, Device device) {
  const nn::Gate gate = flags.gelu == "tanh" ? nn::Gate::gelu_tanh : nn::Gate::gelu;
  auto glu = std::make_shared<nn::Glu>(flags.dim, flags.hidden, flags.dim, gate);
  glu->init_parameters(seed);
  glu->to(dtype);
  glu->to(device);
  return glu;
}

// The tokens of a sequence are rows: the block sees [batch * seq, dim]. Its step updates nothing.
struct Block {
  std::shared_ptr<nn::Glu> glu;
  Tensors inputs;  // x and the gradient of y
  bool with_backward;
  Trainer trainer;

  Block(const GegluFlags& flags, uint64_t seed, DType dtype, Device device, TrainerOptions how)
      : glu(make_glu(flags, seed, dtype, device)),
        with_backward(flags.backward()),
        trainer(glu, nullptr, with_step(std::move(how))) {
    for (nn::init::Stream stream{seed, 1}; stream.index <= 2;) {
      const Tensor t = Tensor::empty({flags.rows(), flags.dim});
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
    for (const auto& [name, p] : glu->named_parameters())
      all.push_back({"grad of " + name, copy(p.grad())});
    return all;
  }

 private:
  TrainerOptions with_step(TrainerOptions how) {
    how.step = [this](const Tensors& in) { return forward_and_backward(in); };
    return how;
  }
  // y and, after backward, the gradient of x; those of the weights are theirs.
  Tensors forward_and_backward(const Tensors& in) {
    if (!with_backward) {
      const NoGrad off;
      return {(*glu)(in[0])};
    }
    glu->zero_grad();
    in[0].autograd().grad = {};
    const Tensor y = (*glu)(in[0]);
    backward(y, {.gradient = in[1]});
    return {detach(y), in[0].grad()};
  }
};

// Says what a step costs before it takes any.
void tell_cost(const GegluFlags& flags, Device device, cli::Output& out) {
  constexpr double kManyOnSimt = 1e9;
  const double forward = 6.0 * double(flags.rows() * flags.dim * flags.hidden);  // its products
  out.note("cost", "{:.4g} GFLOP forward{}", 1e-9 * forward,
      flags.backward() ? fmt::format(", {:.4g} with backward", 3e-9 * forward) : "");
  cli::note_emulator(device, out);
  if (device.type == Device::Type::simt && forward > kManyOnSimt)
    out.note("note", "a size that suits simt: --batch 2 --seq 32 --dim 64 --hidden 96");
}

// Fits the rounds to the time that a step takes.
void fit_time(const cli::Flags& given, GegluFlags& flags, const std::function<void()>& step,
    const cli::CompareRun& run) {
  cli::ComparisonFlags& comparison = flags.comparison;
  const Device device = run.comparison.device;
  const double seconds = run.comparison.timed() ? 1e-6 * measure::round_us(step, device, 1, 1) : 0;
  // A comparison runs each round of both modes twice, clean and profiled.
  const int passes = flags.both() ? 4 : 1;
  if (comparison.steps == 0 && device == kCpu) {
    const int64_t fewest = flags.both() ? profiler::kMinPairs : 3;
    cli::fit_rounds(comparison, given, 10 / seconds / passes, fewest);
  } else if (comparison.steps == 0) {
    comparison.steps = 20;
  }
  const double all =
      seconds * double(comparison.rounds * (comparison.steps + comparison.warmup) * passes);
  if (all > 20) {
    run.out.note("note", "takes about {}; --batch {} takes less", cli::seconds(all),
        std::max<int64_t>(*flags.batch / 8, 1));
  }
}

// Rounds of one mode: a time without a factor.
std::vector<double> time_one(const GegluFlags& flags, const cli::CompareRun& run) {
  const cli::Comparison& comparison = run.comparison;
  measure::RoundTimes times;
  if (comparison.timed()) times = measure::time_rounds(comparison, flags.comparison);
  const std::vector<double> us = flags.mode == "eager" ? times.eager_us : times.fused_us;
  if (cli::interrupted()) return us;
  const capture::Graph& graph = comparison.captured().fused.graph;
  const Cost cost = graph.cost();
  run.out.result(flags.mode, comparison.title);
  run.out.result("step", "{}   {}   {:.3f} GFLOP   {:.1f} MB",
      comparison.timed() ? cli::seconds(1e-6 * profiler::median(us)) : "not timed on simt",
      cli::count_of(int64_t(graph.nodes.size()), "launch", "es"), 1e-9 * double(cost.flops),
      1e-6 * double(cost.bytes()));
  if (flags.fusion.explain && flags.mode == "fused") {
    run.out.result_text(
        "\n" + capture::explain(comparison.captured(), capture::RuleSet(flags.fusion.rules)));
  }
  if (!flags.fusion.dump_graph.empty()) cli::write_graph(flags.fusion.dump_graph, graph);
  return us;
}

// What the step costs, what it gives, how long it takes.
int run_geglu(
    const cli::Flags& given, const cli::CommonFlags& common, GegluFlags& flags, cli::Output& out) {
  const Device device = cli::choose_device(common.device).first;
  const bool is_cuda = device.type == Device::Type::cuda, both = flags.both();
  const DType dtype =
      flags.dtype == "bf16" || (flags.dtype == "auto" && is_cuda) ? DType::bf16 : DType::f32;
  // A step that a card runs in milliseconds takes cores seconds.
  if (!flags.batch) flags.batch = is_cuda ? 64 : 4;
  const auto make = [&](TrainerOptions how) {
    return std::make_shared<Block>(flags, common.seed, dtype, device, std::move(how));
  };
  // Recorded twice, so it is captured.
  const auto capture = [&](const std::string& rules) {
    const auto block =
        make({.capture = {.rules = capture::RuleSet(rules), .measure = flags.fusion.measures()}});
    for (int i = 0; i < 2; ++i) (*block)();
    return block;
  };
  cli::CompareRun run{common, flags.fusion, flags.comparison, out, "geglu",
      fmt::format("geglu {} -> {}, seq {}, gelu {}, {}", flags.dim, flags.hidden, flags.seq,
          flags.gelu, flags.pass),
      "geglu", *flags.batch};
  run.comparison = {.device = device,
      .rules = flags.fusion.rules,
      .dtype = std::string(name_of(dtype)),
      .rules_option = "--rules "};
  const cli::ViewFlags& view = flags.comparison.view;
  for (const auto& [what, is_given] :
      {std::pair{"--profile needs", !flags.comparison.files.formats.empty()},
          {"--expect and --fail-on need", !view.expect.empty() || !view.fail_on.empty()}})
    SINTER_CHECK(
        both || !is_given, usage, str("usage: ", what, " --mode both: the mode is ", flags.mode));
  run.check_flags(both);
  tell_cost(flags, device, out);

  const auto eager = make({.fused = false});
  const std::string threads = cli::choose_threads(common.threads, device,
      str(run.workload, ", batch ", *flags.batch, ", ", run.comparison.dtype),
      [&] { return [&] { (*eager)(); }; });
  if (device == kCpu) out.note("threads", threads);
  fit_time(
      given, flags, [&] { (*eager)(); }, run);
  run.comparison.title =
      fmt::format("geglu {} x {} -> {} -> {} gelu {}   {}   {}   {}, {}   rules {}", flags.rows(),
          flags.dim, flags.hidden, flags.dim, flags.gelu, name_of(dtype), flags.pass, device.str(),
          cli::count_of(num_threads(), "thread"), flags.fusion.rules);
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
  cli::catch_signals();
  cli::Json json = {{"pass", flags.pass}, {"gelu", flags.gelu}, {"rules", flags.fusion.rules},
      {"rows", cli::Json::array()}};
  const auto add_row = [&](const std::string& mode, const std::vector<double>& us,
                           const capture::Graph& graph) {
    json["rows"].push_back({{"peer", "sinter"}, {"block", "geglu"}, {"mode", mode},
        {"dtype", std::string(name_of(dtype))}, {"dim", flags.dim}, {"hidden", flags.hidden},
        {"batch", flags.rows()}, {"device", device.str()}, {"threads", num_threads()},
        {"median_us", profiler::four_digits(profiler::median(us))},
        {"launches", graph.nodes.size()}});
  };
  const capture::Captured& captured = run.comparison.captured();
  std::optional<measure::Outcome> outcome;
  if (both) {
    outcome = run.run(parity.text());
    add_row("eager", outcome->eager_us, captured.recorded);
    add_row("fused", outcome->fused_us, captured.fused.graph);
    json["parity"] = {{"relative", parity.relative("")}, {"tensors", parity.rows}};
    cli::add_json(json, run.comparison, *outcome);
  } else {
    add_row(flags.mode, time_one(flags, run), captured.fused.graph);
  }
  out.json("sinter.geglu/1", json);
  if (cli::interrupted())
    return cli::exit_code(Error::Kind::interrupted);  // the tables so far are out
  run.check(parity);
  if (outcome) run.check(*outcome);
  return 0;
}

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  using namespace sinter;
  restart_with_short_spin(argv);
  cli::App app("geglu",
      "geglu: a gated block, forward and backward, eager and fused: what fusing changes where "
      "products take the time.");
  GegluFlags flags;
  flags.comparison.steps = 0;  // what fits the time
  app.add("geglu",
      "Runs a gated block (GeGLU) eager and fused, interleaved: what became fewer, how long it "
      "takes, and that the numbers are the same.",
      [&](cli::App&, cli::Command& command) {
        command.flags.topic("block");
        command.flags.number("batch", flags.batch, 1, 1'000'000, "sequences").standard =
            "64 on cuda and as a model, else 4";
        command.flags.number("seq", flags.seq, 1, 1'000'000, "tokens of a sequence");
        command.flags.number("dim", flags.dim, 1, 1'000'000, "features of a token");
        command.flags.number("hidden", flags.hidden, 1, 1'000'000, "width of gate and up");
        command.flags.choice("gelu", flags.gelu, {"tanh", "erf"}, "form of the gate");
        command.flags.choice("dtype", flags.dtype, {"auto", "f32", "bf16"},
            "weights too; auto: bf16 on cuda, else f32");
        command.flags.topic("comparison");
        command.flags.choice("pass", flags.pass, {"forward+backward", "forward"}, "");
        command.flags.choice("mode", flags.mode, {"both", "eager", "fused"}, "");
        cli::add_comparison_flags(command.flags, flags.fusion, flags.comparison, 0);
        command.flags.find("steps")->standard = "0: 20; on cpu what fits 10 s, one at least";
        command.run = [&](cli::Output& out) {
          return run_geglu(command.flags, app.common(), flags, out);
        };
      });
  return app.main(argc, argv);
}
