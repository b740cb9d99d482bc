#!/usr/bin/env bash
# A build without the emulator links: what stands in place of its kernels defines every one that the
# ops name.
#     check_emulator_left_out.sh SOURCE_DIR COMPILER LIBRARY
# LIBRARY: libsinter_ops.a of a build with the emulator.
set -euo pipefail
source=$1 compiler=$2 library=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$compiler" -std=c++20 -O0 -DSINTER_EMULATOR=0 -I"$source" \
  -c "$source/ops/emulator_left_out.cpp" -o "$work/left_out.o"
names() {
  nm -C "$1" 2>/dev/null | sed -n "s/^[0-9a-f ]* $2 \(sinter::on_simt::.*\)/\1/p" | sort -u
}
kernels() { names "$1" T; }
named() { names "$1" U; }
kernels "$work/left_out.o" >"$work/have"
named "$library" >"$work/want"
count=$(wc -l <"$work/want")
[[ $count -gt 20 ]] || { echo "only $count kernels are named in $library"; exit 1; }
missing=$(comm -13 "$work/have" "$work/want")
[[ -z $missing ]] || { printf 'not in ops/emulator_left_out.cpp:\n%s\n' "$missing"; exit 1; }
# Nor do its hints name the device.
"$compiler" -std=c++20 -O0 -DSINTER_EMULATOR=0 -I"$source" \
  -c "$source/core/device/device.cpp" -o "$work/device.o"
strings "$work/device.o" >"$work/words"
grep -q "device cpu" "$work/words" && ! grep "device simt" "$work/words"
