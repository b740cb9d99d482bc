"""Loads a state dict with tied weights into PyTorch strictly, doubles the weight, and saves it back
in both of PyTorch's ways.

    torch_tied.py FOLDER        exit status 77: torch or safetensors is not here

Reads FOLDER/tied.safetensors; writes FOLDER/all.safetensors (every name) and FOLDER/one.safetensors
(save_model: one name of each tensor).
"""
import sys

try:
    import torch
    from safetensors.torch import load_file, save_file, save_model
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

folder = sys.argv[1]
layer = torch.nn.Linear(4, 4)
net = torch.nn.Sequential(layer, layer)
net.load_state_dict(load_file(f"{folder}/tied.safetensors"), strict=True)
with torch.no_grad():
    layer.weight.mul_(2)
save_file({name: value.clone() for name, value in net.state_dict().items()},
          f"{folder}/all.safetensors")
save_model(net, f"{folder}/one.safetensors")
