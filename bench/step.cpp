// Times one training step, by Adam, of an MLP 784-H..-10, or of a convolutional net (without
// dropout, as its peers in bench/peers.py), eager or fused, on a resident batch of random data: the
// figure that docs/results/ compare.
//
//   step --batch 1,16,64,128,1024 --hidden 256,128 --mode fused --threads 2 --json >out.json
//
// Rounds of every case run interleaved (all batches and modes in turn), so that a slow moment of
// the machine hits them alike; the figure is the median over all steps. --json prints an object
// whose `rows` have median_us, one for each case.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "cli/app.h"
#include "cli/step.h"
#include "core/json.h"
#include "core/parallel.h"
#include "measure/comparison.h"
#include "nn/mlp.h"
#include "nn/net.h"
#include "ops/product/gemm_library.h"
#include "train/trainer.h"

namespace sinter {
namespace {

struct BenchStepFlags {
  std::vector<int64_t> batches{128}, hidden{256, 128};
  std::string model = "mlp", mode = "eager", dtype = "f32";
  cli::FusionFlags fusion;
  int64_t rounds = 9, steps = 20, warmup = 30;

  std::vector<int64_t> sizes() const {
    std::vector<int64_t> out{784};
    out.insert(out.end(), hidden.begin(), hidden.end());
    out.push_back(10);
    return out;
  }
  std::shared_ptr<nn::Module> make_model(Device device) const {
    std::shared_ptr<nn::Module> made;
    if (model == "mlp") {
      made = std::make_shared<nn::Mlp>(sizes());
    } else {
      const std::string_view layers = model == "lenet" ? nn::kLenetLayers : nn::kCnnLayers;
      made = std::make_shared<nn::Net>(str(layers, 10), Shape{1, 28, 28});
      made->init_parameters(1);
      made->eval();  // its dropout is none
    }
    if (dtype == "bf16") made->enable_bf16();
    made->to(device);
    return made;
  }
};

struct Case {
  int64_t batch;
  std::string mode;
  Tensors inputs;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> times{};  // us per step

  Case(const BenchStepFlags& flags, Device device, int64_t rows, const std::string& wanted)
      : batch(rows), mode(wanted) {
    const DType dtype = flags.dtype == "bf16" ? DType::bf16 : DType::f32;
    inputs = {cast(sample_tensor({rows, 784}, 3, 0, 1), dtype).to(device),
        sample_labels(rows, 10, 4).to(device)};
    const std::shared_ptr<nn::Module> model = flags.make_model(device);
    const TrainerOptions options{.fused = mode == "fused",
        .capture = {
            .rules = capture::RuleSet(flags.fusion.rules), .measure = flags.fusion.measures()}};
    trainer = std::make_unique<Trainer>(
        model, std::make_shared<nn::Adam>(model->named_parameters()), options);
    for (int i = 0; i < 2; ++i) run();  // a fused one is recorded and captured
  }
  void run() { trainer->step(inputs); }
};

int run(const BenchStepFlags& flags, const cli::CommonFlags& common, cli::Output& out) {
  if (common.threads == 0) set_num_threads(available_cores());
  const Device device = cli::choose_device(common.device).first;
  set_allow_tf32(flags.dtype == "tf32");
  std::deque<Case> cases;
  for (const int64_t batch : flags.batches) {
    for (const std::string& mode : cli::split("usage: --mode", flags.mode))
      cases.emplace_back(flags, device, batch, mode);
  }
  for (Case& c : cases) {
    for (int64_t i = 0; i < flags.warmup; ++i) c.run();
  }
  for (int64_t round = 0; round < flags.rounds; ++round) {
    for (Case& c : cases) {
      const auto us = measure::step_times_us([&c] { c.run(); }, device, flags.steps);
      c.times.insert(c.times.end(), us.begin(), us.end());
    }
  }
  Json rows = Json::array();
  for (Case& c : cases) {
    std::ranges::sort(c.times);
    const double median = c.times[c.times.size() / 2];
    rows.push_back({{"peer", "sinter"}, {"mode", c.mode}, {"dtype", flags.dtype}, {"optim", "adam"},
        {"model", flags.model}, {"layers", flags.sizes()}, {"batch", c.batch}, {"device", device},
        {"threads", num_threads()}, {"steps", c.times.size()}, {"median_us", median},
        {"min_us", c.times.front()}});
    out.result_text(fmt::format(
        "sinter {} {} adam {:6} B={:5d} median {:9.1f} us  min {:9.1f} us  {:11.0f} rows/s\n",
        flags.model, flags.dtype, c.mode, c.batch, median, c.times.front(),
        1e6 * double(c.batch) / median));
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
  cli::App app("step", "");
  app.common().device = "cpu";  // unless --device says another
  app.add("step", "", [&step](cli::App& here, cli::Command& command) {
    cli::Flags& flags = command.flags;
    flags.number("batch", step.batches, 1, 1'000'000, "batch sizes");
    flags.choice("model", step.model, {"mlp", "lenet", "cnn"}, "");
    flags.number("hidden", step.hidden, 1, 1'000'000, "hidden widths of mlp");
    flags.choice("dtype", step.dtype, {"f32", "tf32", "bf16"}, "");
    flags.choice("mode", step.mode, {"eager", "fused", "eager,fused", "fused,eager"}, "");
    cli::add_rules_flag(flags, step.fusion.rules);
    flags.choice("measure", step.fusion.measure, {"auto", "on", "off"},
        "time fused groups against their parts");
    flags.number("rounds", step.rounds, 1, 1'000'000, "");
    flags.number("steps", step.steps, 1, 1'000'000, "of a round");
    flags.number("warmup", step.warmup, 0, 1'000'000, "steps before the first round");
    command.run = [&step, &here](cli::Output& out) { return run(step, here.common(), out); };
  });
  return app.main(argc, argv);
}
