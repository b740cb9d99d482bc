#!/usr/bin/env bash
# Plants a library text that names a flag, a program's words that no library text has, and what
# depends on the locale: check_messages.sh must report each.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{core,profiler,ops,autograd,capture,measure,nn,data,distributed,train}
mkdir -p "$root"/cli "$root"/examples/mnist

# expect STATUS TEXT WORDS [CODE]: a library that says TEXT and has CODE, a program that has a flag
# for WORDS.
expect() {
  echo "f(\"$2\"); g('\"'); // --comment" >"$root/data/a.cpp"
  echo "${4:-}" >"$root/nn/a.cpp"
  printf 'constexpr FlagWords kFlagWords[] = {\n    {"%s", "--data"},\n};\n' "$3" \
    >"$root/cli/process.cpp"
  local status=0 report
  report=$(bash "$here/check_messages.sh" "$root") || status=$?
  [[ $status == "$1" ]] ||
    { echo "wanted status $1 for '$2', '$3' and '${4:-}', got $status: $report"; exit 1; }
}
expect 0 'DataOptions.what = DIR' 'DataOptions.what = '
expect 1 'give --data DIR' 'give'
expect 1 'usage: --val out of range' 'usage'
expect 1 'DataOptions.what = DIR' 'DataOptions.place = '
for code in 'std::ifstream in(file);' 'out << std::ostringstream();' 'x = std::stod(text);' \
  'std::strtof(p, &end)' 'std::snprintf(text, n, "%.*f ms", 3, x);' 'printf("%g\n", x);' \
  'if (std::isalpha(c)) c = tolower(c);' 'fmt::format("{:.1L}", x)' 'cat(std::strerror(errno))'; do
  expect 1 'DataOptions.what = DIR' 'DataOptions.what = ' "$code"
done
expect 0 'DataOptions.what = DIR' 'DataOptions.what = ' 'ClassicStream<std::ifstream> in(file);
snprintf(text, n, "%d, 50 % faster", x); fmt::format("{:.1f} %", x); std::ostream& out;'
echo "check_messages: all planted violations reported"
