"""Runs attention in PyTorch, forward and backward.

    torch_attention.py FOLDER        exit status 77: torch or safetensors is not here

Reads FOLDER/given.safetensors: "N.q" [B, H, S, D], "N.k" and "N.v" [B, G, S, D], and "N.do", the
gradient of the result, for N = 0, 1, ..; a causal one has "N.causal", too. Writes
FOLDER/torch.safetensors: "N.o", "N.dq", "N.dk", "N.dv".
"""
import sys

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

folder = sys.argv[1]
given = load_file(f"{folder}/given.safetensors")
results = {}
for n in range(sum(name.endswith(".q") for name in given)):
    q, k, v = (given[f"{n}.{name}"].requires_grad_() for name in "qkv")
    of_group = q.shape[1] // k.shape[1]
    o = torch.nn.functional.scaled_dot_product_attention(
        q, k.repeat_interleave(of_group, 1), v.repeat_interleave(of_group, 1),
        is_causal=f"{n}.causal" in given)
    o.backward(given[f"{n}.do"])
    results |= {f"{n}.o": o.detach(), f"{n}.dq": q.grad, f"{n}.dk": k.grad, f"{n}.dv": v.grad}
save_file({name: value.contiguous() for name, value in results.items()},
          f"{folder}/torch.safetensors")
