// mnist inspect: one training step on a small batch, opened: eager and fused, op by op. A page for
// a browser, or a walk in the terminal (measure/inspect.h).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/model_file.h"
#include "examples/mnist/trainer.h"
#include "measure/inspect.h"

namespace sinter::mnist {
namespace {

struct InspectFlags {
  TrainFlags train;
  std::string from, file;
  bool text = false, force = false;
  std::optional<SavedModel> saved{};  // what is there
};

int run_inspect(const CommonFlags& common, InspectFlags& inspect, Output& out) {
  TrainFlags& flags = inspect.train;
  const Device device = choose_device(common.device).first;
  Dataset data = load_one_step(flags, inspect.saved);
  const Batch batch = Batches(data.train, flags.batches(device)).next();
  out.note("data", "{}: one batch of {}", data.description, batch.labels.numel());
  note_emulator(device, out);
  flags.mode.mode = "fused";
  const std::string threads = choose_threads(flags, batch);
  if (device == kCpu) out.note("threads", threads);
  manual_seed(common.seed);
  auto model = make_model(flags.model, common.seed, device);
  if (inspect.saved) out.note("model", take_weights(*model, *inspect.saved));
  const auto trainer = make_trainer(flags, model, 1000);
  for (int i = 0; i < 2; ++i) trainer->step(batch);  // recorded and captured
  const ImageShape image = flags.model.image();
  const measure::Inspection opened(*trainer->captured_step()->captured(),
      {batch.images, batch.labels},
      {.title = fmt::format("{}   {}   batch {}   {}", flags.model.describe(), flags.model.dtype,
           batch.labels.numel(), flags.optimizer.optimizer),
          .command = common.command,
          .rules = capture::RuleSet(flags.mode.rules),
          .image = {image.channels, image.height, image.width}});
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

void add_inspect(App& app) {
  static InspectFlags inspect;
  Command& command = app.add("inspect",
      "Opens one training step, eager and fused: every op with its formula, values, memory, "
      "kernels "
      "and time, as a page for a browser or as text.");
  inspect.train.common = &app.common();
  inspect.train.optimizer.batch = 8;
  add_data_flags(command.flags, inspect.train.data);
  add_model_flags(command.flags, inspect.train.model);
  command.flags.word("from", inspect.from, "RUN|FILE", "a run folder or a safetensors file")
      .standard = "new weights";
  add_step_flags(command.flags, inspect.train.optimizer);
  command.flags.topic("walk");
  add_rules_flag(command.flags, inspect.train.mode.rules);
  not_saved(command.flags.toggle("text", inspect.text, "print the walk in place of a page"));
  inspect.file = "step.html";
  command.flags.word("output,o", inspect.file, "FILE", "the page");
  not_saved(command.flags.toggle("force", inspect.force, "write over the page that is there"));
  command.check = [&command, &app] {
    if (!inspect.from.empty())
      adopt_model(command.flags, inspect.train, inspect.saved.emplace(read_model(inspect.from)));
    resolve_step(command.flags, inspect.train);
    if (!inspect.text && !app.common().json) check_writable(inspect.file, "-o", inspect.force);
  };
  command.run = [&app](Output& out) { return run_inspect(app.common(), inspect, out); };
}

}  // namespace sinter::mnist
