// The one comparison of numbers in the tests. close() holds each number to a bound and says which
// one is the farthest from it, by how much, and what share of its bound it used:
//
//     EXPECT_TRUE(close(fused, eager, {.of_largest = 1e-5}));
//     EXPECT_TRUE(apart(...))  where a difference of finite numbers must show
//
// What it refuses, whatever the bound: another number of values or another shape, a NaN on one side
// (on both sides, unless same_nan), an infinity that is no equal infinity, and a bound that is NaN,
// negative or infinite. A comparison of nothing with nothing is refused as well, unless .empty says
// that it is meant. closeness_test.cpp shows it fail on each.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace sinter::test {

// What is allowed of |got - wanted|: the sum of all terms that are given.
struct Within {
  double of_largest = 0;  // times the largest finite |wanted|
  double of_each = 0;     // times |wanted| of the element
  double absolute = 0;
  std::vector<double> each = {};  // for each element, in row-major order
  bool same_nan = false;          // a NaN is equal to a NaN
  bool empty = false;             // no values at all are meant
};

// Numbers of any origin, with the shape where there is one.
struct Numbers {
  std::vector<double> values;
  std::string shape;

  Numbers(const Tensor& t) : values(t.to_vector<double>()), shape(t.shape().str()) {}
  template <class T> Numbers(const std::vector<T>& list) : values(list.begin(), list.end()) {}
  Numbers(std::initializer_list<double> list) : values(list) {}
};

struct Closeness {
  double share = 0;       // the largest error / bound
  double error = 0;       // |got - wanted| there
  double of_largest = 0;  // the largest error / the largest finite |wanted|
  double distance = 0;    // the Euclidean one of got from wanted
  double mean = 0;        // |got - wanted|, in the mean of all
  std::string text = "";  // which element, with both numbers; or what was refused
  bool refused = false;   // whatever the bound: all numbers above are infinite
};

inline Closeness closeness(const Numbers& got, const Numbers& wanted, const Within& within) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto refused = [](const std::string& why) {
    return Closeness{kInfinite, kInfinite, kInfinite, kInfinite, kInfinite, why, true};
  };
  const size_t n = wanted.values.size();
  if (got.values.size() != n ||
      (!got.shape.empty() && !wanted.shape.empty() && got.shape != wanted.shape))
    return refused(str("sizes differ: ", got.values.size(), " values ", got.shape, ", wanted ", n,
        " ", wanted.shape));
  if (n == 0 && !within.empty) return refused("no values to compare");
  if (!within.each.empty() && within.each.size() != n)
    return refused(str(within.each.size(), " bounds for ", n, " values"));
  // Whatever the numbers are: a bound that is none must not wait for two that differ.
  for (const double term : {within.of_largest, within.of_each, within.absolute})
    if (!std::isfinite(term) || term < 0) return refused(str("a bound of ", term));
  for (const double term : within.each)
    if (std::isnan(term) || term < 0) return refused(str("a bound of ", term, " for an element"));
  double largest = 0;
  for (const double w : wanted.values)
    if (std::isfinite(w)) largest = std::max(largest, std::abs(w));
  Closeness worst;
  for (size_t i = 0; i < n; ++i) {
    const double g = got.values[i], w = wanted.values[i];
    const auto numbers = [&] { return str("[", i, "] of ", n, ": got ", g, ", wanted ", w); };
    if (g == w || (within.same_nan && std::isnan(g) && std::isnan(w))) continue;
    if (!std::isfinite(g) || !std::isfinite(w)) return refused(numbers());
    const double bound = within.of_largest * largest + within.of_each * std::abs(w) +
                         within.absolute + (within.each.empty() ? 0 : within.each[i]);
    if (!std::isfinite(bound)) return refused(str(numbers(), ", bound ", bound));
    const double error = std::abs(g - w), share = bound > 0 ? error / bound : kInfinite;
    worst.distance = std::hypot(worst.distance, error);
    worst.mean += error / double(n);
    worst.of_largest = std::max(worst.of_largest, largest > 0 ? error / largest : kInfinite);
    if (share > worst.share || worst.text.empty()) {
      worst.share = share;
      worst.error = error;
      worst.text = str(numbers(), ", difference ", error, ", allowed ", bound, ", share ", share);
    }
  }
  return worst;
}

// max |got - wanted| over max |wanted|, for tests that ask how far; infinite where close() refuses.
inline double relative_difference(const Numbers& got, const Numbers& wanted) {
  return closeness(got, wanted, {.of_largest = 1}).of_largest;
}
// The Euclidean distance of got from wanted, and from zero; infinite where close() refuses.
inline double distance(const Numbers& got, const Numbers& wanted) {
  return closeness(got, wanted, {.absolute = 1}).distance;
}
inline double norm(const Numbers& x) { return distance(x, std::vector<double>(x.values.size())); }

inline testing::AssertionResult close(
    const Numbers& got, const Numbers& wanted, const Within& within) {
  const Closeness found = closeness(got, wanted, within);
  const bool good = found.share <= 1;
  return (good ? testing::AssertionSuccess() : testing::AssertionFailure()) << found.text;
}

// As a whole: by the Euclidean distance. An infinite bound, as of a NaN's norm, is none.
inline testing::AssertionResult near(const Numbers& got, const Numbers& wanted, double bound) {
  const Closeness found = closeness(got, wanted, {.absolute = 1});
  const bool good = found.distance <= bound && std::isfinite(bound);
  return (good ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "distance " << found.distance << ", allowed " << bound << "; " << found.text;
}

// Some number is beyond its bound, and nothing is refused: a NaN is no difference that was meant.
inline testing::AssertionResult apart(
    const Numbers& got, const Numbers& wanted, const Within& within) {
  const Closeness found = closeness(got, wanted, within);
  const bool good = found.share > 1 && !found.refused;
  return (good ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "no difference: " << found.text;
}

}  // namespace sinter::test
