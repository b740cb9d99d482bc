// gpt: a small GPT learns to write names, or a text of yours, letter by letter.
#include "cli/commands.h"
#include "core/parallel.h"
#include "examples/glossary.h"
#include "examples/gpt/job.h"

namespace {

using namespace sinter::cli;
using namespace sinter::gpt;

void add_speedrun_of_names(App& app, Command& command) {
  add_speedrun(app, command, [](CommonFlags& common) {
    auto job = make_job(common);
    job->flags.run.preset = "record";
    return job;
  });
}

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
  sinter::restart_with_short_spin(argv);
  App app("gpt", "gpt: train a small GPT on names or a text, and let it write.", SINTER_GIT_ID);
  app.add("train",
      "Trains a GPT on built-in names or a text, tests it and saves it in a run folder.",
      [](App& a, Command& c) { add_train(a, c, make_job); });
  app.add("resume-check",
      "Repeats a run up to its checkpoint and compares to the bit, then goes on from both: is what "
      "--resume goes on with the run that it was?",
      [](App& a, Command& c) { add_resume_check(a, c, make_job); });
  app.add("sample", "Lets a saved model write, letter by letter.", add_sample);
  app.add("eval", "Reads the held-out or the test part of a text with a saved model.", add_eval);
  app.add("speedrun",
      "Trains a preset with several seeds: bits a letter and training time with intervals.",
      add_speedrun_of_names);
  app.add("compare",
      "Runs the same training step eager and fused, interleaved: what became fewer, how long it "
      "takes, and that the numbers are the same.",
      [](App& a, Command& c) { add_compare(a, c, make_job); });
  app.add("inspect",
      "Opens one training step, eager and fused: every op with its formula, values, memory, "
      "kernels and time, as a page for a browser or as text.",
      [](App& a, Command& c) { add_inspect(a, c, make_job); });
  app.add("bench", "Times the whole step, eager against fused, over batches and widths.",
      add_bench_of_names);
  add_profile_commands(app, sinter::kGlossary);
  return app.main(argc, argv);
}
