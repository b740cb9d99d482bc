// Blame: silent on the kernels as they are, and each planted defect is found, by name.
#include "measure/blame.h"

#include <gtest/gtest.h>

#include <set>

#include "core/device/memory.h"
#include "nn/glu.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/net.h"
#include "ops/fused/fused.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

namespace sinter::measure {
namespace {

using capture::Graph, capture::Step;

// A recorded step; its graph holds the parameters.
struct Program {
  std::string name;
  Graph graph;
  Tensors inputs;
};

Program record(const std::string& name, const Step::Function& function, const Tensors& inputs,
    const nn::Module* net = nullptr) {
  capture::StepOptions options{.rules = capture::RuleSet("none"), .measure = false};
  if (net) options.parameters = nn::parameter_visitor(*net);
  Step step(function, options);
  for (int i = 0; i < 2; ++i) step(inputs);
  return {name, step.captured()->recorded, inputs};
}

Program mlp(TrainOptions options, int64_t rows = 17) {
  Training training(options);
  return record("mlp", training.function(), batch_of(options, rows, 1), &training.net);
}

// Of images, by SGD with momentum.
Program net(const char* layers, DType dtype) {
  nn::Net net(layers, Shape{1, 28, 28});
  net.init_parameters(3);
  if (dtype == DType::bf16) net.enable_bf16();
  nn::Sgd optimizer(net.named_parameters(), nn::SgdOptions{.lr = 0.05, .momentum = 0.9});
  const Tensors inputs{
      cast(sample_tensor({3, 1, 28, 28}, 1, 0, 1), dtype), sample_labels(3, 10, 2)};
  const auto step = [&](const Tensors& in) {
    optimizer.zero_grad();
    const Tensor losses = cross_entropy(net(in[0]), in[1]);
    backward(losses);
    optimizer.step(losses);
    return Tensors{losses};
  };
  return record(layers, step, inputs, &net);
}
constexpr const char* kLenet =
    "conv 6 5 pad 2; relu; pool 2; conv 16 5; relu; pool 2; flatten; linear 20; relu; linear 10";

Program gated_block(DType dtype) {
  nn::Glu glu(33, 77, 33, nn::Gate::gelu_tanh);
  glu.init_parameters(11);
  glu.to(dtype);
  const Tensors inputs{
      cast(sample_tensor({17, 33}, 1), dtype), cast(sample_tensor({17, 33}, 2), dtype)};
  inputs[0].autograd().requires_grad = true;
  const auto step = [&](const Tensors& in) {
    glu.zero_grad();
    in[0].autograd().grad = {};
    const Tensor y = glu(in[0]);
    backward(y, {.gradient = in[1]});
    return Tensors{detach(y), in[0].grad()};
  };
  return record("gated block", step, inputs, &glu);
}

Program norm_of_a_sum() {
  nn::LayerNorm norm(12);
  const auto step = [&](const Tensors& in) { return Tensors{detach(norm(in[0] + in[1]))}; };
  const NoGrad off;
  return record("norm", step,
      {cast(sample_tensor({9, 12}, 1), DType::f32), cast(sample_tensor({9, 12}, 2), DType::f32)},
      &norm);
}

Program norm_of_a_convolution() {
  nn::Net net("conv 4 3; batchnorm; relu", Shape{2, 7, 6});
  net.init_parameters(3);
  const nn::EvalMode eval(net);
  const NoGrad off;
  return record(
      "convolution and norm", [&](const Tensors& in) { return Tensors{net(in[0])}; },
      {cast(sample_tensor({3, 2, 7, 6}, 1), DType::f32)}, &net);
}

Program chain() {
  const NoGrad off;
  return record("chain", [](const Tensors& in) { return Tensors{exp(in[0]) + in[0] * in[1]}; },
      {cast(sample_tensor({9, 12}, 1), DType::f32), cast(sample_tensor({9, 12}, 2), DType::f32)});
}

Program attention_block() {
  const auto step = [](const Tensors& in) {
    for (const Tensor& t : in) t.autograd().grad = {};
    const Tensor o = scaled_dot_product_attention(in[0], in[1], in[2], {.causal = true});
    backward(o, {.gradient = in[3]});
    return Tensors{detach(o), in[0].grad(), in[1].grad(), in[2].grad()};
  };
  Tensors inputs;
  for (uint64_t seed = 1; seed < 5; ++seed) {
    inputs.push_back(cast(sample_tensor({2, 2, 9, 8}, seed, -1, 1), DType::f32));
    inputs.back().autograd().requires_grad = seed < 4;
  }
  return record("attention", step, inputs);
}

Program norm_of_tokens() {
  const auto step = [](const Tensors& in) {
    for (const Tensor& t : in) t.autograd().grad = {};
    const Tensor x = embedding(in[0], in[1]) + in[2], y = x + rms_norm(x);
    backward(y, {.gradient = in[3]});
    return Tensors{detach(y), in[1].grad(), in[2].grad()};
  };
  Tensors inputs{Tensor::from<int32_t>({0, 2, 1, 1, 3, 0}, {2, 3})};
  for (const Shape& shape : {Shape{4, 8}, Shape{3, 8}, Shape{2, 3, 8}}) {
    inputs.push_back(cast(sample_tensor(shape, inputs.size()), DType::f32));
    inputs.back().autograd().requires_grad = inputs.size() < 4;
  }
  return record("norm of tokens", step, inputs);
}

Program residual() {
  nn::Linear linear(12, 12);
  linear.init_parameters(3);
  const NoGrad off;
  return record(
      "residual", [&](const Tensors& in) { return Tensors{tanh(linear(in[0]) + in[0])}; },
      {cast(sample_tensor({9, 12}, 1), DType::f32)}, &linear);
}

Blame blame_of(const Program& program, Device device, const char* rules = "all",
    const std::function<void(const Call&)>& launch = launch_op) {
  return blame(program.graph, program.inputs,
      {.devices = {device}, .rules = capture::RuleSet(rules), .launch = launch});
}

void check_silent(Device device) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Program& program : {mlp({.sizes = {150, 33, 28, 10}, .dtype = dtype}),
             mlp({.sizes = {150, 33, 28, 10}, .optimizer = "lion", .dtype = dtype}),
             net(kLenet, dtype), gated_block(dtype), attention_block()}) {
      SCOPED_TRACE(str(program.name, ", ", name_of(dtype)));
      const Blame blame = blame_of(program, device);
      EXPECT_FALSE(blame.first) << blame.table() << blame.verdict();
      double most = 0;
      for (const CheckedOp& op : blame.ops) most = std::max(most, op.worst.share());
      EXPECT_GT(most, 1e-3) << "bounds that nothing could miss";
    }
  }
}
TEST(Blame, IsSilentOnTheTreeAsItIs) { check_silent(kCpu); }
TEST(BlameSimt, IsSilentOnTheTreeAsItIs) { check_silent(kSimt); }
using BlameGpu = test::GpuTest;
TEST_F(BlameGpu, IsSilentOnTheTreeAsItIs) { check_silent(test::kCuda); }

// A kernel whose result has one wrong element, off by its largest number.
std::function<void(const Call&)> wrong_kernel_of(std::string_view victim) {
  return [victim](const Call& call) {
    launch_op(call);
    if (call.op.label_of(call.attrs).view() != victim) return;
    synchronize(device_of(call.in));
    Tensors results = changed_operands(call.op, call.in);
    if (!call.out.empty()) results = {call.out[0]};
    const Tensor& t = results[0];
    visit_float(t.dtype(), [&]<class T>(T) {
      T* p = t.data<T>();
      const auto less = [](T a, T b) { return std::abs(double(a)) < std::abs(double(b)); };
      p[t.numel() - 1] =
          T(double(p[t.numel() - 1]) + double(*std::max_element(p, p + t.numel(), less)));
    });
  };
}

struct RuleCase {
  Program program;
  const char* rules;
};
std::vector<RuleCase> rule_cases() {
  const Program gated = gated_block(DType::f32), small = mlp({.sizes = {150, 33, 28, 10}});
  std::vector<RuleCase> cases{{small, "all"}, {small, "all,-row_chain"},
      {small, "all,-weight_grad_update,-row_chain"}, {small, "softmax_xent"},
      {mlp({.sizes = {20, 16, 10}, .clip = 0.01}), "all"}, {net(kLenet, DType::f32), "all"},
      {net("conv 5 3; relu; conv 4 3; relu; pool 2; flatten; linear 10", DType::f32), "all"},
      {gated, "all"}, {gated, "merge_linear,glu,glu_backward"}, {norm_of_a_sum(), "all"},
      {norm_of_a_convolution(), "all"}, {chain(), "all"}, {residual(), "all"},
      {attention_block(), "all"}, {norm_of_tokens(), "all"}};
  return cases;
}

// The rules whose op was in one of the steps.
std::set<std::string_view> check_planted_defects(Device device) {
  std::set<std::string_view> found;
  for (const auto& [program, rules] : rule_cases()) {
    Graph graph = program.graph;
    for (capture::Buffer& buffer : graph.buffers) buffer.device = device;
    const capture::Rewriter fused = capture::rewrite(graph, capture::RuleSet(rules), device.type);
    for (const capture::Node& node : fused.graph.nodes) {
      const bool by_rule = node.rule && node.text() == node.rule;  // not a plain op beside it
      if (!by_rule || !found.insert(node.rule).second) continue;
      SCOPED_TRACE(str(program.name, ", rules ", rules, ": ", node.rule));
      const Blame blame = blame_of(program, device, rules, wrong_kernel_of(node.text()));
      EXPECT_TRUE(blame.first);
      if (!blame.first) continue;
      const CheckedOp& op = blame.ops[*blame.first];
      EXPECT_TRUE(op.fused);
      EXPECT_TRUE(op.op.ends_with(node.text())) << op.op;
      EXPECT_STREQ(op.rule, node.rule);
      EXPECT_NE(blame.smallest, "");
      test::expect_facts(blame.verdict(), {str(device.str(), " fused: ", op.op, " is wrong: "),
                                              str("rule ", node.rule), blame.smallest});
      for (const CheckedOp& other : blame.ops)
        EXPECT_EQ(other.worst.exceeds(), other.op.ends_with(node.text())) << other.op;
    }
  }
  return found;
}

void expect_all_rules(const std::set<std::string_view>& found, Device device) {
  for (const capture::Rule& rule : capture::rules()) {
    if (!rule.on(device.type) || rule.label.op == &kLinearOp) continue;  // which is a plain op
    EXPECT_TRUE(found.contains(rule.name())) << "no step here has " << rule.name();
  }
}
TEST(Blame, NamesTheRuleOfEachPlantedDefect) {
  if (test::kSanitized) GTEST_SKIP() << "IsSilentOnTheTreeAsItIs runs the same code";
  expect_all_rules(check_planted_defects(kCpu), kCpu);
}
TEST(BlameSimt, NamesTheRuleOfEachPlantedDefect) {
  expect_all_rules(check_planted_defects(kSimt), kSimt);
}

TEST(Blame, NamesAPlainOp) {
  const Blame blame =
      blame_of(mlp({.sizes = {20, 16, 10}}), kCpu, "all", wrong_kernel_of("relu_backward"));
  ASSERT_TRUE(blame.first);
  const CheckedOp& op = blame.ops[*blame.first];
  EXPECT_FALSE(op.fused);
  EXPECT_EQ(op.rule, nullptr);
  test::expect_facts(blame.verdict(), {"cpu eager: ", " relu_backward is wrong: result 0 [16, 15]",
                                          "no rule, a plain op", "operands that show it: f32[1, "});
  test::expect_facts(blame.table(), {"cpu eager", "cpu fused", "  EXCEEDS", "linear_act"});
}

// A defect of the sixth column: one row, one term and six columns show it.
TEST(Blame, TellsTheSmallestShapeThatShowsIt) {
  const auto launch = [](const Call& call) {
    launch_op(call);
    if (call.op.label_of(call.attrs) == profiler::StaticName("linear_act") &&
        call.out[0].size(1) > 5)
      call.out[0].data<float>()[5] += 1;
  };
  const Blame blame = blame_of(mlp({.sizes = {20, 16, 10}}), kCpu, "all", launch);
  EXPECT_EQ(blame.element, "result 0 [0, 5]");
  EXPECT_EQ(blame.smallest, "f32[1, 1], f32[6, 1], f32[6]");
}

// A NaN of the weights goes through all kernels alike: none is wrong, and the first op that has it
// is named, with the operand that brought it.
TEST(Blame, NamesWhereANanAroseAndAccusesNobody) {
  TrainOptions options{.sizes = {20, 16, 10}};
  Training training(options);
  training.net.parameters()[0].data<float>()[27] = NAN;
  const Blame blame =
      blame_of(record("mlp", training.function(), batch_of(options, 9, 1), &training.net), kCpu);
  EXPECT_FALSE(blame.first) << blame.table() << blame.verdict();
  ASSERT_TRUE(blame.first_nan);
  EXPECT_EQ(*blame.first_nan, 0u);
  test::expect_facts(blame.verdict(), {"none of ", "the first nan, in f64 as well, is that of ",
                                          " linear", "nan at [0, ", "operand 1, ", "has nan at ["});
}

TEST(Blame, LeavesTheStepAsItIs) {
  TrainOptions options{.sizes = {20, 16, 10}};
  Training training(options);
  const Tensors batch = batch_of(options, 9, 1);
  const Program program = record("mlp", training.function(), batch, &training.net);
  const std::vector<float> before = training.net.parameters()[0].to_vector<float>();
  blame_of(program, kCpu);
  EXPECT_EQ(training.net.parameters()[0].to_vector<float>(), before);
  test::expect_error(Error::Kind::shape, {"step walk: 1 inputs given; the step has 2"},
      [&] { blame(program.graph, {batch[0]}); });
}

}  // namespace
}  // namespace sinter::measure
