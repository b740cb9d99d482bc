#include "examples/mnist/trainer.h"

#include "examples/cli/text.h"
#include "nn/glu.h"
#include "nn/mlp.h"
#include "nn/net.h"
#include "ops/product/gemm_library.h"

namespace sinter::mnist {
namespace {

std::unique_ptr<nn::Optimizer> make_optimizer(
    const OptimizerFlags& flags, const nn::Module& model) {
  const nn::OptimizerChoice& choice = nn::optimizer_named(flags.optimizer);
  return choice.make(model.named_parameters(), flags.lr.value(),
      flags.weight_decay.value_or(choice.weight_decay), flags.momentum,
      flags.betas.empty() ? choice.betas : nn::Betas{flags.betas[0], flags.betas[1]});
}

std::shared_ptr<nn::Net> make_net(const ModelFlags& flags) {
  const ImageShape image = flags.image();
  auto net =
      std::make_shared<nn::Net>(flags.net(), Shape{image.channels, image.height, image.width});
  SINTER_CHECK(net->output() == Shape{flags.classes}, usage,
      cat("usage: --model gives ", net->output().str(), " for an image, wanted ",
          Shape{flags.classes}.str(), ": a number for each of --classes"),
      net->output().rank() == 1 ? cat("--classes ", net->output()[0], ", or linear ", flags.classes,
                                      " at the end of --model")
                                : cat("flatten; linear ", flags.classes, " at the end of --model"));
  return net;
}

}  // namespace

std::shared_ptr<nn::Module> make_model(const ModelFlags& flags, uint64_t seed, Device device) {
  std::shared_ptr<nn::Module> model;
  const std::vector<int64_t> sizes = flags.sizes();
  if (!flags.net().empty()) {
    model = make_net(flags);
    model->init_parameters(seed);
  } else if (flags.model == "geglu") {
    model = std::make_shared<nn::Glu>(sizes[0], sizes[1], sizes[2]);
    model->init_parameters(seed);
  } else {
    model = std::make_shared<nn::Mlp>(
        sizes, nn::MlpOptions{
                   .activation = flags.act, .dropout = flags.dropout.value_or(0), .seed = seed});
  }
  if (flags.dtype == "bf16") model->enable_bf16();
  model->to(device);
  return model;
}

std::unique_ptr<Trainer> make_trainer(const TrainFlags& flags, std::shared_ptr<nn::Module> model,
    int64_t steps, std::vector<capture::Refused> choices) {
  set_allow_tf32(flags.model.dtype == "tf32");
  const OptimizerFlags& optimizer = flags.optimizer;
  auto made = make_optimizer(optimizer, *model);
  return std::make_unique<Trainer>(std::move(model), std::move(made),
      TrainerOptions{.loss = nn::CrossEntropyLoss{optimizer.label_smoothing},
          .fused = flags.mode.mode == "fused",
          .capture = {.rules = capture::RuleSet(flags.mode.rules),
              .measure = flags.mode.measures(),
              .choices = std::move(choices)},
          .schedule = optimizer.schedule_of(steps),
          .clip = optimizer.clip,
          .part = optimizer.accum > 1 ? optimizer.batch : 0});
}

std::string choose_threads(const TrainFlags& flags, const Batch& batch) {
  const Device device = batch.images.device();
  return cli::choose_threads(flags.common->threads, device, [&] {
    const std::shared_ptr<Trainer> scratch =
        make_trainer(flags, make_model(flags.model, flags.common->seed, device), 1000);
    return [scratch, &batch] { scratch->step(batch); };
  });
}

}  // namespace sinter::mnist
