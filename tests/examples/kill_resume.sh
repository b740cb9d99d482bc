#!/usr/bin/env bash
# Kills `mnist train` 50 times with SIGKILL at random moments; each time the checkpoint must be
# whole and the run go on from it. The weights at the end must be those of an undisturbed run, byte
# for byte. With RANKS=3 it is 3 processes under mpirun, and one of them, by chance, is killed: all
# end, and it is named.
#   kill_resume.sh MNIST [KILLS] [SEED] [FLAG..]
set -euo pipefail
mnist=$1 kills=${2:-50}
RANDOM=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset SINTER_DATA
export XDG_CACHE_HOME=$work
mnist=("$mnist") steps=12000
if [[ ${RANKS:-1} != 1 ]]; then
  command -v mpirun >/dev/null && "${mnist[0]}" doctor 2>/dev/null | grep -q '^ok *ranks' ||
    { echo "kill_resume: no MPI here"; exit 77; }
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  mnist=(mpirun --oversubscribe --bind-to none -np "$RANKS" "$mnist") steps=3000
fi
fail() { echo "kill_resume: $*" >&2; exit 1; }

flags=(--limit 3000 --hidden 16 --batch 32 --dropout 0.2 --schedule onecycle --mode fused
  --threads 1 --save-steps 1 --log-every 50 -q
       --steps $steps --out run "${@:4}")
mkdir straight killed
(cd straight && "${mnist[@]}" train "${flags[@]}" >/dev/null)

# A life lasts up to three times what it takes to come to the first step: some end before it, some
# at it, most behind it. Not beyond its share of the steps, so that no run ends before its kill,
# however much faster the machine has become.
begin=$(date +%s%N)
"${mnist[@]}" train "${flags[@]}" --steps 1 --out first >/dev/null
start_ms=$((($(date +%s%N) - begin) / 1000000))
saved_step() { grep -ao '\\"step\\":[0-9]*' run/last.safetensors 2>/dev/null | sed -n '1s/.*://p'; }

cd killed
done_kills=0 saved=()
while [[ $done_kills -lt $kills ]]; do
  command=(train "${flags[@]}" --force)
  if [[ -e run/last.safetensors ]]; then command=(train -q --resume run); fi
  "${mnist[@]}" "${command[@]}" >out 2>err &
  pid=$!
  end=$(($(date +%s%N) + RANDOM % (3 * start_ms) * 1000000))
  share=$((steps * (done_kills + 1) / (kills + 1)))
  while (($(date +%s%N) < end && 10#0$(saved_step) < share)); do sleep 0.01; done
  victim=$pid
  if [[ ${#mnist[@]} != 1 ]]; then
    mapfile -t ranks < <(pgrep -P $pid)
    if [[ ${#ranks[@]} != 0 ]]; then victim=${ranks[RANDOM % ${#ranks[@]}]}; fi
  fi
  kill -KILL $victim 2>/dev/null || true
  status=0
  wait $pid 2>/dev/null || status=$?
  [[ $status == 137 || (${#mnist[@]} != 1 && $status != 0) ]] ||
    fail "the run ended with $status after $done_kills kills: $(cat err)"
  done_kills=$((done_kills + 1))
  [[ -e run/last.safetensors ]] || continue
  "${mnist[-1]}" doctor run/last.safetensors >out 2>err ||
    fail "kill $done_kills: the checkpoint is not whole: $(cat out err)"
  saved+=("$(saved_step)")
done
"${mnist[@]}" train -q --resume run >/dev/null
cd ..
ls -A killed/run | grep '\.tmp-' && fail "a temporary is left"
for file in last.safetensors model.safetensors best.safetensors; do
  cmp straight/run/$file killed/run/$file || fail "$file differs from the undisturbed run's"
done
without_times() { sed 's/"seconds":[^}]*//' "$1"; }
cmp <(without_times straight/run/events.jsonl) <(without_times killed/run/events.jsonl) ||
  fail "events.jsonl differs"
echo "kill_resume: $done_kills kills, saved steps ${saved[*]}: the same bytes at the end"
