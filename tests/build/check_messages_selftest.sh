#!/usr/bin/env bash
# Plants a library text that names a flag, and a program's words that no library text has:
# check_messages.sh must report each.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{core,profiler,ops,autograd,capture,measure,nn,data,distributed,train,examples/cli}

# expect STATUS TEXT WORDS: a library that says TEXT, a program that has a flag for WORDS.
expect() {
  echo "f(\"$2\"); g('\"'); // --comment" >"$root/data/a.cpp"
  printf 'constexpr FlagWords kFlagWords[] = {\n    {"%s", "--data"},\n};\n' "$3" \
    >"$root/examples/cli/process.cpp"
  local status=0 report
  report=$(bash "$here/check_messages.sh" "$root") || status=$?
  [[ $status == "$1" ]] ||
    { echo "wanted status $1 for '$2' and '$3', got $status: $report"; exit 1; }
}
expect 0 'DataOptions.what = DIR' 'DataOptions.what = '
expect 1 'give --data DIR' 'give'
expect 1 'usage: --val out of range' 'usage'
expect 1 'DataOptions.what = DIR' 'DataOptions.place = '
echo "check_messages: all planted violations reported"
