"""Runs a Conv2d of ours in PyTorch, forward and backward from a gradient of ones.

    torch_conv2d.py FOLDER        exit status 77: torch or safetensors is not here

Reads FOLDER/conv.safetensors (its state dict, strictly) and FOLDER/x.safetensors; writes
FOLDER/torch.safetensors: y, and the gradients of x, weight and bias. Kernel (3, 2), stride (2, 1),
padding (1, 2), as in layers_test.cpp.
"""
import sys

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

folder = sys.argv[1]
conv = torch.nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2))
conv.load_state_dict(load_file(f"{folder}/conv.safetensors"), strict=True)
x = load_file(f"{folder}/x.safetensors")["x"].requires_grad_()
y = conv(x)
y.backward(torch.ones_like(y))
results = {"y": y.detach(), "x": x.grad, "weight": conv.weight.grad, "bias": conv.bias.grad}
save_file({name: value.contiguous() for name, value in results.items()},
          f"{folder}/torch.safetensors")
