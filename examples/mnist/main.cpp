// mnist: learn to read handwritten digits, see how well it went, and read a drawing of one's own.
#include "core/parallel.h"
#include "examples/mnist/commands.h"

int main(int argc, char** argv) {
  sinter::restart_with_short_spin(argv);
  sinter::cli::App app("mnist",
      "mnist: train a small network to read handwritten digits, and look at what it does.",
      SINTER_GIT_ID);
  sinter::mnist::add_train(app);
  sinter::mnist::add_speedrun(app, SINTER_GIT_ID);
  sinter::mnist::add_eval(app);
  sinter::mnist::add_predict(app);
  sinter::mnist::add_compare(app);
  sinter::mnist::add_inspect(app);
  sinter::mnist::add_bench(app);
  sinter::mnist::add_diff(app);
  sinter::mnist::add_calibrate(app);
  sinter::mnist::add_explain(app);
  sinter::mnist::add_data(app);
  sinter::mnist::add_doctor(app, SINTER_GIT_ID);
  return app.main(argc, argv);
}
