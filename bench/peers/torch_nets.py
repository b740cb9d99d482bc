"""The nets of the scripts beside this, and of tests/, without dropout. The convolutional ones take
images of 28 x 28."""
import torch
import torch.nn.functional as F
from torch import nn


def lenet():
    """LeNet-5 with ReLU and max pooling."""
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
                         nn.ReLU(), nn.Linear(84, 10))


def cnn():
    """The net of PyTorch's MNIST example."""
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


class Block(nn.TransformerEncoderLayer):
    """What that is with norm_first and causal; in forward() without its questions at each call."""

    def __init__(self, o):
        super().__init__(o["width"], o["heads"], 4 * o["width"], 0, ACTIVATIONS[o["act"]],
                         batch_first=True, norm_first=True, bias=o["bias"])
        self.norm1, self.norm2 = norm(o), norm(o)

    def forward(self, x, place=None):
        """`place`: x [B, 1, E] is that one of a text, whose keys and values are kept."""
        attn = self.self_attn
        q, k, v = F.linear(self.norm1(x), attn.in_proj_weight, attn.in_proj_bias).unflatten(
            -1, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if place is not None:
            self.keys[:, :, place], self.values[:, :, place] = k[:, :, 0], v[:, :, 0]
            k, v = self.keys[:, :, :place + 1], self.values[:, :, :place + 1]
        o = F.scaled_dot_product_attention(q, k, v, is_causal=place is None)
        x = x + attn.out_proj(o.transpose(1, 2).flatten(2))
        return x + self.linear2(self.activation(self.linear1(self.norm2(x))))


ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu,
               "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}


def norm(o):
    if o["norm"] == "layer":
        return nn.LayerNorm(o["width"])
    return nn.RMSNorm(o["width"], 1e-5, elementwise_affine=False)


class Gpt(nn.Module):
    """The model of examples/gpt, by the options of its config, without pairs; its state dict is our
    file."""

    def __init__(self, tokens, o):
        super().__init__()
        self.letters = nn.Embedding(tokens, o["width"])
        self.places = nn.Parameter(torch.empty(o["context"], o["width"]))
        self.first_norm = norm(o) if o["first-norm"] else nn.Identity()
        self.blocks = nn.ModuleList(Block(o) for _ in range(o["layers"]))
        self.final_norm = norm(o) if o["final-norm"] else nn.Identity()
        self.head = None if o["tied"] else nn.Linear(o["width"], tokens, bias=False)

    def forward(self, tokens, place=None):
        places = self.places[:tokens.shape[1]] if place is None else self.places[place]
        x = self.first_norm(self.letters(tokens) + places)
        for block in self.blocks:
            x = block(x, place)
        x = self.final_norm(x)
        return F.linear(x, self.letters.weight) if self.head is None else self.head(x)
