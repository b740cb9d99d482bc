#!/usr/bin/env python3
"""Holds Sinter's training step against PyTorch's, from equal weights on equal batches.

  f32, one step, ragged batch 17, eager and fused: loss, every gradient (fused: without the rules
       that take them), weights after one SGD-momentum step (1e-5 relative), after one Adam step
       (lr/20 absolute more: Adam's first step is lr g / (|g| + 1e-8), which magnifies the rounding
       of tiny gradients); of an odd MLP 77-33-29-7, of lenet and of cnn without dropout
  f64, free running: the loss curve (1e-8) of 100 steps of the MLP, of 5 of the nets

usage: tests/train/torch_parity.py [build/release/bin/torch_parity]
Exit status 77: torch or safetensors is not here.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench/peers"))
from torch_nets import cnn, lenet

program = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/torch_parity"
failed = False


def check(what, got, bound):
    global failed
    ok = got <= bound
    failed |= not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what:64s} {got:.2e}   allowed {bound:.0e}")


def relative(a, b):
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()


def mlp():
    return nn.Sequential(nn.Linear(77, 33), nn.ReLU(), nn.Linear(33, 29), nn.ReLU(),
                         nn.Linear(29, 7))


def run(make, dtype, optimizer, modes, steps):
    """What each of `modes`, a mode and its rules, gives; then torch's state dict, gradients of the
    first step and losses, and the rate."""
    torch.manual_seed(7)
    net, rows, classes = make().to(dtype), 17, 7 if make is mlp else 10
    shape = (77,) if make is mlp else (1, 28, 28)
    x = torch.rand(steps, rows, *shape, dtype=dtype)
    y = torch.randint(classes, (steps, rows), dtype=torch.int32)
    ours = []
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "in.safetensors", Path(folder) / "out.safetensors"
        save_file({**net.state_dict(), "x": x.flatten(2), "y": y}, given)
        for mode in modes:
            subprocess.run([program, given, result, optimizer, *mode, make.__name__], check=True)
            ours.append(load_file(result))
    lr = 0.05 if optimizer == "sgd" else 0.001
    opt = (torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9) if optimizer == "sgd"
           else torch.optim.Adam(net.parameters(), lr=lr))
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


EAGER, FUSED = ("eager", "all"), ("fused", "all")
WITH_GRADIENTS = ("fused", "-weight_grad_update")

for make in (mlp, lenet, cnn):
    for optimizer in ("sgd", "adam"):
        results, weights, grads, losses, lr = run(make, torch.float32, optimizer,
                                                  (EAGER, WITH_GRADIENTS, FUSED), 1)
        for mode, ours in zip(("eager", "fused, with gradients", "fused"), results):
            what = f"{make.__name__} f32 {optimizer} {mode}"
            check(f"{what}: loss", relative(ours["loss"], losses), 1e-5)
            if mode != "fused":
                check(f"{what}: gradients, the worst",
                      max(relative(ours["grad." + n], g) for n, g in grads.items()), 1e-5)
            if optimizer == "sgd":
                check(f"{what}: weights after a step, the worst",
                      max(relative(ours[n], w) for n, w in weights.items()), 1e-5)
            else:
                check(f"{what}: weights after a step, absolute",
                      max((ours[n] - w).abs().max().item() for n, w in weights.items()), lr / 20)
        results, _, _, losses, _ = run(make, torch.float64, optimizer, (EAGER, FUSED),
                                       100 if make is mlp else 5)
        for mode, ours in zip(("eager", "fused"), results):
            check(f"{make.__name__} f64 {optimizer} {mode}: loss curve",
                  (ours["loss"] - losses).abs().max().item(), 1e-8)
sys.exit(failed)
