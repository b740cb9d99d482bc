// mnist inspect: one training step on a small batch, opened: eager and fused, op by op. A page for
// a browser, or a walk in the terminal (measure/inspect.h).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "examples/mnist/model.h"
#include "measure/inspect.h"

namespace sinter::mnist {
namespace {

struct InspectFlags {
  StepFlags step;
  std::string file = "step.html";
  bool text = false, force = false;
};

int run_inspect(const CommonFlags& common, InspectFlags& inspect, Output& out) {
  TrainFlags& flags = inspect.step.train;
  flags.mode.mode = "fused";
  const Batch batch = first_batch(inspect.step, out);
  auto model = make_model(flags.model, common.seed, batch.images.device());
  if (inspect.step.saved) out.note("model", take_weights(*model, *inspect.step.saved));
  const auto trainer = make_trainer(flags, model, 1000);
  for (int i = 0; i < 2; ++i) trainer->step(batch);  // recorded and captured
  const ImageShape image = flags.model.image();
  const measure::Inspection opened(*trainer->captured_step()->captured(),
      {batch.images, batch.labels},
      {.title = fmt::format("{}   {}   batch {}   {}", flags.model.describe(), flags.model.dtype,
           batch.labels.numel(), flags.optimizer.optimizer),
          .command = common.command,
          .rules = capture::RuleSet(flags.mode.rules),
          .picture = {image.channels, image.height, image.width}});
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

void add_inspect(App& app, Command& command) {
  static InspectFlags inspect;
  inspect.step.train.optimizer.batch = 8;
  add_step_flags(command, app.common(), inspect.step);
  command.flags.topic("walk");
  add_rules_flag(command.flags, inspect.step.train.mode.rules);
  not_saved(command.flags.toggle("text", inspect.text, "print the walk in place of a page"));
  command.flags.word("output,o", inspect.file, "FILE", "the page");
  not_saved(command.flags.toggle("force", inspect.force, "write over the page that is there"));
  command.check = [&app, check_step = command.check] {
    check_step();
    if (!inspect.text && !app.common().json) check_writable(inspect.file, "-o", inspect.force);
  };
  command.run = [&app](Output& out) { return run_inspect(app.common(), inspect, out); };
}

}  // namespace sinter::mnist
