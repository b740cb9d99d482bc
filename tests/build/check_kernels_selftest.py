#!/usr/bin/env python3
"""check_kernels_selftest.py CHECK_KERNELS [--sass]: compiles kernels that do what is forbidden, and
wants each to be reported by scripts/check_kernels, with that and nothing else. Exit status 77: no
tool is here."""
import json
import runpy
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
ck = SimpleNamespace(**runpy.run_path(sys.argv[1]))
sass = "--sass" in sys.argv
planted = json.loads((HERE / "bad_kernels.json").read_text())
wanted = {name: entry.pop("wanted", []) for name, entry in planted.items()}
wanted_sass = {name: entry.pop("wanted_sass") for name, entry in planted.items()
               if "wanted_sass" in entry}
if sass:
    ck.disassembler()
    wanted = wanted_sass
others = () if sass else ("120",)
with tempfile.TemporaryDirectory() as folder:
    codes = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in ("80", "90a")]
    said = ck.run(ck.tool("nvcc"), "-std=c++20", "-fmad=false", *codes, "-Xptxas=-v", "-fatbin",
                  "--keep", f"--keep-dir={folder}", HERE / "bad_kernels.cu", "-o", f"{folder}/out")
    (Path(folder) / "ptxas.log").write_text(said)
    objects = {Path(folder): f"{folder}/out"} if sass else None
    budgets = {name: entry for name, entry in planted.items() if entry}
    kernels, wrong = ck.check([Path(folder)], budgets, (None, *others), objects)
bad = 0
for arch in (*ck.BUDGETED, *(f"sm_{card}" for card in others)):
    for name in sorted(wanted.keys() | {k["name"] for k in kernels}):
        got = [w for k, w in wrong if (k and (k["name"], k["arch"]) == (name, arch))
               or (not k and f"entry {name}:" in w)]
        want = [w for w in wanted.get(name, ["an entry in bad_kernels.json"])
                if arch in ck.BUDGETED or "budget" not in w]
        if len(got) != len(want) or any(not any(w in g for g in got) for w in want):
            bad += 1
            print(f"{name} on {arch}: wanted {want}, got {got}")
print(f"check_kernels: {len(wanted)} planted kernels, {'not all' if bad else 'each'} reported as "
      "wanted")
sys.exit(1 if bad else 0)
