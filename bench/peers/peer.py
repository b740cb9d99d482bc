"""What the scripts beside this share: their flags, a clock, and what they print and write."""
import argparse
import json
import statistics
import time

GPT = {"names": {"norm": "rms", "first-norm": True, "final-norm": False, "act": "relu",
                 "bias": False, "tied": False, "layers": 1, "heads": 4},
       "shakespeare": {"norm": "layer", "first-norm": False, "final-norm": True, "act": "gelu",
                       "bias": True, "tied": True, "layers": 4, "heads": 4}}

def numbers(text):
    return [int(n) for n in text.split(",")]


def flags(doc, steps):
    p = argparse.ArgumentParser(description=doc,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--layers", type=numbers, default="784,256,128,10")
    p.add_argument("--batch", type=numbers, default="1,16,64,128,1024")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--steps", type=int, default=steps)
    p.add_argument("--given", metavar="FILE", help="of names and shakespeare: what ours --save'd")
    p.add_argument("--json", metavar="FILE")
    return p


def seconds_of(step, steps, warmup=0):
    """Of each of `steps` calls, after some that are not timed."""
    times = []
    for n in range(warmup + steps):
        t = time.perf_counter()
        step()
        times.append(time.perf_counter() - t)
    return times[warmup:]


def seconds_of_rounds(step, rounds, steps, cuda):
    """Of each of PyTorch's steps; on a card the mean of a round, as in real training, where no step
    waits for the one before."""
    if not cuda:
        return seconds_of(step, rounds * steps)
    import torch
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(steps):
            step()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / steps)
    return times


class Rows:
    """A printed line, and an object in the file of --json, for each thing that was run."""

    def __init__(self, args, **common):
        self.args, self.common, self.rows = args, common, []
        if common["block"] == "mlp":
            self.common["layers"] = args.layers

    def add(self, seconds, **run):
        us = [1e6 * s for s in seconds]
        run = {**self.common, **run, "median_us": statistics.median(us), "min_us": min(us)}
        self.rows.append(run)
        words = " ".join(run[k] for k in ("peer", "block", "device", "dtype", "mode"))
        print(f"{words:60s} B={run['batch']:5d} median {run['median_us']:9.1f} us  "
              f"min {run['min_us']:9.1f} us  {1e6 * run['batch'] / run['median_us']:11.0f} rows/s",
              flush=True)

    def save(self):
        if self.args.json:
            with open(self.args.json, "w") as out:
                json.dump(self.rows, out, indent=1)
