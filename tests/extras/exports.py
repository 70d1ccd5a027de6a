"""A small network that exporters take, and the files that they make of it."""

from __future__ import annotations

import contextlib
from importlib import import_module

import numpy as np
import torch

NETS = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.norm(self.conv(x)))
        out += x
        return self.relu(out)


class Net(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(8), Block(8), Block(8))
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(8, 5)
        for block in self.blocks:
            nn.init.uniform_(block.norm.running_var, 0.5, 1.5)
            nn.init.normal_(block.norm.bias)
        self.blocks[1].norm.eps = eps

    def forward(self, x):
        seen = self.blocks(self.stem(x))
        return self.fc(self.drop(F.gelu(seen).mean((2, 3))))


def wrong():
    return Net(eps=0.1)


def louder():
    net = Net()
    with torch.no_grad():
        net.blocks[1].norm.weight *= 2
    return net


def slight():
    net = Net()
    with torch.no_grad():
        net.stem.weight[1] *= 1.02
    return net


class Choice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)

    def forward(self, x):
        x = self.conv(x)
        return x * 2 if x.sum() > 0 else x


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Choice()

    def forward(self, x):
        return self.gate(x)


class Pair(nn.Module):
    '''Two outputs, the second before the first layer.'''

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)

    def forward(self, x):
        return {"out": self.conv(x), "mean": x.mean((1, 2, 3))}


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)


class Repeated(Base):
    '''Three calls of one layer in a row.'''

    def __init__(self):
        super().__init__()
        self.again = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        x = self.conv(x)
        for _ in range(3):
            x = self.again(x)
        return x


class Either(Base):
    '''Two layers of one shape, of which the picture chooses one.'''

    def __init__(self):
        super().__init__()
        self.other = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x) if x.mean() > 0 else self.other(x)


class Keeping(Base):
    '''A model that keeps what it computed for a size, and drops it for another.'''

    shape, anchors = None, torch.empty(0)

    def forward(self, x):
        x = self.conv(x)
        if self.shape != x.shape:
            self.anchors, self.shape = torch.ones_like(x), x.shape
        return x + self.anchors


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act = nn.Conv2d(4, 4, 1), nn.ReLU()

    def forward(self, x):
        x = self.conv(x)
        torch._dynamo.graph_break()
        return self.act(x)


class Broken(Base):
    '''torch.compile splits the model inside a module whose layer is called as one outside.'''

    def __init__(self):
        super().__init__()
        self.halves = Halves()

    def forward(self, x):
        return self.halves(self.conv(x))


class Folded(Base):
    '''The exporter folds the first division, which does not depend on the input.'''

    def forward(self, x):
        scale = torch.ones(4, 1, 1) / 3
        return (self.conv(x) / scale / 7).relu()


class Normalized(Base):
    '''Exporters compute normalize with a division of their own.'''

    def forward(self, x):
        return F.normalize(self.conv(x), dim=1) / 0.07


class Refine(Base):
    '''As RAFT does, one layer refines a guess that starts at zero.'''

    def __init__(self):
        super().__init__()
        self.flow, self.up = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(12, 4, 3, padding=1)

    def forward(self, x):
        seen = self.conv(x)
        guess = torch.zeros_like(seen)
        for _ in range(3):
            guess = guess + self.up(torch.cat([torch.relu(self.flow(guess)), seen], 1))
        return guess


def refine_wrong():
    net = Refine()
    with torch.no_grad():
        net.up.weight[1] *= 1.5
    return net


class TwoNames(Base):
    '''The model calls one activation under two names.'''

    def __init__(self):
        super().__init__()
        self.act = nn.SiLU()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), self.act)

    def forward(self, x):
        x = self.act(self.conv(x))
        return self.act(self.body(x) + x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        one = self.one(x)
        return [x, one, self.two(one).relu()]


class Several(Base):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        _, one, two = self.encoder(x)
        return self.head(one * two)


class Outside(Base):
    '''The last convolution of the stem is merged into a norm outside the stem.'''

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, bias=False))
        self.norm, self.act = nn.BatchNorm2d(4), nn.ReLU()
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.act(self.norm(self.stem(x)))


class Dead(Base):
    '''The model does not use the result of its first call.'''

    def forward(self, x):
        self.conv(2 * x)
        return self.conv(x)
"""


def make(name="Net"):
    """Return a network of ``nets.py``, which the fixture ``nets`` writes."""
    return getattr(import_module("nets"), name)().eval()


def export(file, name="Net", **options):
    """Export a network to an ONNX file, and return the pixels with which it was traced."""
    pixels = torch.from_numpy(np.load("a.npy"))[None]
    options = {"dynamo": True, "verbose": False} | options
    with contextlib.redirect_stdout(None):
        torch.onnx.export(make(name), (pixels,), file, **options)
    return pixels.numpy()


def save_program(file, name="Net"):
    """Export a network to a program of torch.export in a file."""
    pixels = torch.from_numpy(np.load("a.npy"))[None]
    torch.export.save(torch.export.export(make(name), (pixels,)), file)


def hide_names(file):
    """Name nodes and values as torch did before version 1.13."""
    onnx = import_module("onnx")
    model = onnx.load(file)
    names = {}
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
        for index, name in enumerate(node.output):
            node.output[index] = names[name] = name if "/" not in name else str(len(names))
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
    onnx.save(model, file)
