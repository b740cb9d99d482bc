// What mnist trains, as the commands of cli/ see it.
#pragma once

#include "cli/job.h"
#include "data/batches.h"
#include "examples/mnist/model.h"

namespace sinter::mnist {

class DigitsJob : public Job {
 public:
  explicit DigitsJob(CommonFlags& common, int64_t batch = OptimizerFlags().batch) : Job(common) {
    flags.optimizer.batch = batch;
  }
  RecipeFlags recipe;

  void add_flags(Flags& to, Use use) override;
  void add_loss_flags(Flags& to) override {
    to.number("label-smoothing", label_smoothing_, 0, 0.99, "");
  }
  void check(const Flags& given, Use use) override;
  std::vector<Preset> presets() const override;
  std::string preset(const std::string& name) const override;

  std::string name() const override { return recipe.model.name(); }
  std::string describe() const override { return recipe.model.describe(); }
  std::string dtype() const override { return recipe.model.dtype; }
  Metric metric() const override {
    return {.name = "accuracy",
        .unit = " %",
        .scale = 100,
        .decimals = 1,
        .target = "target-acc",
        .low = 0,
        .high = 100};
  }
  std::optional<Guessing> guessing() const override;
  std::pair<std::string, const char*> rows() const override { return {"images", "img"}; }
  std::string weights() const override;
  std::string next() const override;
  std::string uses() const override { return "mnist predict --index 0"; }
  Shape picture() const override;

  void load(const Loading& loading) override;
  void make_batches(const Loading& loading) override;
  DataFacts data() const override;
  BatchSource& batches() override { return *batches_; }
  Tensors first_batch() override;
  std::shared_ptr<nn::Module> make_model(Device device) override;
  bool convolves() const override { return recipe.model.net().find("conv") != std::string::npos; }
  std::string take_weights(nn::Module& model, const std::string& file) override;
  std::function<Tensor(const Tensor&, const Tensor&)> loss() const override {
    return nn::CrossEntropyLoss{label_smoothing_};
  }
  double least_loss(const Tensors& batch) const override;
  void check_batches(Trainer& trainer) override;
  void resume(Trainer& trainer, const nn::Checkpoint& saved, const Job& then) override;
  Evaluated evaluate(nn::Module& model, Set set, int64_t most, Communicator* ranks) override;

 private:
  void note_sizes(const Loading& loading) const;
  BatchOptions batch_options(Device device) const;

  std::string from_, how_;
  double label_smoothing_ = 0;
  std::optional<SavedModel> saved_;  // what is there: of --from, or of --init
  Dataset data_;
  std::optional<Batches> batches_;
};
std::unique_ptr<Job> make_job(CommonFlags& common);

}  // namespace sinter::mnist
