#!/usr/bin/env bash
# check_headers_selftest.sh COMPILER: headers that use what they do not include are reported, also
# behind a precompiled hub; those that do include it are not.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/core"
plant() { printf '#pragma once\n%b\n' "$2" >"$root/core/$1.h"; }
plant tensor '#include <string>'  # a hub
plant good '#include <string>\ninline std::string good() { return {}; }'
plant above '#include "core/tensor.h"\ninline std::string above() { return {}; }'
bash "$here/check_headers.sh" "$root" "$1"
plant bad 'inline std::deque<int> bad() { return {}; }'
plant bad_above '#include "core/above.h"\ninline std::deque<int> bad() { return {}; }'
report=$(bash "$here/check_headers.sh" "$root" "$1" 2>/dev/null) && status=0 || status=$?
wanted=$'not self-contained: core/bad.h\nnot self-contained: core/bad_above.h'
if [[ $status == 0 || $(sort <<<"$report") != "$wanted" ]]; then
  echo "the planted headers were not reported, or others were: $report"
  exit 1
fi
