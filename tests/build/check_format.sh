#!/usr/bin/env bash
# check_format.sh ROOT: every source is as clang-format 16 writes it (.clang-format). Status 77,
# skipped, where that version is not installed.
set -euo pipefail
cd "$1"
command -v clang-format-16 >/dev/null ||
  { echo "check_format: skipped: clang-format-16 is not installed"; exit 77; }
sources=$(find autograd bench capture cli core data distributed examples measure nn ops profiler tests train \
  -regextype posix-extended -regex '.*\.(h|cpp|cu|cuh)')
xargs -P "$(nproc)" -n 32 clang-format-16 --dry-run --Werror <<<"$sources" ||
  { echo "check_format: run clang-format-16 -i on these"; exit 1; }
echo "check_format: $(wc -l <<<"$sources") files"
