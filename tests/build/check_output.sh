#!/usr/bin/env bash
# check_output.sh PROGRAM GOLDEN: PROGRAM runs without arguments, exits with 0, and prints GOLDEN to
# stdout. In GOLDEN ### stands for a number that varies, such as a time, with the blanks before it,
# and ~~~ for any text.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$1" >"$work/out"
[[ -s $work/out && -s $2 ]] || { echo "$1 printed nothing, or $2 is not there"; exit 1; }
awk '
NR == FNR { out[NR] = $0; lines = NR; next }
{
  pattern = $0
  gsub(/[][\\.^$*+?(){}|]/, "\\\\&", pattern)
  gsub(/ *###/, " *-?[0-9][0-9.,]*", pattern)
  gsub(/~~~/, ".*", pattern)
  if (FNR <= lines && out[FNR] ~ ("^" pattern "$")) next
  printf "line %d\n  wanted %s\n  got    %s\n", FNR, $0, (FNR > lines ? "(end)" : out[FNR])
  bad = 1
}
END {
  if (FNR < lines) printf "%d lines too many, the first: %s\n", lines - FNR, out[FNR + 1]
  if (FNR < lines) bad = 1
  exit bad
}' "$work/out" "$2"
