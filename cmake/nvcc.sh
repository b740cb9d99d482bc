#!/bin/sh
# nvcc.sh LOG COMMAND...: runs nvcc; what it says goes to LOG, and is shown but for what ptxas -v
# tells of each kernel.
log=$1
shift
"$@" 2>"$log"
status=$?
grep -vE '^(ptxas info|    [0-9]+ bytes)|^$' "$log" >&2
exit $status
