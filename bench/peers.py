#!/usr/bin/env python3
"""Sinter against PyTorch and JAX, interleaved on this machine: tables for docs/results.

    peers.py --block names --threads 1,2     a training step of gpt; or shakespeare, mlp, lenet, cnn
    peers.py --block attention --dtype bf16  attention of [1, 4, 1024, 64] and [16, 4, 64, 32]
    peers.py --block sample                  a letter of shakespeare's model with context 256

Processes take turns, round by round (ours, torch, jax), so that a slow moment hits all alike; a
figure is the median over rounds of a process's median, a ratio the median over rounds of the ratio
of that round, with the 95 % interval of that median by a bootstrap. Steps of gpt begin with equal
weights: their first ten losses must agree. Peers are the scripts of --peers.
"""
import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

p = argparse.ArgumentParser(description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--bin", default="build/release/bin")
p.add_argument("--peers", default=Path(__file__).parent / "peers")
p.add_argument("--python", default=sys.executable, help="one that has torch and jax")
p.add_argument("--block", default="mlp", choices=["mlp", "lenet", "cnn", "names", "shakespeare",
                                                      "attention", "sample"])
p.add_argument("--rounds", type=int, default=9)
p.add_argument("--threads", default="2")
p.add_argument("--batch", help="1,16,64,128,1024 of mlp, 64,128 of lenet, 64 of cnn, else 16")
p.add_argument("--width", default="16,32,64,128", help="of names")
p.add_argument("--dtype", default="f32")
p.add_argument("--torch-modes", default="eager,eager-fused,compile")
p.add_argument("--no-jax", action="store_true")
a = p.parse_args()
folder = tempfile.TemporaryDirectory()
given = f"{folder.name}/given.safetensors"


def run(command):
    """The rows of one process; of ours they are in what it prints."""
    out = Path(folder.name) / "rows.json"
    ours = command[0].startswith(a.bin)
    done = subprocess.run([*command, "--json", *([] if ours else [out])], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout if ours else out.read_text())["rows" if ours else slice(None)]


def cases():
    """Of each: what it is called, and its processes, ours first."""
    common = ["--dtype", a.dtype]
    torch = [a.python, f"{a.peers}/torch_step.py", *common, "--rounds", "3", "--warmup", "20"]
    jax = [a.python, f"{a.peers}/jax_step.py", *common]
    convolves = a.block in ("lenet", "cnn")
    with_jax = not a.no_jax and not convolves and (a.block != "mlp" or a.dtype == "f32")
    batches = {"mlp": "1,16,64,128,1024", "lenet": "64,128", "cnn": "64"}.get(a.block, "16")
    if a.block == "attention":
        for shape in "1,4,1024,64", "16,4,64,32":
            for what in "forward", "both":
                yield f"[{shape}] {what}", [
                    [f"{a.bin}/step", *common, "--model", "attention", "--mode", what,
                     "--shape", shape, "--rounds", "15", "--steps", "5"],
                    [*torch, "--modes", "eager,compile", "--block", a.block, "--shape", shape,
                     "--pass", what, "--batch", "1", "--steps", "90"]]
        return
    if a.block == "sample":
        one = ["--batch", "1"]
        yield "a letter", [
            [f"{a.bin}/step", *common, *one, "--model", "shakespeare", "--context", "256",
             "--mode", "sample", "--rounds", "3", "--steps", "256", "--save", given],
            [*torch, *one, "--modes", "sample", "--block", "shakespeare", "--given", given,
             "--steps", "768"]]
        return
    for batch in (a.batch or batches).split(","):
        for width in a.width.split(",") if a.block == "names" else [""]:
            ours = [f"{a.bin}/step", *common, "--model", a.block, "--mode", "eager,fused",
                    "--rounds", "3", "--batch", batch]
            theirs = ["--block", a.block, "--batch", batch, "--steps", "90"]
            if a.block == "shakespeare":  # of which a step is long
                ours += ["--steps", "5", "--warmup", "5"]
                theirs[-1] = "15"
            if a.block in ("names", "shakespeare"):
                ours += ["--save", given, *(["--width", width] if width else [])]
                theirs += ["--given", given]
            yield f"batch {batch}" + (f", width {width}" if width else ""), [
                ours, [*torch, "--modes", a.torch_modes, *theirs],
                *([[*jax, *theirs]] if with_jax else [])]


def ratio(rounds, of, to):
    """Of the fastest of some to another, by rounds: the median, with its interval."""
    each = [min(f[n] for n in of) / f[to] for f in rounds]
    draw = random.Random(1)
    drawn = sorted(statistics.median(draw.choices(each, k=len(each))) for _ in range(2000))
    return f"{statistics.median(each):.2f}x [{drawn[50]:.2f},{drawn[1949]:.2f}]"


def measure(what, processes, threads):
    """The heads and the cells of a row of the table."""
    rounds, floor = [], None
    for r in range(a.rounds):
        figures, losses = {}, {}
        for process in processes if r % 2 == 0 else reversed(processes):
            for row in run([*process, "--threads", threads]):
                mode = "" if "what" in row else row["mode"]
                name = f"{row['peer'].split('-')[0]} {mode}".strip()
                figures[name], losses[name] = row["median_us"], row.get("losses", [])
                floor = row.get("floor_us", floor)
        rounds.append(figures)
        if given in processes[0] and a.block != "sample":
            worst = max(abs(x - y) / max(1, abs(y)) for each in losses.values()
                        for x, y in zip(each, losses["sinter fused"], strict=True))
            # Where all sums are exact but for rounding: that grows as the root of their terms.
            wide = int(dict(zip(processes[0], processes[0][1:])).get("--width", 64))
            allowed = 1e-2 if a.dtype != "f32" else 1e-5 * max(1, wide / 64) ** .5
            assert worst < allowed, (worst, losses)
        print(f"{what}, {threads} threads: round {r + 1} of {a.rounds}", file=sys.stderr)
    names = sorted(figures, key=lambda n: (n.startswith("sinter"), n))
    peers, ours = [n for n in names if not n.startswith("sinter")], names[-1]
    ratios = {f"{ours} against the fastest peer": ratio(rounds, peers, ours)}
    if "sinter eager" in names:
        if of_eager := [n for n in peers if "eager" in n]:
            ratios["eager against the fastest eager peer"] = ratio(rounds, of_eager, "sinter eager")
        ratios["eager against fused"] = ratio(rounds, ["sinter eager"], ours)
    median = {n: statistics.median(f[n] for f in rounds) for n in names}
    return (["", "threads", *names, *ratios, "time / floor"],
            [what, threads, *(f"{median[n]:.0f}" for n in names), *ratios.values(),
             f"{median[ours] / floor:.2f}" if floor else "-"])


cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
            if line.startswith("model name")), platform.processor())
print(f"{cpu}, {a.block}, {a.dtype}; median us over {a.rounds} rounds of processes in turn\n")
for n, ((what, processes), threads) in enumerate(product(cases(), a.threads.split(","))):
    head, cells = measure(what, processes, threads)
    if n == 0:
        print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    print("| " + " | ".join(cells) + " |", flush=True)
