#!/usr/bin/env bash
# check_gpu_report.sh SOURCE_DIR BIN_DIR: scripts/gpu_report, run dry: its programs on the emulator,
# so that a flag which one refuses is seen here, and stubs for what a machine with a card has. First
# on a machine where much goes wrong ($BROKEN), then a second call where nothing does.
set -euo pipefail
source=$1 programs=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=$(python3 -c 'import sys; print(sys.executable)')
mkdir "$work"/{bin,path,modules,peers}
export WORK=$work

# stub FILE: a program of bash, from stdin.
stub() {
  { echo '#!/bin/bash' && cat; } >"$work/$1"
  chmod +x "$work/$1"
}
ln -s "$programs"/{geglu,gpt,mnist} "$work/bin"
ln -s "$(command -v timeout)" "$work/path"
stub bin/step <<END_STUB
[[ \$BROKEN && \$* == *tf32* ]] && echo "error: usage: no tf32" && exit 2
[[ \$BROKEN && \$* == *"--batch 16 "* ]] && echo "no memory" && exit
exec $programs/step "\$@"
END_STUB
stub bin/ops_test <<'END_STUB'
case $* in
  *=DeviceParity*) exit ;;
  *=\*Gpu*) [[ $BROKEN ]] && printf '[  FAILED  ] %s\n' AGpu.Breaks BGpu.Follows && exit 1 ;;
  *=AGpu.Breaks*) exit 1 ;;
esac
echo "[  PASSED  ] 2 tests."
END_STUB
stub path/nvidia-smi <<<'echo "Stub, 580.1"'
# Kernels in units that differ, and those before the measured step too, unless told otherwise.
stub path/ncu <<'END_STUB'
echo "ncu $*" >>"$WORK/calls"
while [[ $1 == --* ]]; do
  case $1 in
    --print-units) [[ $2 == base ]] && base=1; shift 2 ;;
    --profile-from-start) [[ $2 == off ]] && range=1; shift 2 ;;
    --csv) shift ;;
    *) shift 2 ;;
  esac
done
"$@" || exit
if [[ $BROKEN ]]; then echo "==ERROR== ERR_NVGPUCTRPERM - no permission"; exit; fi
row() { echo "\"0\",\"$1\",\"gpu__time_duration.sum\",\"$2\",\"$3\""; }
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","long","Duration","ns","7"'
[[ ${range:-} ]] || row warmup ns 9,000,000
row short ns 980
if [[ ${base:-} ]]; then row long ns 45,000; else row long us 45; fi
END_STUB
# initcheck always finds a read in a kernel of a library. Broken: racecheck of a block hangs, and
# initcheck finds a read of ours.
stub path/compute-sanitizer <<'END_STUB'
echo "sanitizer $*" >>"$WORK/calls"
tool=$2
while [[ $1 == --* ]]; do
  [[ $1 == --error-exitcode ]] && status=$2
  shift 2
done
[[ $BROKEN && "$tool $*" == racecheck*geglu*f32* ]] && /bin/sleep 100 | /bin/cat
"$@" || exit
errors=0
report() {
  errors=$((errors + 1))
  printf '========= %s\n' 'Uninitialized __global__ memory read of size 2 bytes' \
    "    at $1+0x70" '    by thread (0,0,0)'
}
[[ $tool == initcheck ]] && report 'void gemmSN_TN_kernel<cublasGemvTensor<const float>>(T1)'
[[ $BROKEN && "$tool $*" == initcheck*step*bf16* ]] && report 'void sinter::on_cuda::sum<float>(T1)'
case $tool in
  racecheck) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
  *) echo "========= ERROR SUMMARY: $errors errors" ;;
esac
[[ $errors == 0 ]] || exit "${status:-0}"
END_STUB
stub python <<<"PYTHONPATH=$work/modules exec $python -S \"\$@\""
: >"$work/modules/torch.py"
cat >"$work/peers/torch_step.py" <<'END_STUB'
import argparse, json, sys
p = argparse.ArgumentParser()
for flag in "block device layers batch modes dtype rows dim hidden pass steps rounds json".split():
    p.add_argument("--" + flag)
a = p.parse_args()
if getattr(a, "pass") == "forward":
    sys.exit("no such mode")
rows = [{"mode": m, "batch": int(b), "median_us": 1000.0} for m in a.modes.split(",")
        for b in (a.rows or a.batch).split(",")]
json.dump(rows, open(a.json, "w"))
END_STUB
cat >"$work/peers/torch_attention.py" <<'END_STUB'
import json, os, sys
if os.environ["BROKEN"]:
    sys.exit("no such backend")
shape, file = sys.argv[sys.argv.index("--shape") + 1], sys.argv[-1]
json.dump([{"shape": [int(n) for n in shape.split(",")], "dtype": dtype, "what": what,
            "mode": mode, "median_us": us} for dtype in ("f32", "bf16")
           for what in ("forward", "both") for mode, us in (("flash", 10.0), ("cudnn", 20.0))],
          open(file, "w"))
END_STUB

# run_report BROKEN STATUS [FLAG..]: no other program is in the path, no git.
run_report() {
  local status=0 broken=$1 wanted=$2
  shift 2
  : >"$work/calls"
  BROKEN=$broken PATH=$work/path "$python" "$source/scripts/gpu_report" --device simt \
    --out "$work/out" --bin "$work/bin" --peers "$work/peers" --python "$work/python" \
    "$@" >"$work/said" 2>&1 || status=$?
  [[ $status == "$wanted" ]] ||
    { cat "$work/said"; echo "exit status $status, not $wanted"; exit 1; }
}

run_report 1 1
"$python" - "$work/out" <<'END_CHECK'
import json, sys
phases = json.load(open(sys.argv[1] + "/gpu_report.json"))["phases"]
text = open(sys.argv[1] + "/gpu_report.txt").read()
why = {name: phase["why"] for name, phase in phases.items()}
failed = [name for name, phase in phases.items() if phase["status"] == "failed"]
assert failed == ["tests", "eager", "compare", "sanitizer", "why"], why
assert why["tests"].endswith("; alone fails: AGpu.Breaks"), why
assert "mnist" in phases["build"]["result"]["version"]
assert why["eager"].startswith("us of an eager step: no JSON from"), why
assert "mlp 256,128 tf32 #0: status 2" in why["compare"] and "geglu" not in why["compare"], why
rounds = phases["compare"]["result"]
assert len(rounds) == 18, rounds
assert "no such mode" in rounds["geglu forward bf16 #1"]["torch failed"], rounds
assert "torch failed: status 1" in text, text
assert "racecheck geglu f32: status killed" in why["sanitizer"], why
assert phases["sanitizer"]["seconds"] < 60, "waited for what the killed program had started"
assert "initcheck step bf16: 1 errors, see sanitizer.log: ['void sinter" in why["sanitizer"], why
found = phases["attention"]["result"]["1,2,33,16"]
assert "no such backend" in found.pop("torch failed") and len(found) == 4, found
assert all(list(us) == ["sinter"] for us in found.values()), found
found = phases["sanitizer"]["result"]
assert len(found) == 13, found
assert found["initcheck ops"] == "no errors, 1 in kernels of the libraries", found
assert "ncu profiled nothing: ==ERROR== ERR_NVGPUCTRPERM" in why["why"], why
END_CHECK

run_report '' 0
# A mode that took part in one round is PyTorch's best in all.
"$python" - "$source/scripts/gpu_report" <<'END_CHECK'
import runpy, sys, types
report = runpy.run_path(sys.argv[1])
args = types.SimpleNamespace(device="simt", python="python", peers="peers")
dry = types.SimpleNamespace(args=args, dry=True, program=lambda *words: list(words))
for have, number in ((["torch"], 4), ([], 3)):  # without torch ours are measured alone
    who = report["sides"](dry, have, 0, "mlp", "256,128", (64,), "bf16")
    assert len(who) == number, who
rounds = [{"sinter fused @64": 10, "torch graph @64": 40} for _ in range(3)]
rounds[0]["torch tuned-graph @64"] = 20
lines = report["compared"](("mlp", "256,128", None, "bf16"), 64, rounds)
assert lines[-1] == "  fused, against the best of torch: 2.000x [2.000, 2.000]", lines
END_CHECK
calls=$(cut -d' ' -f1 "$work/calls" | sort | uniq -c | xargs)
[[ $calls == "2 ncu 2 sanitizer" ]] || { echo "what was done is done again: $calls"; exit 1; }
if grep -q -- --measure "$work/out/compare.log"; then
  echo "the table is not of what the programs do by default"
  exit 1
fi
"$python" - "$work/out" <<'END_CHECK'
import json, sys
phases = json.load(open(sys.argv[1] + "/gpu_report.json"))["phases"]
text = open(sys.argv[1] + "/gpu_report.txt").read()
assert all(phase["status"] == "done" for phase in phases.values()), phases
assert len(phases["compare"]["result"]) == 21 and len(phases["sanitizer"]["result"]) == 15
plans = phases["plans"]["result"]["mlp 8192 tf32"]
assert all(plans[when][-1].startswith("capture ") for when in ("first", "again")), plans
assert "geglu 8192 bf16" in phases["plans"]["result"], phases["plans"]
kernels = phases["why"]["result"]["mlp"]
assert list(kernels.items()) == [("long", 45.0), ("short", 0.98)], kernels
for words in ("; peers: torch\n", "mnist compare None", "  long 45.0",
              "fused, against the best of torch: "):
    assert words in text, (words, text)
END_CHECK

# --posts: the commands of docs/POSTS.md, and its column.
for program in bash grep head tail sed env mktemp; do
  ln -s "$(command -v $program)" "$work/path/$program"
done
for program in 01_tensor 03_linear; do ln -s "$programs/$program" "$work/bin"; done
run_report '' 0 --posts
if [[ $(grep -c '^| | claim | command | CPU | Stub, 580.1, 20[^|]* |$' "$work/out/POSTS.md") != 3 ]]; then
  echo "the card is not named in POSTS.md"
  exit 1
fi
grep -E '^\| [0-9]\.[0-9]+ \| .*--device cpu' "$work/out/POSTS.md" >"$work/rows"
if sed 's/\\|//g' "$work/rows" | awk -F'|' 'NF != 7' | grep .; then
  echo "the rows above are not filled in"
  exit 1
fi
