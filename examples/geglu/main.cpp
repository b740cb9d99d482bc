// geglu: the gated block of a transformer (GeGLU, no biases), forward and backward from a fixed
// random output gradient, eager and fused. The study workload: six products that fusing cannot make
// faster, and the pointwise work between them, which it can. Prints what a step costs before it
// takes any; then as `mnist compare`: parity of y and of every gradient, the ledger, the headline.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "autograd/autograd.h"
#include "capture/explain.h"
#include "core/context.h"
#include "core/device/memory.h"
#include "core/parallel.h"
#include "examples/cli/app.h"
#include "examples/cli/contest.h"
#include "examples/cli/messages.h"
#include "examples/cli/profile_files.h"
#include "examples/cli/signals.h"
#include "examples/cli/step.h"
#include "examples/cli/text.h"
#include "nn/glu.h"
#include "nn/init.h"
#include "profiler/thresholds.h"

namespace sinter {
namespace {

struct GegluFlags {
  int64_t batch = 64, seq = 128, dim = 768, hidden = 3072;
  std::string pass = "forward+backward", mode = "both", dtype = "auto", gelu = "tanh";
  cli::FusionFlags fusion;
  cli::ContestFlags contest;
  cli::ExportFlags files;

  int64_t rows() const { return batch * seq; }
  bool backward() const { return pass != "forward"; }
  double flops() const {
    return (backward() ? 18.0 : 6.0) * static_cast<double>(rows() * dim * hidden);
  }  // of the products
};

// The tokens of a sequence are rows: the block sees [batch * seq, dim].
struct Block {
  nn::Glu glu;
  Tensors inputs;  // x and the gradient of y
  bool with_backward;

  Block(const GegluFlags& flags, uint64_t seed, DType dtype, Device device)
      : glu(flags.dim, flags.hidden, flags.dim,
            flags.gelu == "tanh" ? nn::Gate::gelu_tanh : nn::Gate::gelu),
        with_backward(flags.backward()) {
    glu.init_parameters(seed);
    glu.to(dtype);
    glu.to(device);
    for (nn::init::Stream stream{seed, 1}; stream.index <= 2;) {
      const Tensor t = Tensor::empty({flags.rows(), flags.dim});
      nn::init::uniform(t, -1, 1, stream);
      inputs.push_back(cast(t, dtype).to(device));
    }
    inputs[0].set_requires_grad(with_backward);
  }
  // y and, after backward, the gradient of x; those of the weights are theirs.
  Tensors operator()(const Tensors& in) {
    if (!with_backward) {
      const NoGrad off;
      return {glu(in[0])};
    }
    glu.zero_grad();
    in[0].autograd().grad = {};
    const Tensor y = glu(in[0]);
    backward(y, {.gradient = in[1]});
    return {detach(y), in[0].grad()};
  }
  // Copies, by name.
  nn::NamedTensors results(const Tensors& step) const {
    nn::NamedTensors all{{"y", copy(step[0])}};
    if (!with_backward) return all;
    all.push_back({"grad of x", copy(step[1])});
    for (const auto& [name, p] : glu.named_parameters())
      all.push_back({"grad of " + name, copy(p.grad())});
    return all;
  }
};

// A block whose step is captured.
struct Contender {
  Block block;
  capture::Step step;
  Contender(const GegluFlags& flags, uint64_t seed, DType dtype, Device device,
      const std::string& rules, bool measure, bool graph = true)
      : block(flags, seed, dtype, device),
        step([this](const Tensors& in) { return block(in); },
            {.rules = capture::RuleSet(rules),
                .parameters = nn::parameter_visitor(block.glu),
                .measure = measure,
                .cuda_graph = graph}) {
    for (int i = 0; i < 2; ++i) (*this)();
  }
  const Tensors& operator()() { return step(block.inputs); }
};

// Seconds per FLOP of this machine's products, by a small one.
double seconds_per_flop(DType dtype, Device device) {
  const int64_t n = device.type == Device::Type::simt ? 128 : device == kCpu ? 768 : 4096;
  const Tensor a = Tensor::full({n, n}, 0.5, dtype, device);
  double best = INFINITY;
  for (int i = 0; i < 3; ++i) {
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    matmul(a, a);
    synchronize(device);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best / (2.0 * static_cast<double>(n * n * n));
}

// One run of the program: what it costs, what it gives, how long it takes.
class Geglu {
 public:
  Geglu(
      const cli::Flags& given, const cli::CommonFlags& common, GegluFlags& flags, cli::Output& out)
      : given_(given),
        common_(common),
        flags_(flags),
        out_(out),
        device_(cli::choose_device(common.device).first) {
    const bool bf16 = flags.dtype == "bf16" || (flags.dtype == "auto" && is_cuda());
    dtype_ = bf16 ? DType::bf16 : DType::f32;
  }
  int run();

 private:
  bool is_cuda() const { return device_.type == Device::Type::cuda; }
  bool timed() const { return device_.type != Device::Type::simt; }
  bool both() const { return flags_.mode == "both"; }
  bool eager_only() const { return flags_.mode == "eager"; }
  bool measures() const {
    return flags_.fusion.measures() || (is_cuda() && !given_.given("measure"));
  }

  void check_flags();
  void tell_cost();
  void check_parity();
  cli::Contest contest();
  void compare(const cli::Contest& contest);
  void time_one(const cli::Contest& contest);
  void write_graphs(const capture::Captured& captured) const;
  nlohmann::ordered_json row(
      const std::string& mode, const std::vector<double>& us, const capture::Graph& graph) const;

  const cli::Flags& given_;
  const cli::CommonFlags& common_;
  GegluFlags& flags_;
  cli::Output& out_;
  Device device_;
  DType dtype_;
  std::optional<profiler::Exports> files_;
  std::unique_ptr<Block> eager_;
  std::unique_ptr<Contender> fused_, listed_, replayed_;
  measure::Worst worst_;
  std::optional<cli::Outcome> outcome_;
  nlohmann::ordered_json json_;
};

int Geglu::run() {
  check_flags();
  tell_cost();
  eager_ = std::make_unique<Block>(flags_, common_.seed, dtype_, device_);
  fused_ = std::make_unique<Contender>(flags_, common_.seed, dtype_, device_,
      eager_only() ? "none" : flags_.fusion.rules, measures());
  if (!eager_only()) check_parity();
  const cli::Contest contest = this->contest();
  cli::catch_signals();
  json_ = {{"schema", "sinter.geglu/1"}, {"pass", flags_.pass}, {"gelu", flags_.gelu},
      {"rules", flags_.fusion.rules}, {"rows", nlohmann::ordered_json::array()}};
  if (both()) {
    compare(contest);
  } else {
    time_one(contest);
    if (cli::interrupted()) return cli::exit_code(Error::Kind::interrupted);
  }
  write_graphs(contest.captured());
  out_.json(json_);
  if (cli::interrupted())
    return cli::exit_code(Error::Kind::interrupted);  // the tables so far are out
  const double allowed = flags_.contest.max_rel.value_or(dtype_ == DType::bf16 ? 2e-2 : 1e-5);
  SINTER_CHECK(worst_.relative <= allowed, check,
      cat("geglu: results differ: ", worst_.where, ", max rel ",
          fmt::format("{:.1e}", worst_.relative), "; allowed ", allowed));
  if (outcome_) cli::judge("geglu", flags_.contest.view, cli::measured(contest, *outcome_));
  return 0;
}

void Geglu::check_flags() {
  const char* type = is_cuda() ? "cuda" : device_ == kCpu ? "cpu" : "simt";
  files_ = flags_.files.exports(
      fmt::format("geglu_b{}_{}_{}", flags_.batch, name_of(dtype_), type), true);
  SINTER_CHECK(both() || files_->formats.empty(), usage,
      cat("usage: --profile needs --mode both: the mode is ", flags_.mode));
  SINTER_CHECK(
      both() || (flags_.contest.view.expect.empty() && flags_.contest.view.fail_on.empty()), usage,
      cat("usage: --expect and --fail-on need --mode both: the mode is ", flags_.mode));
  if (!files_->formats.empty()) files_->check(flags_.files.force);
  flags_.contest.tables = files_->has("table");
}

// Says what a step costs before it takes any, and fits the rounds to the time.
void Geglu::tell_cost() {
  const double seconds = flags_.flops() * seconds_per_flop(dtype_, device_);
  out_.note("cost",
      fmt::format("{:.4g} GFLOP forward{}, about {} a step on {}",
          6e-9 * static_cast<double>(flags_.rows() * flags_.dim * flags_.hidden),
          flags_.backward() ? fmt::format(", {:.4g} with backward", 1e-9 * flags_.flops()) : "",
          cli::seconds(seconds), device_.str()));
  cli::note_emulator(device_, out_);
  if (!timed() && seconds > 20)
    out_.note("note", "a size that suits simt: --batch 2 --seq 32 --dim 64 --hidden 96");
  cli::ContestFlags& contest = flags_.contest;
  // A comparison runs each round of both modes twice, clean and profiled.
  const int passes = both() ? 4 : 1;
  if (contest.steps == 0 && device_ == kCpu) {
    cli::fit_rounds(contest, given_, 20 / seconds / passes, both() ? profiler::kMinPairs : 3);
  } else if (contest.steps == 0) {
    contest.steps = 20;
  }
  const double all =
      seconds * static_cast<double>(contest.rounds * (contest.steps + contest.warmup) * passes);
  if (timed() && all > 20) {
    out_.note("note", fmt::format("about {} in all; a smaller one: --batch {}", cli::seconds(all),
                          std::max<int64_t>(flags_.batch / 8, 1)));
  }
}

void Geglu::check_parity() {
  const nn::NamedTensors want = eager_->results((*eager_)(eager_->inputs)),
                         got = fused_->block.results((*fused_)());
  for (size_t i = 0; i < want.size(); ++i) worst_.see(want[i].name, got[i].tensor, want[i].tensor);
}

cli::Contest Geglu::contest() {
  cli::Contest contest{.device = device_,
      .title = fmt::format("geglu {} x {} -> {} -> {} gelu {}   {}   {}   {}, {}   rules {}",
          flags_.rows(), flags_.dim, flags_.hidden, flags_.dim, flags_.gelu, name_of(dtype_),
          flags_.pass, device_.str(), cli::count_of(num_threads(), "thread"), flags_.fusion.rules),
      .eager = [this] { (*eager_)(eager_->inputs); },
      .fused = [this] { (*fused_)(); },
      .step = &fused_->step,
      .rules = flags_.fusion.rules,
      .dtype = std::string(name_of(dtype_))};
  if (!both() || !is_cuda()) return contest;
  listed_ = std::make_unique<Contender>(
      flags_, common_.seed, dtype_, device_, flags_.fusion.rules, measures(), false);
  replayed_ = std::make_unique<Contender>(flags_, common_.seed, dtype_, device_, "none", false);
  contest.listed = [this] { (*listed_)(); };
  contest.eager_replayed = [this] { (*replayed_)(); };
  contest.eager_step = &replayed_->step;
  for (int i = 0; i < 3; ++i) {
    contest.listed();
    contest.eager_replayed();
  }
  return contest;
}

nlohmann::ordered_json Geglu::row(
    const std::string& mode, const std::vector<double>& us, const capture::Graph& graph) const {
  return {{"peer", "sinter"}, {"block", "geglu"}, {"mode", mode},
      {"dtype", std::string(name_of(dtype_))}, {"dim", flags_.dim}, {"hidden", flags_.hidden},
      {"batch", flags_.rows()}, {"device", device_.str()}, {"threads", num_threads()},
      {"median_us", profiler::median(us)}, {"launches", graph.nodes.size()}};
}

void Geglu::compare(const cli::Contest& contest) {
  outcome_ = cli::run_contest(contest, flags_.contest, out_);
  cli::print_contest(contest, flags_.contest, *outcome_,
      fmt::format(
          "parity: {:.0e}{}", worst_.relative, worst_.name.empty() ? "" : " (" + worst_.name + ")"),
      flags_.fusion.explain, out_);
  cli::write_files(*files_, *outcome_, flags_.contest,
      {fmt::format("geglu {} -> {}, seq {}, gelu {}, {}", flags_.dim, flags_.hidden, flags_.seq,
           flags_.gelu, flags_.pass),
          common_.command, cli::build_name(), std::to_string(common_.seed), flags_.batch},
      out_);
  const capture::Captured& captured = contest.captured();
  json_["rows"] = {row("eager", outcome_->eager_us, captured.recorded),
      row("fused", outcome_->fused_us, captured.fused.graph)};
  json_["parity"] = {{"relative", worst_.relative}, {"where", worst_.where}};
  cli::add_json(json_, contest, *outcome_);
}

// Rounds of one mode: a time without a factor.
void Geglu::time_one(const cli::Contest& contest) {
  const cli::ContestFlags& rounds = flags_.contest;
  std::vector<double> us;
  for (int64_t round = 0; timed() && round < rounds.rounds && !cli::interrupted(); ++round)
    us.push_back(measure::round_us(
        eager_only() ? contest.eager : contest.fused, device_, rounds.warmup, rounds.steps));
  if (cli::interrupted()) return;
  const capture::Graph& graph = contest.captured().fused.graph;
  Cost cost;
  for (const capture::Node& node : graph.nodes) cost += graph.cost(node);
  out_.result(flags_.mode, contest.title);
  out_.result("step",
      fmt::format("{}   {}   {:.3f} GFLOP   {:.1f} MB",
          timed() ? cli::seconds(1e-6 * profiler::median(us)) : "not timed on simt",
          cli::count_of(static_cast<int64_t>(graph.nodes.size()), "launch", "es"),
          1e-9 * static_cast<double>(cost.flops), 1e-6 * static_cast<double>(cost.bytes())));
  if (flags_.fusion.explain && !eager_only()) {
    out_.result_text(
        "\n" + capture::explain(contest.captured(), capture::RuleSet(flags_.fusion.rules)));
  }
  json_["rows"].push_back(row(flags_.mode, us, graph));
}

void Geglu::write_graphs(const capture::Captured& captured) const {
  const std::string& file = flags_.fusion.dump_graph;
  if (file.empty()) return;
  if (both()) {
    cli::write_graphs(file, captured);
  } else {
    cli::write_graph(file, captured.fused.graph);
  }
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
  flags.contest.steps = 0;  // what fits the time
  cli::Command& command = app.add("geglu",
      "Runs a gated block (GeGLU) eager and fused, interleaved: what became fewer, how long it "
      "takes, and that the numbers are the same.");
  command.flags.topic("block");
  command.flags.integer("batch", flags.batch, 1, 1'000'000, "sequences");
  command.flags.integer("seq", flags.seq, 1, 1'000'000, "tokens of a sequence");
  command.flags.integer("dim", flags.dim, 1, 1'000'000, "features of a token");
  command.flags.integer("hidden", flags.hidden, 1, 1'000'000, "width of gate and up");
  command.flags.choice("gelu", flags.gelu, {"tanh", "erf"}, "form of the gate");
  command.flags.choice(
      "dtype", flags.dtype, {"auto", "f32", "bf16"}, "weights too; auto: bf16 on cuda, else f32");
  command.flags.topic("comparison");
  command.flags.choice("pass", flags.pass, {"forward+backward", "forward"}, "");
  command.flags.choice("mode", flags.mode, {"both", "eager", "fused"}, "");
  cli::add_fusion_flags(command.flags, flags.fusion);
  cli::add_contest_flags(command.flags, flags.contest);
  cli::add_export_flags(command.flags, flags.files);
  cli::Flag& steps = *command.flags.find("steps");
  steps.standard = "0: 20; on cpu what fits 20 s, one at least";
  steps.set = [&](const std::string& text, const std::string& where) {
    flags.contest.steps = cli::parse_integer("usage: --steps", text, 0, 1'000'000, where);
  };
  command.run = [&](cli::Output& out) {
    return Geglu(command.flags, app.common(), flags, out).run();
  };
  return app.main(argc, argv);
}
