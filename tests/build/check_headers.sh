#!/usr/bin/env bash
# check_headers.sh ROOT COMPILER: every header of ROOT compiles alone, that is, includes all it
# uses. Those that are installed compile as in a user's program: C++20 and the root folder, no flag
# of ours. The two halves of core/device/kernel.h come with that one.
#
# A header above a hub, which includes it by whatever way, is compiled behind the hub, precompiled.
# That hides nothing: the hub's text comes before the header's own either way, and those on the way
# are compiled, too.
set -euo pipefail
cd "$1"
export compiler=$2
hubs=(core/tensor.h ops/op.h ops/ops.h nn/module.h capture/step.h)  # each above those before it
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile() { "$compiler" -std=c++20 -Wall -Werror=return-type -I . "$@"; }
check() {
  local flags=(-include "$2")
  # Which every test program gets.
  [[ $1 == tests/* ]] &&
    flags+=('-DSINTER_SOURCE_DIR="."' '-DSINTER_BIN_DIR="."' -DSINTER_HAS_EMULATOR=0)
  compile "${flags[@]}" -fsyntax-only -x c++ - <<<"#include \"$1\"" ||
    { echo "not self-contained: $1"; exit 1; }
}
export -f compile check
folders='core|profiler|ops|autograd|capture|measure|nn|data|distributed|train|cli|examples|bench|tests'
headers=$(find . -regextype posix-extended -regex "\./($folders)/.*\.h" -printf '%P\n' |
  grep -vE '^core/device/kernel_(cuda|simt)\.h$' | LC_ALL=C sort)
[[ -n $headers ]] || { echo "check_headers: no headers found"; exit 1; }

# above HUB: the headers that include it, or one that does.
above() {
  local all=$1 before=
  while [[ $all != "$before" ]]; do
    before=$all
    all=$({ echo "$all"; xargs grep -lFf <(sed 's/.*/#include "&"/' <<<"$before") \
             <<<"$headers" || true; } | sort -u)
  done
  grep -vxF "$1" <<<"$all" || true
}
: >"$work/nothing"
declare -A behind
for hub in "${hubs[@]}"; do
  [[ -e $hub ]] || continue
  stub=$work/${hub//\//_}
  echo "#include \"$hub\"" >"$stub"
  compile -x c++-header "$stub" -o "$stub.gch" &
  for header in $(above "$hub"); do behind[$header]=$stub; done
done
wait
for header in $headers; do echo "$header ${behind[$header]:-$work/nothing}"; done |
  xargs -P "$(nproc)" -n 2 bash -c 'check "$@"' check
echo "check_headers: $(wc -l <<<"$headers") headers, each compiles alone"
