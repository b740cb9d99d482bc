#!/bin/sh
# nvcc.sh LOG COMMAND...: runs nvcc, whose last argument is the object file; what it says goes to
# LOG, and is shown but for what ptxas -v tells of each kernel.
log=$1
shift
"$@" 2>"$log"
status=$?
grep -vE '^(ptxas info|    [0-9]+ bytes)|^$' "$log" >&2
for object; do :; done
# Where a template for the host calls a function of the device alone, nvcc says nothing and puts
# exit() in its place.
if [ $status = 0 ] && nm -u "$object" 2>/dev/null | grep -qw exit; then
  echo "$object: error: a host function calls a device function: nvcc made exit() of it" >&2
  status=1
fi
exit $status
