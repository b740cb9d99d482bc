// Parity: one share of its bound a tensor.
#include "measure/parity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/optim.h"
#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter::measure {
namespace {

Tensor of(const std::vector<float>& values) { return Tensor::from(values, {2, 2}); }

TEST(Parity, NamesTheTensorAndTheElementThatAreNearestToTheirBounds) {
  const Tensor eager = of({1, 2, 3, 4});
  const Parity found = parity({{"a", eager, eager, 1e-5},
      {.name = "b", .fused = of({1, 2, 5, 4}), .eager = eager, .limit = 1, .kind = "gradients"},
      {"c", of({1, 2.5, 3, 4}), eager, 0.25}});
  EXPECT_EQ(found.rows[0].share, 0);
  EXPECT_EQ(found.rows[1].share, 0.5);
  EXPECT_EQ(found.rows[1].where, "b at [1, 0], max rel 5.0e-01; allowed 1");
  EXPECT_EQ(found.relative("gradients"), 0.5);
  EXPECT_EQ(found.absolute("gradients"), 2);
  EXPECT_EQ(found.absolute(""), 0.5);
  EXPECT_EQ(found.worst()->name, "b");
  EXPECT_TRUE(found.holds());
  EXPECT_EQ(found.text(), "at most 50 % of its bound (b)");
  EXPECT_EQ(parity({{"a", eager, eager}}).text(), "to the bit");
  EXPECT_EQ(Parity().text(), "to the bit");
}

// The first of a step is the cause of those behind it, however far they are.
TEST(Parity, TheFirstTensorBeyondItsBoundIsNamed) {
  const Tensor eager = of({1, 2, 3, 4});
  const Parity found = parity({{"a", eager, eager}, {"b", of({1, 2, 3.5, 4}), eager, 0.1},
      {.name = "c",
          .fused = of({1, 2, 9, 4}),
          .eager = eager,
          .bound = Tensor::from(std::vector<double>{1, 1, 0.5, 1}, {2, 2}),
          .unit = 2,
          .unit_name = "lr",
          .reason = ", for a reason"}});
  EXPECT_FALSE(found.holds());
  EXPECT_EQ(found.first_beyond()->where, "b at [1, 0], max rel 1.2e-01; allowed 0.1");
  EXPECT_EQ(found.worst()->where, "c at [1, 0], by 3.0e+00 lr; allowed 2.5e-01 lr, for a reason");
}

// Nothing is allowed: a difference is beyond it, none is not.
TEST(Parity, ABoundOfZeroAndATensorOfZeros) {
  const Tensor zeros = of({0, 0, 0, 0});
  EXPECT_TRUE(parity({{"a", zeros, zeros, 0}}).holds());
  EXPECT_EQ(parity({{"a", of({0, 1e-3F, 0, 0}), zeros, 0}}).rows[0].share, INFINITY);
  EXPECT_FALSE(parity({{"a", of({0, 1e-3F, 0, 0}), zeros, 0.5}}).holds());
  EXPECT_TRUE(parity({{"a", Tensor::zeros({0, 3}), Tensor::zeros({0, 3}), 0}}).holds());
}

// Beyond the smaller one there is nothing to compare with.
TEST(Parity, TwoShapesAreRefusedByName) {
  const Tensor four = Tensor::ones({2, 2}), six = Tensor::ones({2, 3}), row = Tensor::ones({4});
  for (const Tensor& other : {six, row, Tensor::ones({})}) {
    test::expect_facts(test::message_of([&] {
      parity({{"w", four, other}});
    }),
        {"compare: two shapes of w: f32[2, 2] cpu beside eager's ", other.describe()});
    test::expect_facts(test::message_of([&] {
      parity({{"w", other, four}});
    }),
        {"compare: two shapes of w: ", other.describe()});
    test::expect_facts(test::message_of([&] {
      parity({{"w", four, four, 0, other}});
    }),
        {"compare: two shapes of w: ", other.describe()});
    for (int at = 0; at < 4; ++at) {
      Tensor t[] = {four, four, four, four};
      t[at] = other;
      test::expect_facts(test::message_of([&] { update_bound(t[0], t[1], t[2], t[3]); }),
          {"compare: two shapes of an update: "});
    }
  }
}

TEST(Parity, ANanOnBothSidesIsNoDifferenceAndIsNamed) {
  const Tensor a = of({1, NAN, INFINITY, 2}), b = of({1, NAN, INFINITY, 4});
  const Parity same = parity({{"a", a, a}});
  EXPECT_TRUE(same.holds());
  EXPECT_EQ(same.nan(), "a at [0, 1]");
  EXPECT_EQ(parity({{"b", a, b}}).rows[0].relative, 0.5) << "of the largest that is finite";
}

TEST(Parity, ANanOrAnInfinityOnOneSideIsBeyondEveryBound) {
  const Tensor eager = of({1, 0, 0, 0});
  const Parity found =
      parity({{"c", of({NAN, 0, 0, 0}), eager, 1e9}, {"d", eager, of({INFINITY, 0, 0, 0}), 1e9}});
  EXPECT_EQ(found.rows[0].share, INFINITY);
  EXPECT_TRUE(found.rows[0].where.starts_with("c at [0, 0], nan where eager has 1, "))
      << found.rows[0].where;
  EXPECT_TRUE(found.rows[1].where.starts_with("d at [0, 0], 1 where eager has inf, "))
      << found.rows[1].where;
}

// One first step by gradients g, and what a wrong one makes of them, in units of the optimizer's
// first step for a large gradient.
void check_updates(const char* name, double unit) {
  SCOPED_TRACE(name);
  constexpr double kLr = 0.001, kD = 1e-3;
  const std::vector<double> gradients{0.1, -0.05, 1e-4, -1e-5};
  Tensor w = Tensor::from(std::vector<double>{0.5, 0.25, -0.5, 0.125}, {4});
  w.set_requires_grad(true);
  const nn::OptimizerChoice& choice = nn::optimizer_named(name);
  const auto optimizer = choice.make({{"w", w}}, kLr, 0, 0, choice.betas);
  const Tensor g = Tensor::from(gradients, {4}), eager = optimizer->after_step(0, g);
  const auto share = [&](const std::vector<double>& steps) {
    std::vector<double> fused = w.to_vector<double>();
    for (size_t i = 0; i < fused.size(); ++i) fused[i] -= kLr * unit * steps[i];
    const Tensor bound =
        update_bound(w, eager, optimizer->after_step(0, g + -kD), optimizer->after_step(0, g + kD));
    return parity(
        {{.name = "w", .fused = Tensor::from(fused, {4}), .eager = eager, .bound = bound}})
        .rows[0]
        .share;
  };
  if (name == std::string("sgd")) {  // moves by the gradient itself
    EXPECT_LE(share({0.1 + 0.9 * kD, -0.05, 1e-4, -1e-5}), 1);
    EXPECT_GT(share({0.1 + 1.5 * kD, -0.05, 1e-4, -1e-5}), 1);
    return;
  }
  EXPECT_LE(share({1, -1, 1, -1}), 1);
  // A first step of Adam is g / (|g| + eps), a little less than its sign.
  EXPECT_LE(share({1, -1, -0.99, 0.99}), 1) << "below d either sign is right";
  EXPECT_GT(share({1, 1, 1, -1}), 1) << "a sign that no rounding turns";
  EXPECT_GT(share({2, -2, 2, -2}), 1) << "twice lr";
  EXPECT_GT(share({0, 0, 0, 0}), 1) << "lr ignored";
  EXPECT_GT(share({1, -1, 3.1, -1}), 1) << "farther than both signs";
  EXPECT_GT(share({1, NAN, 1, -1}), 1);
}
TEST(Parity, AnUpdateAllowsBothSignsOnlyOfAGradientThatMayHaveBoth) {
  check_updates("sgd", 1);
  check_updates("adam", 1);
  check_updates("lion", 1);
  check_updates("rmsprop", 10);
}

}  // namespace
}  // namespace sinter::measure
