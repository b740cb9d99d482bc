#!/usr/bin/env bash
# check_headers_selftest.sh COMPILER: a header that uses what it does not include is reported, one
# that does include it is not.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/core"
printf '%s\n' '#pragma once' '#include <string>' \
  'inline std::string good() { return {}; }' >"$root/core/good.h"
bash "$here/check_headers.sh" "$root" "$1"
printf '#pragma once\ninline std::vector<int> bad() { return {}; }\n' >"$root/core/bad.h"
if report=$(bash "$here/check_headers.sh" "$root" "$1" 2>/dev/null) ||
  [[ $report != *"not self-contained: core/bad.h"* ]]; then
  echo "the planted header was not reported: $report"
  exit 1
fi
