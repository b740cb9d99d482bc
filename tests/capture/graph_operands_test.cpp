// A stranger's graph file may call an op with fewer operands or results than ours does. Of each op
// that changes nothing, a file with one sample, from which each operand and each result is taken in
// turn: it is refused as a file, or runs inside its operands.
#include <gtest/gtest.h>

#include <map>

#include "capture/executor.h"
#include "capture/recording.h"
#include "capture/text.h"
#include "core/context.h"
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

// A line of an op: "%4, %5 = name(%0, %1, -) f32[2], f32[3] attribute=1".
struct Line {
  std::vector<std::string> results, operands, types;
  std::string name, attributes;

  static std::vector<std::string> parts(const std::string& text) {
    std::vector<std::string> out;
    int depth = 0;
    for (const char c : text + ",") {
      depth += (c == '[') - (c == ']');
      if (out.empty()) out.emplace_back();
      if (c == ',' && depth == 0) {
        out.emplace_back();
      } else if (c != ' ') {
        out.back() += c;
      }
    }
    out.pop_back();
    std::erase(out, "");
    return out;
  }
  explicit Line(const std::string& text) {
    const size_t open = text.find('('), close = text.find(')'), equals = text.find(" = ");
    results = parts(text.substr(0, equals));
    name = text.substr(equals + 3, open - equals - 3);
    operands = parts(text.substr(open + 1, close - open - 1));
    size_t end = close + 1;  // of the types: one for each result
    for (size_t r = 0; r < results.size(); ++r) {
      const size_t first = text.find_first_not_of(" ,", end);
      end = text.find(']', first) + 1;
      types.push_back(text.substr(first, end - first));
    }
    attributes = text.substr(end);
  }
  std::string text() const {
    const auto joined = [](const std::vector<std::string>& list) {
      std::string out;
      for (const std::string& part : list) out += (out.empty() ? "" : ", ") + part;
      return out;
    };
    return cat(joined(results), results.empty() ? "" : " = ", name, "(", joined(operands), ") ",
        joined(types), attributes, "\n");
  }
};

// 0: refused as a file; 1: it ran.
int run(const std::string& text, const Tensors& in) {
  try {
    Executor executor(parse(text, "F"));
    executor.run(in);
    return 1;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::data) << error.what() << "\n" << text;
    return 0;
  }
}

TEST(GraphFile, AnOpWithoutOneOfItsOperandsOrResultsIsRefusedOrRuns) {
  const NoGrad no_grad;
  int files = 0, ran = 0;
  for (const OpDef* op : all_ops()) {
    if (op->view || op->in_place() || !op->cpu) continue;
    std::map<std::string_view, int> samples;  // by label
    for (const Sample& sample : samples_of(*op)) {
      const std::string_view name = op->label_of(sample.attrs);
      if (sample.bad || ++samples[name] > 12) continue;
      SCOPED_TRACE(cat(name, ", ", sample.what));
      Attrs attrs = sample.attrs;
      attrs.parse("out", "f32");
      Tensors operands = sample.in, in;
      for (size_t i = 0; i < operands.size(); ++i) {
        Tensor& t = operands[i];
        if (!t.defined()) continue;
        const DType type = operand_type(*op, i, operands.size(), DType::f32);
        if (t.dtype() == DType::f64) t = cast(t, type);
        in.push_back(t);
      }
      std::string text;
      {
        Recording recording(in);
        const Tensors out = apply(*op, operands, attrs);
        text = dump(recording.finish(out, {}));
      }
      const size_t at = text.find(cat(" = ", name, "("));
      if (at == text.npos) continue;  // its operands were made dense by an op before
      const size_t begin = text.rfind('\n', at) + 1, end = text.find('\n', at) + 1;
      const Line line(text.substr(begin, end - begin - 1));
      const auto with = [&](const Line& changed, const std::string& output) {
        return text.substr(0, begin) + changed.text() + "output \"y\" " + output + "\n";
      };
      ASSERT_EQ(run(with(line, line.results[0]), in), 1) << with(line, line.results[0]);
      std::vector<Line> changed;
      for (size_t k = 0; k < line.operands.size(); ++k) {
        changed.push_back(line);
        changed.back().operands.erase(changed.back().operands.begin() + int(k));
        changed.push_back(line);
        changed.back().operands[k] = "-";
        changed.push_back(line);
        changed.back().operands.resize(k);
      }
      for (size_t k = 0; k < line.results.size(); ++k) {
        Line fewer = line;
        fewer.results.erase(fewer.results.begin() + int(k));
        fewer.types.erase(fewer.types.begin() + int(k));
        const std::string file = with(fewer, fewer.results.empty() ? "" : fewer.results[0]);
        test::expect_error(Error::Kind::data, {name.data()}, [&] { parse(file, "F"); });
      }
      for (const Line& one : changed) {
        ++files;
        ran += run(with(one, one.results[0]), in);
      }
    }
  }
  EXPECT_GT(files, 1000);
  EXPECT_GT(ran, 50);
}

// No y: dW and db of dy as it is, so the file is a right one.
TEST(GraphFile, AGradientOfAConvolutionWithoutReluReadsTwoOperands) {
  const Tensor x = Tensor::ones({2, 1, 3, 3});
  Executor executor(
      parse("sinter-graph 1\n%0 = input \"x\" f32[2, 1, 3, 3]\n"
            "%1, %2 = conv_act_backward(%0, %0) f32[1, 1, 1, 1], f32[1] height=1 width=1\n"
            "output \"dw\" %1, \"db\" %2\n",
          "F"));
  executor.run({x});
  EXPECT_EQ(executor.outputs()[0].item(), 18);
  EXPECT_EQ(executor.outputs()[1].item(), 18);
}

}  // namespace
}  // namespace sinter::capture
