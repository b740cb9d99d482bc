// One side of torch_parity.py: trains an MLP, or a net of 28 x 28, from given weights on given
// batches and writes what came out.
//
//   torch_parity IN.safetensors OUT.safetensors sgd|adam eager|fused RULES mlp|lenet|cnn
//
// IN: "0.weight", "0.bias", .. (f32 or f64), "x" [N, B, I], "y" i32 [N, B]. OUT: the weights after
// N steps, "grad.NAME" of the first step, but for those that a rule took, "loss" f64 [N]. In mode
// fused all steps are replays.
#include <cstdio>
#include <span>

#include "nn/mlp.h"
#include "nn/net.h"
#include "nn/safetensors.h"
#include "nn/state_dict.h"
#include "train/trainer.h"

namespace sinter {
namespace {

std::shared_ptr<nn::Module> make_model(const std::string& name, const nn::NamedTensors& weights) {
  const Shape image{1, 28, 28};
  if (name == "lenet") return std::make_shared<nn::Net>(str(nn::kLenetLayers, 10), image);
  if (name == "cnn") {  // without dropout
    return std::make_shared<nn::Net>(
        "conv 32 3; relu; conv 64 3; relu; pool 2; flatten; linear 128; relu; linear 10", image);
  }
  std::vector<int64_t> sizes{nn::find(weights, "0.weight")->size(1)};
  for (int layer = 0; const Tensor* w = nn::find(weights, str(layer, ".weight")); layer += 2)
    sizes.push_back(w->size(0));
  return std::make_shared<nn::Mlp>(sizes);
}

void run(std::span<const std::string> words) {
  SINTER_CHECK(words.size() == 6, usage, str("torch_parity: 6 words are wanted: ", words.size()));
  const std::string &optimizer = words[2], &mode = words[3], &rules = words[4], &model = words[5];
  nn::NamedTensors weights = nn::read_safetensors(words[0]).tensors;
  const Tensor x = *nn::find(weights, "x"), y = *nn::find(weights, "y");
  std::erase_if(weights, [](const nn::NamedTensor& t) { return t.name == "x" || t.name == "y"; });
  const bool fused = mode == "fused";
  const nn::OptimizerChoice& choice = nn::optimizer_named(optimizer);
  const auto make = [&](bool captured) {
    const std::shared_ptr<nn::Module> net = make_model(model, weights);
    net->to(x.dtype());
    nn::load_state_dict(*net, weights);
    return std::make_unique<Trainer>(net,
        choice.make(
            net->named_parameters(), optimizer == "sgd" ? 0.05 : 0.001, 0, 0.9, choice.betas),
        TrainerOptions{.fused = captured, .capture = {.rules = capture::RuleSet(rules)}});
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
  for (int64_t s = 0; s < x.size(0); ++s) {
    losses.push_back(mean(detach(trainer->step(batch_of(s))[0])).item());
    if (s > 0) continue;
    for (const auto& [name, p] : parameters) {
      if (!p.autograd().grad_taken_by) results.push_back({"grad." + name, copy(p.grad())});
    }
  }
  for (const auto& [name, p] : parameters) results.push_back({name, p});
  results.push_back({"loss", Tensor::from(losses, {x.size(0)})});
  nn::write_safetensors(words[1], results);
}

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  try {
    sinter::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 1;
  }
  return 0;
}
