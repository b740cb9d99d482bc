#!/usr/bin/env python3
"""make.py FOLDER: traces of PyTorch's profiler for tests/profiler/torch_trace_test.cpp.

A training step of an MLP 784-256-128-10 on the CPU, batch 64, SGD, eight steps, eager and under
torch.compile with the names of its C++ kernels: FOLDER/eager.json.gz and compiled.json.gz. Beside
each NAME.key_averages.json: what PyTorch itself says of the same run, key_averages() and the same
times in each step. Of the traces everything that
the reader does not look at is left out (strides, values, sequence numbers): that keeps them small.
"""
import gzip
import json
import os
import pathlib
import sys
import tempfile

import torch
import torch._inductor.config as inductor

STEPS, BATCH = 8, 64
KEPT = ("External id", "Input Dims", "Input type", "correlation")


def train_step(compiled):
    torch.manual_seed(1)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                          nn.Linear(128, 10))
    loss_of = lambda x, y: nn.functional.cross_entropy(model(x), y)
    if compiled:
        loss_of = torch.compile(loss_of)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.rand(BATCH, 784), torch.randint(0, 10, (BATCH,))

    def step():
        optimizer.zero_grad()
        loss_of(x, y).backward()
        optimizer.step()

    return step


def slim(trace):
    for event in trace["traceEvents"]:
        if isinstance(event.get("args"), dict) and event.get("ph") == "X":
            event["args"] = {key: event["args"][key] for key in KEPT if key in event["args"]}
    # Lines between forward and backward ops, and frames of Python.
    trace["traceEvents"] = [event for event in trace["traceEvents"]
                            if event.get("cat") not in ("fwdbwd", "python_function")]
    return trace


def main(folder):
    folder.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    inductor.cpp.enable_kernel_profile = True
    for name in ("eager", "compiled"):
        step = train_step(name == "compiled")
        for _ in range(5):
            step()
        with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True,
                schedule=torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1),
                on_trace_ready=lambda p: None) as profiler:
            for _ in range(STEPS + 1):
                step()
                profiler.step()
        with tempfile.TemporaryDirectory() as temporary:
            file = os.path.join(temporary, "trace.json")
            profiler.export_chrome_trace(file)
            trace = slim(json.load(open(file)))
        text = json.dumps(trace, separators=(",", ":")).encode()
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))
        events = profiler.events()
        ranges = sorted((event.time_range.start, event.time_range.end) for event in events
                        if event.name == "ProfilerStep*")
        assert len(ranges) == STEPS

        def in_steps(name):
            return [round(sum(event.self_cpu_time_total for event in events
                              if event.name == name and start <= event.time_range.start < end), 3)
                    for start, end in ranges]

        rows = [{"name": row.key, "count": row.count, "self_cpu_us": row.self_cpu_time_total,
                 "in_steps_us": in_steps(row.key)} for row in profiler.key_averages()
                if row.key != "ProfilerStep*"]
        (folder / f"{name}.key_averages.json").write_text(
            json.dumps({"torch": torch.__version__, "rows": rows}) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
