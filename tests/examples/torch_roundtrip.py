"""Weights both ways between mnist and PyTorch, by the safetensors package.

    torch_roundtrip.py MNIST        exit status 77: torch or safetensors is not here

mnist trains; torch loads the file into nn.Sequential strictly and gives the same logits; torch
trains on and saves, from that module and, renamed, from one with names of its own; mnist reads both with
torch's accuracy.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

torch.manual_seed(1)
torch.set_num_threads(1)


def mnist(*words):
    done = subprocess.run([sys.argv[1], *words, "--json", "--threads", "1"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def write_idx(path, array):
    with open(path, "wb") as file:
        file.write(struct.pack(f">HBB{array.dim()}I", 0, 8, array.dim(), *array.shape))
        file.write(bytes(array.flatten().tolist()))


def write_png(path, image):
    def chunk(kind, data):
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc
    rows = b"".join(b"\0" + bytes(row) for row in image.tolist())
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" +
                   chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def digits(n, patterns):
    """Ten patterns under so much noise that a small net errs."""
    labels = torch.randint(0, 10, (n,))
    images = (patterns[labels] + 60 * torch.randn(n, 28, 28)).clamp(0, 255)
    return images.to(torch.uint8), labels.to(torch.uint8)


class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(784, 32), torch.nn.Linear(32, 16)
        self.fc3 = torch.nn.Linear(16, 10)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def train(net, images, labels, epochs):
    optimizer = torch.optim.Adam(net.parameters(), 0.002)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images[rows]), labels[rows]).backward()
            optimizer.step()


def main():
    patterns = 60 + 30 * torch.randn(10, 28, 28)
    train_set, test_set = digits(2000, patterns), digits(1000, patterns)
    for name, (images, labels) in (("train", train_set), ("t10k", test_set)):
        write_idx(f"{name}-images-idx3-ubyte", images)
        write_idx(f"{name}-labels-idx1-ubyte", labels)
    inputs = [images.reshape(-1, 784).float() / 255 for images, _ in (train_set, test_set)]
    labels = [labels.long() for _, labels in (train_set, test_set)]

    mnist("train", "--data", ".", "--hidden", "32,16", "--epochs", "2", "--out", "run")
    linear = torch.nn.Linear
    net = torch.nn.Sequential(linear(784, 32), torch.nn.ReLU(), linear(32, 16), torch.nn.ReLU(),
                              linear(16, 10))
    net.load_state_dict(load_file("run/model.safetensors"), strict=True)
    pictures = [f"{i}.png" for i in range(8)]
    for i, path in enumerate(pictures):
        write_png(path, test_set[0][i])
    predicted = mnist("predict", "--raw", "--no-art", "--from", "run", *pictures)[0]
    ours = torch.tensor([p["logits"] for p in predicted["predictions"]])
    with torch.no_grad():
        worst = (ours - net(inputs[1][:8])).abs().max().item()
    print(f"logits differ by {worst:.1e}")
    assert worst <= 1e-5, worst
    # the whole checkpoint is a file of the format too
    assert "sinter.optim/exp_avg/0.weight" in load_file("run/last.safetensors")

    def accuracy(net):
        with torch.no_grad():
            return (net(inputs[1]).argmax(1) == labels[1]).float().mean().item()

    def same_accuracy(net, path, note):
        result, said = mnist("eval", "--from", path, "--data", ".")
        print(f"{path}: accuracy {result['accuracy']} in mnist, {accuracy(net):.4f} in torch")
        assert abs(result["accuracy"] - accuracy(net)) < 1e-6 and note in said, said

    same_accuracy(net, "run/model.safetensors", "")
    train(net, inputs[0], labels[0], 2)
    save_file(net.state_dict(), "trained.safetensors")
    same_accuracy(net, "trained.safetensors", "no sinter.config in the file: activation relu")
    named = Named()
    train(named, inputs[0], labels[0], 2)
    names = {"fc1": "0", "fc2": "2", "fc3": "4"}
    save_file({names[key[:3]] + key[3:]: value for key, value in named.state_dict().items()},
              "named.safetensors")
    same_accuracy(named, "named.safetensors", "no sinter.config in the file: activation relu")
    save_file({"module." + name: value.double() for name, value in net.state_dict().items()},
              "double.safetensors")
    same_accuracy(net, "double.safetensors", "dropped the prefix module.")

    # Convolutional nets: ours into torch, running statistics as well; torch's into ours.
    nn = torch.nn
    inputs[:] = [x.reshape(-1, 1, 28, 28) for x in inputs]
    layers = "conv 4 5 pad 2 stride 2; batchnorm; relu; pool 2; flatten; linear 10"
    mnist("train", "--data", ".", "--model", layers, "--epochs", "4", "--lr", "0.005", "--out",
          "conv")
    conv = nn.Sequential(nn.Conv2d(1, 4, 5, 2, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(196, 10))
    conv.load_state_dict(load_file("conv/model.safetensors"), strict=True)
    conv.eval()
    same_accuracy(conv, "conv", "")
    nets = {
        "lenet": lambda: nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                                       nn.Conv2d(6, 16, 5), nn.ReLU(),
                                       nn.MaxPool2d(2), nn.Flatten(), linear(400, 120), nn.ReLU(),
                                       linear(120, 84), nn.ReLU(), linear(84, 10)),
        "cnn": lambda: nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3),
                                     nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
                                     nn.Flatten(), linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
                                     linear(128, 10)),
    }
    for name, make in nets.items():
        theirs = make()
        train(theirs, inputs[0], labels[0], {"lenet": 8, "cnn": 1}[name])
        theirs.eval()
        save_file(theirs.state_dict(), f"{name}.safetensors")
        mnist("train", "--data", ".", "--model", name, "--init", f"{name}.safetensors", "--lr",
              "0", "--steps", "1", "--out", name)
        same_accuracy(theirs, name, "")
        back = make()  # and ours into torch's
        back.load_state_dict(load_file(f"{name}/model.safetensors"), strict=True)
        want = theirs.state_dict()
        assert all(torch.equal(value, want[key]) for key, value in back.state_dict().items()), name


sys.argv[1] = os.path.abspath(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
