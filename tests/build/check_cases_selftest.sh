#!/usr/bin/env bash
# run_cases.py tells of each case and of the process: a status that no case explains is a failure,
# as is a skip that is not permitted; what stands behind a case that ends its process runs too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect STATUS REPORT CASE...: a program of these cases, each NAME:OUTCOME. An outcome is OK,
# FAILED, SKIPPED or ends, which ends the process with status 3 within the case; the process ends
# with status $ends_with, 0 if that is not set. The report's states are REPORT.
cat >"$folder/program" <<'PROGRAM'
#!/usr/bin/env bash
if [[ ${*: -1} == --gtest_list_tests ]]; then
  echo Suite.
  for case in $CASES; do echo "  ${case%:*}"; done
  exit
fi
for case in $CASES; do
  [[ :${1#*=}: == *":Suite.${case%:*}:"* ]] || continue
  echo "[ RUN      ] Suite.${case%:*}"
  echo "says: no chromium"
  [[ ${case#*:} != ends ]] || exit 3
  printf '[ %8s ] Suite.%s (1 ms)\n' "${case#*:}" "${case%:*}"
done
exit $ENDS_WITH
PROGRAM
chmod +x "$folder/program"
expect() {
  local status=0 said states
  said=$(CASES=${*:3} ENDS_WITH=${ends_with:-0} "$here/../run_cases.py" "$folder/program" \
    examples '*' 1 1 "$folder/report") || status=$?
  states=$(sed -E 's/examples\.(Suite\.)?//; s/ [0-9]+( |$)/\1/' "$folder/report" | paste -sd,)
  [[ $status == "$1" && $states == "$2" ]] ||
    { echo "wanted $1, $2 for ${*:3}; got $status, $states: $said"; exit 1; }
}
expect 0 'passed a,passed b' a:OK b:OK
ends_with=1 expect 1 'passed a,failed b' a:OK b:FAILED
ends_with=1 expect 1 'passed a,passed b,failed AfterTheLastCase' a:OK b:OK
expect 1 'failed a,failed AfterTheLastCase' a:FAILED
ends_with=139 expect 1 'passed a,failed AfterTheLastCase' a:OK
expect 1 'failed a,passed b' a:ends b:OK
expect 77 'skipped ThePage no browser' ThePage:SKIPPED
expect 1 'failed Skips,passed a' Skips:SKIPPED a:OK
echo "cases: all planted outcomes reported"
