#!/usr/bin/env bash
# check_own_op.sh ROOT COMPILER: a pointwise struct, or attributes, that lack something do not
# compile, and the compiler's message says what they lack; a whole one compiles. Each case takes
# lines out of a whole struct (a sed command) and names what the message must say.
set -euo pipefail
root=$1 compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/whole.cpp" <<'END'
#include "ops/pointwise/pointwise_op.h"
using namespace sinter::pointwise;
struct Half : Unary<Facts{.saves = Saves::nothing, .flops = 1, .backward_flops = 1}> {
  SINTER_POINTWISE(Half, "half")
  template <class T> SINTER_FN T forward(T x) const { return x / 2; }
  template <class T> SINTER_FN T grad(T dy) const { return dy / 2; }
};
struct Own { int64_t n = 1; SINTER_FIELDS(Own, n) };
const sinter::OpDef& def = sinter::pointwise_op<Half>();
const sinter::AttrType* type = sinter::attr_type<Own>();
END
# Precompiled, the header is read once and not for each case.
mkdir -p "$work/ops/pointwise"
"$compiler" -std=c++20 -I "$root" -x c++-header "$root/ops/pointwise/pointwise_op.h" \
  -o "$work/ops/pointwise/pointwise_op.h.gch"
compiles() { "$compiler" -std=c++20 -fsyntax-only -I "$work" -I "$root" "$1" 2>&1; }
compiles "$work/whole.cpp" || { echo "the whole struct does not compile"; exit 1; }
refused() {
  sed "$1" "$work/whole.cpp" >"$work/case.cpp"
  if message=$(compiles "$work/case.cpp") || [[ $message != *"$2"* ]]; then
    echo "sed '$1': the message must say '$2', it is: ${message:0:2000}"
    exit 1
  fi
}
refused '/SINTER_POINTWISE/d' 'lacks its names and fields'
refused 's/ : Unary<.*> {/ {/' 'lacks `arity`'
refused 's/.saves = Saves::nothing, //' 'lacks `saves`'
refused 's/, .flops = 1//' 'lacks its cost'
refused '/ forward(/d' 'lacks `forward`'
refused '/ grad(/d' 'lacks `grad`'
refused 's/grad(T dy)/grad(T dy, T x)/' 'lacks `grad`'
refused 's/SINTER_FIELDS(Own, n)//' 'a.fields()'
echo "check_own_op: 8 structs refused, each by name"
