#!/usr/bin/env bash
# check_comparisons.sh ROOT: numbers are compared by tests/closeness.h. Elements of tensors and
# arrays are held to a bound nowhere else in tests/: a loop of one's own lets NaN or a missing
# element pass sooner or later. Exit status 1 if a line looks like one.
set -euo pipefail
cd "$1"
element='[A-Za-z_.>-]*(\[[^]]*\]|data<[^>]*>\(\)\[|\.at\()'
abs='(std::)?f?abs\('
path='[a-z_.]*(\[[a-z0-9]+\]|\.[a-z_]+)*'
values='(Tensor|std::vector|Buffer|Program)'
value='(data|to_vector)<[^>]*>\(\)\[[a-z0-9]+\]'
patterns=(
  # The distance of two numbers of which one is an element, or of any two as a condition or maximum.
  "$abs[^;]*$element[^;]* - |$abs[^;]* - [^;]*$element"
  "$abs[a-z]+ - [a-z]+\) *<"
  "max(<[^>]*>)?\((worst|most|largest|error|scale)[a-z_]*, *$abs[^;]* - "
  # Elements by macros for single numbers.
  "(EXPECT|ASSERT)_(NEAR|FLOAT_EQ|DOUBLE_EQ)\((at\(|$path(\[[a-z]\]|$value),)"
  # A function of one's own.
  "^ *(inline |static )*(double|float|bool|void|auto) ([a-z_]*_)?\
(difference|distance|norm|allclose|expect_near|is_close)\((const )?$values"
)
bad=0
for pattern in "${patterns[@]}"; do
  if grep -rnE "$pattern" tests --include=*.cpp --include=*.h |
     grep -vE '^tests/(closeness\.h|core/closeness_test\.cpp):'; then
    bad=1
  fi
done
[[ $bad == 0 ]] ||
  echo "check_comparisons: compare by test::close() of tests/closeness.h, which refuses NaN"
exit $bad
