#!/usr/bin/env python3
"""The fused step against our own eager step over batch x hidden: each cell is `mnist compare`, whose rounds take turns in one process.

A cell is the median of the paired rounds' ratios eager / fused with its 95 % interval. The last lines name the cells whose whole interval lies
below 0.98 (fused is slower there), and those whose interval reaches below it (more rounds, or a quieter machine, would tell).

usage: bench/map.py [--bin build/release/bin] [--batch 1,16,64,128,1024] [--hidden 64,256,1024] [--dtype f32] [--rounds 9]
"""
import argparse
import json
import subprocess
import sys

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--bin", default="build/release/bin")
p.add_argument("--batch", default="1,16,64,128,1024")
p.add_argument("--hidden", default="64,256,1024")
p.add_argument("--dtype", default="f32")
p.add_argument("--optimizer", default="adam")
p.add_argument("--rounds", default="9")
p.add_argument("--threads", default="2")
a = p.parse_args()

hidden = a.hidden.split(",")
slower, open_cells = [], []
print(f"eager / fused, 784-H-10, {a.optimizer}, {a.dtype}, {a.threads} threads, {a.rounds} pairs of rounds\n")
print("| batch | " + " | ".join(f"hidden {h}" for h in hidden) + " |")
print("|" + "---|" * (len(hidden) + 1))
for batch in a.batch.split(","):
    cells = []
    for h in hidden:
        command = [f"{a.bin}/mnist", "compare", "-q", "--json", "--batch-size", batch, "--hidden", h, "--dtype", a.dtype, "--optimizer", a.optimizer,
                   "--threads", a.threads, "--rounds", a.rounds]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"failed: {' '.join(command)}\n{done.stderr}")
        result = json.loads(done.stdout)
        value, low, high = (result["ratio"][k] for k in ("value", "low", "high"))
        cells.append(f"{value:.2f}x [{low:.2f}, {high:.2f}] {result['eager_us']:.0f} us")
        if low < 0.98:
            (slower if high < 0.98 else open_cells).append(f"batch {batch} hidden {h}")
    print(f"| {batch} | " + " | ".join(cells) + " |", flush=True)
print(f"\nslower when fused: {'; '.join(slower) or 'none'}\ninterval reaches below 0.98: {'; '.join(open_cells) or 'none'}")
