// mnist whose train has a flag more: --stop-after N raises SIGINT in step N, for the tests of what
// a signal leaves behind. Linked with mnist's own objects: build/PRESET/bin/mnist_stops.
#include <csignal>

#include "examples/mnist/job.h"

namespace sinter::mnist {
namespace {

class StoppingJob : public DigitsJob {
 public:
  using DigitsJob::DigitsJob;
  void add_flags(Flags& to, Use use) override {
    not_saved(to.number("stop-after", stop_after_, 0, 1'000'000, ""));
    DigitsJob::add_flags(to, use);
  }
  void fit(Trainer& trainer, const Trainer::Callback& after) override {
    DigitsJob::fit(trainer, [&] {
      if (trainer.at().step == stop_after_) raise(SIGINT);
      after();
    });
  }

 private:
  int64_t stop_after_ = 0;
};

}  // namespace
}  // namespace sinter::mnist

int main(int argc, char** argv) {
  using namespace sinter::mnist;
  App app("mnist", "mnist that stops.");
  add_train(app, "", [](CommonFlags& common) { return std::make_unique<StoppingJob>(common); });
  return app.main(argc, argv);
}
