// Times one training step of an MLP 784-H..-10, or of a convolutional net (without dropout, as its
// peers in bench/peers.py), eager or fused, on a resident batch of random data: the figure that
// docs/results/ compare.
//
//   step --batch 1,16,64,128,1024 --hidden 256,128 --mode fused --threads 2 --json >out.json
//
// Rounds of every case run interleaved (all batches and modes in turn), so that a slow moment of
// the machine hits them alike; the figure is the median over all steps. --json prints an object
// whose `rows` have median_us, one for each case. --floor measures the machine in the same run, and
// says beside each figure what the step takes at least: the longer of its FLOPs at the rate of the
// best matrix product and of the bytes that every step must move at the rate of copies where they
// lie.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>

#include "bench/harness.h"
#include "cli/step.h"
#include "core/json.h"
#include "core/parallel.h"
#include "measure/calibrate.h"
#include "measure/comparison.h"
#include "ops/product/gemm_library.h"

namespace sinter {
namespace {

struct Floor {
  // Of a step; bytes: what lives across steps and the batch, read and written once each.
  double flops = 0, bytes = 0, lying = 0;
  double flop_us = 0, byte_us = 0;
  bool in_cache = false;
  void rate(const profiler::Roofs& roofs, bool bf16) {
    in_cache = lying <= double(roofs.cache_bytes);
    flop_us = 1e-3 * flops / (bf16 ? roofs.bf16_gflops : roofs.f32_gflops);
    byte_us = 1e-3 * bytes / (in_cache ? roofs.cache_gbs : roofs.dram_gbs);
  }
  double us() const { return std::max(flop_us, byte_us); }
  SINTER_FIELD_LIST(flops, bytes, flop_us, byte_us, in_cache, named("us", written(us())))
};

Floor floor_of(const capture::Captured& captured) {
  const capture::Graph& graph = captured.fused.graph;
  std::set<int> resident, changed;  // buffers
  for (const capture::Node& node : graph.nodes) {
    for (size_t i = 0; i < node.in.size(); ++i) {
      const int buffer = node.in[i] < 0 ? -1 : graph.values[node.in[i]].buffer;
      using Kind = capture::Buffer::Kind;
      const Kind kind = buffer < 0 ? Kind::local : graph.buffers[buffer].kind;
      if (kind != Kind::input && kind != Kind::external) continue;
      resident.insert(buffer);
      if (node.writes_operand(i)) changed.insert(buffer);
    }
  }
  const auto bytes_of = [&](const std::set<int>& buffers) {
    double bytes = 0;
    for (const int buffer : buffers) bytes += double(graph.buffers[buffer].bytes);
    return bytes;
  };
  const double lying = bytes_of(resident);
  return {.flops = double(captured.recorded.cost().flops),
      .bytes = lying + bytes_of(changed),
      .lying = lying};
}

struct BenchStepFlags {
  std::vector<int64_t> batches{128}, hidden{256, 128};
  std::string model = "mlp", mode = "eager", dtype = "f32", optimizer = "adam";
  cli::FusionFlags fusion;
  bool with_floor = false;
  int64_t rounds = 9, steps = 20, warmup = 30;
};

struct Case {
  int64_t batch;
  std::string mode;
  Tensors inputs{};
  std::unique_ptr<Trainer> trainer{};
  int64_t launches = 0;  // of a step, counted in its captured graph
  Floor floor{};
  std::vector<double> times{};  // us per step

  Case(const bench::TrainingOptions& options, int64_t rows, const std::string& wanted,
      const cli::FusionFlags& fusion)
      : batch(rows), mode(wanted) {
    for (const Tensor& t :
        bench::random_batch(rows, 784, options.dtype == DType::bf16 ? DType::bf16 : DType::f32))
      inputs.push_back(t.to(options.device));
    const capture::RuleSet rules(mode == "fused" ? fusion.rules : "none");
    trainer =
        bench::make_trainer(options, {.capture = {.rules = rules, .measure = fusion.measures()}});
    for (int i = 0; i < 2; ++i) run();
    const capture::Captured& captured = *trainer->captured_step()->captured();
    launches = int64_t(captured.executor->launches());
    floor = floor_of(captured);
    if (mode == "eager") trainer = bench::make_trainer(options, {.fused = false});
  }
  void run() { trainer->step(inputs); }
  void time(int64_t steps, Device device) {
    const auto round = measure::step_times_us([this] { run(); }, device, steps);
    times.insert(times.end(), round.begin(), round.end());
  }
};

int run(const BenchStepFlags& flags, const cli::CommonFlags& common, cli::Output& out) {
  const auto& [batches, hidden, model, modes, dtype, optimizer, fusion, with_floor, rounds, steps,
      warmup] = flags;
  if (common.threads == 0) set_num_threads(available_cores());
  const Device device = cli::choose_device(common.device).first;
  set_allow_tf32(dtype == "tf32");
  bench::TrainingOptions options{.sizes = {784},
      .model = model,
      .optimizer = optimizer,
      .lr = optimizer == "sgd" ? 0.01 : nn::optimizer_named(optimizer).lr,
      .dtype = dtype == "bf16" ? DType::bf16 : DType::f32,
      .device = device};
  options.sizes.insert(options.sizes.end(), hidden.begin(), hidden.end());
  options.sizes.push_back(10);
  SINTER_CHECK(!with_floor || dtype != "tf32", usage,
      "step: --floor: the rate of tf32 products is not measured", "--dtype f32 or bf16");
  std::deque<Case> cases;
  for (const int64_t batch : batches) {
    for (const std::string& mode : cli::split("usage: --mode", modes))
      cases.emplace_back(options, batch, mode, fusion);
  }
  for (Case& c : cases) {
    for (int64_t i = 0; i < warmup; ++i) c.run();
  }
  for (int64_t round = 0; round < rounds; ++round) {
    for (Case& c : cases) c.time(steps, device);
  }
  if (with_floor) {  // last: Note [Records that stay]
    const profiler::Roofs roofs = measure::calibrate(device);
    if (roofs.loaded) out.note("note", "measured beside other programs: the floor is too high");
    for (Case& c : cases) c.floor.rate(roofs, dtype == "bf16");
  }
  Json rows = Json::array();
  for (Case& c : cases) {
    std::ranges::sort(c.times);
    const double median = c.times[c.times.size() / 2];
    rows.push_back({{"peer", "sinter"}, {"mode", c.mode}, {"dtype", dtype}, {"optim", optimizer},
        {"model", model}, {"layers", options.sizes}, {"batch", c.batch}, {"device", device},
        {"threads", num_threads()}, {"steps", c.times.size()}, {"median_us", median},
        {"min_us", c.times.front()}, {"launches", c.launches}});
    out.result_text(fmt::format(
        "sinter {} {} {} {:6} B={:5d} median {:9.1f} us  min {:9.1f} us  {:11.0f} rows/s\n", model,
        dtype, optimizer, c.mode, c.batch, median, c.times.front(),
        1e6 * double(c.batch) / median));
    if (!with_floor) continue;
    const Floor& f = c.floor;
    rows.back()["floor"] = f;
    out.result_text(
        fmt::format("  floor {:9.1f} us: {:.1f} MFLOP take {:.1f} us, {:.1f} MB {} {:.1f} us; "
                    "median / floor {:.2f}\n",
            f.us(), 1e-6 * f.flops, f.flop_us, 1e-6 * f.bytes,
            f.in_cache ? "in cache" : "of memory", f.byte_us, median / f.us()));
  }
  out.json("sinter.step/1", {{"rows", rows}});
  return 0;
}

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  using namespace sinter;
  restart_with_short_spin(argv);
  BenchStepFlags step;
  return bench::run_program("step", argc, argv, [&](cli::App& app, cli::Command& command) {
    cli::Flags& flags = command.flags;
    flags.number("batch", step.batches, 1, 1'000'000, "batch sizes");
    flags.choice("model", step.model, {"mlp", "lenet", "cnn"}, "");
    flags.number("hidden", step.hidden, 1, 1'000'000, "hidden widths of mlp");
    flags.choice("dtype", step.dtype, {"f32", "tf32", "bf16"}, "");
    flags.choice("optimizer", step.optimizer, nn::optimizer_names(), "");
    flags.choice("mode", step.mode, {"eager", "fused", "eager,fused", "fused,eager"}, "");
    cli::add_rules_flag(flags, step.fusion.rules);
    flags.choice("measure", step.fusion.measure, {"auto", "on", "off"},
        "time fused groups against their parts");
    flags.toggle("floor", step.with_floor, "what the step takes at least here, measured now");
    flags.number("rounds", step.rounds, 1, 1'000'000, "");
    flags.number("steps", step.steps, 1, 1'000'000, "of a round");
    flags.number("warmup", step.warmup, 0, 1'000'000, "steps before the first round");
    command.run = [&](cli::Output& out) { return run(step, app.common(), out); };
  });
}
