// A graph file may hold anything. What read_graph(), bind() and check_forward() let through runs
// inside its buffers: each operand is what its op reads, by the op's own shape rule. See also
// tests/fuzz/graph_fuzz.cpp.
#include <gtest/gtest.h>

#include "capture/bind.h"
#include "capture/executor.h"
#include "ops/ops.h"
#include "tests/capture/graph_file.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

using test::expect_error;

TEST(GraphFile, OperandsThatAnOpWouldReadBeyondAreRefused) {
  const auto refused = [](const char* what, auto make, const std::vector<std::string>& facts) {
    SCOPED_TRACE(what);
    GraphFile f;
    make(f);
    expect_error(Error::Kind::data, facts, [&] { f.graph(); });
  };
  using F = GraphFile;
  const F::Result row{"f32", {1, 784}};
  refused("a saved value that is smaller than dy",
      [&](F& f) {
        const int x = f.input("x", "f32", {1, 784}), part = f.view(x, "f32", {1, 4});
        f.op("tanh_backward", {x, f.op("tanh", {part}, {{"f32", {1, 4}}})}, {row});
      },
      {"F.nodes[1]", "tanh_backward: ", "f32[1, 784]", "f32[1, 4]"});
  refused("a saved value that is larger than dy",
      [&](F& f) {
        const int x = f.input("x", "f32", {2, 8}), part = f.view(x, "f32", {8});
        f.op("mul_backward", {part, x, part}, {{"f32", {8}}, {"f32", {8}}});
      },
      {"F.nodes[0]", "mul_backward: ", "f32[8]", "f32[2, 8]"});
  refused("bytes in place of numbers",
      [&](F& f) {
        const int x = f.input("x", "f32", {1, 784});
        f.op("tanh_backward", {x, f.input("b", "u8", {1, 784})}, {row});
      },
      {"F.nodes[0]", "tanh_backward: ", "u8[1, 784]"});
  refused("numbers in place of a condition",
      [&](F& f) {
        const int x = f.input("x", "f32", {4});
        f.op("where_backward", {x, x, x, x}, {{"f32", {4}}, {"f32", {4}}});
      },
      {"F.nodes[0]", "where_backward: ", "u8"});
  refused("a gradient of whole numbers",
      [&](F& f) {
        const int g = f.input("g", "f32", {4}), y = f.input("y", "i32", {4});
        f.op("nll_backward", {g, y}, {{"i32", {4, 3}}}, {{"classes", "3"}, {"out", "i32"}});
      },
      {"F.nodes[0]", "nll_backward: ", "i32"});
  refused("losses that are no numbers",
      [&](F& f) {
        const int l = f.input("l", "i32", {4}), w = f.param("w", "f32", {2}),
                  s = f.param("step_state", "u8", {136});
        f.op("sgd_update", {w, w, -1, -1, -1, -1, s, l, -1}, {}, {{"tail", "1"}});
      },
      {"F.nodes[0]", "sgd_update: ", "losses", "i32[4]"});
  refused("a random state that is too short",
      [&](F& f) {
        const int r = f.param("r", "i64", {1}), w = f.param("w", "f32", {2}),
                  s = f.param("step_state", "u8", {136});
        f.op("sgd_update", {w, w, -1, -1, -1, -1, s, -1, r}, {}, {{"tail", "1"}});
      },
      {"F.nodes[0]", "sgd_update: ", "rng", "i64[1]"});
  refused("a step state with gaps",
      [&](F& f) {
        const int w = f.param("w", "f32", {2}), s = f.param("step_state", "u8", {136}, Strides{0});
        f.op("sgd_update", {w, w, -1, -1, -1, -1, s, -1, -1});
      },
      {"F.nodes[0]", "sgd_update: ", "state"});
  refused("a step state between two numbers",
      [&](F& f) {
        const int w = f.param("w", "f32", {2}), s = f.param("s", "u8", {144}),
                  odd = f.view(s, "u8", {136}, {}, 1);
        f.op("sgd_update", {w, w, -1, -1, -1, -1, odd, -1, -1});
      },
      {"F.nodes[0]", "sgd_update: ", "state", "multiple of 8"});
  refused("Adam's second average in a plain update",
      [&](F& f) {
        const int w = f.param("w", "f32", {2}), v = f.param("v", "i32", {1}),
                  s = f.param("step_state", "u8", {136});
        f.op("multi_tensor_update", {w, w, -1, v, -1, -1, s, -1, -1});
      },
      {"F.nodes[0]", "multi_tensor_update: ", "i32[1]"});
  refused("the state of a bias that is not there",
      [&](F& f) {
        const int w = f.param("w", "f32", {2, 3}), v = f.param("v", "i32", {1}),
                  s = f.param("step_state", "u8", {136}), dy = f.input("dy", "f32", {4, 2}),
                  x = f.input("x", "f32", {4, 3});
        f.op("weight_grad_update", {dy, x, w, -1, -1, -1, -1, -1, v, -1, -1, -1, s, -1, -1}, {},
            {{"optimizer", "sgd"}});
      },
      {"F.nodes[0]", "weight_grad_update: ", "i32[1]"});
  refused("an input that begins elsewhere",
      [&](F& f) {
        f.op("exp", {f.input("x", "f32", {1, 784})}, {row});
        f.json["values"][0]["offset"] = 3;
      },
      {"F.values[0]", "offset 3; only views have one"});
  refused("a result that begins elsewhere",
      [&](F& f) {
        const int y = f.op("exp", {f.input("x", "f32", {1, 784})}, {row});
        f.json["values"][size_t(y)]["offset"] = 3;
      },
      {"F.values[1]", "offset 3; only views have one"});
  refused("a result that is not dense",
      [&](F& f) {
        const int y = f.op("exp", {f.input("x", "f32", {4, 4})}, {{"f32", {4, 4}}});
        f.json["values"][size_t(y)]["strides"] = {1, 4};
      },
      {"F.nodes[0]", "results do not fit", "not dense"});
  refused("a result in the memory of another",
      [&](F& f) {
        const int y = f.op("exp", {f.input("x", "f32", {4})}, {{"f32", {4}}});
        f.op("exp", {y}, {});
        f.json["nodes"][1]["out"] = {f.view(y, "f32", {4})};
      },
      {"not a result: F.nodes[1]; %2"});
  refused("more memory than there is",
      [&](F& f) {
        constexpr int64_t kSide = 16'777'216;
        int last = f.view(f.input("x", "f32", {}), "f32", {kSide, kSide}, Strides{0, 0});
        for (int i = 0; i < 5; ++i) last = f.op("copy", {last}, {{"f32", {kSide, kSide}}});
      },
      {"F.nodes[4]", "too large"});
}

TEST(GraphFile, InputsAreWhatTheFileSays) {
  GraphFile one;
  one.output(
      one.op("copy", {one.input("x", "f32", {1, 784}, Strides{784, 4096})}, {{"f32", {1, 784}}}));
  const Graph graph = one.graph();
  expect_error(Error::Kind::data, {"not for predict: F", "strides [784, 4096]"},
      [&] { check_forward(graph, "F"); });
  Executor strided(graph);
  expect_error(Error::Kind::shape, {"graph: input 0 ", "f32[1, 784]", "[784, 4096]"}, [&] {
    strided.run({Tensor::ones({1, 784})});
  });
  GraphFile product;
  const int x = product.input("x", "f32", {4}), y = product.input("y", "f32", {4});
  product.output(product.op("mul", {x, y}, {{"f32", {4}}}));
  Executor two(product.graph());
  const Tensor four = Tensor::full({4}, 3);
  two.run({four, four});
  EXPECT_EQ(two.outputs()[0].to_vector<float>(), (std::vector<float>{9, 9, 9, 9}));
  expect_error(Error::Kind::shape, {"graph: 1 inputs", "2"}, [&] { two.run({four}); });
  expect_error(Error::Kind::shape, {"graph: input 1 ", "f32[3]", "f32[4]"}, [&] {
    two.run({four, Tensor::ones({3})});
  });
  expect_error(Error::Kind::shape, {"graph: input 0 ", "f64[4]", "f32[4]"}, [&] {
    two.run({cast(four, DType::f64), four});
  });
  expect_error(Error::Kind::shape, {"graph: input 0 ", "nothing", "f32[4]"}, [&] {
    two.run({Tensor(), four});
  });
}

TEST(GraphFile, ConstantsThatDifferAreToldApart) {
  const auto with = [](const char* number) {
    GraphFile f;
    f.output(f.op("exp", {f.constant(number, "f64", {2})}, {{"f64", {2}}}));
    return f.graph();
  };
  EXPECT_EQ(difference(with("0.3333333"), with("0.3333334")),
      "op 0, exp f64[2]: operand 0, a constant, is 0.3333333 in the first recording, 0.3333334 in "
      "the second");
}

}  // namespace
}  // namespace sinter::capture
