// The gated block captured: launches per rule set as planned, values and all four gradients equal
// to eager, per gate, type and batch.
#include <gtest/gtest.h>

#include <cmath>

#include "nn/glu.h"
#include "ops/fused/fused.h"
#include "tests/capture/step_util.h"

namespace sinter {
namespace {

using capture::Step;
using nn::Gate;

constexpr int64_t kRows = 17, kDim = 33, kHidden = 77;

// Forward and backward of a block from a given output gradient. The gradient of x is a result of
// the step: a replay runs no autograd, and a Step sets .grad() of parameters only.
struct Block {
  nn::Glu glu;
  DType dtype;

  explicit Block(Gate gate = Gate::gelu_tanh, DType type = DType::f32)
      : glu(kDim, kHidden, kDim, gate), dtype(type) {
    glu.init_parameters(11);
    glu.to(type);
  }
  Tensors operator()(const Tensors& in) {
    glu.zero_grad();
    in[0].autograd().grad = {};
    const Tensor y = glu(in[0]);
    backward(y, {.gradient = in[1]});
    return {y, in[0].grad()};
  }
  Tensors inputs(uint64_t seed, int64_t rows = kRows) const {
    const Tensors in{cast(sample_tensor({rows, kDim}, seed), dtype),
        cast(sample_tensor({rows, kDim}, seed + 1), dtype)};
    in[0].autograd().requires_grad = true;
    return in;
  }
  capture::StepOptions options(const char* rules) const {
    return {.rules = capture::RuleSet(rules), .parameters = nn::parameter_visitor(glu)};
  }
  Step::Function function() {
    return [this](const Tensors& in) { return (*this)(in); };
  }
  // y, the gradient of x, then those of the gate, up and down weights.
  Tensors results(const Tensors& step_results) const {
    Tensors all = step_results;
    for (const Tensor& p : glu.parameters()) all.push_back(p.grad());
    return all;
  }
};

struct Rules {
  const char* name;
  size_t launches;
  bool same_order;  // every product as in eager: the same bits
};
constexpr Rules kRuleSets[] = {{"none", 15, true}, {"glu,glu_backward", 12, true},
    {"merge_linear,glu,glu_backward", 8, false}, {"all", 6, false}};

TEST(GluBlock, LaunchesAreThoseOfThePlan) {
  for (const Rules& rules : kRuleSets) {
    Block block;
    Step step(block.function(), block.options(rules.name));
    for (int i = 0; i < 2; ++i) step(block.inputs(1));
    const capture::Captured& c = *step.captured();
    EXPECT_EQ(ops_of(c.recorded),
        "linear linear gelu_tanh mul linear matmul matmul mul mul gelu_tanh_backward matmul matmul "
        "matmul matmul add");
    EXPECT_EQ(c.executor->launches(), rules.launches)
        << rules.name << ": " << ops_of(c.fused.graph);
    if (rules.launches <= 8) {
      EXPECT_EQ(ops_of(c.fused.graph),
          rules.launches == 8 ? "linear glu linear matmul matmul glu_backward matmul matmul"
                              : "gated_linear linear matmul gated_linear_backward matmul matmul");
    }
  }
}

// Elements of a tensor of x's shape, of a weight, of one of the hidden shape.
TEST(GluBlock, BytesAreThoseOfThePlan) {
  const int64_t x = kRows * kDim, w = kHidden * kDim, g = kRows * kHidden;
  const int64_t wanted[] = {12 * x + 9 * w + 23 * g, 12 * x + 9 * w + 17 * g,
      6 * x + 9 * w + 17 * g, 6 * x + 9 * w + 13 * g};
  for (size_t i = 0; i < std::size(kRuleSets); ++i) {
    Block block;
    Step step(block.function(), block.options(kRuleSets[i].name));
    for (int call = 0; call < 2; ++call) step(block.inputs(1));
    const capture::Rewriter& fused = step.captured()->fused;
    int64_t bytes = 0, saved = 0;
    for (const capture::Node& node : fused.graph.nodes) bytes += fused.graph.cost(node).bytes();
    for (const capture::Group& group : fused.groups) saved += group.bytes_saved;
    EXPECT_EQ(bytes, 4 * wanted[i]) << kRuleSets[i].name;
    EXPECT_EQ(saved, 4 * (wanted[0] - wanted[i])) << kRuleSets[i].name;
  }
}

// The planner times the step with all groups and without, then with each of them and without it.
TEST(GluBlock, IsMeasuredAsAWholeStep) {
  Block block;
  capture::StepOptions options = block.options("all");
  options.measure = true;
  Step step(block.function(), options);
  for (int i = 0; i < 2; ++i) step(block.inputs(1));
  const capture::Rewriter& fused = step.captured()->fused;
  ASSERT_EQ(fused.plan.candidates.size(), 2u);
  EXPECT_EQ(fused.plan.candidates[1].name, "none");
  for (const Candidate& c : fused.plan.candidates) EXPECT_GT(c.us, 0) << c.name;
  const auto tried = [](const capture::Group& g) {
    const std::vector<Candidate>& c = g.choice.candidates;
    return c.size() == 2 && c[0].us > 0 && c[1].us > 0;
  };
  EXPECT_TRUE(std::ranges::any_of(fused.groups, tried) || !fused.plan.note.empty());
}

// Without backward nothing is kept.
TEST(GluBlock, ForwardAloneTakesTwoLaunches) {
  Block block;
  Step step([&](const Tensors& in) {
    const NoGrad off;
    return Tensors{block.glu(in[0])};
  });
  for (int i = 0; i < 2; ++i) step({block.inputs(1)[1]});
  const capture::Graph& graph = step.captured()->fused.graph;
  EXPECT_EQ(ops_of(graph), "gated_linear linear");
  EXPECT_FALSE(graph.nodes[0].attrs.as<GatedLinearAttrs>().keep);
}

// The op list and the first near miss of a gated unit under `rules`.
std::pair<std::string, std::string> gated(
    const char* rules, const std::function<Tensors(const Tensor& x, const Tensor& gate,
                           const Tensor& up, const Tensor& bias)>& f) {
  const Tensor x = sample_tensor({kRows, kDim}, 1), gate = sample_tensor({kHidden, kDim}, 2),
               up = sample_tensor({kHidden, kDim}, 3), bias = sample_tensor({kHidden}, 4);
  Step step([&](const Tensors& in) { return f(in[0], gate, up, bias); },
      {.rules = capture::RuleSet(rules)});
  for (int i = 0; i < 2; ++i) step({x});
  const auto& misses = step.captured()->fused.misses;
  return {ops_of(step.captured()->fused.graph),
      misses.empty() ? "" : str(misses[0].rule, ": ", misses[0].obstacle.why)};
}

TEST(GluBlock, NearMissesNameTheCondition) {
  const auto plain = [](const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor&) {
    return Tensors{gelu_tanh(linear(x, gate)) * linear(x, up)};
  };
  EXPECT_EQ(gated("all", plain).first, "gated_linear") << "the weights may lie anywhere";
  EXPECT_EQ(gated("all,-gated_linear", plain),
      (std::pair<std::string, std::string>(
          "linear linear glu", "merge_linear: their weights are not neighbours in one storage")));
  EXPECT_EQ(gated("all",
                [](const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& bias) {
                  return Tensors{silu(linear(x, gate, bias)) * linear(x, up)};
                }),
      (std::pair<std::string, std::string>(
          "linear linear glu", "gated_linear: the linears have biases")));
  const auto seen =
      gated("all", [](const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor&) {
        const Tensor g = linear(x, gate);
        return Tensors{silu(g) * linear(x, up), g};
      });
  EXPECT_EQ(seen.first, "linear linear glu");
  EXPECT_EQ(seen.second,
      "gated_linear: halves of a row cannot be read by the caller: a result of the step");
}

// The longest path from an operand to a gradient of the block goes through products of kDim
// (forward), kDim (dh) and 2 kHidden terms (dx in one product). Another order of K terms may move a
// result by 4 sqrt(K) u S, S the sum of their magnitudes; of zero-mean terms S is below sqrt(K) / 4
// of the largest result, so a product adds K u of that.
double bound(DType dtype) {
  return (kDim + kDim + 2 * kHidden) * (dtype == DType::f64 ? 0x1p-53 : 0x1p-24);
}

class GluParity : public testing::TestWithParam<std::tuple<Gate, DType>> {};

TEST_P(GluParity, ValuesAndGradientsEqualEager) {
  const auto [gate, dtype] = GetParam();
  const double u = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  for (const Rules& rules : kRuleSets) {
    for (const int64_t rows : {kRows, int64_t{1}, int64_t{64}}) {
      Block eager(gate, dtype), fused(gate, dtype), exact(gate, DType::f64);
      for (size_t p = 0; p < 3; ++p) {  // the rounded weights
        const std::vector<double> from = eager.glu.parameters()[p].to_vector<double>();
        std::copy(from.begin(), from.end(), exact.glu.parameters()[p].data<double>());
      }
      Step step(fused.function(), fused.options(rules.name));
      for (uint64_t i = 0; i < 4; ++i) {  // the third and fourth replay
        const Tensors in = eager.inputs(10 + 2 * i, rows), again = fused.inputs(10 + 2 * i, rows);
        const Tensors want = eager.results(eager(in)), got = fused.results(step(again));
        const Tensors wide{cast(detach(in[0]), DType::f64), cast(in[1], DType::f64)};
        wide[0].autograd().requires_grad = true;
        const Tensors truth = exact.results(exact(wide));
        for (size_t r = 0; r < want.size(); ++r) {
          SCOPED_TRACE(str(rules.name, ", rows ", rows, ", call ", i, ", result ", r));
          ASSERT_EQ(got[r].shape(), want[r].shape());
          if (rules.same_order) {
            EXPECT_EQ(got[r].to_vector<double>(), want[r].to_vector<double>());
          } else {
            EXPECT_TRUE(test::close(got[r], want[r], {.of_largest = bound(dtype)}));
          }
          if (dtype == DType::f32) {
            // No less accurate than eager. The distances that two sets of n independent errors make
            // differ by chance, by a share with the deviation 1 / sqrt(n).
            const double chance = 4 / std::sqrt(double(got[r].numel()));
            EXPECT_TRUE(test::near(got[r], truth[r],
                (1.25 + chance) * test::distance(want[r], truth[r]) + u * test::norm(truth[r])));
          }
        }
      }
      EXPECT_EQ(step.stats().replays, 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, GluParity,
    testing::Combine(testing::Values(Gate::gelu_tanh, Gate::gelu, Gate::silu),
        testing::Values(DType::f32, DType::f64)));

TEST(GluBlock, RaggedRowsHaveTheirOwnCaptureAndReplaysAllocateNothing) {
  Block block, eager;
  Step step(block.function(), block.options("all"));
  std::vector<Tensors> batches;
  for (const int64_t rows : {kRows, int64_t{5}}) batches.push_back(block.inputs(30, rows));
  for (int i = 0; i < 3; ++i) {
    for (const Tensors& in : batches) step(in);
  }
  EXPECT_EQ(step.stats().captures, 2);
  EXPECT_EQ(step.stats().replays, 4);
  step(batches[0]);
  const int64_t before = allocator(kCpu).stats().requests;
  const void* at = block.glu.gate_weight().grad().raw();
  for (const Tensors& in : batches) step(in);
  step(batches[0]);
  EXPECT_EQ(allocator(kCpu).stats().requests, before);
  EXPECT_EQ(block.glu.gate_weight().grad().raw(), at) << "each key's gradients stay where they are";
  const Tensors ragged = block.results(step(batches[1])), want = eager.results(eager(batches[1]));
  for (size_t r = 0; r < want.size(); ++r)
    EXPECT_TRUE(test::close(ragged[r], want[r], {.of_largest = bound(DType::f32)})) << r;
}

// The halves of the merged weight gradient reach the optimizer as the gradients of two parameters.
TEST(GluBlock, TrainsAsEager) {
  for (const char* rules : {"all", "all,-weight_grad_update"}) {
    Block eager(Gate::silu, DType::f64), fused(Gate::silu, DType::f64);
    nn::Sgd eager_sgd(eager.glu.named_parameters(), {.lr = 0.05}),
        fused_sgd(fused.glu.named_parameters(), {.lr = 0.05});
    const auto train = [](Block& block, nn::Sgd& sgd, const Tensors& in) {
      const Tensors results = block(in);
      sgd.step();
      return Tensors{results[0]};
    };
    Step step([&](const Tensors& in) { return train(fused, fused_sgd, in); }, fused.options(rules));
    for (uint64_t i = 0; i < 5; ++i) {
      const Tensors in = eager.inputs(50 + 2 * i);
      const Tensor want = train(eager, eager_sgd, in)[0];
      EXPECT_TRUE(test::close(step(in)[0], want, {.of_largest = 1e-12})) << rules << " step " << i;
    }
    EXPECT_EQ(step.stats().replays, 4);
    for (size_t p = 0; p < 3; ++p)
      EXPECT_TRUE(
          test::close(fused.glu.parameters()[p], eager.glu.parameters()[p], {.of_largest = 1e-12}))
          << rules << " " << p;
  }
}

}  // namespace
}  // namespace sinter
