// mnist eval: how well a saved model reads a set of digits.

#include <cmath>

#include "core/atomic_file.h"
#include "core/json.h"
#include "examples/cli/messages.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/evaluate.h"
#include "examples/mnist/model_file.h"

namespace sinter::mnist {
namespace {

struct EvalFlags {
  FromFlags from;
  std::string set = "test";
  int64_t batch = 1000, worst = 5;
  bool confusion = false, force = false;
  std::string html;
};

int run_eval(const CommonFlags& common, const Flags& flags, EvalFlags& eval, Output& out) {
  const Device device = choose_device(common.device).first;
  SavedModel saved = read_model(eval.from.from);
  const auto model = build_model(saved, device);
  adopt_data(flags, eval.from, saved);
  Dataset data = load_dataset(eval.from.data.options(saved.flags.model.classes));
  check_images(saved, data.train.image(), data.name);
  data.to(device);
  const Split& split = eval.set == "test" ? data.test : eval.set == "val" ? data.val : data.train;
  SINTER_CHECK(split.size() > 0, data,
      cat("data: no images: --set ", eval.set, " of ", data.name, " has 0"));
  out.note("model", "{}   {}", saved.flags.model.describe(), escaped(saved.path));
  for (const std::string& note : saved.notes) out.note("note", note);
  note_emulator(device, out);
  out.note("data", "{}: {} {} images", data.description, eval.set, grouped(split.size()));
  note_other_data(saved, data, out);

  const Evaluation e = evaluate(*model, split,
      {.batch = eval.batch,
          .dtype = saved.flags.model.batch_dtype(),
          .normalize = eval.from.data.normalization(),
          .classes = saved.flags.model.classes,
          .worst = eval.worst});
  if (!e.complete) return exit_code(Error::Kind::interrupted);
  out.result(eval.set, e.summary());
  out.result_text("\n" + class_table(e));
  if (eval.confusion) out.result_text("\n" + confusion_table(e));
  if (eval.worst > 0) out.result_text("\n" + worst_table(e));
  if (!eval.html.empty()) {
    const std::string summary =
        cat(saved.flags.model.describe(), "   ", data.name, "   ", eval.set, " ", e.summary());
    write_file(eval.html, worst_page(e, split, summary, common.command));
    out.note("html", "{}: a page of the images read worst", escaped(eval.html));
  }
  Json object = {{"model", saved.path}, {"data", data.name}, {"set", eval.set}};
  object.update(e);
  object["worst"] = e.worst;
  out.json("sinter.eval/1", object);
  SINTER_CHECK(std::isfinite(e.loss()), numeric,
      cat("eval: loss is ", cli::loss(e.loss()), ": ", escaped(saved.path),
          e.not_finite.empty() ? "" : cat("; ", e.not_finite)));
  return 0;
}

}  // namespace

void add_eval(App& app) {
  static EvalFlags eval;
  Command& command = app.add(
      "eval", "Reads a set of digits with a saved model: loss, accuracy, and where it errs.");
  add_from_flags(command.flags, eval.from);
  command.flags.choice("set", eval.set, {"test", "val", "train"}, "");
  command.flags.number("eval-batch-size", eval.batch, 1, 1'000'000, "");
  command.flags.topic("report");
  command.flags.toggle(
      "confusion", eval.confusion, "the table of labels and what they were read as");
  command.flags.number("worst", eval.worst, 0, 1'000'000, "items read worst");
  Flag& html = not_saved(
      command.flags.word("html", eval.html, "FILE", "write a page with the images of these"));
  html.bare_value = "worst.html";
  not_saved(command.flags.toggle("force", eval.force, "write over the page that is there"));
  command.check = [] {
    if (!eval.html.empty()) check_writable(eval.html, "--html", eval.force);
  };
  command.run = [&app, &command](Output& out) {
    catch_signals();
    return run_eval(app.common(), command.flags, eval, out);
  };
}

}  // namespace sinter::mnist
