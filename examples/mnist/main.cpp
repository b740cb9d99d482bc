// mnist: learn to read handwritten digits, see how well it went, and read a drawing of one's own.
#include "examples/glossary.h"
#include "examples/mnist/job.h"

int main(int argc, char** argv) {
  using namespace sinter::mnist;
  App app("mnist",
      "mnist: train a small network to read handwritten digits, and look at what it does.",
      SINTER_GIT_ID, words());
  add_train(app, "Trains a model on handwritten digits, tests it and saves it in a run folder.",
      make_job);
  add_resume_check(app, make_job);
  add_speedrun(app,
      "Trains a preset with several seeds: accuracy and training time with intervals, and whether "
      "its target holds.",
      make_job, "fast99");
  app.add("eval", "Reads a set of digits with a saved model: loss, accuracy, and where it errs.",
      add_eval);
  app.add("predict",
      "Says which digit a picture shows: a PNG file, or - for one on stdin; the images of a .npy "
      "file; or an image of the test set.",
      add_predict);
  add_compare(app, make_job);
  add_inspect(app, [](CommonFlags& common) { return std::make_unique<DigitsJob>(common, 8); });
  app.add("bench",
      "Times the whole step of an MLP 784-H-H-10, eager against fused, over batch and hidden "
      "sizes.",
      add_mlp_bench);
  add_profile_commands(app, sinter::kGlossary);
  app.add("data",
      "verify [WHAT] looks for what is wrong with a data set; make DIR writes the built-in digits "
      "as four MNIST files.",
      add_data);
  app.add("doctor",
      "Looks at the build, its libraries, the machine's roofs, and one step of each device; with "
      "FILE, at a checkpoint.",
      add_doctor);
  return app.main(argc, argv);
}
