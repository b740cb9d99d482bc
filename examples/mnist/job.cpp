// What mnist trains, as the commands of cli that look at one step of it see it: compare, inspect.
#include "cli/job.h"

#include <fmt/format.h>

#include "examples/mnist/model.h"

namespace sinter::mnist {
namespace {

class OneStep : public Job {
 public:
  explicit OneStep(CommonFlags& common, int64_t batch) {
    train_.common = &common;
    train_.optimizer.batch = batch;
  }

  TrainFlags& flags() override { return train_; }
  void add_flags(Flags& flags) override {
    add_data_flags(flags, train_.data);
    add_model_flags(flags, train_.model);
    flags.word("from", from_, "RUN|FILE", "a run folder or a safetensors file").standard =
        "new weights";
    add_step_flags(flags, train_.optimizer);
  }
  void check(const Flags& flags) override {
    if (!from_.empty()) adopt_model(flags, train_, saved_.emplace(read_model(from_)));
    resolve_step(flags, train_);
  }

  std::string name() const override { return train_.model.name(); }
  std::string describe() const override { return train_.model.describe(); }
  std::string dtype() const override { return train_.model.dtype; }
  std::string weights() const override {
    return saved_ ? fmt::format("{} ({})", escaped(saved_->path), how_) : "";
  }
  std::string next() const override {
    return train_.model.model == "mlp" && train_.optimizer.batch > 16
               ? "where fusing pays more: a small step, --batch 1 --hidden 64,64; or --model lenet"
               : "";
  }

  std::shared_ptr<nn::Module> make_model(Device device) override {
    auto model = mnist::make_model(train_.model, train_.common->seed, device);
    if (saved_) how_ = take_weights(*model, *saved_);
    return model;
  }
  std::function<Tensor(const Tensor&, const Tensor&)> loss() const override {
    return nn::CrossEntropyLoss{train_.optimizer.label_smoothing};
  }
  Tensors batch(Device device, Output& out) override {
    DataOptions wanted = train_.data.options(train_.model.classes);
    const int64_t rows = train_.optimizer.rows_of_step();
    wanted.limit = wanted.limit ? std::min(wanted.limit, rows) : rows;
    Dataset data = load_dataset(wanted);
    if (saved_) check_images(*saved_, data.train.image(), data.name);
    train_.model.image_size = data.train.image().str();
    data.to(device);
    const Batch batch = Batches(data.train, train_.batches(device)).next();
    out.note("data", "{}: one batch of {}", data.description, batch.labels.numel());
    return {batch.images, batch.labels};
  }
  Shape picture() const override {
    const ImageShape image = train_.model.image();
    return {image.channels, image.height, image.width};
  }

 private:
  TrainFlags train_;
  std::string from_, how_;
  std::optional<SavedModel> saved_;  // what is there
};

}  // namespace

void add_compare(App& app, Command& command) {
  static OneStep job(app.common(), OptimizerFlags().batch);
  cli::add_compare(app, command, job);
}

void add_inspect(App& app, Command& command) {
  static OneStep job(app.common(), 8);
  cli::add_inspect(app, command, job);
}

}  // namespace sinter::mnist
