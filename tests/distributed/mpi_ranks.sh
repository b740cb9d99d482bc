#!/usr/bin/env bash
# mpi_ranks.sh MPI_RANK: runs the program on 1 to 4 ranks, then with a rank that hangs and one that
# dies. Exit status 77, skipped, without an mpirun that works, or where the program was built
# without MPI (MPI_RANK is not there).
set -uo pipefail
program=$1
skip() { echo "skipped: $1"; exit 77; }
[[ -x $program ]] || skip "this build has no MPI (apt-get install libopenmpi-dev)"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export ASAN_OPTIONS=detect_leaks=0  # of Open MPI
bad=0
fail() { echo "FAILED: $*"; bad=1; }
start() { timeout 300 mpirun --oversubscribe --bind-to none -np "$@" 2>&1; }
start 2 true || skip "no mpirun here that starts two processes (apt-get install openmpi-bin)"

for ranks in 1 2 3 4; do
  start $ranks "$program" runs || fail "$ranks ranks"
done

# 3 seconds of timeout, 2 in which the ranks say that they wait; never the 300 of `timeout`.
output=$(start 3 "$program" hang)
status=$?
[[ $status != 0 && $status != 124 ]] || fail "a rank that hangs: exit status $status"
[[ $(grep -c "rank 1 of 3 did not arrive" <<<"$output") == 1 ]] ||
  fail "a rank that hangs is not named once: $output"
output=$(start 3 "$program" die)
status=$?
[[ $status != 0 && $status != 124 ]] || fail "a rank that dies: exit status $status"
grep -q "rank 1 .*exited on signal 9" <<<"$output" || fail "a rank that dies is not named: $output"
exit $bad
