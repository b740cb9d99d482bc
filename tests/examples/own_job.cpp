// A program of a user's own on the frame of cli/: it learns how a wave goes on, by a loss and a
// metric of its own on sequences of numbers. For the tests of what such a program gets:
// build/PRESET/bin/own_job.
#include <cmath>
#include <csignal>

#include "cli/commands.h"
#include "cli/job.h"
#include "nn/mlp.h"
#include "ops/ops.h"

namespace sinter {
namespace {

class Waves : public cli::TensorJob {
 public:
  explicit Waves(cli::CommonFlags& common) : TensorJob(common) { flags.optimizer.batch = 16; }

  void add_flags(cli::Flags& to, cli::Use use) override {
    to.topic("waves");
    to.number("length", length_, 2, 1000, "numbers of a sequence");
    to.number("test-rows", test_rows_, 0, 1000, "waves of the test");
    if (use == cli::Use::run)
      not_saved(to.number("signal-in", signal_in_, 0, 1000, "raise SIGINT in this step"));
    if (use == cli::Use::run) not_saved(to.toggle("nan-score", nan_score_, "the error is nan"));
  }
  void add_loss_flags(cli::Flags& to) override {
    to.number("second", second_, 0, 10, "weight of the second number");
  }
  std::string name() const override { return "waves"; }
  std::string describe() const override { return str("waves of ", length_, " numbers"); }
  cli::Metric metric() const override { return {.name = "error", .rises = false}; }

  std::shared_ptr<nn::Module> make_model(Device device) override {
    auto model = std::make_shared<nn::Mlp>(std::vector<int64_t>{length_, 8, 2},
        nn::MlpOptions{.activation = "tanh", .dropout = 0.1, .seed = flags.common->seed});
    model->to(device);
    return model;
  }
  std::function<Tensor(const Tensor&, const Tensor&)> loss() const override {
    return [second = second_](const Tensor& output, const Tensor& target) {
      const Tensor apart = output - target, squares = apart * apart;
      return sum(squares, {1}) + (second - 1) * sum(slice(squares, 1, 1, 2), {1});
    };
  }
  void fit(Trainer& trainer, const Trainer::Callback& after) override {
    TensorJob::fit(trainer, [&] {
      if (trainer.at().step == signal_in_) raise(SIGINT);
      after();
    });
  }

 protected:
  Sets make_sets(const cli::Loading&) override {
    Sets sets{waves(0, 100), waves(100, 24), waves(124, test_rows_)};
    if (test_rows_ == 1) sets.test[1] = sets.train[1];
    return sets;
  }
  Tensor score(const Tensor& output, const Tensor& target) const override {
    return nan_score_ ? Tensor::full({target.size(0)}, NAN) : mean(abs(output - target), {1});
  }

 private:
  Tensors waves(int64_t first, int64_t n) const {
    std::vector<float> x, target;
    for (int64_t row = first; row < first + n; ++row) {
      for (int64_t i = 0; i < length_ + 2; ++i)
        (i < length_ ? x : target).push_back(float(std::sin(0.3 * double(i) + double(row))));
    }
    return {Tensor::from(x, {n, length_}), Tensor::from(target, {n, 2})};
  }

  int64_t length_ = 12, test_rows_ = 40, signal_in_ = 0;
  double second_ = 2;
  bool nan_score_ = false;
};

std::unique_ptr<cli::Job> make(cli::CommonFlags& common) { return std::make_unique<Waves>(common); }

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  using namespace sinter::cli;
  App app("own_job", "own_job: how a wave goes on.");
  add_train(app, "Learns it.", sinter::make);
  add_compare(app, sinter::make);
  add_inspect(app, sinter::make);
  add_speedrun(app, "Several seeds.", sinter::make);
  app.add("diff", "Two profiles.", add_diff);
  return app.main(argc, argv);
}
