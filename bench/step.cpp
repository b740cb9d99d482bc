// Times one training step, by Adam, of an MLP 784-H..-10, of a convolutional net (without dropout,
// as its peers in bench/peers.py), or of gpt's presets names and shakespeare, eager or fused, on a
// resident batch of random data: the figure that docs/results/ compare; or attention, forward and
// with its backward.
//
//   step --batch 1,16,64,128,1024 --hidden 256,128 --mode fused --threads 2 --json >out.json
//   step --model attention --shape 1,4,1024,64 --dtype bf16 --threads 2 --json >out.json
//
// Rounds of every case run interleaved (all batches and modes in turn), so that a slow moment of
// the machine hits them alike; the figure is the median over all steps. Its floor is the step's
// arithmetic at the rate of an f32 product of 768, which runs in turn with them. --json prints an
// object whose `rows` have median_us, one for each case, and the losses of its first ten steps.
// --save FILE keeps the batch and the weights before these, for a peer. In mode sample a step of
// gpt reads one letter on, place after place of the context. The floor of attention is that of the
// multiply-adds which its causal half has; no [S, S] is in memory: its peak is that of the
// allocator, of one call, beside its operands.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "autograd/tape.h"
#include "cli/app.h"
#include "cli/step.h"
#include "core/allocator.h"
#include "core/json.h"
#include "core/parallel.h"
#include "examples/gpt/sample.h"
#include "measure/comparison.h"
#include "nn/mlp.h"
#include "nn/net.h"
#include "nn/safetensors.h"
#include "ops/ops.h"
#include "ops/product/gemm_library.h"
#include "train/trainer.h"

namespace sinter {
namespace {

struct BenchStepFlags {
  std::vector<int64_t> batches{128}, hidden{256, 128}, shape{1, 4, 1024, 64};
  std::string model = "mlp", mode, dtype = "f32", save;
  bool full = false;
  cli::FusionFlags fusion;
  int64_t rounds = 9, steps = 20, warmup = 30, width = 16;
  std::optional<int64_t> context;

  std::vector<int64_t> sizes() const {
    std::vector<int64_t> out{784};
    out.insert(out.end(), hidden.begin(), hidden.end());
    out.push_back(10);
    return out;
  }
  bool attends() const { return model == "attention"; }
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
    if (attends()) {
      Tensors in;  // q, k, v and the gradient of the result
      for (uint64_t seed = 1; seed <= 4; ++seed)
        in.push_back(cast(sample_tensor(Shape(shape), seed, -1, 1), low).to(device));
      return in;
    }
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
  double flops = 0;                       // of attention, and what a call takes of the allocator
  int64_t peak_bytes = 0;

  Case(const BenchStepFlags& flags, Device device, int64_t rows, const std::string& wanted)
      : batch(rows), mode(wanted), inputs(flags.make_batch(rows, device)) {
    if (flags.attends()) {
      attend(flags.full);
      return;
    }
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
  void attend(bool full);
};

void Case::attend(bool full) {
  SINTER_CHECK(inputs[0].rank() == 4 && (mode == "forward" || mode == "both"), usage,
      str("usage: --model attention is of a --shape B,H,S,D, --mode forward and both: it is ",
          inputs[0].shape().str(), ", ", mode));
  const auto places = double(inputs[0].size(2)), depth = double(inputs[0].size(3)),
             pairs = full ? places * places : places * (places + 1) / 2;
  batch = inputs[0].size(0);
  flops = (mode == "both" ? 3.5 : 1) * 4 * double(batch * inputs[0].size(1)) * depth * pairs;
  run = [this, attrs = AttentionAttrs{1 / std::sqrt(depth), !full}] {
    const NoGrad no_grad;
    const Tensors o = apply(kAttentionOp, {inputs[0], inputs[1], inputs[2]}, attrs);
    if (mode == "forward") return;
    apply(kAttentionBackwardOp, {inputs[3], inputs[0], inputs[1], inputs[2], o[0], o[1]}, attrs);
  };
  Allocator& memory = allocator(inputs[0].device());
  const int64_t before = memory.stats().live_bytes;
  memory.reset_peak();
  run();
  peak_bytes = memory.stats().peak_bytes - before;
}

int run(const BenchStepFlags& flags, const cli::CommonFlags& common, cli::Output& out) {
  if (common.threads == 0) set_num_threads(available_cores());
  const Device device = cli::choose_device(common.device).first;
  set_allow_tf32(flags.dtype == "tf32");
  std::deque<Case> cases;
  for (const int64_t batch : flags.batches) {
    const std::string usual = flags.attends() ? "forward,both" : "eager";
    for (const std::string& mode :
        cli::split("usage: --mode", flags.mode.empty() ? usual : flags.mode))
      cases.emplace_back(flags, device, batch, mode);
  }
  for (Case& c : cases) {
    for (int64_t i = 0; i < flags.warmup; ++i) c.run();
  }
  const Tensor a = cast(sample_tensor({768, 768}, 1), DType::f32).to(device);
  std::vector<double> product;  // a step has a floor on the CPU alone
  for (int64_t round = 0; round < flags.rounds; ++round) {
    if (device == kCpu || flags.attends())
      product.push_back(measure::round_us([&a] { matmul(a, a); }, device, 0, 5));
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
    if (c.flops > 0)
      rows.back().update({{"what", c.mode}, {"shape", flags.shape}, {"peak_bytes", c.peak_bytes}});
    const double flops = captured ? double(captured->fused.graph.cost().flops) : c.flops;
    double floor = 0;
    if (flops > 0 && !product.empty()) {
      floor = flops * product[product.size() / 2] / (2.0 * 768 * 768 * 768);
      rows.back()["floor_us"] = floor;
    }
    const std::string beside =
        c.flops > 0 ? fmt::format("floor {:9.1f} us  time / floor {:5.2f}  peak {:7.2f} MB", floor,
                          median / floor, double(c.peak_bytes) / 1e6)
                    : fmt::format("{:11.0f} rows/s", 1e6 * double(c.batch) / median);
    out.result_text(
        fmt::format("sinter {} {}{} {:6} B={:5d} median {:9.1f} us  min {:9.1f} us  {}\n",
            flags.model, flags.dtype, flags.attends() ? "" : " adam", c.mode, c.batch, median,
            c.times.front(), beside));
  }
  out.json("sinter.step/1", {{"rows", rows}});
  return 0;
}

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  using namespace sinter;
  BenchStepFlags step;
  cli::App app("step", "");
  app.common().device = "cpu";  // unless --device says another
  app.add("step", "", [&step](cli::App& here, cli::Command& command) {
    cli::Flags& flags = command.flags;
    flags.number("batch", step.batches, 1, 1'000'000, "batch sizes");
    flags.choice(
        "model", step.model, {"mlp", "lenet", "cnn", "names", "shakespeare", "attention"}, "");
    flags.number("width", step.width, 1, 1'000'000, "of names");
    flags.number("context", step.context, 1, 1'000'000, "of names or shakespeare");
    flags.word("save", step.save, "FILE", "the batch and the first weights");
    flags.number("shape", step.shape, 1, 1'000'000, "B,H,S,D of q, k and v of attention");
    flags.toggle("full", step.full, "of attention: each row reads all keys; without: causal");
    flags.number("hidden", step.hidden, 1, 1'000'000, "hidden widths of mlp");
    flags.choice("dtype", step.dtype, {"f32", "tf32", "bf16"}, "");
    flags.choice("mode", step.mode,
        {"eager", "fused", "eager,fused", "fused,eager", "sample", "forward", "both"}, "");
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
