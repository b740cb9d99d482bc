"""The GPT of examples/gpt in PyTorch's own modules: loads what `gpt train` saved, and saves one that
`gpt eval` and `gpt sample` read.

    torch_gpt.py FOLDER        exit status 77: torch or safetensors is not here

Reads FOLDER/model.safetensors and FOLDER/given.safetensors: "tokens" [B, S]. Writes
FOLDER/trained.safetensors, a model that some steps have changed, and FOLDER/torch.safetensors:
"before" and "after", the logits of both.

A block's names and layouts are those of nn.TransformerEncoderLayer, which runs it here. The others
are our own: "letters" and "places" are nanoGPT's wte and wpe, "blocks.N" its h.N, "final_norm" its
ln_f and "head" its lm_head; a tied head is not in the file. The file's metadata have the model's
options as TOML, "sinter.config", without which ours does not read it.
"""
import sys
import tomllib
from pathlib import Path

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench/peers"))
from torch_nets import Gpt

folder = Path(sys.argv[1])
with safe_open(folder / "model.safetensors", "pt") as file:
    config = file.metadata()["sinter.config"]
weights = load_file(folder / "model.safetensors")
model = Gpt(len(weights["letters.weight"]), tomllib.loads(config)["train"])
model.load_state_dict(weights, strict=True)
tokens = load_file(folder / "given.safetensors")["tokens"].long()


def logits():
    """By the forward() of PyTorch's layer, which must be that of the peers, too."""
    ours, mask = model(tokens), torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
    for block in model.blocks:
        block.forward = lambda x, _, layer=block: torch.nn.TransformerEncoderLayer.forward(
            layer, x, mask, is_causal=True)
    theirs = model(tokens)
    for block in model.blocks:
        del block.forward
    assert (ours - theirs).abs().max() < 1e-5
    return theirs.detach()


results = {"before": logits()}
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1),
                                      tokens[:, 1:].flatten()).backward()
    optimizer.step()
results["after"] = logits()
save_file(results, folder / "torch.safetensors")
save_file(model.state_dict(), folder / "trained.safetensors", {"sinter.config": config})
