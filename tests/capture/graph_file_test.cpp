// A graph file may hold anything. What parse(), bind() and check_forward() let through runs inside
// its buffers: each operand is what its op reads, by the op's own shape rule. See also
// tests/fuzz/graph_fuzz.cpp.
#include <gtest/gtest.h>

#include "capture/bind.h"
#include "capture/executor.h"
#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

using test::expect_error;

struct BadGraph {
  const char *what, *body;
  std::vector<std::string> facts;
};

TEST(GraphFile, OperandsThatAnOpWouldReadBeyondAreRefused) {
  const BadGraph kBad[] = {
      {"a saved value that is smaller than dy",
          "%0 = input \"x\" f32[1, 784]\n%1 = view(%0) f32[1, 4]\n%2 = tanh(%1) f32[1, 4]\n"
          "%3 = tanh_backward(%0, %2) f32[1, 784]\n",
          {"line 5", "tanh_backward: ", "f32[1, 784]", "f32[1, 4]"}},
      {"a saved value that is larger than dy",
          "%0 = input \"x\" f32[2, 8]\n%1 = view(%0) f32[8]\n%2, %3 = mul_backward(%1, %0, %1) "
          "f32[8], f32[8]\n",
          {"line 4", "mul_backward: ", "f32[8]", "f32[2, 8]"}},
      {"bytes in place of numbers",
          "%0 = input \"x\" f32[1, 784]\n%1 = input \"b\" u8[1, 784]\n%2 = tanh_backward(%0, %1) "
          "f32[1, 784]\n",
          {"line 4", "tanh_backward: ", "u8[1, 784]"}},
      {"numbers in place of a condition",
          "%0 = input \"x\" f32[4]\n%1, %2 = where_backward(%0, %0, %0, %0) f32[4], f32[4]\n",
          {"line 3", "where_backward: ", "u8"}},
      {"a gradient of whole numbers",
          "%0 = input \"g\" f32[4]\n%1 = input \"y\" i32[4]\n%2 = nll_backward(%0, %1) i32[4, 3] "
          "classes=3 out=i32\n",
          {"line 4", "nll_backward: ", "i32"}},
      {"losses that are no numbers",
          "%0 = input \"l\" i32[4]\n%1 = param \"w\" f32[2]\n%2 = param \"step_state\" u8[112]\n"
          "sgd_update(%1, %1, -, -, -, -, %2, %0, -) tail=1\n",
          {"line 5", "sgd_update: ", "losses", "i32[4]"}},
      {"a random state that is too short",
          "%0 = param \"r\" i64[1]\n%1 = param \"w\" f32[2]\n%2 = param \"step_state\" u8[112]\n"
          "sgd_update(%1, %1, -, -, -, -, %2, -, %0) tail=1\n",
          {"line 5", "sgd_update: ", "rng", "i64[1]"}},
      {"a step state with gaps",
          "%0 = param \"w\" f32[2]\n%1 = param \"step_state\" u8[112] strides=[0]\n"
          "sgd_update(%0, %0, -, -, -, -, %1, -, -)\n",
          {"line 4", "sgd_update: ", "state"}},
      {"a step state between two numbers",
          "%0 = param \"w\" f32[2]\n%1 = param \"s\" u8[120]\n%2 = view(%1) u8[112] offset=1\n"
          "sgd_update(%0, %0, -, -, -, -, %2, -, -)\n",
          {"line 5", "sgd_update: ", "state", "multiple of 8"}},
      {"Adam's second average in a plain update",
          "%0 = param \"w\" f32[2]\n%1 = param \"v\" i32[1]\n%2 = param \"step_state\" u8[112]\n"
          "multi_tensor_update(%0, %0, -, %1, -, -, %2, -, -)\n",
          {"line 5", "multi_tensor_update: ", "i32[1]"}},
      {"the state of a bias that is not there",
          "%0 = param \"w\" f32[2, 3]\n%1 = param \"v\" i32[1]\n%2 = param \"step_state\" u8[112]\n"
          "%3 = input \"dy\" f32[4, 2]\n%4 = input \"x\" f32[4, 3]\n"
          "weight_grad_update(%3, %4, %0, -, -, -, -, -, %1, -, -, -, %2, -, -) optimizer=sgd\n",
          {"line 7", "weight_grad_update: ", "i32[1]"}},
      {"an input that begins elsewhere",
          "%0 = input \"x\" f32[1, 784] offset=3\n%1 = exp(%0) f32[1, 784]\n",
          {"line 2", "offset= of input", "only views have one"}},
      {"more memory than there is",
          "%0 = input \"x\" f32[]\n%1 = view(%0) f32[16777216, 16777216] strides=[0,0]\n"
          "%2 = copy(%1) f32[16777216, 16777216]\n%3 = copy(%2) f32[16777216, 16777216]\n"
          "%4 = copy(%3) f32[16777216, 16777216]\n%5 = copy(%4) f32[16777216, 16777216]\n"
          "%6 = copy(%5) f32[16777216, 16777216]\n",
          {"line 8", "too large"}},
  };
  for (const BadGraph& bad : kBad) {
    SCOPED_TRACE(bad.what);
    expect_error(Error::Kind::data, bad.facts,
        [&] { parse(cat("sinter-graph 1\n", bad.body, "output\n"), "F"); });
  }
}

constexpr char kStridedInput[] = R"(sinter-graph 1
%0 = input "x" f32[1, 784] strides=[784,4096]
%1 = copy(%0) f32[1, 784]
output "y" %1
)";

TEST(GraphFile, InputsAreWhatTheFileSays) {
  const Graph graph = parse(kStridedInput, "F");
  expect_error(Error::Kind::data, {"not for predict: F", "strides [784, 4096]"},
      [&] { check_forward(graph, "F"); });
  Executor strided(graph);
  expect_error(Error::Kind::shape, {"graph: input 0 ", "f32[1, 784]", "[784, 4096]"}, [&] {
    strided.run({Tensor::ones({1, 784})});
  });
  Executor two(parse(
      "sinter-graph 1\n%0 = input \"x\" f32[4]\n%1 = input \"y\" f32[4]\n%2 = mul(%0, %1) f32[4]\n"
      "output \"z\" %2\n",
      "F"));
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
    return parse(cat("sinter-graph 1\n%0 = const ", number,
                     " f64[2]\n%1 = exp(%0) f64[2]\noutput \"y\" %1\n"),
        "F");
  };
  EXPECT_EQ(difference(with("0.3333333"), with("0.3333334")),
      "op 0, exp f64[2]: operand 0, a constant, is 0.3333333 in the first recording, 0.3333334 in "
      "the second");
}

}  // namespace
}  // namespace sinter::capture
