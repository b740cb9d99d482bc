// The rules of the MNIST ladder, asked for the emulator's kernels: which ops a step becomes, and
// what keeps it from becoming so.
#include <gtest/gtest.h>

#include "capture/explain.h"
#include "core/device/launch_log.h"
#include "ops/fused/fused.h"
#include "ops/ops.h"
#include "ops/optim/update.h"
#include "ops/product/gemm_library.h"
#include "ops/shape/gather_batch.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

// A step as it was recorded on the CPU, with the rules of another device.
struct Recorded {
  Training training;
  Step step;
  explicit Recorded(
      const TrainOptions& options = {.sizes = {20, 16, 12, 10}}, Step::Function function = {})
      : training(options),
        step(function ? std::move(function) : training.function(), training.step_options("none")) {
    for (int i = 0; i < 2; ++i) step(batch_of(options, 8, 1));
  }
  Rewriter with(const char* rules, Device::Type device = Device::Type::simt) const {
    return rewrite(step.captured()->recorded, RuleSet(rules), device);
  }
};
std::string misses_of(const Rewriter& r, std::string_view rule) {
  std::string text;
  for (const Miss& miss : r.misses) {
    if (miss.rule == rule)
      text += str(miss.what, ": ", miss.obstacle.why, "; to fuse: ", miss.obstacle.remedy, "\n");
  }
  return text;
}

TEST(Ladder, AChainOfRowsAndOneUpdateForEveryOptimizer) {
  for (const std::string& optimizer : nn::optimizer_names()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const double momentum : {0.0, 0.9}) {
        SCOPED_TRACE(str(optimizer, " ", name_of(dtype), " ", momentum));
        const Recorded recorded({.sizes = {20, 16, 12, 10},
            .optimizer = optimizer,
            .momentum = momentum,
            .dtype = dtype});
        for (const auto& [rules, ops] : {std::pair("all", "row_chain weight_grad_update"),
                 {"all,-row_chain",
                     "linear_act linear_act linear softmax_xent input_grad_act input_grad_act "
                     "weight_grad_update"}}) {
          const Rewriter all = recorded.with(rules);
          EXPECT_EQ(ops_of(all.graph), ops);
          const Node& update = all.graph.nodes.back();
          EXPECT_EQ(update.in.size(), 3 * kLayerOperands + kStepOperands);
          EXPECT_TRUE(update.attrs.as<UpdateAttrs>().tail);
          EXPECT_TRUE(all.graph.gradients.empty());
          EXPECT_EQ(all.graph.taken.size(), 6u);
          size_t launches = all.graph.nodes.size();
          for (const Group& group : all.groups) launches += size_t(group.launches_saved);
          EXPECT_EQ(launches, recorded.step.captured()->recorded.nodes.size());
        }
        EXPECT_EQ(ops_of(recorded.with("all,-weight_grad_update,-row_chain").graph),
            "linear_act linear_act linear softmax_xent weight_bias_grad input_grad_act "
            "weight_bias_grad input_grad_act weight_bias_grad "
            "multi_tensor_update");
        const Rewriter cpu = recorded.with("all", Device::Type::cpu);
        EXPECT_EQ(cpu.graph.nodes.size(), 9u) << ops_of(cpu.graph);
      }
    }
  }
}

// The chain of rows is the longest end of the net that fits, and if that is its head; what is
// longer is told.
TEST(Ladder, AChainOfRowsIsAsLongAsABlockHasMemoryFor) {
  const char* const kThree = "linear_act row_chain weight_grad_update";
  const char* const kFive = "linear_act linear_act row_chain input_grad_act weight_grad_update";
  const std::string rows = "weights and 16 rows of ";
  struct Net {
    std::vector<int64_t> sizes;
    DType dtype;
    const char* ops;
    std::vector<std::string> told;
  };
  for (const Net& net :
      {Net{{784, 256, 128, 10}, DType::f32, kThree, {rows + "784-256-128-10 take 1170176 "}},
          {{784, 256, 128, 10}, DType::bf16, kThree, {rows + "784-256-128-10 take 608000 "}},
          {{784, 512, 256, 10}, DType::f32, kFive,
              {rows + "784-512-256-10 take ", rows + "512-256-10 take "}},
          {{784, 64, 10}, DType::bf16, "row_chain weight_grad_update", {}},
          {{9, 8, 8, 8, 8, 10}, DType::f32, kThree,
              {"the chain has 4 layers, as many as it may"}}}) {
    SCOPED_TRACE(net.sizes.size());
    const Recorded recorded({.sizes = net.sizes, .dtype = net.dtype});
    const Rewriter r = recorded.with("all");
    EXPECT_EQ(ops_of(r.graph), net.ops);
    const std::string misses = misses_of(r, "row_chain");
    EXPECT_EQ(std::ranges::count(misses, '\n'), std::ssize(net.told)) << misses;
    for (const std::string& what : net.told) test::expect_facts(misses, {what});
  }
}

// What forward is asked for besides stays as it is: an activation is written anyway.
TEST(Ladder, AChainOfRowsGivesItsActivations) {
  Training training({.sizes = {20, 16, 12, 10}});
  const Recorded kept({.sizes = {20, 16, 12, 10}}, [&](const Tensors& in) {
    training.optimizer->zero_grad();
    Tensor hidden = in[0];
    hidden = relu(linear(hidden, training.net.parameters()[0], training.net.parameters()[1]));
    const Tensor last =
        relu(linear(hidden, training.net.parameters()[2], training.net.parameters()[3]));
    const Tensor losses = cross_entropy(
        linear(last, training.net.parameters()[4], training.net.parameters()[5]), in[1]);
    backward(losses);
    training.optimizer->step(losses);
    return Tensors{losses, detach(hidden)};
  });
  EXPECT_EQ(ops_of(kept.with("all").graph), "row_chain weight_grad_update");
}

TEST(Ladder, TheHeadWithoutAnActivationBeforeIt) {
  const Recorded recorded({.sizes = {20, 16, 10}, .dropout = 0.5});
  const Graph graph = recorded.with("all").graph;
  const auto head = std::find_if(
      graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.op == &kRowChainOp; });
  ASSERT_NE(head, graph.nodes.end()) << ops_of(graph);
  EXPECT_EQ(head->out.size(), 3u) << "losses, dlogits and dx";
  EXPECT_FALSE(head->attrs.as<RowChainAttrs>().of_act);
}

// Any activation, but one for all layers. What its backward reads may be its operand, which then is
// in no memory.
TEST(Ladder, AChainOfRowsOfAnyActivation) {
  const auto fused = [](Act hidden, Act last) {
    Training training({.sizes = {20, 16, 12, 10}});
    const Recorded recorded({.sizes = {20, 16, 12, 10}}, [&](const Tensors& in) {
      training.optimizer->zero_grad();
      const auto act = [](Act which, const Tensor& z) {
        return which == Act::relu ? relu(z) : which == Act::tanh ? tanh(z) : gelu(z);
      };
      const auto p = training.net.parameters();
      const Tensor x = act(hidden, linear(in[0], p[0], p[1])), y = act(last, linear(x, p[2], p[3])),
                   losses = cross_entropy(linear(y, p[4], p[5]), in[1]);
      backward(losses);
      training.optimizer->step(losses);
      return Tensors{losses};
    });
    return recorded.with("all");
  };
  for (const Act act : {Act::relu, Act::tanh, Act::gelu}) {
    const Graph graph = fused(act, act).graph;
    EXPECT_EQ(ops_of(graph), "row_chain weight_grad_update") << print_value(act);
    EXPECT_EQ(graph.nodes[0].attrs.as<RowChainAttrs>().act, act);
    EXPECT_EQ(graph.nodes[0].out.size(), 2u + 2 * 2);
  }
  for (const auto& [hidden, last] : {std::pair(Act::relu, Act::tanh), {Act::relu, Act::gelu}}) {
    const Rewriter r = fused(hidden, last);
    EXPECT_EQ(ops_of(r.graph), "linear_act row_chain input_grad_act weight_grad_update");
    EXPECT_NE(misses_of(r, "row_chain")
                  .find(str("its activation is relu, that of the chain ", print_value(last),
                      "; to fuse: give both one activation\n")),
        std::string::npos)
        << misses_of(r, "row_chain");
  }
}

TEST(Ladder, TheHeadSaysWhatForbidsIt) {
  const Recorded many({.sizes = {20, 16, 65}});
  test::expect_facts(misses_of(many.with("all"), "row_chain"),
      {"there are 65 classes; at most 64 classes; to fuse: keep to what the kernel "
       "takes: at most 64 classes\n"});

  Training training({.sizes = {20, 16, 10}});
  const Recorded kept({.sizes = {20, 16, 10}}, [&](const Tensors& in) {
    training.optimizer->zero_grad();
    const Tensor logits = training.net(in[0]), losses = cross_entropy(logits, in[1]);
    backward(losses);
    training.optimizer->step(losses);
    return Tensors{losses, logits};
  });
  test::expect_facts(misses_of(kept.with("all"), "row_chain"),
      {"what linear gives is also read by a result of the step"});

  Training on_cpu({.sizes = {20, 16, 10}});
  Step step(on_cpu.function(), on_cpu.step_options());
  for (int i = 0; i < 2; ++i) step(batch_of(on_cpu.options, 8, 1));
  test::expect_facts(
      explain(*step.captured(), RuleSet(), rules()), {"off      rule row_chain: no cpu kernel\n"});
}

// Nothing may read the old weight after its update has moved, and nothing the gradient that is no
// more.
TEST(Ladder, UpdatesStayWhereTheirWeightIsReadLater) {
  const Recorded clipped({.sizes = {20, 16, 12, 10}, .clip = 1});
  const Rewriter r = clipped.with("all");
  EXPECT_EQ(ops_of(r.graph).find("weight_grad_update"), std::string::npos);
  test::expect_facts(misses_of(r, "weight_grad_update"), {"is also read by"});
}

TEST(Ladder, ABatchThatIsDrawnInTheStep) {
  const TrainOptions options{.sizes = {16, 12, 10, 10}};
  Training training(options);
  const Tensor images = Tensor::zeros({32, 4, 4}, DType::u8), labels = sample_labels(32, 10, 1);
  Step step(
      [&](const Tensors& in) {
        const Tensors batch = apply(kGatherBatchOp, {images, labels, in[0]}, GatherBatchAttrs{});
        return training(batch);
      },
      training.step_options("none"));
  for (int i = 0; i < 2; ++i) step({Tensor::from(std::vector<int64_t>{3, 1, 30, 7}, {4})});
  const Graph& recorded = step.captured()->recorded;
  EXPECT_EQ(recorded.nodes.size(), 26u);
  EXPECT_EQ(ops_of(rewrite(recorded, RuleSet("all"), Device::Type::simt).graph),
      "gather_batch row_chain weight_grad_update");
}

// The kernels of a replay in TF32, of which no other product is left.
std::vector<std::string> kernels_in_tf32(const std::vector<int64_t>& sizes) {
  const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
  const TrainOptions options{.sizes = sizes, .device = kSimt};
  Training training(options);
  Step step(training.function(), training.step_options("all"));
  const Tensors batch = batch_of(options, 8, 1);
  for (int i = 0; i < 2; ++i) step(batch);
  const LaunchLog log;
  step(batch);
  std::vector<std::string> names;
  for (const LaunchShape& launch : log.launches()) {
    names.emplace_back(launch.kernel);
    test::expect_facts(names.back(), {"_mma_"});
  }
  return names;
}
TEST(LadderSimt, TheKernelsInTf32RunOnTensorCores) {
  // The first net's chain does not fit: the head is alone.
  const std::vector<std::string> five = kernels_in_tf32({20, 512, 256, 10}),
                                 three = kernels_in_tf32({784, 256, 128, 10});
  ASSERT_EQ(five.size(), 5u);
  EXPECT_TRUE(five[2].starts_with("row_chain_mma_16<float")) << five[2];
  ASSERT_EQ(three.size(), 3u);
  EXPECT_TRUE(three[1].starts_with("row_chain_mma_16<float")) << three[1];
}

}  // namespace
}  // namespace sinter::capture
