// gpt: a small GPT learns to write names, or a text of yours, letter by letter.
#include "cli/commands.h"
#include "examples/glossary.h"
#include "examples/gpt/job.h"

namespace {

using namespace sinter::cli;
using namespace sinter::gpt;

void add_bench_of_names(App& app, Command& command) {
  const auto job = std::make_shared<GptJob>(app.common());
  add_bench(app, command, job,
      {.title = "gpt of built-in names, 1 x H, 4 heads, context 16",
          .name = "width",
          .help = "widths H of the model",
          .batches = {1, 16, 128},
          .others = {16, 32, 64, 128},
          .most_rows = 8000,
          .set = [job](int64_t width) { job->model.width = width; }});
}

}  // namespace

int main(int argc, char** argv) {
  App app("gpt", "gpt: train a small GPT on names or a text, and let it write.", SINTER_GIT_ID);
  add_train(app, "Trains a GPT on built-in names or a text, tests it and saves it in a run folder.",
      make_job);
  add_resume_check(app, make_job);
  app.add("sample", "Lets a saved model write, letter by letter.", add_sample);
  app.add("eval", "Reads the held-out or the test part of a text with a saved model.", add_eval);
  add_speedrun(app,
      "Trains a preset with several seeds: bits a letter and training time with intervals.",
      make_job, "record");
  add_compare(app, make_job);
  add_inspect(app, make_job);
  app.add("bench", "Times the whole step, eager against fused, over batches and widths.",
      add_bench_of_names);
  add_profile_commands(app, sinter::kGlossary);
  return app.main(argc, argv);
}
