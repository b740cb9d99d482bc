"""A step of training and an evaluation of batch norm and pooling in PyTorch, from a state dict that
it loads strictly.

    torch_batch_norm.py FOLDER        exit status 77: torch or safetensors is not here

Reads FOLDER/net.safetensors: the state dict, x and dy; writes FOLDER/torch.safetensors: the state
dict after it, results, gradients.
"""
import sys

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

folder = sys.argv[1]
state = load_file(f"{folder}/net.safetensors")
x, dy = state.pop("x").requires_grad_(), state.pop("dy")
nn = torch.nn
net = nn.Sequential(nn.BatchNorm2d(2), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2), nn.Flatten())
net.load_state_dict(state, strict=True)
trained = net(x)
trained.backward(dy)
net.eval()
result = {name: value.clone() for name, value in net.state_dict().items()}
result |= {"trained": trained.detach(), "evaluated": net(x).detach(), "dx": x.grad}
result |= {f"grad.{name}": p.grad for name, p in net.named_parameters()}
save_file(result, f"{folder}/torch.safetensors")
