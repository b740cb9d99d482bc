#!/usr/bin/env python3
"""check_tour.py ROOT: what docs/TOUR.md names is there.

Every file of the tree that it names exists. The walk "One op all the way" is a list of at most 20 files, numbered from 1 without gaps, none
twice: "N. `FILE`: `SYMBOL`, `SYMBOL`. Why." Each SYMBOL stands in its file: a name followed by what a definition or declaration has.
"""
import pathlib
import re
import sys

MOST = 20
root = pathlib.Path(sys.argv[1])
tour = (root / "docs/TOUR.md").read_text()
faults = []

folders = [p.name for p in root.iterdir() if p.is_dir() and p.name != "build"]
for name in sorted(set(re.findall(r"`([a-z_]+/[\w/.]+\.(?:h|cpp|cu|cuh|py|md))`", tour))):
    if name.split("/")[0] in folders and not (root / name).exists():
        faults.append(f"no file {name}")

walk = tour.split("## One op all the way", 1)[-1].split("\n## ")[0]
steps = re.findall(r"^(\d+)\. `([^`]+)`: ((?:`[^`]+`(?:, )?)+)\.", walk, re.M)
if [int(number) for number, _, _ in steps] != list(range(1, len(steps) + 1)) or not steps:
    faults.append(f"the walk is not numbered from 1: {[number for number, _, _ in steps]}")
if len(re.findall(r"^\d+\. ", walk, re.M)) != len(steps):
    faults.append("a step of the walk names no symbols")
if len(steps) > MOST:
    faults.append(f"the walk goes through {len(steps)} files, at most {MOST}")
if len({file for _, file, _ in steps}) != len(steps):
    faults.append("a file stands in the walk twice")
for number, file, symbols in steps:
    if not (root / file).exists():
        faults.append(f"step {number}: no file {file}")
        continue
    text = re.sub(r"//[^\n]*", "", (root / file).read_text())
    for symbol in re.findall(r"`([^`]+)`", symbols):
        # A function or method, a class, or the definition of an op.
        if not re.search(rf"(?<![\w.>]){re.escape(symbol)}(?=\(|<|\{{| : | \{{)", text):
            faults.append(f"step {number}: {file} has no {symbol}")

for fault in faults:
    print(f"check_tour: {fault}")
sys.exit(1 if faults else 0)
