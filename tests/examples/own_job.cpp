// A program of a user's own on the frame of cli/: it predicts how a wave goes on, by a loss of its
// own on sequences of numbers. For the tests of what such a program gets: build/PRESET/bin/own_job.
#include <cmath>

#include "cli/commands.h"
#include "cli/job.h"
#include "nn/mlp.h"

namespace sinter {
namespace {

class Waves : public cli::Job {
 public:
  explicit Waves(cli::CommonFlags& common) {
    train_.common = &common;
    train_.optimizer.batch = 16;
  }

  cli::TrainFlags& flags() override { return train_; }
  void add_flags(cli::Flags& flags) override {
    flags.topic("waves");
    flags.number("length", length_, 2, 1000, "numbers of a sequence");
    add_step_flags(flags, train_.optimizer);
  }
  std::string name() const override { return "waves"; }
  std::string describe() const override { return str("waves of ", length_, " numbers"); }

  std::shared_ptr<nn::Module> make_model(Device device) override {
    auto model = std::make_shared<nn::Mlp>(std::vector<int64_t>{length_, 8, 2},
        nn::MlpOptions{.activation = "tanh", .seed = train_.common->seed});
    model->to(device);
    return model;
  }
  // The second of both numbers counts twice.
  std::function<Tensor(const Tensor&, const Tensor&)> loss() const override {
    const Tensor weights = Tensor::from({1, 2}, {2});
    return [weights](const Tensor& output, const Tensor& target) {
      const Tensor apart = output - target;
      return sum(apart * apart * weights.to(output.device()), {1});
    };
  }
  Tensors batch(Device device, cli::Output& out) override {
    const int64_t rows = train_.optimizer.rows_of_step();
    std::vector<float> x, target;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < length_ + 2; ++i)
        (i < length_ ? x : target).push_back(float(std::sin(0.3 * double(i) + double(row))));
    }
    out.note("data", "{} waves", rows);
    return {
        Tensor::from(x, {rows, length_}).to(device), Tensor::from(target, {rows, 2}).to(device)};
  }

 private:
  cli::TrainFlags train_;
  int64_t length_ = 12;
};

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  using namespace sinter::cli;
  App app("own_job", "own_job: how a wave goes on.");
  app.add("compare", "A step, eager and fused.", [](App& a, Command& command) {
    static sinter::Waves waves(a.common());
    add_compare(a, command, waves);
  });
  app.add("inspect", "A step, opened.", [](App& a, Command& command) {
    static sinter::Waves waves(a.common());
    add_inspect(a, command, waves);
  });
  app.add("diff", "Two profiles.", add_diff);
  return app.main(argc, argv);
}
