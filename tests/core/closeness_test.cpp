// The comparison that all tests rely on must itself fail.
#include "tests/closeness.h"
#include "tests/test_util.h"

#include <gtest/gtest.h>

namespace sinter {
namespace {

using test::apart;
using test::close;
using test::closeness;
using test::Within;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
const std::vector<double> kWanted = {1, -2, 4};

// Bounds that allow any finite value there is.
std::vector<Within> wide() {
  return {{.of_largest = 1e300}, {.of_each = 1e300}, {.absolute = 1e300},
      {.each = {1e300, 1e300, 1e300}}};
}

TEST(Closeness, RefusesANaNAndAnInfinityWhateverTheBound) {
  for (const Within& within : wide()) {
    for (const double bad : {kNaN, kInf, -kInf}) {
      for (size_t i = 0; i < 3; ++i) {
        std::vector<double> spoilt = kWanted;
        spoilt[i] = bad;
        EXPECT_FALSE(close(spoilt, kWanted, within)) << bad << " got at " << i;
        EXPECT_FALSE(close(kWanted, spoilt, within)) << bad << " wanted at " << i;
      }
    }
    EXPECT_FALSE(close({kNaN, kNaN, kNaN}, kWanted, within));
    EXPECT_FALSE(close({1, kInf, 4}, {1, -kInf, 4}, within));
    EXPECT_FALSE(close({1, kNaN, 4}, {1, kNaN, 4}, within));
  }
  EXPECT_TRUE(close({1, kNaN, kInf}, {1, kNaN, kInf}, {.same_nan = true}));
  EXPECT_FALSE(close({kNaN, 1, kInf}, {1, kNaN, kInf}, {.absolute = 9, .same_nan = true}));
}

TEST(Closeness, RefusesUnequalSizesAndShapesAndNothing) {
  for (const Within& within : wide()) {
    EXPECT_FALSE(close({1, -2}, kWanted, within));
    EXPECT_FALSE(close({}, kWanted, within));
    EXPECT_FALSE(close(kWanted, {}, within));
  }
  EXPECT_FALSE(close({}, {}, {.absolute = 1}));
  EXPECT_TRUE(close({}, {}, {.empty = true}));
  EXPECT_FALSE(close(Tensor::ones({2, 3}), Tensor::ones({3, 2}), {.absolute = 1}));
  EXPECT_TRUE(close(Tensor::ones({2, 3}), Tensor::ones({2, 3}), {}));
  EXPECT_FALSE(close(kWanted, kWanted, {.each = {1}}));
  EXPECT_FALSE(close({1, 2, 3}, kWanted, {.each = {9}}));
  EXPECT_FALSE(close(kWanted, kWanted, {.each = {9, 9, 9, 9}}));
}

TEST(Closeness, RefusesZerosAndATurnedSign) {
  const Within within{.of_largest = 0.1, .of_each = 0.1};
  EXPECT_FALSE(close({0, 0, 0}, kWanted, within));
  EXPECT_FALSE(close({-1, 2, -4}, kWanted, within));
  EXPECT_FALSE(close({1, -2, -4}, kWanted, within));
  EXPECT_FALSE(close({1e-9, 0, 0}, {0, 0, 0}, within));  // a bound relative to nothing
}

TEST(Closeness, RefusesABoundThatIsNone) {
  for (const double bad : {kNaN, kInf, -1.0}) {
    EXPECT_FALSE(close({2, -2, 4}, kWanted, {.absolute = bad})) << bad;
    EXPECT_FALSE(close({2, -2, 4}, kWanted, {.each = {bad, 1, 1}})) << bad;
    EXPECT_FALSE(close(kWanted, kWanted, {.of_largest = bad})) << bad << " of equal numbers";
    EXPECT_FALSE(close(kWanted, kWanted, {.of_each = bad})) << bad << " of equal numbers";
    EXPECT_FALSE(close(kWanted, kWanted, {.absolute = bad})) << bad << " of equal numbers";
    EXPECT_FALSE(close({0, -2, 4}, {0, -2, 4}, {.of_each = 1e308, .absolute = bad}));
  }
  for (const double bad : {kNaN, -1.0}) {
    EXPECT_FALSE(close(kWanted, kWanted, {.each = {1, 1, bad}})) << bad << " of equal numbers";
    EXPECT_FALSE(close({1, -2, 4.5}, kWanted, {.absolute = 9, .each = {1, bad, 1}})) << bad;
  }
  // measure/rounding.h has an infinite bound where an overflow is right, and it may be on both
  // sides.
  EXPECT_TRUE(close({1, -2, kInf}, {1, -2, kInf}, {.each = {1, 1, kInf}}));
}

TEST(Closeness, TellsTheUsedShareAndWhere) {
  const auto found = closeness({1, -2.1, 4.1}, kWanted, {.of_each = 0.1});
  EXPECT_NEAR(found.share, 0.5, 1e-9);
  EXPECT_NEAR(found.error, 0.1, 1e-9);
  EXPECT_NEAR(found.of_largest, 0.025, 1e-9);
  test::expect_facts(found.text, {"[1] of 3: got -2.1, wanted -2"});
  EXPECT_EQ(closeness(kWanted, kWanted, {}).share, 0);
}

TEST(Closeness, ADifferenceMustBeOneOfNumbers) {
  EXPECT_TRUE(apart({1, -2, 4.1}, kWanted, {}));
  EXPECT_TRUE(apart({1, -2, 4.2}, kWanted, {.absolute = 0.1}));
  EXPECT_FALSE(apart({1, -2, 4.2}, kWanted, {.absolute = 0.3}));
  EXPECT_FALSE(apart(kWanted, kWanted, {}));
  EXPECT_FALSE(apart({1, -2, kNaN}, kWanted, {}));
  EXPECT_FALSE(apart({1, -2, kInf}, kWanted, {}));
  EXPECT_FALSE(apart({1, -2}, kWanted, {}));
  EXPECT_FALSE(apart({1, -2, 9}, kWanted, {.absolute = -1}));
}

TEST(Closeness, TellsDistances) {
  EXPECT_NEAR(test::distance({4, -2, 8}, kWanted), 5, 1e-12);
  EXPECT_NEAR(test::relative_difference({4, -2, 8}, kWanted), 1, 1e-12);
  EXPECT_NEAR(closeness({4, -2, 8}, kWanted, {.absolute = 1}).mean, 7. / 3, 1e-12);
  for (const std::vector<double>& bad : {std::vector<double>{1, kNaN, 4}, {1, -2}, {}}) {
    EXPECT_EQ(test::distance(bad, kWanted), kInf);
    EXPECT_EQ(closeness(bad, kWanted, {.absolute = 1}).mean, kInf);
    EXPECT_EQ(test::relative_difference(bad, kWanted), kInf);
    EXPECT_FALSE(test::near(bad, kWanted, 1e300));
  }
  EXPECT_NEAR(test::norm({3, 0, 4}), 5, 1e-12);
  EXPECT_EQ(test::norm({3, kNaN}), kInf);
  EXPECT_TRUE(test::near({4, -2, 8}, kWanted, 5.1));
  for (const double bad : {4.9, kInf, kNaN, -1.0})
    EXPECT_FALSE(test::near({4, -2, 8}, kWanted, bad)) << bad;
}

TEST(Closeness, AddsItsTerms) {
  const Within within{.of_largest = 0.25, .of_each = 0.5, .absolute = 1, .each = {0, 0, 1}};
  EXPECT_TRUE(close({1 + 2.5, -2, 4}, kWanted, within));  // 1 + 0.5 + 1
  EXPECT_FALSE(close({1 + 2.6, -2, 4}, kWanted, within));
  EXPECT_TRUE(close({1, -2, 4 + 5}, kWanted, within));  // 1 + 2 + 1 + 1
  EXPECT_FALSE(close({1, -2, 4 + 5.1}, kWanted, within));
}

}  // namespace
}  // namespace sinter
