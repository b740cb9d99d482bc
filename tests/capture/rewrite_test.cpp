// Programs that a rule must leave alone, or fuse in part: each is replayed as eager has it, with a
// near miss that says why.
#include "capture/rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/capture/step_util.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using capture::Step;
using Function = Step::Function;

// Results of the third call, a replay, and what the rules told of it.
struct Replayed {
  Tensors results;
  std::string misses, ops;
};

Replayed replay(const Function& function, const Tensors& in, capture::StepOptions options = {}) {
  Step step(function, std::move(options));
  Replayed r;
  for (int i = 0; i < 2; ++i) step(in);
  for (const Tensor& t : step(in)) r.results.push_back(t.to(kCpu));
  EXPECT_EQ(step.stats().replays, 2);
  for (const auto& miss : step.captured()->fused.misses)
    r.misses += str(miss.rule, ": ", miss.obstacle.why, "\n");
  for (const auto& node : step.captured()->fused.graph.nodes)
    r.ops += str(r.ops.empty() ? "" : " ", node.text());
  return r;
}

void expect_same_bits(const Tensor& got, const Tensor& wanted, const std::string& what = "") {
  EXPECT_TRUE(test::close(got, wanted, {.same_nan = true, .empty = true})) << what;
}

// The third call of a captured step gives what the function gives; returns what the rules told.
Replayed expect_replay_is_eager(const Function& function, const Tensors& in) {
  const Tensors wanted = function(in);
  const Replayed r = replay(function, in);
  EXPECT_EQ(r.results.size(), wanted.size());
  for (size_t i = 0; i < r.results.size(); ++i)
    expect_same_bits(r.results[i], wanted[i], str("result ", i));
  return r;
}

Tensor f32_sample(const Shape& shape, uint64_t seed) {
  return cast(sample_tensor(shape, seed, -1, 1), DType::f32);
}

// ---- the index behind the rules

TEST(Rewrite, TheIndexKnowsWhatTheGraphKnows) {
  for (const char* rules : {"none", "all"}) {
    for (const TrainOptions& options :
        {TrainOptions{.sizes = {20, 16, 10}, .dropout = 0.1, .clip = 1},
            TrainOptions{.sizes = {20, 16, 12, 10}, .activation = "gelu", .optimizer = "sgd"}}) {
      Training training(options);
      Step step(training.function(), training.step_options());
      for (int i = 0; i < 2; ++i) step(batch_of(options, 4, 1));
      const capture::Rewriter r =
          capture::rewrite(step.captured()->recorded, capture::RuleSet(rules), Device::Type::simt);
      const capture::Uses uses(r.graph);
      const int count = int(r.graph.nodes.size());
      for (int n = 0; n < count; ++n) {
        const std::vector<int> near = uses.neighbours(r.graph, n, 0, count);
        for (int k = 0; k < count; ++k) {
          const bool conflict = k != n && r.graph.conflict(r.graph.nodes[n], r.graph.nodes[k]);
          EXPECT_TRUE(!conflict || std::binary_search(near.begin(), near.end(), k))
              << n << ", " << k;
        }
      }
      for (int v = 0; v < int(r.graph.values.size()); ++v) {
        std::vector<int> readers;
        for (int n = 0; n < count; ++n) {
          if (r.graph.reads(r.graph.nodes[n], v)) readers.push_back(n);
        }
        EXPECT_EQ(r.readers(v), readers) << "%" << v;
      }
    }
  }
}

// ---- C1: zero-size tensors

TEST(Rewrite, AnEmptyTensorIsReplayed) {
  expect_replay_is_eager(
      [](const Tensors& in) { return Tensors{relu(in[0])}; }, {Tensor::zeros({0, 4})});
  expect_replay_is_eager(
      [](const Tensors& in) { return Tensors{sinter::tanh(scale(neg(in[0]), 2))}; },
      {Tensor::zeros({3, 0})});
}

TEST(Rewrite, AnEmptySliceOfAResultIsReplayed) {
  expect_replay_is_eager(
      [](const Tensors& in) {
        const Tensor y = sinter::exp(in[0]);
        return Tensors{neg(slice(y, 0, 2, 2)), sum(y)};
      },
      {f32_sample({4, 3}, 1)});
}

// ---- A backward of two gradients is two steps of a chain

TEST(Rewrite, GradientsOfTwoOperandsAreStepsOfAChain) {
  const auto replayed = [](Tensor (*op)(const Tensor&, const Tensor&), const Shape& of_b) {
    Tensor a = cast(sample_tensor({5, 7}, 1, 0.5, 2), DType::f32).set_requires_grad(true);
    Tensor b = cast(sample_tensor(of_b, 2, 0.5, 2), DType::f32).set_requires_grad(true);
    return expect_replay_is_eager(
        [&](const Tensors& in) {
          a.autograd().grad = b.autograd().grad = {};
          backward(op(sinter::exp(a), b) * in[0]);
          return Tensors{a.grad(), b.grad()};
        },
        {cast(sample_tensor({5, 7}, 3), DType::f32)})
        .ops;
  };
  EXPECT_EQ(replayed(sinter::div, {5, 7}), "mul pointwise_chain");
  EXPECT_EQ(replayed(sinter::maximum, {5, 7}), "mul pointwise_chain");
  // What db is summed to is of b's shape.
  EXPECT_EQ(replayed(sinter::div, {7}), "exp mul pointwise_chain sum");
}

// ---- C2: a fused op reads nothing that its own group made

TEST(Rewrite, AChainDoesNotReadAViewOfItsOwnResult) {
  const Tensor x = cast(sample_tensor({5, 4}, 1), DType::f32);
  const Replayed r = expect_replay_is_eager(
      [](const Tensors& in) {
        const Tensor y = sinter::exp(in[0]);
        return Tensors{sub(y, slice(y, 0, 0, 1))};
      },
      {x});
  EXPECT_EQ(r.ops, "exp sub");
  test::expect_facts(r.misses, {"pointwise_chain: ", "is a view of what exp"});
  // The part before the view is still one launch.
  const Replayed longer = expect_replay_is_eager(
      [](const Tensors& in) {
        const Tensor y = sinter::exp(neg(in[0]));
        return Tensors{sub(y, slice(y, 0, 0, 1))};
      },
      {x});
  EXPECT_EQ(longer.ops, "pointwise_chain sub");
}

TEST(Rewrite, NoGroupReadsAViewOfItsOwnResult) {
  // gated linear unit whose second factor is a view of act(g); a head whose seed is made of its
  // logits
  expect_replay_is_eager(
      [](const Tensors& in) {
        const Tensor a = silu(in[0]);
        return Tensors{mul(a, reshape(a, {4, 4}))};
      },
      {cast(sample_tensor({4, 4}, 1), DType::f32)});
  expect_replay_is_eager(
      [](const Tensors& in) {
        const Tensor a = gelu(linear(in[0], in[1]));
        return Tensors{mul(a, transpose(a))};
      },
      {cast(sample_tensor({4, 4}, 1), DType::f32), cast(sample_tensor({4, 4}, 2), DType::f32)});
}

// ---- C4: element types of products

TEST(Rewrite, ABf16ProductBesideABiasGradientStaysItsType) {
  const Tensors in{
      cast(sample_tensor({6, 4}, 1), DType::bf16), cast(sample_tensor({6, 3}, 2), DType::bf16)};
  const Replayed r = expect_replay_is_eager(
      [](const Tensors& t) {
        return Tensors{matmul(t[0], t[1], true), sum_rows(t[0])};
      },
      in);
  EXPECT_EQ(r.ops, "matmul sum_rows");
  test::expect_facts(r.misses,
      {"weight_bias_grad: matmul gives bf16[4, 3] cpu, weight_bias_grad makes f32[4, 3] cpu"});
}

TEST(Rewrite, AWideProductBeforeAnActivationBackwardKeepsItsType) {
  const Tensor dy = cast(sample_tensor({6, 4}, 1), DType::bf16),
               w = cast(sample_tensor({4, 3}, 2), DType::bf16);
  const Tensor pre = f32_sample({6, 3}, 3).set_requires_grad(true);
  const Function function = [&](const Tensors& in) {
    pre.autograd().grad = {};
    const Tensor y = sinter::tanh(pre);
    backward(y, {.gradient = matmul_as(in[0], in[1], false, false, DType::f32, Role::none)});
    return Tensors{pre.grad()};
  };
  const Tensors wanted = function({dy, w});
  const Replayed r = replay(function, {dy, w});
  expect_same_bits(r.results[0], wanted[0]);
  EXPECT_EQ(r.ops, "tanh input_grad_act") << r.misses;
}

// ---- C5, D4: lists of parameters

struct MixedParameters {
  nn::NamedTensors params;
  std::unique_ptr<nn::Optimizer> optimizer;
  MixedParameters(const std::vector<DType>& types, const std::string& kind) {
    for (size_t i = 0; i < types.size(); ++i) {
      Tensor t = cast(sample_tensor({3, 2 + int64_t(i)}, i + 1, -1, 1), types[i]);
      t.set_requires_grad(true).autograd().name = str("p", i);
      params.push_back({str("p", i), t});
    }
    if (kind == "adam") optimizer = std::make_unique<nn::Adam>(params);
    if (kind == "sgd") optimizer = std::make_unique<nn::Sgd>(params);
  }
  Tensors operator()(const Tensors&) {
    optimizer->zero_grad();
    for (const auto& [name, p] : params) backward(sum(mul(p, p)));
    optimizer->step();
    return {};
  }
  capture::StepOptions options() {
    return {.parameters = [this](const capture::ParameterVisitor& visit) {
      for (const auto& [name, p] : params) visit(p);
    }};
  }
};

TEST(Rewrite, OneOptimizerOfTwoElementTypes) {
  for (const char* kind : {"adam", "sgd"}) {
    const std::vector<DType> types{DType::f32, DType::f64, DType::f32, DType::f64};
    MixedParameters eager(types, kind), fused(types, kind);
    const Tensors in{Tensor::ones({1})};
    Step step([&](const Tensors& x) { return fused(x); }, fused.options());
    for (int i = 0; i < 4; ++i) {
      eager(in);
      step(in);
    }
    EXPECT_EQ(step.stats().replays, 3);
    for (size_t p = 0; p < types.size(); ++p)
      expect_same_bits(fused.params[p].tensor, eager.params[p].tensor, kind);
    int updates = 0;
    for (const auto& node : step.captured()->fused.graph.nodes)
      updates += node.op->text() == "multi_tensor_update";
    EXPECT_EQ(updates, 2) << "one launch per element type";
  }
}

TEST(Rewrite, UpdatesOfInterleavedParametersFuse) {
  // Layers listed biases first: only the last update of a step changes the step's state, the others
  // may change places.
  const auto run = [](bool biases_first) {
    TrainOptions options{.sizes = {20, 16, 10}};
    Training training(options);
    nn::NamedTensors params = training.net.named_parameters();
    if (biases_first) params = {params[1], params[3], params[0], params[2]};
    training.optimizer = std::make_unique<nn::Adam>(params, nn::AdamOptions{.lr = 0.002});
    training.trainer.emplace(training.net, *training.optimizer, TrainerOptions{.fused = false});
    Step step(training.function(), training.step_options());
    for (int i = 0; i < 4; ++i) step(batch_of(options, 8, 1));
    std::string misses;
    for (const auto& miss : step.captured()->fused.misses)
      misses += str(miss.rule, ": ", miss.obstacle.why, "\n");
    const size_t nodes = step.captured()->fused.graph.nodes.size();
    return std::tuple(nodes, misses, training.net.parameters()[0].to_vector<float>());
  };
  const auto [nodes, misses, weights] = run(true);
  const auto [wanted_nodes, wanted_misses, wanted_weights] = run(false);
  EXPECT_EQ(nodes, wanted_nodes) << misses;
  EXPECT_EQ(misses, wanted_misses);
  EXPECT_EQ(weights, wanted_weights);
}

// Note [Joining the updates of all layers]
TEST(Rewrite, FourLayersSideBySideAreUpdatedByOneLaunch) {
  for (const std::vector<int64_t>& sizes :
      {std::vector<int64_t>{20, 16, 16, 10}, std::vector<int64_t>{20, 16, 16, 16, 10}}) {
    // f64: Adam makes an error e of a gradient one of up to lr e / eps = 1e5 e.
    TrainOptions options{.sizes = sizes, .dtype = DType::f64};
    Training eager(options), fused(options);
    Step step(fused.function(), fused.step_options());
    for (uint64_t i = 0; i < 4; ++i) {
      eager.function()(batch_of(options, 8, i));
      step(batch_of(options, 8, i));
    }
    const auto updates = std::ranges::count_if(step.captured()->fused.graph.nodes,
        [](const auto& node) { return node.op == &kWeightGradUpdateOp; });
    EXPECT_EQ(updates, sizes.size() > 4 ? 1 : 3);
    for (size_t p = 0; p < eager.net.parameters().size(); ++p)
      EXPECT_TRUE(test::close(fused.net.parameters()[p].to_vector<double>(),
          eager.net.parameters()[p].to_vector<double>(), {.absolute = 1e-9}));
  }
}

}  // namespace
}  // namespace sinter
