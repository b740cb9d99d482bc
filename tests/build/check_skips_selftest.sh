#!/usr/bin/env bash
# skips.py passes what a test's program says and its exit status on, but for a skip that
# permitted_skips.txt does not name: one of another test, and one for another reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
unset SINTER_CASES  # what is said here is of no test of this run

# expect STATUS WANTED NAME TEXT: a test NAME that says TEXT and exits with WANTED.
expect() {
  local status=0 report
  report=$("$here/../skips.py" "$3" sh -c "echo '$4'; exit $2") || status=$?
  [[ $status == "$1" && $report == "$4"* ]] ||
    { echo "wanted status $1 for $3 '$4' $2, got $status: $report"; exit 1; }
}
expect 0 0 build.format 'all is well'
expect 3 3 build.format 'clang-format-16 is not installed'
expect 77 77 build.format 'check_format: skipped: clang-format-16 is not installed'
expect 1 77 build.format 'check_format: skipped: no time'
expect 1 77 build.layers 'check_format: skipped: clang-format-16 is not installed'
expect 77 77 core.ParallelGpu.Sums 'cuda: not in this build'
expect 1 77 core.Parallel.Sums 'cuda: not in this build'
expect 1 77 data.Png.Reads 'png: not in this build'
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export SINTER_CASES=$folder
expect 77 77 build.format 'check_format: skipped: clang-format-16 is not installed'
expect 1 77 build.layers 'check_format: skipped: clang-format-16 is not installed'
[[ $(cat "$folder"/*) == 'skipped build.format 0 no clang-format' ]] ||
  { echo "not the one skip: $(cat "$folder"/*)"; exit 1; }
echo "skips: all planted skips reported"
