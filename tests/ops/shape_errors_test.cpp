// What the structured ops say of operands that do not fit, each text once: golden/shape_errors.txt.
// The operands are the bad samples, and a good sample of each op with one operand changed. What an
// op takes all the same is listed behind its texts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "ops/ops.h"
#include "tests/ops/samples/samples.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

Tensor meta_of(const Tensor& t, const Shape& shape) {
  return Tensor::meta(shape, t.dtype(), t.device());
}

struct Change {
  const char* what;
  std::function<Tensor(const Tensor&)> of;
};
const Change kChanges[] = {
    {"undefined", [](const Tensor&) { return Tensor(); }},
    {"of one more dim",
        [](const Tensor& t) {
          Shape shape = t.shape();
          shape.push_back(1);
          return meta_of(t, shape);
        }},
    {"of one dim less",
        [](const Tensor& t) {
          const Shape& s = t.shape();
          return s.rank() == 0 ? t : meta_of(t, Shape(std::span(s.begin() + 1, s.end())));
        }},
    {"longer in its first dim",
        [](const Tensor& t) {
          Shape shape = t.shape();
          if (shape.rank() > 0) ++shape[0];
          return meta_of(t, shape);
        }},
    {"longer in its last dim",
        [](const Tensor& t) {
          Shape shape = t.shape();
          if (shape.rank() > 0) ++shape[-1];
          return meta_of(t, shape);
        }},
    {"of i32", [](const Tensor& t) { return Tensor::meta(t.shape(), DType::i32, t.device()); }},
    {"of f32", [](const Tensor& t) { return Tensor::meta(t.shape(), DType::f32, t.device()); }},
};

// The good sample with the most operands.
Sample fullest_sample(const OpDef& op) {
  const auto operands = [](const Sample& s) {
    return s.bad ? -1 : std::ranges::count_if(s.in, [](const Tensor& t) { return t.defined(); });
  };
  const std::vector<Sample> samples = samples_of(op);
  return *std::ranges::max_element(samples, {}, operands);
}

// The texts of one op, each once, and what it takes as well.
class Refusals {
 public:
  explicit Refusals(const OpDef& op) : op_(op) {}
  void add(const Tensors& in, const Attrs& attrs, const std::string& change) {
    const std::string text = test::message_of([&] { apply(op_, in, attrs); });
    if (text.empty()) {
      taken_ += str(taken_.empty() ? "" : ", ", change);
    } else if (std::ranges::find(texts_, text) == texts_.end()) {
      texts_.push_back(text);
    }
  }
  std::string text() const {
    std::string all;
    for (const std::string& text : texts_) all += text + "\n";
    return all + (taken_.empty() ? "" : str(op_.text(), " takes: ", taken_, "\n"));
  }

 private:
  const OpDef& op_;
  std::vector<std::string> texts_;
  std::string taken_;
};

std::string refusals_of(const OpDef& op) {
  Refusals refusals(op);
  for (const Sample& sample : samples_of(op)) {
    if (sample.bad) refusals.add(sample.in, sample.attrs, sample.what);
  }
  const Sample good = fullest_sample(op);
  Tensors in;
  for (const Tensor& t : good.in) in.push_back(t.defined() ? meta_of(t, t.shape()) : t);
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i].defined()) continue;
    for (const Change& change : kChanges) {
      Tensors changed = in;
      changed[i] = change.of(in[i]);
      refusals.add(changed, good.attrs, str(i, " ", change.what));
    }
  }
  return refusals.text();
}

TEST(ShapeErrors, AreTheGoldenTexts) {
  const std::string path = SINTER_SOURCE_DIR "/tests/ops/golden/shape_errors.txt";
#define SINTER_ADDRESS(op, ...) &op,
  const OpDef* const ops[] = {SINTER_STRUCTURED_OPS(SINTER_ADDRESS, SINTER_ADDRESS)};
#undef SINTER_ADDRESS
  std::string texts;
  for (const OpDef* op : ops) texts += refusals_of(*op);
  if (std::getenv("SINTER_REGENERATE")) std::ofstream(path) << texts;
  EXPECT_EQ(texts, test::text_of(path)) << "SINTER_REGENERATE=1 writes the file anew";
}

}  // namespace
}  // namespace sinter
