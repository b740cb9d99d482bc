#!/usr/bin/env bash
# Plants comparisons that a test wrote by hand: check_comparisons.sh must report each, and nothing
# of single numbers.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/tests/core"

# expect STATUS LINE [FILE]
expect() {
  rm -f "$root"/tests/*.h "$root"/tests/core/*
  echo "$2" >"$root/tests/${3:-core/a_test.cpp}"
  local status=0 report
  report=$(bash "$here/check_comparisons.sh" "$root") || status=$?
  [[ $status == "$1" ]] || { echo "wanted status $1 for '$2', got $status: $report"; exit 1; }
}
expect 1 'worst = std::max(worst, std::abs(a[i] - b[i]));'
expect 1 'worst = std::max<double>(worst, std::fabs(x - y));'
expect 1 'ASSERT_LE(std::abs(a[k] - b[k]), 2 * 0.002) << p;'
expect 1 'if (std::fabs(want - got[i]) > bound) ADD_FAILURE();'
expect 1 'ok = std::abs(a.data<float>()[i] - 1) <= u;'
expect 1 'const bool same = f == e || std::fabs(f - e) <= 64 * u * scale;'
expect 1 '  for (size_t i = 0; i < n; ++i) EXPECT_NEAR(x[i], y[i], 1e-6);'
expect 1 'ASSERT_NEAR(got[o][i], wanted[o][i], 1e-6);'
expect 1 'EXPECT_NEAR(t.to_vector<double>()[4], 1, 1e-6);'
expect 1 'EXPECT_FLOAT_EQ(c.data<float>()[i], 2);'
expect 1 'double distance(const Tensor& a, const Tensor& b) {'
expect 1 'inline double largest_difference(const std::vector<double>& a, const X& b) {'
expect 0 'double distance(const Tensor& a, const Tensor& b) {' closeness.h
expect 0 'EXPECT_NEAR(loss, 1, 1e-6); EXPECT_LT(std::abs(moved - beside), 1.5);'
expect 0 'EXPECT_NEAR(json["loss"].get<double>(), 1, 1e-6);'
expect 0 'EXPECT_EQ(edit_distance("hiden", "hidden"), 1);'
expect 0 'EXPECT_TRUE(test::close(a, b, {.of_largest = 1e-5}));'
echo "check_comparisons: all planted violations reported"
