// geglu: the gated block of a transformer (GeGLU, no biases), forward and backward from a fixed
// random output gradient, eager and fused. The study workload: six products that fusing cannot make
// faster, and the pointwise work between them, which it can. Prints what a step costs before it
// takes any; then as `mnist compare`: parity of y and of every gradient, the table, the headline.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "capture/explain.h"
#include "core/context.h"
#include "core/device/memory.h"
#include "core/parallel.h"
#include "examples/cli/comparison.h"
#include "examples/cli/messages.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "measure/timer.h"
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
  double flops() const {
    return (backward() ? 18.0 : 6.0) * double(rows() * dim * hidden);
  }  // of the products
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

// Seconds per FLOP of this machine's products, by a small one: no larger than one of the block's.
double seconds_per_flop(double product, DType dtype, Device device) {
  const double most = device.type == Device::Type::simt ? 128 : device == kCpu ? 768 : 4096;
  const auto n = int64_t(std::ceil(std::min(std::cbrt(product), most)));
  const Tensor a = Tensor::full({n, n}, 0.5, dtype, device);
  double best = INFINITY;
  for (int i = 0; i < 3; ++i) {
    synchronize(device);
    best = std::min(best, 1e-9 * measure::ns_per_call(device, 1, [&a] { matmul(a, a); }));
  }
  return best / (2.0 * double(n * n * n));
}

// One run of the program: what it costs, what it gives, how long it takes.
class Geglu {
 public:
  Geglu(
      const cli::Flags& given, const cli::CommonFlags& common, GegluFlags& flags, cli::Output& out)
      : given_(given),
        flags_(flags),
        device_(cli::choose_device(common.device).first),
        compare_run_{common, flags.fusion, flags.comparison, out, "geglu",
            fmt::format("geglu {} -> {}, seq {}, gelu {}, {}", flags.dim, flags.hidden, flags.seq,
                flags.gelu, flags.pass),
            "geglu", chosen_batch()} {
    const bool bf16 = flags.dtype == "bf16" || (flags.dtype == "auto" && is_cuda());
    dtype_ = bf16 ? DType::bf16 : DType::f32;
  }
  int run();

 private:
  bool is_cuda() const { return device_.type == Device::Type::cuda; }
  bool timed() const { return device_.type != Device::Type::simt; }
  bool both() const { return flags_.mode == "both"; }
  // A step that a card runs in milliseconds takes cores seconds.
  int64_t chosen_batch() {
    if (!flags_.batch) flags_.batch = is_cuda() ? 64 : 4;
    return *flags_.batch;
  }
  bool eager_only() const { return flags_.mode == "eager"; }
  std::unique_ptr<Block> make(TrainerOptions how) const {
    return std::make_unique<Block>(
        flags_, compare_run_.common.seed, dtype_, device_, std::move(how));
  }
  // Recorded twice, so it is captured.
  std::unique_ptr<Block> capture(const std::string& rules) const {
    auto block =
        make({.capture = {.rules = capture::RuleSet(rules), .measure = flags_.fusion.measures()}});
    for (int i = 0; i < 2; ++i) (*block)();
    return block;
  }

  void check_flags();
  void tell_cost();
  void choose_threads();
  void check_parity();
  void make_comparison();
  void compare();
  void time_one();
  cli::Json row(
      const std::string& mode, const std::vector<double>& us, const capture::Graph& graph) const;

  const cli::Flags& given_;
  GegluFlags& flags_;
  const Device device_;
  cli::CompareRun compare_run_;
  DType dtype_;
  std::unique_ptr<Block> eager_, fused_;
  measure::Worst worst_;
  std::optional<measure::Outcome> outcome_;
  cli::Json json_;
};

int Geglu::run() {
  make_comparison();
  check_flags();
  tell_cost();
  eager_ = make({.fused = false});
  choose_threads();
  fused_ = capture(eager_only() ? "none" : flags_.fusion.rules);
  compare_run_.comparison.step = fused_->trainer.captured_step();
  compare_run_.inputs = fused_->inputs;
  if (flags_.comparison.blame) {
    compare_run_.blame();
    return 0;
  }
  if (!eager_only()) check_parity();
  cli::catch_signals();
  json_ = {{"pass", flags_.pass}, {"gelu", flags_.gelu}, {"rules", flags_.fusion.rules},
      {"rows", cli::Json::array()}};
  if (both()) {
    compare();
  } else {
    time_one();
  }
  compare_run_.out.json("sinter.geglu/1", json_);
  if (cli::interrupted())
    return cli::exit_code(Error::Kind::interrupted);  // the tables so far are out
  compare_run_.check_close(worst_);
  if (outcome_) compare_run_.check(*outcome_);
  return 0;
}

void Geglu::make_comparison() {
  compare_run_.comparison = {.device = device_,
      .eager = [this] { (*eager_)(); },
      .fused = [this] { (*fused_)(); },
      .rules = flags_.fusion.rules,
      .dtype = std::string(name_of(dtype_)),
      .rules_option = "--rules ",
      .make = [this](const std::string& rules) -> measure::Variant {
        const std::shared_ptr<Block> made = capture(rules);
        return {[made] { (*made)(); }, made->trainer.captured_step()};
      }};
  if (flags_.mode == "fused") compare_run_.comparison.eager = {};
  if (flags_.mode == "eager") compare_run_.comparison.fused = {};
}

void Geglu::check_flags() {
  const auto needs_both = [this](const char* flag, bool given) {
    SINTER_CHECK(
        both() || !given, usage, cat("usage: ", flag, " --mode both: the mode is ", flags_.mode));
  };
  const cli::ViewFlags& view = flags_.comparison.view;
  needs_both("--profile needs", !flags_.comparison.files.formats.empty());
  needs_both("--expect and --fail-on need", !view.expect.empty() || !view.fail_on.empty());
  compare_run_.check_flags();
}

// Says what a step costs before it takes any, and fits the rounds to the time.
void Geglu::tell_cost() {
  cli::Output& out = compare_run_.out;
  const auto product = double(flags_.rows() * flags_.dim * flags_.hidden);
  const double seconds = flags_.flops() * seconds_per_flop(product, dtype_, device_);
  out.note("cost", "{:.4g} GFLOP forward{}, about {} a step on {}", 6e-9 * product,
      flags_.backward() ? fmt::format(", {:.4g} with backward", 1e-9 * flags_.flops()) : "",
      cli::seconds(seconds), device_.str());
  cli::note_emulator(device_, out);
  if (!timed() && seconds > 20)
    out.note("note", "a size that suits simt: --batch 2 --seq 32 --dim 64 --hidden 96");
  cli::ComparisonFlags& comparison = flags_.comparison;
  // A comparison runs each round of both modes twice, clean and profiled.
  const int passes = both() ? 4 : 1;
  if (comparison.steps == 0 && device_ == kCpu) {
    cli::fit_rounds(comparison, given_, 10 / seconds / passes, both() ? profiler::kMinPairs : 3);
  } else if (comparison.steps == 0) {
    comparison.steps = 20;
  }
  const double all =
      seconds * double(comparison.rounds * (comparison.steps + comparison.warmup) * passes);
  if (timed() && all > 20) {
    out.note("note", "takes about {}; --batch {} takes less", cli::seconds(all),
        std::max<int64_t>(*flags_.batch / 8, 1));
  }
}

void Geglu::choose_threads() {
  const std::string threads = cli::choose_threads(
      compare_run_.common.threads, device_, [this] { return [this] { (*eager_)(); }; });
  if (device_ == kCpu) compare_run_.out.note("threads", threads);
  compare_run_.comparison.title =
      fmt::format("geglu {} x {} -> {} -> {} gelu {}   {}   {}   {}, {}   rules {}", flags_.rows(),
          flags_.dim, flags_.hidden, flags_.dim, flags_.gelu, name_of(dtype_), flags_.pass,
          device_.str(), cli::count_of(num_threads(), "thread"), flags_.fusion.rules);
}

void Geglu::check_parity() {
  const nn::NamedTensors want = eager_->results(), got = fused_->results();
  for (size_t i = 0; i < want.size(); ++i) worst_.see(want[i].name, got[i].tensor, want[i].tensor);
}

cli::Json Geglu::row(
    const std::string& mode, const std::vector<double>& us, const capture::Graph& graph) const {
  return {{"peer", "sinter"}, {"block", "geglu"}, {"mode", mode},
      {"dtype", std::string(name_of(dtype_))}, {"dim", flags_.dim}, {"hidden", flags_.hidden},
      {"batch", flags_.rows()}, {"device", device_.str()}, {"threads", num_threads()},
      {"median_us", profiler::four_digits(profiler::median(us))}, {"launches", graph.nodes.size()}};
}

void Geglu::compare() {
  outcome_ = compare_run_.run(fmt::format(
      "{:.0e}{}", worst_.relative, worst_.name.empty() ? "" : " (" + worst_.name + ")"));
  const capture::Captured& captured = compare_run_.comparison.captured();
  json_["rows"] = {row("eager", outcome_->eager_us, captured.recorded),
      row("fused", outcome_->fused_us, captured.fused.graph)};
  json_["parity"] = {{"relative", worst_.relative}, {"where", worst_.where}};
  cli::add_json(json_, compare_run_.comparison, *outcome_);
}

// Rounds of one mode: a time without a factor.
void Geglu::time_one() {
  const cli::Comparison& comparison = compare_run_.comparison;
  measure::RoundTimes times;
  if (timed()) times = measure::time_rounds(comparison, flags_.comparison);
  if (cli::interrupted()) return;
  const std::vector<double>& us = eager_only() ? times.eager_us : times.fused_us;
  const capture::Graph& graph = comparison.captured().fused.graph;
  const Cost cost = cli::cost_of(graph);
  compare_run_.out.result(flags_.mode, comparison.title);
  compare_run_.out.result("step", "{}   {}   {:.3f} GFLOP   {:.1f} MB",
      timed() ? cli::seconds(1e-6 * profiler::median(us)) : "not timed on simt",
      cli::count_of(int64_t(graph.nodes.size()), "launch", "es"), 1e-9 * double(cost.flops),
      1e-6 * double(cost.bytes()));
  if (flags_.fusion.explain && !eager_only()) {
    compare_run_.out.result_text(
        "\n" + capture::explain(comparison.captured(), capture::RuleSet(flags_.fusion.rules)));
  }
  if (!flags_.fusion.dump_graph.empty()) cli::write_graph(flags_.fusion.dump_graph, graph);
  json_["rows"].push_back(row(flags_.mode, us, graph));
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
  cli::Command& command = app.add("geglu",
      "Runs a gated block (GeGLU) eager and fused, interleaved: what became fewer, how long it "
      "takes, and that the numbers are the same.");
  command.flags.topic("block");
  command.flags.number("batch", flags.batch, 1, 1'000'000, "sequences").standard =
      "64 on cuda and as a model, else 4";
  command.flags.number("seq", flags.seq, 1, 1'000'000, "tokens of a sequence");
  command.flags.number("dim", flags.dim, 1, 1'000'000, "features of a token");
  command.flags.number("hidden", flags.hidden, 1, 1'000'000, "width of gate and up");
  command.flags.choice("gelu", flags.gelu, {"tanh", "erf"}, "form of the gate");
  command.flags.choice(
      "dtype", flags.dtype, {"auto", "f32", "bf16"}, "weights too; auto: bf16 on cuda, else f32");
  command.flags.topic("comparison");
  command.flags.choice("pass", flags.pass, {"forward+backward", "forward"}, "");
  command.flags.choice("mode", flags.mode, {"both", "eager", "fused"}, "");
  cli::add_comparison_flags(command.flags, flags.fusion, flags.comparison, 0);
  command.flags.find("steps")->standard = "0: 20; on cpu what fits 10 s, one at least";
  command.run = [&](cli::Output& out) {
    return Geglu(command.flags, app.common(), flags, out).run();
  };
  return app.main(argc, argv);
}
