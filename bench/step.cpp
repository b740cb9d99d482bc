// Times one training step, by Adam, of an MLP 784-H..-10, of a convolutional net (without dropout,
// as its peers in bench/peers.py), or of gpt's presets names and shakespeare, eager or fused, on a
// resident batch of random data: the figure that docs/results/ compare.
//
//   step --batch 1,16,64,128,1024 --hidden 256,128 --mode fused --threads 2 --json >out.json
//
// Rounds of every case run interleaved (all batches and modes in turn), so that a slow moment of
// the machine hits them alike; the figure is the median over all steps. Its floor is the step's
// arithmetic at the rate of an f32 product of 768, which runs in turn with them. --json prints an
// object whose `rows` have median_us, one for each case, and the losses of its first ten steps.
// --save FILE keeps the batch and the weights before these, for a peer. In mode sample a step of
// gpt reads one letter on, place after place of the context.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "cli/app.h"
#include "cli/step.h"
#include "core/json.h"
#include "core/parallel.h"
#include "examples/gpt/sample.h"
#include "measure/comparison.h"
#include "nn/mlp.h"
#include "nn/net.h"
#include "nn/safetensors.h"
#include "ops/product/gemm_library.h"
#include "train/trainer.h"

namespace sinter {
namespace {

struct BenchStepFlags {
  std::vector<int64_t> batches{128}, hidden{256, 128};
  std::string model = "mlp", mode = "eager", dtype = "f32", save;
  cli::FusionFlags fusion;
  int64_t rounds = 9, steps = 20, warmup = 30, width = 16;
  std::optional<int64_t> context;

  std::vector<int64_t> sizes() const {
    std::vector<int64_t> out{784};
    out.insert(out.end(), hidden.begin(), hidden.end());
    out.push_back(10);
    return out;
  }
  bool text() const { return model == "names" || model == "shakespeare"; }
  int64_t letters() const { return model == "names" ? 27 : 65; }
  gpt::GptOptions gpt() const {
    if (model == "names") return {.width = width, .context = context.value_or(16)};
    return gpt::as_gpt2(
        {.layers = 4, .width = 128, .context = context.value_or(64), .init_std = 0.02});
  }
  // Of names the lengths differ, and what is behind them counts nothing.
  Tensors make_batch(int64_t rows, Device device) const {
    const DType low = dtype == "bf16" ? DType::bf16 : DType::f32;
    if (!text())
      return {cast(sample_tensor({rows, 784}, 3, 0, 1), low).to(device),
          sample_labels(rows, 10, 4).to(device)};
    const int64_t places = gpt().context;
    const auto x = sample_labels(rows * places, letters(), 3).to_vector<int32_t>();
    auto y = sample_labels(rows * places, letters(), 4).to_vector<int32_t>();
    for (int64_t i = 0; model == "names" && i < rows * places; ++i) {
      if (i % places > 3 + i / places % 8) y[size_t(i)] = -1;
    }
    return {Tensor::from(x, {rows, places}).to(device), Tensor::from(y, {rows, places}).to(device)};
  }
  std::shared_ptr<nn::Module> make_model(Device device) const {
    std::shared_ptr<nn::Module> made;
    if (text()) {
      made = std::make_shared<gpt::Gpt>(letters(), gpt(), 1);
    } else if (model == "mlp") {
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
  std::function<void()> run;
  std::vector<double> times{}, losses{};  // us per step; of the first steps

  Case(const BenchStepFlags& flags, Device device, int64_t rows, const std::string& wanted)
      : batch(rows), mode(wanted), inputs(flags.make_batch(rows, device)) {
    const std::shared_ptr<nn::Module> model = flags.make_model(device);
    TrainerOptions options{.fused = mode == "fused",
        .capture = {
            .rules = capture::RuleSet(flags.fusion.rules), .measure = flags.fusion.measures()}};
    const auto ignored = flags.model == "names" ? std::optional<int64_t>(-1) : std::nullopt;
    if (flags.text())
      options.loss = [ignored](const Tensor& y, const Tensor& labels) {
        return cross_entropy(reshape(y, {-1, y.size(2)}), reshape(labels, {-1}), 0, ignored);
      };
    nn::NamedTensors all{{"x", inputs[0]}, {"y", inputs[1]}};
    for (const nn::NamedTensor& p : model->named_parameters()) all.push_back(p);
    if (!flags.save.empty()) nn::write_safetensors(flags.save, all);
    if (mode == "sample") {
      model->eval();
      const auto reader = std::make_shared<gpt::Reader>(dynamic_cast<gpt::Gpt&>(*model));
      run = [model, reader, rows, places = flags.gpt().context, n = int64_t{0}]() mutable {
        const NoGrad no_grad;
        (*reader)(std::vector<int32_t>(size_t(2 * rows), 1), n++ % places);
      };
      return;
    }
    trainer = std::make_unique<Trainer>(
        model, std::make_shared<nn::Adam>(model->named_parameters()), options);
    run = [this] { trainer->step(inputs); };
    for (int i = 0; i < 10; ++i) {  // in the first two a fused one is recorded and captured
      run();
      losses.push_back(trainer->state().last_loss);
    }
  }
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
  const Tensor a = cast(sample_tensor({768, 768}, 1), DType::f32);
  std::vector<double> product;  // of the CPU, which alone has a floor
  for (int64_t round = 0; round < flags.rounds; ++round) {
    if (device == kCpu)
      product.push_back(measure::step_times_us([&a] { matmul(a, a); }, device, 5)[2]);
    for (Case& c : cases) {
      const auto us = measure::step_times_us([&c] { c.run(); }, device, flags.steps);
      c.times.insert(c.times.end(), us.begin(), us.end());
    }
  }
  std::ranges::sort(product);
  Json rows = Json::array();
  for (Case& c : cases) {
    const auto* captured = c.mode == "fused" ? c.trainer->captured_step()->captured() : nullptr;
    std::ranges::sort(c.times);
    const double median = c.times[c.times.size() / 2];
    rows.push_back({{"peer", "sinter"}, {"mode", c.mode}, {"dtype", flags.dtype}, {"optim", "adam"},
        {"model", flags.model}, {"layers", flags.sizes()}, {"batch", c.batch}, {"device", device},
        {"threads", num_threads()}, {"steps", c.times.size()}, {"median_us", median},
        {"min_us", c.times.front()}, {"losses", c.losses}});
    if (captured && !product.empty()) {
      const double us_a_flop = product[product.size() / 2] / (2.0 * 768 * 768 * 768);
      rows.back()["floor_us"] = double(captured->fused.graph.cost().flops) * us_a_flop;
    }
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
    flags.choice("model", step.model, {"mlp", "lenet", "cnn", "names", "shakespeare"}, "");
    flags.number("width", step.width, 1, 1'000'000, "of names");
    flags.number("context", step.context, 1, 1'000'000, "of names or shakespeare");
    flags.word("save", step.save, "FILE", "the batch and the first weights");
    flags.number("hidden", step.hidden, 1, 1'000'000, "hidden widths of mlp");
    flags.choice("dtype", step.dtype, {"f32", "tf32", "bf16"}, "");
    flags.choice("mode", step.mode, {"eager", "fused", "eager,fused", "fused,eager", "sample"}, "");
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
