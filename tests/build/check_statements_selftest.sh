#!/usr/bin/env bash
# check_statements_selftest.sh: joined statements are reported, and nothing else is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/core"
cat >"$root/core/joined.cpp" <<'END'
void f() {
  a = 1, b = 2;
  if (x) y ? g() : h();
  const int i = 1, j = x ? 2 : 3;
  g<int, int>(1, ',', "a, b; c ? d : e");
  for (int k = 0; k < i; ++k, ++j) z = x ? 1 : 2;  // c = 1, d = 2;
  for (int k = 0; k < i; ++k) a = k, b = k;
  a <= b ? g() : h();
  return check(a), b;
}
END
if report=$(python3 "$here/check_statements.py" "$root"); then
  echo "the planted statements were not reported: $report"
  exit 1
fi
wanted=$'core/joined.cpp:2: a = 1, b = 2;\ncore/joined.cpp:3: if (x) y ? g() : h();\ncore/joined.cpp:7: ++k) a = k, b = k;\ncore/joined.cpp:8: a <= b ? g() : h();\ncore/joined.cpp:9: return check(a), b;\ncheck_statements: 5 found'
[[ $report == "$wanted" ]] || { echo "not what was planted: $report"; exit 1; }
