#!/usr/bin/env bash
# check_own_op.sh ROOT COMPILER: a pointwise struct, or attributes, that lack something do not
# compile, and the compiler's message says what they lack; a whole one compiles. Each case takes
# lines out of a whole struct (a sed command) and names what the message must say. All are in one
# file, each in a namespace of its own, by whose name the compiler tells them apart.
set -euo pipefail
root=$1 compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# add NAME SED: a case to the file.
add() {
  sed "$2" >>"$work/cases.cpp" <<END
namespace $1 {
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
}
printf '#include "ops/pointwise/pointwise_op.h"\nusing namespace sinter::pointwise;\n' \
  >"$work/cases.cpp"
add whole ''
seds=() messages=()
while IFS='|' read -r sed message; do
  seds+=("$sed") messages+=("$message")
  add "case${#seds[@]}" "$sed"
done <<'CASES'
/SINTER_POINTWISE/d|lacks its names and fields
s/ : Unary<.*> {/ {/|lacks `arity`
s/.saves = Saves::nothing, //|lacks `saves`
s/, .flops = 1//|lacks its cost
/ forward(/d|lacks `forward`
/ grad(/d|lacks `grad`
s/grad(T dy)/grad(T dy, T x)/|lacks `grad`
s/SINTER_FIELDS(Own, n)//|a.fields()
CASES
# Each line behind the case that it, or one before it, names.
if "$compiler" -std=c++20 -fsyntax-only -I "$root" "$work/cases.cpp" 2>"$work/said"; then
  echo "all cases compile"
  exit 1
fi
awk '{ if (match($0, /(whole|case[0-9]+)::/)) at = substr($0, RSTART, RLENGTH - 2)
       print at ": " $0 }' "$work/said" >"$work/told"
if grep '^whole: ' "$work/told"; then
  echo "the whole struct does not compile"
  exit 1
fi
for i in "${!seds[@]}"; do
  grep -F "${messages[i]}" "$work/told" | grep -q "^case$((i + 1)): " || {
    echo "sed '${seds[i]}': the message must say '${messages[i]}', it is:"
    grep "^case$((i + 1)): " "$work/told" | head -20
    exit 1
  }
done
echo "check_own_op: ${#seds[@]} structs refused, each by name"
