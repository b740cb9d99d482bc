// inspect: one training step of a job on a small batch, opened: eager and fused, op by op. A page
// for a browser, or a walk in the terminal (measure/inspect.h).
#include "measure/inspect.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/job.h"
#include "core/atomic_file.h"

namespace sinter::cli {
namespace {

struct InspectFlags {
  std::string file = "step.html";
  bool text = false, force = false;
};

int run_inspect(const Flags& given, Job& job, const InspectFlags& inspect, Output& out) {
  TrainFlags flags = job.flags;
  const CommonFlags& common = *flags.common;
  flags.mode.mode = "fused";
  const Tensors batch = load_batch(job, given, out);
  const auto trainer = job.make_trainer(flags, batch[0].device(), 1000);
  if (const std::string weights = job.weights(); !weights.empty()) out.note("model", weights);
  for (int i = 0; i < 2; ++i) trainer->step(batch);  // recorded and captured
  const measure::Inspection opened(*trainer->captured_step()->captured(), batch,
      {.title = fmt::format("{}   {}   batch {}   {}", job.describe(), job.dtype(),
           batch[0].size(0), flags.optimizer.optimizer),
          .command = common.command,
          .rules = capture::RuleSet(flags.mode.rules),
          .picture = job.picture()});
  if (inspect.text) {
    out.result_text(opened.text());
  } else if (!common.json) {
    write_file(inspect.file, opened.page());
    out.result("page", "{}: open it in a browser; arrow keys step, f folds", escaped(inspect.file));
  }
  out.json("sinter.inspect/1", Json::parse(opened.json()));
  return 0;
}

}  // namespace

void add_inspect(App& app, const JobMaker& make) {
  app.add("inspect",
      "Opens one training step, eager and fused: every op with its formula, values, memory, "
      "kernels and time, as a page for a browser or as text.",
      [make](App& here, Command& command) {
        static InspectFlags inspect;
        static const std::unique_ptr<Job> job = make(here.common());
        add_step_flags(command, *job);
        command.flags.topic("walk");
        add_rules_flag(command.flags, job->flags.mode.rules);
        // A job that reads texts has a flag of this name.
        const char* const text = command.flags.find("text") ? "walk" : "text";
        not_saved(command.flags.toggle(text, inspect.text, "print the walk in place of a page"));
        command.flags.word("output,o", inspect.file, "FILE", "the page");
        not_saved(
            command.flags.toggle("force", inspect.force, "write over the page that is there"));
        command.check = [&here, &command, text] {
          check_flags(command.flags, *job, Use::step);
          const bool writes = !inspect.text && !here.common().json;
          SINTER_CHECK(writes || command.flags["output"].source != Source::command_line, usage,
              str("usage: -o is for a page: ", inspect.text ? str("--", text) : "--json",
                  " prints, and writes none"));
          if (writes) check_writable(inspect.file, "-o", inspect.force);
        };
        command.run = [&command](
                          Output& out) { return run_inspect(command.flags, *job, inspect, out); };
      });
}

}  // namespace sinter::cli
