#include "examples/mnist/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "examples/cli/process.h"
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

std::string first_nan(const std::function<void()>& run) {
  const AnomalyMode anomaly;
  try {
    run();
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::numeric) throw;
    clear_tape();
    std::string text = error.what();  // the message, the module's path, the hint: a line each
    text.resize(std::min(text.size(), text.find("\n    hint: ")));
    if (const size_t path = text.find("\n    in "); path != text.npos) text.replace(path, 5, ", ");
    return text;
  }
  return "";
}

std::string why_not_finite(nn::Module& model, const Tensor& images) {
  for (const auto& [name, tensor] : model.state_dict()) {
    if (const std::string found = not_finite(tensor); !found.empty())
      return cat(name, " has ", found);
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
  for (size_t i = 0; i < std::min<size_t>(list.size(), 3); ++i)
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

}  // namespace sinter::mnist
