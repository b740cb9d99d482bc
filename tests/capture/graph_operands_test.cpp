// A stranger's graph file may call an op with fewer operands or results than ours does. Of each op
// that changes nothing, a file with one sample, from which each operand and each result is taken in
// turn: it is refused as a file, or runs inside its operands.
#include <gtest/gtest.h>

#include <map>

#include "capture/executor.h"
#include "capture/recording.h"
#include "core/context.h"
#include "ops/ops.h"
#include "tests/capture/graph_file.h"
#include "tests/ops/samples/samples.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

// 0: refused as a file; 1: it ran.
int run(const Json& file, const Tensors& in) {
  try {
    Executor executor(read_graph(json_text(file), "F"));
    executor.run(in);
    return 1;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::data) << error.what() << "\n" << file;
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
      SCOPED_TRACE(str(name, ", ", sample.what));
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
      Json file;
      {
        Recording recording(in);
        const Tensors out = apply(*op, operands, attrs);
        file = Json::parse(to_json(recording.finish(out, {})));
      }
      Json& nodes = file["nodes"];
      const auto at = std::ranges::find(
          nodes, name, [](const Json& node) -> std::string { return node["op"]; });
      if (at == nodes.end()) continue;  // its operands were made dense by an op before
      nodes.erase(std::next(at), nodes.end());
      // The file with another last op, which gives its first result.
      const auto with = [&](const Json& changed_op) {
        Json changed_file = file;
        changed_file["nodes"].back() = changed_op;
        changed_file["outputs"] = Json::array();
        if (!changed_op["out"].empty()) changed_file["outputs"].push_back(changed_op["out"][0]);
        return changed_file;
      };
      const Json whole = nodes.back();
      ASSERT_EQ(run(with(whole), in), 1) << with(whole);
      std::vector<Json> changed;
      for (size_t k = 0; k < whole["in"].size(); ++k) {
        changed.insert(changed.end(), 3, whole);
        (changed.end() - 3)->at("in").erase(k);
        (changed.end() - 2)->at("in")[k] = -1;
        Json& operands_left = changed.back()["in"];
        operands_left.erase(operands_left.begin() + int(k), operands_left.end());
      }
      for (size_t k = 0; k < whole["out"].size(); ++k) {
        Json fewer = whole;
        fewer["out"].erase(k);
        const std::string text = json_text(with(fewer));
        test::expect_error(Error::Kind::data, {name.data()}, [&] { read_graph(text, "F"); });
      }
      for (const Json& one : changed) {
        ++files;
        ran += run(with(one), in);
      }
    }
  }
  EXPECT_GT(files, 1000);
  EXPECT_GT(ran, 50);
}

// No y: dW and db of dy as it is, so the file is a right one.
TEST(GraphFile, AGradientOfAConvolutionWithoutReluReadsTwoOperands) {
  const Tensor x = Tensor::ones({2, 1, 3, 3});
  GraphFile f;
  const int in = f.input("x", "f32", {2, 1, 3, 3}),
            dw = f.op("conv_act_backward", {in, in}, {{"f32", {1, 1, 1, 1}}, {"f32", {1}}},
                {{"height", "1"}, {"width", "1"}});
  f.output(dw);
  f.output(dw + 1);
  Executor executor(f.graph());
  executor.run({x});
  EXPECT_EQ(executor.outputs()[0].item(), 18);
  EXPECT_EQ(executor.outputs()[1].item(), 18);
}

}  // namespace
}  // namespace sinter::capture
