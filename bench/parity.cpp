// One side of bench/torch_parity.py: trains an MLP, or a net of 28 x 28, from given weights on
// given batches and writes what came out.
//
//   parity IN.safetensors OUT.safetensors --optimizer sgd|adam --mode eager|fused --steps N
//   --rules all --model mlp|lenet|cnn --device cpu
//
// IN: "0.weight", "0.bias", .. (f32 or f64), "x" [N, B, I], "y" i32 [N, B]. OUT: the weights after
// N steps, "grad.NAME" of the first step, but for those that a rule took, "loss" f64 [N]. In mode
// fused all steps are replays.
#include <fmt/format.h>

#include "bench/harness.h"
#include "cli/step.h"
#include "nn/safetensors.h"
#include "nn/state_dict.h"

namespace sinter {
namespace {

struct ParityFlags {
  std::string optimizer = "sgd", mode = "eager", rules = "all", model = "mlp";
  int64_t steps = 1;
  std::vector<std::string> files;
};

int run(const ParityFlags& flags, Device device) {
  const auto& [optimizer, mode, rules, model, steps, files] = flags;
  SINTER_CHECK(files.size() == 2, usage,
      str("usage: parity IN.safetensors OUT.safetensors: ", files.size(), " files are given"));
  nn::NamedTensors weights = nn::read_safetensors(files[0]).tensors;
  const Tensor x = nn::find(weights, "x")->to(device), y = nn::find(weights, "y")->to(device);
  std::erase_if(weights, [](const nn::NamedTensor& t) { return t.name == "x" || t.name == "y"; });
  std::vector<int64_t> sizes{x.size(2)};
  for (int layer = 0; const Tensor* w = nn::find(weights, fmt::format("{}.weight", layer));
       layer += 2)
    sizes.push_back(w->size(0));
  const bench::TrainingOptions options{.sizes = sizes,
      .model = model,
      .optimizer = optimizer,
      .lr = optimizer == "sgd" ? 0.05 : 0.001,
      .dtype = x.dtype(),
      .device = device};
  const bool fused = mode == "fused";
  const auto make = [&](bool captured) {
    auto made = bench::make_trainer(
        options, {.fused = captured, .capture = {.rules = capture::RuleSet(rules)}});
    nn::load_state_dict(made->model(), weights);
    return made;
  };
  const auto trainer = make(fused);
  const auto batch_of = [&](int64_t s) {
    return Tensors{contiguous(reshape(slice(x, 0, s, s + 1), {x.size(1), x.size(2)})),
        contiguous(reshape(slice(y, 0, s, s + 1), {y.size(1)}))};
  };
  if (fused) {  // the two calls that are recorded
    for (int call = 0; call < 2; ++call) trainer->step(batch_of(0));
    trainer->copy_from(*make(false));
  }
  const nn::NamedTensors parameters = trainer->model().named_parameters();
  nn::NamedTensors results;
  std::vector<double> losses;
  for (int64_t s = 0; s < steps; ++s) {
    losses.push_back(mean(detach(trainer->step(batch_of(s))[0])).item());
    if (s > 0) continue;
    for (const auto& [name, p] : parameters) {
      if (!p.autograd().grad_taken_by) results.push_back({"grad." + name, copy(p.grad())});
    }
  }
  for (const auto& [name, p] : parameters) results.push_back({name, p});
  results.push_back({"loss", Tensor::from(losses, {steps})});
  nn::write_safetensors(files[1], results);
  return 0;
}

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  using namespace sinter;
  ParityFlags parity;
  return bench::run_program("parity", argc, argv, [&](cli::App& app, cli::Command& command) {
    cli::Flags& flags = command.flags;
    flags.choice("optimizer", parity.optimizer, {"sgd", "adam"}, "");
    flags.choice("mode", parity.mode, {"eager", "fused"}, "");
    cli::add_rules_flag(flags, parity.rules);
    flags.choice("model", parity.model, {"mlp", "lenet", "cnn"}, "");
    flags.number("steps", parity.steps, 1, 1'000'000, "");
    command.inputs = &parity.files;
    command.inputs_name = "FILE..";
    command.run = [&](cli::Output&) {
      return run(parity, cli::choose_device(app.common().device).first);
    };
  });
}
