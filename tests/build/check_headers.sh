#!/usr/bin/env bash
# check_headers.sh ROOT COMPILER: every header of ROOT compiles alone, that is, includes all it
# uses. Those that are installed compile as in a user's program: C++20 and the root folder, no flag
# of ours. The two halves of core/device/kernel.h come with that one.
set -euo pipefail
cd "$1"
export compiler=$2

check() {
  local flags=()
  # Which every test program gets.
  [[ $1 == tests/* ]] && flags=('-DSINTER_SOURCE_DIR="."' '-DSINTER_BIN_DIR="."')
  "$compiler" ${flags[@]+"${flags[@]}"} -std=c++20 -fsyntax-only -Wall -Werror=return-type -I . \
    -x c++ - <<<"#include \"$1\"" || { echo "not self-contained: $1"; exit 1; }
}
export -f check
folders='core|profiler|ops|autograd|capture|measure|nn|data|distributed|examples|bench|tests'
headers=$(find . -regextype posix-extended -regex "\./($folders)/.*\.h" -printf '%P\n' |
  grep -vE '^core/device/kernel_(cuda|simt)\.h$' | LC_ALL=C sort)
[[ -n $headers ]] || { echo "check_headers: no headers found"; exit 1; }
xargs -P "$(nproc)" -I {} bash -c 'check {}' <<<"$headers"
echo "check_headers: $(wc -l <<<"$headers") headers, each compiles alone"
