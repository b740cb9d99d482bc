// mnist eval: how well a saved model reads a set of digits.
#include "examples/mnist/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "cli/process.h"
#include "core/atomic_file.h"
#include "core/json.h"
#include "core/text_grid.h"
#include "examples/mnist/model.h"
#include "measure/exports.h"
#include "ops/ops.h"

namespace sinter::mnist {
namespace {

struct Confusion {
  int64_t count, label, read_as;
};
std::vector<Confusion> confusions_by_count(const Evaluation& e) {
  std::vector<Confusion> out;
  for (int64_t label = 0; label < e.classes; ++label) {
    for (int64_t read = 0; read < e.classes; ++read) {
      if (label != read && e.count(label, read) > 0)
        out.push_back({e.count(label, read), label, read});
    }
  }
  std::ranges::stable_sort(out, std::greater(), &Confusion::count);
  return out;
}

double ratio(int64_t a, int64_t b) { return b ? double(a) / double(b) : 0; }

// What all ranks found, in place of what this one did.
void add_up(Communicator& ranks, Evaluation& e) {
  std::vector<double> all{double(e.images), double(e.correct), e.loss_sum, e.complete ? 0.0 : 1.0};
  all.insert(all.end(), e.confusion.begin(), e.confusion.end());
  const SumPiece piece{all.data(), int64_t(all.size())};
  ranks.start_sum(0, {&piece, 1}, DType::f64, kCpu);
  ranks.finish_sum(0);
  e.images = std::llround(all[0]);
  e.correct = std::llround(all[1]);
  e.loss_sum = all[2];
  e.complete = all[3] == 0;
  for (size_t i = 0; i < e.confusion.size(); ++i) e.confusion[i] = std::llround(all[4 + i]);
}

// Reads all rows, with every item among the worst.
void read_rows(
    nn::Module& model, const Split& split, const EvaluateOptions& options, Evaluation& e) {
  const NoGrad no_grad;
  const nn::EvalMode evaluation_mode(model);
  Batches batches(split, {.size = options.batch,
                             .shuffle = false,
                             .dtype = options.dtype,
                             .normalize = options.normalize,
                             .device = model.parameters()[0].device()});
  for (const Batch& batch : batches) {
    if (cli::interrupted()) {
      e.complete = false;
      break;
    }
    const Tensor logits = model(batch.images);
    const auto read = argmax(logits).to_vector<int64_t>();
    const auto labels = batch.labels.to_vector<int64_t>();
    const auto losses = cross_entropy(logits, batch.labels).to_vector<double>();
    for (size_t i = 0; i < labels.size(); ++i) {
      const Evaluation::Item item{e.images++, labels[i], read[i], losses[i]};
      e.correct += item.label == item.read_as;
      e.loss_sum += item.loss;
      if (!std::isfinite(item.loss) && e.not_finite.empty())
        e.not_finite = why_not_finite(model, batch.images);
      ++e.confusion[size_t(item.label * e.classes + item.read_as)];
      if (options.worst > 0) e.worst.push_back(item);
    }
  }
}

}  // namespace

std::string why_not_finite(nn::Module& model, const Tensor& images) {
  for (const auto& [name, tensor] : model.state_dict()) {
    if (const std::string found = not_finite(tensor); !found.empty())
      return str(name, " has ", found);
  }
  const NoGrad no_grad;
  return first_nan([&] { model(images); });
}

Evaluation evaluate(nn::Module& model, const Split& split, const EvaluateOptions& options) {
  Evaluation e{.classes = options.classes,
      .confusion = std::vector<int64_t>(size_t(options.classes * options.classes))};
  const RowRange own =
      options.ranks ? rows_of_rank(split.size(), options.ranks->rank(), options.ranks->size())
                    : RowRange{0, split.size()};
  if (own.size() > 0) read_rows(model, slice(split, own.begin, own.end), options, e);
  if (options.ranks) add_up(*options.ranks, e);
  const auto worse = [](double a, double b) { return a > b || (std::isnan(a) && !std::isnan(b)); };
  std::ranges::stable_sort(e.worst, worse, &Evaluation::Item::loss);
  e.worst.resize(std::min(e.worst.size(), size_t(options.worst)));
  return e;
}

std::string Evaluation::confused_most() const {
  std::string text;
  const auto list = confusions_by_count(*this);
  for (size_t i = 0; i < std::min<size_t>(list.size(), 2); ++i)
    text +=
        fmt::format("{}{}->{} ({})", i ? "  " : "", list[i].label, list[i].read_as, list[i].count);
  return text.empty() ? "none" : text;
}

std::string Evaluation::summary() const {
  return fmt::format("{}  loss {}   confused most: {}", cli::proportion(correct, images),
      cli::loss(loss()), confused_most());
}

std::vector<ClassRow> Evaluation::class_rows() const {
  std::vector<ClassRow> rows;
  for (int64_t c = 0; c < classes; ++c) {
    int64_t labelled = 0, read = 0;
    for (int64_t k = 0; k < classes; ++k) {
      labelled += count(c, k);
      read += count(k, c);
    }
    const int64_t right = count(c, c);
    rows.push_back({c, labelled, ratio(right, read), ratio(right, labelled),
        ratio(2 * right, labelled + read)});
  }
  return rows;
}

std::vector<std::vector<int64_t>> Evaluation::confusion_rows() const {
  std::vector<std::vector<int64_t>> rows;
  for (auto row = confusion.begin(); row != confusion.end(); row += classes)
    rows.emplace_back(row, row + classes);
  return rows;
}

// ---- the command

namespace {

struct EvalFlags {
  FromFlags from;
  std::string set = "test";
  int64_t batch = 1000, worst = 5;
  bool confusion = false, force = false;
  std::string html;
};

void print_tables(const Evaluation& e, const EvalFlags& eval, Output& out) {
  TextGrid classes({"<class", "precision", "recall", "F1", "images"});
  for (const ClassRow& row : e.class_rows()) {
    const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    classes.add({str(row.label), percent(row.precision), percent(row.recall),
        fmt::format("{:.3f}", row.f1), grouped(row.images)});
  }
  out.result_text("\n" + classes.text());
  if (eval.confusion) {
    std::vector<std::string> titles{"<label"};
    for (int64_t read = 0; read < e.classes; ++read) titles.push_back(str("as ", read));
    TextGrid counts(std::move(titles));
    for (int64_t label = 0; label < e.classes; ++label) {
      std::vector<std::string> row{str(label)};
      for (int64_t read = 0; read < e.classes; ++read)
        row.push_back(e.count(label, read) ? str(e.count(label, read)) : ".");
      counts.add(std::move(row));
    }
    out.result_text("\n" + counts.text());
  }
  if (eval.worst == 0) return;
  TextGrid worst({"<worst", "label", "read as", "loss"});
  for (const auto& item : e.worst)
    worst.add({str("item ", item.index), str(item.label), str(item.read_as),
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
  return measure::html_report(
      {.title = "mnist eval", .command = command, .worst = json_text(worst)});
}

int run_eval(const CommonFlags& common, const Flags& flags, EvalFlags& eval, Output& out) {
  const Device device = choose_device(common.device).first;
  const SavedModel saved = open_model(flags, eval.from, device, out);
  out.note("model", "{}   {}", saved.flags.model.describe(), escaped(saved.path));
  Dataset data = load_data(saved, eval.from.data.options(saved.flags.model.classes), out);
  data.to(device);
  const Split& split = eval.set == "test" ? data.test : eval.set == "val" ? data.val : data.train;
  SINTER_CHECK(split.size() > 0, data,
      str("data: no images: --set ", eval.set, " of ", data.name, " has 0"));
  out.note("data", "{}: {} {} images", data.description, eval.set, grouped(split.size()));

  const Evaluation e = evaluate(*saved.model, split,
      {.batch = eval.batch,
          .dtype = saved.flags.model.batch_dtype(),
          .normalize = eval.from.data.normalization(),
          .classes = saved.flags.model.classes,
          .worst = eval.worst});
  if (!e.complete)
    return out.stopped(str("after ", grouped(e.images), " of ", grouped(split.size()), " images"));
  out.result(eval.set, e.summary());
  print_tables(e, eval, out);
  if (!eval.html.empty()) {
    const std::string summary =
        str(saved.flags.model.describe(), "   ", data.name, "   ", eval.set, " ", e.summary());
    write_file(eval.html, worst_page(e, split, summary, common.command));
    out.note("html", "{}: a page of the images read worst", escaped(eval.html));
  }
  Json object = {{"model", saved.path}, {"data", data.name}, {"set", eval.set}};
  object.update(e);
  object["worst"] = e.worst;
  out.json("sinter.eval/1", object);
  SINTER_CHECK(std::isfinite(e.loss()), numeric,
      str("eval: loss is ", cli::loss(e.loss()), ": ", escaped(saved.path),
          e.not_finite.empty() ? "" : str("; ", e.not_finite)));
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
