#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention, causal, by each of its backends: what bench/step
times, forward and with its backward. A backend that has no kernel for a shape is reported, not
hidden. A call is timed as in torch_step.py."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from peer import Rows, flags, numbers, seconds_of_rounds

p = flags(__doc__, steps=3)
p.add_argument("--device", default="cpu")
p.add_argument("--dtype", default="f32,bf16")
p.add_argument("--shape", type=numbers, nargs="+", default=[[1, 4, 1024, 64]], help="B,H,S,D ..")
p.add_argument("--backends", default="flash,cudnn,efficient")
p.add_argument("--rounds", type=int, default=3)
a = p.parse_args()
if a.threads:
    torch.set_num_threads(a.threads)
torch.manual_seed(0)


def seconds_a_call(call):
    call()  # warms up
    return seconds_of_rounds(call, a.rounds, a.steps, a.device == "cuda")


def attention(shape, dtype):
    q, k, v, d_o = (torch.randn(shape, device=a.device, dtype=dtype) for _ in range(4))

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        with torch.enable_grad():
            torch.autograd.grad(forward(), (q, k, v), d_o)

    with torch.no_grad():
        yield "forward", seconds_a_call(forward)
        for t in (q, k, v):
            t.requires_grad_()
        yield "both", seconds_a_call(both)


rows = Rows(a, peer=f"torch-{torch.__version__}", block="attention", device=a.device)
for shape in a.shape:
    for dtype in a.dtype.split(","):
        for name in a.backends.split(","):
            try:
                with sdpa_kernel(getattr(SDPBackend, name.upper() + "_ATTENTION")):
                    of = torch.bfloat16 if dtype == "bf16" else torch.float32
                    for what, seconds in attention(shape, of):
                        rows.add(seconds, batch=shape[0], shape=shape, dtype=dtype, mode=name,
                                 what=what)
            except Exception as e:
                print(f"torch {name} {dtype} {shape} failed: {str(e)[:160]}", flush=True)
rows.save()
