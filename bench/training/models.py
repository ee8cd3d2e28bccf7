"""The trainings that every overhead is measured on. Seeded; data neither constant nor different between runs.

cnn          FashionMNIST, 8 parameters, 1.7 MB: few, large tensors; arithmetic dominates
units        the same data, ReLU and tanh: what rules about units and changes cost
transformer  245 parameters, about 3 MB, more than 200 modules: the common middle
compiled     three blocks of it, wider, under torch.compile
mlp          1,200 parameters of 64 and 8 floats: the cost per tensor and nothing else
"""

import gzip
import pathlib

import numpy as np
import torch
from torch import nn

_DATASETS = ("/usr/share/datasets/fashion-mnist",)


def fashion_mnist(count, seed=0):
    """`count` training images as float32 (count, 1, 28, 28) in [-1, 1], and their labels."""
    for folder in map(pathlib.Path, _DATASETS):
        images = folder / "train-images-idx3-ubyte.gz"
        if images.exists():
            pixels = np.frombuffer(gzip.open(images).read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
            labels = np.frombuffer(
                gzip.open(folder / "train-labels-idx1-ubyte.gz").read(), np.uint8, offset=8
            )
            pick = np.random.default_rng(seed).permutation(len(pixels))[:count]
            return (
                torch.from_numpy(pixels[pick].astype(np.float32) / 127.5 - 1),
                torch.from_numpy(labels[pick].astype(np.int64)),
            )
    raise SystemExit("bench: FashionMNIST is not here; apt-get install dataset-fashion-mnist")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.relu0 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.relu1 = nn.ReLU()
        self.fc1 = nn.Linear(800, 500)
        self.relu2 = nn.ReLU()
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = self.pool(self.relu0(self.conv1(x)))
        x = self.pool(self.relu1(self.conv2(x)))
        return self.fc2(self.relu2(self.fc1(x.flatten(1))))


class UnitNet(nn.Module):
    """What rules about units look at: convolutions under ReLU, a wide layer under tanh."""

    def __init__(self):
        super().__init__()
        self.conv1, self.relu1 = nn.Conv2d(1, 20, 5), nn.ReLU()
        self.conv2, self.relu2 = nn.Conv2d(20, 50, 5), nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1, self.tanh1 = nn.Linear(800, 500), nn.Tanh()
        self.fc2, self.relu3 = nn.Linear(500, 100), nn.ReLU()
        self.fc3 = nn.Linear(100, 10)

    def forward(self, x):
        x = self.pool(self.relu1(self.conv1(x)))
        x = self.pool(self.relu2(self.conv2(x)))
        return self.fc3(self.relu3(self.fc2(self.tanh1(self.fc1(x.flatten(1))))))


class Transformer(nn.Module):
    def __init__(self, width=64, layers=20, vocabulary=1000, length=24):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.encoder(self.embedding(tokens) + self.position)))


class Mlp(nn.Module):
    def __init__(self, layers=600, width=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        for layer in self.layers:  # near the identity, so that 600 of them train at all
            nn.init.eye_(layer.weight)
            layer.weight.data += 0.01 * torch.randn_like(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Training:
    """One model, its data and its optimizer; `step()` is one optimizer step."""

    def __init__(self, name, seed=0):
        torch.manual_seed(seed)
        self.name = name
        self.position = 0
        self.before_update, self.after_update = [], []  # rivals that want to be called: f(loss)
        if name in ("cnn", "units"):
            self.model, self.criterion = (Net if name == "cnn" else UnitNet)(), nn.CrossEntropyLoss()
            self.inputs, self.targets = fashion_mnist(8192, seed)
            self.batch = 64
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        elif name == "transformer":
            self.model, self.criterion = Transformer(), nn.CrossEntropyLoss()
            self.inputs = torch.randint(0, 1000, (2048, 24))
            self.targets = self.inputs.roll(1, dims=1)
            self.batch = 8
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        elif name == "compiled":
            self.model, self.criterion = Transformer(width=128, layers=3), nn.CrossEntropyLoss()
            self.inputs = torch.randint(0, 1000, (2048, 24))
            self.targets = self.inputs.roll(1, dims=1)
            self.batch = 8
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        elif name == "mlp":
            self.model, self.criterion = Mlp(), nn.MSELoss()
            self.inputs = torch.randn(4096, 8)
            self.targets = torch.tanh(self.inputs)
            self.batch = 16
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        else:
            raise SystemExit(f"bench: no model {name!r}; there are cnn, units, transformer, compiled, mlp")
        self.call = torch.compile(self.model) if name == "compiled" else self.model

    def forward_backward(self):
        start = self.position % (len(self.inputs) - self.batch)
        self.position += self.batch
        x, y = self.inputs[start : start + self.batch], self.targets[start : start + self.batch]
        self.optimizer.zero_grad()
        out = self.call(x)
        if self.name in ("transformer", "compiled"):
            out, y = out.flatten(0, 1), y.flatten()
        loss = self.criterion(out, y)
        loss.backward()
        return loss

    def step(self):
        loss = self.forward_backward()
        for call in self.before_update:
            call(loss)
        self.optimizer.step()
        for call in self.after_update:
            call(loss)
        return loss
