#include "capture/bind.h"

#include <gtest/gtest.h>

#include <cstring>

#include "capture/executor.h"
#include "capture/rules.h"
#include "tests/capture/graph_file.h"
#include "tests/capture/recorded.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.describe(), b.describe());
  const Tensor x = contiguous(a), y = contiguous(b);
  EXPECT_EQ(std::memcmp(x.raw(), y.raw(), size_t(x.numel()) * size_of(x.dtype())), 0)
      << a.describe();
}

// Read from its file: no memory, no code of the model.
Graph saved(const Graph& graph) { return read_graph(to_json(graph), "F"); }

using test::expect_error;

TEST(GraphBind, SavedForwardPassGivesTheNumbersOfTheModel) {
  for (const bool bias : {true, false}) {
    const SmallMlp mlp(bias);
    const Graph graph =
        bind(saved(mlp.forward_graph()), [&](const std::string& name) { return mlp.find(name); });
    Executor executor(graph);
    for (const uint64_t seed : {9, 10}) {
      const Tensor x = cast(sample_tensor({4, 6}, seed), DType::f32);
      executor.run({x});
      const NoGrad no_grad;
      expect_same_bits(executor.outputs()[0], mlp.logits(x));
    }
  }
}

TEST(GraphBind, SavedTrainingStepUpdatesTheTensorsThatWereBound) {
  const SmallMlp twin;
  for (const char* rules : {"none", "all"}) {
    const SmallMlp mlp;
    const Graph recorded = SmallMlp().training_graph();
    const Graph graph = rewrite(recorded, RuleSet(rules), Device::Type::cpu).graph;
    Executor executor(bind(saved(graph), [&](const std::string& name) { return mlp.find(name); }));
    SmallMlp eager;
    for (int step = 0; step < 3; ++step) {
      executor.run({mlp.x, mlp.labels});
      const Tensors losses = eager.train({eager.x, eager.labels});
      if (std::string_view(rules) == "none") expect_same_bits(executor.outputs()[0], losses[0]);
    }
    for (size_t i = 0; i < mlp.params.size(); ++i) {
      if (std::string_view(rules) == "none") expect_same_bits(mlp.params[i], eager.params[i]);
      EXPECT_TRUE(test::close(mlp.params[i], eager.params[i], {.absolute = 1e-5}));
      const std::vector<float> after = mlp.params[i].to_vector<float>(),
                               before = twin.params[i].to_vector<float>();
      for (size_t k = 0; k < after.size(); ++k) EXPECT_NE(after[k], before[k]);
    }
  }
}

TEST(GraphBind, TensorsMayLieAnywhereInTheirStorage) {
  const SmallMlp mlp;
  // One long storage for all parameters, as a file that is read at once.
  const Tensor all = Tensor::zeros({100});
  int64_t at = 3;
  std::vector<std::pair<std::string, Tensor>> parts;
  for (const Tensor& p : mlp.params) {
    const Tensor part = Tensor::view_of(all.storage(), DType::f32, p.shape(), p.strides(), at);
    at += p.numel();
    accumulate(part, detach(p));
    parts.emplace_back(p.autograd().name, part);
  }
  const Graph graph = bind(saved(mlp.forward_graph()), [&](const std::string& name) {
    return std::find_if(parts.begin(), parts.end(), [&](const auto& part) {
      return part.first == name;
    })->second;
  });
  Executor executor(graph);
  executor.run({mlp.x});
  const NoGrad no_grad;
  expect_same_bits(executor.outputs()[0], mlp.logits(mlp.x));
  EXPECT_EQ(graph.buffers[graph.values[1].buffer].storage, all.storage());  // not copied
}

// linear of x[2, 4] and rows 3 to 5 of a parameter.
GraphFile viewed() {
  GraphFile f;
  const int x = f.input("x", "f32", {2, 4}), both = f.param("both", "f32", {6, 4});
  f.output(f.op("linear", {x, f.view(both, "f32", {3, 4}, {}, 12), -1}, {{"f32", {2, 3}}}));
  return f;
}

TEST(GraphBind, AParameterIsTakenWhereItLiesOrCopied) {
  const auto sample = [](const Shape& shape, uint64_t seed) {
    return cast(sample_tensor(shape, seed), DType::f32);
  };
  const Tensor whole = sample({9, 4}, 1), x = sample({2, 4}, 2), both = slice(whole, 0, 3, 9),
               expected = linear(x, slice(both, 0, 3, 6));
  const auto run = [&](const Tensor& parameter) {
    const Graph graph = bind(viewed().graph(), [&](const std::string&) { return parameter; });
    Executor executor(graph);
    executor.run({x});
    expect_same_bits(executor.outputs()[0], expected);
    return graph.buffers[graph.values[1].buffer].storage == parameter.storage();
  };
  EXPECT_TRUE(run(both));
  const Tensor turned = transpose(copy(transpose(both)));
  EXPECT_FALSE(run(turned));  // not dense
  // A graph that writes it must not write a copy.
  GraphFile updates = viewed();
  updates.op("accumulate", {1, 1});
  expect_error(Error::Kind::state,
      {"cannot bind", "both", "the graph changes it where it lies", "[4, 1]"},
      [&] { bind(updates.graph(), [&](const std::string&) { return turned; }); });
}

TEST(GraphBind, SaysAllThatDoesNotFit) {
  const SmallMlp mlp;
  const Graph graph = saved(mlp.forward_graph());
  const auto find = [&](const std::string& name) {
    return name == "0.weight" ? Tensor::zeros({5, 7})
           : name == "2.bias" ? Tensor()
                              : mlp.find(name);
  };
  expect_error(Error::Kind::checkpoint,
      {"1 missing, 1 of another shape", "missing 2.bias f32[3]",
          "shape 0.weight: found f32[5, 7], graph f32[5, 6]"},
      [&] { bind(graph, find); });
  const auto f64 = [&](const std::string& name) { return cast(mlp.find(name), DType::f64); };
  expect_error(Error::Kind::checkpoint, {"0 missing, 4 of another", "found f64[5, 6]"},
      [&] { bind(graph, f64); });
  GraphFile many;
  for (int i = 0; i < 13; ++i)
    many.op("exp", {many.param(str("p", i), "f32", {2})}, {{"f32", {2}}});
  const std::string error =
      test::message_of([&] { bind(many.graph(), [](const std::string&) { return Tensor(); }); },
          Error::Kind::checkpoint);
  test::expect_facts(error, {"13 missing", "missing p9 f32[2]", "and 3 more"});
  EXPECT_EQ(error.find("p10"), error.npos);
}

TEST(GraphBind, PredictTakesForwardPassesOfOneRowOnly) {
  const auto file = [](const char* op, GraphFile::Result in, GraphFile::Result out) {
    GraphFile f;
    f.output(f.op(op, {f.input("x", in.dtype, in.shape)}, {out}));
    return f;
  };
  const auto forward = [&](const GraphFile::Result& x) { return file("exp", x, x).graph(); };
  EXPECT_NO_THROW(check_forward(forward({"f32", {1, 6}}), "F"));
  const auto refused = [](const Graph& graph, std::vector<std::string> facts) {
    facts.insert(
        facts.end(), {"graph: not for predict: F; ", "to_json() of the graph of a prediction"});
    expect_error(Error::Kind::data, facts, [&] { check_forward(graph, "F"); });
  };
  refused(saved(SmallMlp().training_graph()), {"it changes 13 tensors in place"});
  refused(rewrite(SmallMlp().training_graph(), RuleSet("all"), Device::Type::cpu).graph,
      {"it changes 13 tensors in place"});
  refused(forward({"f32", {4, 6}}), {"its input is f32[4, 6], wanted f32[1, N]"});
  refused(forward({"f64", {1, 6}}), {"f64[1, 6]"});
  refused(
      file("sum", {"f32", {1, 6}}, {"f32", {}}).graph(), {"its output is f32[], wanted f32[1, C]"});
  GraphFile none;
  const int x = none.input("x", "f32", {1, 6});
  refused(none.graph(), {"1 inputs and 0 outputs"});
  none.op("accumulate", {x, x});
  none.output(x);
  refused(none.graph(), {"changes 1 tensors in place"});
}

TEST(GraphBind, LoadReadsAFileAndNamesIt) {
  const test::TempDir dir;
  GraphFile graph = viewed();
  const std::string file = dir.write("graph.json", graph.text());
  EXPECT_EQ(dump(load(file)), dump(graph.graph()));
  graph.op("relu", {9});
  dir.write("graph.json", graph.text());
  expect_error(Error::Kind::data, {"undefined value", file + ".nodes[1]; %9"}, [&] { load(file); });
  expect_error(
      Error::Kind::data, {"cannot read", "none", "No such file"}, [&] { load(dir.file("none")); });
  expect_error(Error::Kind::data, {"cannot read"}, [&] { load(dir.path()); });
}

}  // namespace
}  // namespace sinter::capture
