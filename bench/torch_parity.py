#!/usr/bin/env python3
"""Holds Sinter's training step against PyTorch's, from equal weights on equal batches; needs torch and safetensors.

  f32, one step, odd network 77-33-29-7, ragged batch 17: loss, every gradient, weights after one SGD-momentum step (1e-5 relative),
       after one Adam step (lr/20 absolute more: Adam's first step is lr g / (|g| + 1e-8), which magnifies the rounding of tiny gradients)
  f64, free running, 100 steps: the loss curve (1e-8)

usage: bench/torch_parity.py [build/release/bin/parity]
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

program = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/parity"
failed = False


def check(what, got, bound):
    global failed
    ok = got <= bound
    failed |= not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what:58s} {got:.2e}   allowed {bound:.0e}")


def relative(a, b):
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()


def run(dtype, optimizer, mode, steps):
    torch.manual_seed(7)
    sizes, rows = [77, 33, 29, 7], 17
    layers = []
    for i in range(3):
        layers += [nn.Linear(sizes[i], sizes[i + 1])] + ([nn.ReLU()] if i < 2 else [])
    net = nn.Sequential(*layers).to(dtype)
    x, y = torch.rand(steps, rows, sizes[0], dtype=dtype), torch.randint(sizes[-1], (steps, rows), dtype=torch.int32)
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "in.safetensors", Path(folder) / "out.safetensors"
        save_file({**net.state_dict(), "x": x, "y": y}, given)
        subprocess.run([program, given, result, "--optimizer", optimizer, "--mode", mode, "--steps", str(steps)], check=True)
        ours = load_file(result)
    lr = 0.05 if optimizer == "sgd" else 0.001
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9) if optimizer == "sgd" else torch.optim.Adam(net.parameters(), lr=lr)
    losses, grads = [], {}
    for s in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x[s]), y[s].long())
        loss.backward()
        if s == 0:
            grads = {name: p.grad.clone() for name, p in net.named_parameters()}
        opt.step()
        losses.append(loss.item())
    return ours, net.state_dict(), grads, torch.tensor(losses, dtype=torch.float64), lr


for optimizer in ("sgd", "adam"):
    ours, weights, grads, losses, lr = run(torch.float32, optimizer, "eager", 1)
    check(f"f32 {optimizer}: loss", relative(ours["loss"], losses), 1e-5)
    check(f"f32 {optimizer}: gradients, the worst", max(relative(ours["grad." + n], g) for n, g in grads.items()), 1e-5)
    if optimizer == "sgd":
        check("f32 sgd: weights after a step, the worst", max(relative(ours[n], w) for n, w in weights.items()), 1e-5)
    else:
        check("f32 adam: weights after a step, absolute", max((ours[n] - w).abs().max().item() for n, w in weights.items()), lr / 20)
    for mode in ("eager", "fused"):
        ours, weights, grads, losses, lr = run(torch.float64, optimizer, mode, 100)
        check(f"f64 {optimizer} {mode}: loss curve of 100 steps", (ours["loss"] - losses).abs().max().item(), 1e-8)
sys.exit(failed)
