#!/usr/bin/env bash
# check_own_op.sh ROOT COMPILER: a pointwise struct, or attributes, that lack something do not
# compile, and the compiler's message says what they lack; a whole one compiles. All are in one
# file, each in a namespace of its own, by whose name the compiler tells them apart.
set -euo pipefail
root=$1 compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# What sed takes out of the whole struct, and what the message must say. The first is whole.
cases=(
  ''
  '/SINTER_POINTWISE/d|lacks its names and fields'
  's/ : Unary<.*> {/ {/|lacks `arity`'
  's/.saves = Saves::nothing, //|lacks `saves`'
  's/, .flops = 1//|lacks its cost'
  '/ forward(/d|lacks `forward`'
  '/ grad(/d|lacks `grad`'
  's/grad(T dy)/grad(T dy, T x)/|lacks `grad`'
  's/SINTER_FIELDS(Own, n)//|a.fields()'
)
printf '#include "ops/pointwise/pointwise_op.h"\nusing namespace sinter::pointwise;\n' \
  >"$work/cases.cpp"
for i in "${!cases[@]}"; do
  sed "${cases[i]%%|*}" >>"$work/cases.cpp" <<END
namespace case$i {
struct Half : Unary<Facts{.saves = Saves::nothing, .flops = 1, .backward_flops = 1}> {
  SINTER_POINTWISE(Half, "half")
  template <class T> SINTER_FN T forward(T x) const { return x / 2; }
  template <class T> SINTER_FN T grad(T dy) const { return dy / 2; }
};
struct Own { int64_t n = 1; SINTER_FIELDS(Own, n) };
const sinter::OpDef& def = sinter::pointwise_op<Half>();
const sinter::AttrType* type = sinter::attr_type<Own>();
}
END
done
"$compiler" -std=c++20 -fsyntax-only -I "$root" "$work/cases.cpp" 2>"$work/said" || true
# Each line, behind the case that it, or one before it, names.
awk 'match($0, /case[0-9]+::/) { at = substr($0, RSTART, RLENGTH - 2) } { print at ": " $0 }' \
  "$work/said" >"$work/told"
for i in "${!cases[@]}"; do
  message=${cases[i]##*|} said=$(grep "^case$i: " "$work/told" || true)
  if [[ ${message:+refused} != "${said:+refused}" || $said != *"$message"* ]]; then
    echo "sed '${cases[i]%%|*}': the message must be '$message', it is: ${said:0:2000}"
    exit 1
  fi
done
echo "check_own_op: $((${#cases[@]} - 1)) structs refused, each by name"
