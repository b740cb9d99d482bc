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

nlohmann::ordered_json row(const GegluFlags& flags, const char* mode, DType dtype, Device device,
    double median_us, int64_t launches) {
  return {{"peer", "sinter"}, {"block", "geglu"}, {"mode", mode},
      {"dtype", std::string(name_of(dtype))}, {"dim", flags.dim}, {"hidden", flags.hidden},
      {"batch", flags.rows()}, {"device", device.str()}, {"threads", num_threads()},
      {"median_us", median_us}, {"launches", launches}};
}

int run(
    const cli::Flags& given, const cli::CommonFlags& common, GegluFlags flags, cli::Output& out) {
  const Device device = cli::choose_device(common.device).first;
  const bool timed = device.type != Device::Type::simt;
  const DType dtype =
      flags.dtype == "bf16" || (flags.dtype == "auto" && device.type == Device::Type::cuda)
          ? DType::bf16
          : DType::f32;
  const bool both = flags.mode == "both", eager_only = flags.mode == "eager";
  const char* type = device.type == Device::Type::cuda ? "cuda" : device == kCpu ? "cpu" : "simt";
  const profiler::Exports files =
      flags.files.exports(fmt::format("geglu_b{}_{}_{}", flags.batch, name_of(dtype), type), true);
  SINTER_CHECK(both || files.formats.empty(), usage,
      cat("usage: --profile needs --mode both: the mode is ", flags.mode));
  if (!files.formats.empty()) files.check(flags.files.force);
  flags.contest.tables = files.has("table");
  const double seconds = flags.flops() * seconds_per_flop(dtype, device);
  out.note("cost",
      fmt::format("{:.4g} GFLOP forward{}, about {} a step on {}",
          6e-9 * static_cast<double>(flags.rows() * flags.dim * flags.hidden),
          flags.backward() ? fmt::format(", {:.4g} with backward", 1e-9 * flags.flops()) : "",
          cli::seconds(seconds), device.str()));
  cli::note_emulator(device, out);
  if (!timed && seconds > 20)
    out.note("note", "a size that suits simt: --batch 2 --seq 32 --dim 64 --hidden 96");
  const int passes =
      both ? 4 : 1;  // a comparison runs each round of both modes twice, clean and profiled
  if (flags.contest.steps == 0 && device == kCpu) {
    cli::fit_rounds(flags.contest, given, 20 / seconds / passes, both ? profiler::kMinPairs : 3);
  } else if (flags.contest.steps == 0) {
    flags.contest.steps = 20;
  }
  const int64_t steps =
      flags.contest.rounds * (flags.contest.steps + flags.contest.warmup) * passes;
  if (const double all = seconds * static_cast<double>(steps); timed && all > 20) {
    out.note("note", fmt::format("about {} in all; a smaller one: --batch {}", cli::seconds(all),
                         std::max<int64_t>(flags.batch / 8, 1)));
  }

  const bool cuda = device.type == Device::Type::cuda,
             measure = flags.fusion.measures() || (cuda && !given.given("measure"));
  Block eager(flags, common.seed, dtype, device);
  Contender fused(
      flags, common.seed, dtype, device, eager_only ? "none" : flags.fusion.rules, measure);
  measure::Worst worst;
  if (!eager_only) {
    const nn::NamedTensors want = eager.results(eager(eager.inputs)),
                           got = fused.block.results(fused());
    for (size_t i = 0; i < want.size(); ++i) worst.see(want[i].name, got[i].tensor, want[i].tensor);
  }
  cli::Contest contest{.device = device,
      .title = fmt::format("geglu {} x {} -> {} -> {} gelu {}   {}   {}   {}, {}   rules {}",
          flags.rows(), flags.dim, flags.hidden, flags.dim, flags.gelu, name_of(dtype), flags.pass,
          device.str(), cli::count_of(num_threads(), "thread"), flags.fusion.rules),
      .eager = [&] { eager(eager.inputs); },
      .fused = [&] { fused(); },
      .step = &fused.step,
      .rules = flags.fusion.rules,
      .dtype = std::string(name_of(dtype))};

  std::unique_ptr<Contender> listed, replayed;
  if (both && cuda) {
    listed = std::make_unique<Contender>(
        flags, common.seed, dtype, device, flags.fusion.rules, measure, false);
    replayed = std::make_unique<Contender>(flags, common.seed, dtype, device, "none", false);
    contest.listed = [&] { (*listed)(); };
    contest.eager_replayed = [&] { (*replayed)(); };
    contest.eager_step = &replayed->step;
    for (int i = 0; i < 3; ++i) {
      contest.listed();
      contest.eager_replayed();
    }
  }
  SINTER_CHECK(both || (flags.contest.view.expect.empty() && flags.contest.view.fail_on.empty()),
      usage, cat("usage: --expect and --fail-on need --mode both: the mode is ", flags.mode));

  cli::catch_signals();
  nlohmann::ordered_json object = {{"schema", "sinter.geglu/1"}, {"pass", flags.pass},
      {"gelu", flags.gelu}, {"rules", flags.fusion.rules},
      {"rows", nlohmann::ordered_json::array()}};
  const capture::Captured& captured = contest.captured();
  std::optional<cli::Outcome> outcome;
  if (both) {
    outcome = cli::run_contest(contest, flags.contest, out);
    cli::print_contest(contest, flags.contest, *outcome,
        fmt::format(
            "parity: {:.0e}{}", worst.relative, worst.name.empty() ? "" : " (" + worst.name + ")"),
        flags.fusion.explain, out);
    cli::write_files(files, *outcome, flags.contest,
        {fmt::format("geglu {} -> {}, seq {}, gelu {}, {}", flags.dim, flags.hidden, flags.seq,
             flags.gelu, flags.pass),
            common.command, cli::build_name(), std::to_string(common.seed), flags.batch},
        out);
    object["rows"] = {row(flags, "eager", dtype, device, profiler::median(outcome->eager_us),
                          static_cast<int64_t>(captured.recorded.nodes.size())),
        row(flags, "fused", dtype, device, profiler::median(outcome->fused_us),
            static_cast<int64_t>(captured.fused.graph.nodes.size()))};
    object["parity"] = {{"relative", worst.relative}, {"where", worst.where}};
    cli::add_json(object, contest, *outcome);
  } else {
    const cli::ContestFlags& rounds = flags.contest;
    std::vector<double> us;
    for (int64_t round = 0; timed && round < rounds.rounds && !cli::interrupted(); ++round)
      us.push_back(measure::round_us(
          eager_only ? contest.eager : contest.fused, device, rounds.warmup, rounds.steps));
    if (cli::interrupted()) return cli::exit_code(Error::Kind::interrupted);
    const capture::Graph& graph = captured.fused.graph;
    Cost cost;
    for (const capture::Node& node : graph.nodes) cost += graph.cost(node);
    out.result(flags.mode, contest.title);
    out.result("step",
        fmt::format("{}   {}   {:.3f} GFLOP   {:.1f} MB",
            timed ? cli::seconds(1e-6 * profiler::median(us)) : "not timed on simt",
            cli::count_of(static_cast<int64_t>(graph.nodes.size()), "launch", "es"),
            1e-9 * static_cast<double>(cost.flops), 1e-6 * static_cast<double>(cost.bytes())));
    if (flags.fusion.explain && !eager_only)
      out.result_text("\n" + capture::explain(captured, capture::RuleSet(flags.fusion.rules)));
    object["rows"].push_back(row(flags, flags.mode.c_str(), dtype, device, profiler::median(us),
        static_cast<int64_t>(graph.nodes.size())));
  }
  const std::string& file = flags.fusion.dump_graph;
  if (!file.empty() && both) cli::write_graphs(file, captured);
  if (!file.empty() && !both) cli::write_graph(file, captured.fused.graph);
  out.json(object);
  if (cli::interrupted())
    return cli::exit_code(Error::Kind::interrupted);  // the tables so far are out
  const double allowed = flags.contest.max_rel.value_or(dtype == DType::bf16 ? 2e-2 : 1e-5);
  SINTER_CHECK(worst.relative <= allowed, check,
      cat("geglu: results differ: ", worst.where, ", max rel ",
          fmt::format("{:.1e}", worst.relative), "; allowed ", allowed));
  if (outcome) cli::judge("geglu", flags.contest.view, cli::measured(contest, *outcome));
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
  command.run = [&](cli::Output& out) { return run(command.flags, app.common(), flags, out); };
  return app.main(argc, argv);
}
