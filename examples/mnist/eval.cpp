// mnist eval: how well a saved model reads a set of digits.

#include <fmt/format.h>

#include <cmath>

#include "core/atomic_file.h"
#include "core/json.h"
#include "examples/cli/process.h"
#include "examples/mnist/evaluate.h"
#include "examples/mnist/model.h"
#include "profiler/exports.h"
#include "profiler/grid.h"

namespace sinter::mnist {
namespace {

struct EvalFlags {
  FromFlags from;
  std::string set = "test";
  int64_t batch = 1000, worst = 5;
  bool confusion = false, force = false;
  std::string html;
};

void print_tables(const Evaluation& e, const EvalFlags& eval, Output& out) {
  profiler::Grid classes({"<class", "precision", "recall", "F1", "images"});
  for (const ClassRow& row : e.class_rows()) {
    const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    classes.add({cat(row.label), percent(row.precision), percent(row.recall),
        fmt::format("{:.3f}", row.f1), grouped(row.images)});
  }
  out.result_text("\n" + classes.text());
  if (eval.confusion) {
    std::vector<std::string> titles{"<label"};
    for (int64_t read = 0; read < e.classes; ++read) titles.push_back(cat("as ", read));
    profiler::Grid counts(std::move(titles));
    for (int64_t label = 0; label < e.classes; ++label) {
      std::vector<std::string> row{cat(label)};
      for (int64_t read = 0; read < e.classes; ++read)
        row.push_back(e.count(label, read) ? cat(e.count(label, read)) : ".");
      counts.add(std::move(row));
    }
    out.result_text("\n" + counts.text());
  }
  if (eval.worst == 0) return;
  profiler::Grid worst({"<worst", "label", "read as", "loss"});
  for (const auto& item : e.worst)
    worst.add({cat("item ", item.index), cat(item.label), cat(item.read_as),
        std::isnan(item.loss) ? "nan" : fmt::format("{:.2f}", item.loss)});
  out.result_text("\n" + worst.text());
}

// The worst items as a page of HTML that needs no network, with their images.
std::string worst_page(const Evaluation& e, const Split& split, const std::string& summary,
    const std::string& command) {
  const ImageShape shape = split.image();
  Json worst = {{"summary", summary}, {"channels", shape.channels}, {"rows", shape.height},
      {"columns", shape.width}, {"items", e.worst}};
  for (Json& item : worst["items"]) {
    const int64_t i = item["item"];
    std::string pixels;  // as hexadecimal bytes, [C, H, W]
    for (const uint8_t byte : slice(split, i, i + 1).images.to_vector<uint8_t>())
      pixels += fmt::format("{:02x}", byte);
    item["pixels"] = std::move(pixels);
  }
  return profiler::html_report(
      {.title = "mnist eval", .command = command, .worst = json_text(worst)});
}

int run_eval(const CommonFlags& common, const Flags& flags, EvalFlags& eval, Output& out) {
  const Device device = choose_device(common.device).first;
  const SavedModel saved = open_model(flags, eval.from, device, out);
  out.note("model", "{}   {}", saved.flags.model.describe(), escaped(saved.path));
  Dataset data = load_dataset(eval.from.data.options(saved.flags.model.classes));
  check_images(saved, data.train.image(), data.name);
  data.to(device);
  const Split& split = eval.set == "test" ? data.test : eval.set == "val" ? data.val : data.train;
  SINTER_CHECK(split.size() > 0, data,
      cat("data: no images: --set ", eval.set, " of ", data.name, " has 0"));
  out.note("data", "{}: {} {} images", data.description, eval.set, grouped(split.size()));
  note_other_data(saved, data, out);

  const Evaluation e = evaluate(*saved.model, split,
      {.batch = eval.batch,
          .dtype = saved.flags.model.batch_dtype(),
          .normalize = eval.from.data.normalization(),
          .classes = saved.flags.model.classes,
          .worst = eval.worst});
  if (!e.complete) return exit_code(Error::Kind::interrupted);
  out.result(eval.set, e.summary());
  print_tables(e, eval, out);
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

void add_eval(App& app, Command& command) {
  static EvalFlags eval;
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
