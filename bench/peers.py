#!/usr/bin/env python3
"""Sinter's training step against PyTorch's and JAX's, interleaved on this machine: a table for
docs/results.

Processes take turns, round by round (ours eager and fused, torch, jax), so that a slow moment hits
all alike; a figure is the median over rounds of a process's median step, a ratio the median over
rounds of the ratio of that round. Peers are the scripts of --peers.
"""
import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

p = argparse.ArgumentParser(description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--bin", default="build/release/bin")
p.add_argument("--peers", default=Path(__file__).parent / "peers")
p.add_argument("--python", default=sys.executable, help="one that has torch and jax")
p.add_argument("--rounds", type=int, default=5)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--batch", default="1,16,64,128,1024")
p.add_argument("--dtype", default="f32")
p.add_argument("--torch-modes", default="eager,eager-fused,compile")
p.add_argument("--no-jax", action="store_true")
a = p.parse_args()


def run(command):
    """{(name, batch): median us} of one process."""
    ours = command is processes[0]
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        done = subprocess.run([*command, "--json", *([] if ours else [out.name])],
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stderr}")
        rows = json.loads(done.stdout)["rows"] if ours else json.loads(Path(out.name).read_text())
    return {(f"{r['peer'].split('-')[0]} {r.get('mode', 'jit')}", r["batch"]): r["median_us"]
            for r in rows}


common = ["--threads", str(a.threads), "--batch", a.batch]
processes = [
    [f"{a.bin}/step", *common, "--dtype", a.dtype, "--mode", "eager,fused", "--rounds", "3"],
    [a.python, f"{a.peers}/torch_step.py", *common, "--dtype", a.dtype, "--modes", a.torch_modes,
     "--steps", "90", "--rounds", "3"],
]
if not a.no_jax:
    processes.append([a.python, f"{a.peers}/jax_mlp.py", *common])

rounds = []
for r in range(a.rounds):
    figures = {}
    for process in processes if r % 2 == 0 else reversed(processes):
        figures.update(run(process))
    rounds.append(figures)
    print(f"round {r + 1} of {a.rounds}", file=sys.stderr)

names = sorted({name for name, _ in rounds[0]}, key=lambda n: (n.startswith("sinter"), n))
peers = [n for n in names if not n.startswith("sinter")]
cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
            if line.startswith("model name")), platform.processor())
print(f"{cpu}, {a.threads} threads, 784-256-128-10, Adam, {a.dtype}; median us per step over "
      f"{a.rounds} rounds of processes in turn\n")
print("| batch |", " | ".join(names),
      "| eager against the fastest eager peer | fused against the fastest peer |")
print("|" + "---|" * (len(names) + 3))
for batch in map(int, a.batch.split(",")):
    medians = {n: statistics.median(f[n, batch] for f in rounds) for n in names}
    eager_peers = [n for n in peers if "eager" in n]
    eager = statistics.median(min(f[n, batch] for n in eager_peers) / f["sinter eager", batch]
                              for f in rounds)
    fused = statistics.median(min(f[n, batch] for n in peers) / f["sinter fused", batch]
                              for f in rounds)
    cells = " | ".join(f"{medians[n]:.0f}" for n in names)
    print(f"| {batch} | {cells} | {eager:.2f}x | {fused:.2f}x |")
