"""Tiny networks with weights set by hand, one for each trap that real networks have.

Every convolution is 1x1 and has no bias, so that you can compute its output by hand: the output is
the input times the weight.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.models.squeezenet import Fire


def pointwise(*weights: list[float]) -> nn.Conv2d:
    """Return a 1x1 convolution; each list holds an output channel's weight per input channel."""
    matrix = torch.tensor(weights)
    conv = nn.Conv2d(matrix.shape[1], matrix.shape[0], 1, bias=False)
    with torch.no_grad():
        conv.weight.copy_(matrix.view(*matrix.shape, 1, 1))
    return conv


def pixel(*images: float) -> Tensor:
    """Return pixels (N, 1, 1, 1), with one value per image."""
    return torch.tensor(images).view(-1, 1, 1, 1)


class InplaceRelu(nn.Module):
    """The ReLU overwrites the output of the convolution: [-2, 1] becomes [0, 1]."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([-2.0], [1.0])
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.conv(x))


class InplaceAdd(nn.Module):
    """The residual is added to the convolution's own output: 3x becomes 4x."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([3.0])

    def forward(self, x):
        out = self.conv(x)
        out += x
        return out


class ReusedRelu(nn.Module):
    """Both convolutions are followed by the same ReLU: it keeps 2x and zeroes -2x (x > 0)."""

    def __init__(self):
        super().__init__()
        self.conv1 = pointwise([2.0])
        self.conv2 = pointwise([-1.0])
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.conv2(self.relu(self.conv1(x))))


class UncalledBranch(nn.Module):
    """The auxiliary head runs only in training, and the spare convolution never runs."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([2.0])
        self.aux = pointwise([5.0])
        self.spare = pointwise([7.0])

    def forward(self, x):
        out = self.conv(x)
        return out + self.aux(x) if self.training else out


class UnusedAttentionWeights(nn.Module):
    """MultiheadAttention reads the weights of its ``out_proj`` and never calls it."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Bounds(NamedTuple):
    """A named output."""

    low: Tensor
    high: Tensor


class Split(nn.Module):
    """Takes one tensor, and returns a dict of a tuple, a named tuple and a list of tensors."""

    def forward(self, x):
        return {
            "pair": (x, 2 * x),
            "bounds": Bounds(-x, 10 * x),
            "list": [3 * x],
            "nothing": None,
            "text": "no tensor",
        }


class SeveralOutputs(nn.Module):
    """A part returns several tensors, nested."""

    def __init__(self):
        super().__init__()
        self.split = Split()

    def forward(self, x):
        return self.split(x)["pair"][0]


class Scale(nn.Module):
    """Multiplies; its arguments may have names."""

    def forward(self, image, factor=None):
        return image if factor is None else image * factor


class KeywordInput(nn.Module):
    """Calls one part with keywords only, and the other with a position and a keyword."""

    def __init__(self):
        super().__init__()
        self.named = Scale()
        self.mixed = Scale()

    def forward(self, x):
        return self.mixed(self.named(image=x, factor=torch.tensor([3.0])), factor=2 * x)


class InplaceInput(nn.Module):
    """The first part overwrites its own input."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(x.clone())


class ChannelsLast(nn.Module):
    """(N, C, H, W) from the convolution, (N, H, W, C) in the linear part, as in Swin and
    ConvNeXt.
    """

    def __init__(self):
        super().__init__()
        self.conv = pointwise([1.0], [2.0], [3.0])
        self.norm = nn.LayerNorm(3)
        self.linear = nn.Linear(3, 2)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, -2.0]]))
            self.linear.bias.zero_()
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.linear(self.norm(self.conv(x).permute(0, 2, 3, 1))))


class NormOfMaps(nn.LayerNorm):
    """Works on NCHW, as the norms of ConvNeXt do."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Tokens(nn.Module):
    """(N, 1 + H*W, C): a class token of nines, then the pixels row by row, as in ViT."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([1.0], [-1.0])
        self.encoder = nn.Identity()

    def forward(self, x):
        tokens = self.conv(x).flatten(2).transpose(1, 2)
        class_token = torch.full((len(x), 1, 2), 9.0)
        return self.encoder(torch.cat([class_token, tokens], 1))


class Bias(nn.Module):
    """Returns its only value with the leading axis 1, whatever the number of images."""

    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.tensor([[[[5.0]]]]))

    def forward(self, _x):
        return self.value * 1


class SharedLeadingAxis(nn.Module):
    """A bias made once for the batch, as Swin V2's position bias."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([2.0])
        self.bias = Bias()

    def forward(self, x):
        return self.conv(x) + self.bias(x)


class FoldedLeadingAxis(nn.Module):
    """Heads folded into the leading axis, N times 3, as in MViT: image 0's are rows 0 to 2."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([1.0], [10.0], [100.0])
        self.heads = nn.Identity()

    def forward(self, x):
        return self.heads(self.conv(x).flatten(0, 1))


class PairedLeadingAxis(nn.Module):
    """Pairs every image with every image: the leading axis is N * N, which is 1 for one image."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([2.0])
        self.pairs = nn.Identity()

    def forward(self, x):
        out = self.conv(x).flatten(1)
        return self.pairs((out.unsqueeze(0) * out.unsqueeze(1)).flatten(0, 1))


class ConstantLeadingAxis(nn.Module):
    """Returns two boxes for any number of images; in a batch of two, the axis looks like images."""

    def __init__(self):
        super().__init__()
        self.boxes = nn.Identity()

    def forward(self, x):
        return self.boxes(torch.stack([x.sum(), -x.sum()]))


class FoldedAfterInplace(nn.Module):
    """Doubles the pixels in place, then folds heads into the leading axis."""

    def __init__(self):
        super().__init__()
        self.heads = nn.Identity()

    def forward(self, x):
        return self.heads(x.mul_(2.0).repeat(3, 1, 1, 1))


class Recursive(nn.Module):
    """Calls itself ``depth`` times; each call adds 1 on the way back, the innermost multiplies by
    10."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([10.0])

    def forward(self, x, depth=2):
        return self(x, depth - 1) + 1 if depth else self.conv(x)


class Block(nn.Module):
    """A part that has parts."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([2.0])
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.conv(x))


class Nested(nn.Module):
    """A block between two convolutions; ``tail`` is registered first and runs last."""

    def __init__(self):
        super().__init__()
        self.tail = pointwise([5.0])
        self.head = pointwise([3.0])
        self.block = Block()

    def forward(self, x):
        return self.tail(self.block(self.head(x)))


class Raise(nn.Module):
    """Raises the exception that it was given."""

    def __init__(self, error):
        super().__init__()
        self.error = error
        self.inner = nn.Identity()

    def forward(self, x):
        self.inner(x)
        raise self.error


class RaisesInside(nn.Module):
    """Runs a convolution, then a part that raises; training flags and gradients are mixed."""

    def __init__(self, error):
        super().__init__()
        self.conv = pointwise([2.0])
        self.frozen = nn.BatchNorm2d(1).eval().requires_grad_(False)
        self.broken = Raise(error)

    def forward(self, x):
        return self.broken(self.frozen(self.conv(x)))


class CatchesInside(nn.Module):
    """A part raises, and the model continues without the part."""

    def __init__(self):
        super().__init__()
        self.block = Block()
        self.broken = Raise(ValueError("caught by the model"))

    def forward(self, x):
        out = self.block(x)
        try:
            return self.broken(out)
        except ValueError:
            return self.block(out + 1)


class WrongShape(nn.Module):
    """The second convolution of the block expects three channels and gets two."""

    def __init__(self):
        super().__init__()
        self.stem = pointwise([1.0], [2.0])
        self.block = nn.Sequential(nn.ReLU(inplace=True), pointwise([1.0, 1.0, 1.0]))

    def forward(self, x):
        return self.block(self.stem(x))


class ReassignsThenRaises(nn.Module):
    """Gives its argument's name another value before it raises."""

    def __init__(self):
        super().__init__()
        self.conv = pointwise([1.0], [2.0])

    def forward(self, x):
        x = self.conv(x).flatten()
        return x.view(7)


class NoTensor(nn.Module):
    """A part that runs and returns a number."""

    def __init__(self):
        super().__init__()
        self.count = Count()

    def forward(self, x):
        return x * self.count(x)


class Fault(nn.Module):
    """Calls a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Between(nn.Module):
    """A classifier of five classes with a module, or a function, before its pooling."""

    def __init__(self, fault):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.act, self.fc = nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Linear(4, 5)
        self.fault = fault if isinstance(fault, nn.Module) else Fault(fault)
        self.eval()

    def forward(self, x):
        return self.fc(self.fault(self.act(self.conv(x))).mean((2, 3)))


class Count(nn.Module):
    """Returns the number of images."""

    def forward(self, x):
        return len(x)


class Squeezed(nn.Module):
    """A few of SqueezeNet's layers under their own names, for runs over many images."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(8, 4, 8, 8),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Conv2d(16, 10, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)
        )
        self.eval()

    def forward(self, x):
        return self.classifier(self.features(x)).flatten(1)


def seeded_squeezed() -> Squeezed:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Squeezed()


def outputs(model: nn.Module, layer: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return the output of ``layer`` for each array alone, observed by a plain hook of torch."""
    seen: list[np.ndarray] = []
    handle = model.get_submodule(layer).register_forward_hook(
        lambda _module, _inputs, output: seen.append(output[0].double().numpy().copy())
    )
    with torch.inference_mode():
        for array in arrays:
            model(torch.from_numpy(array)[None])
    handle.remove()
    return seen


SQUEEZED = f"""
from torch import nn
from torchvision.models.squeezenet import Fire

{inspect.getsource(Squeezed)}"""

# It takes as long as NAP says.
SLOW_NET = """
import os
import time
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        time.sleep(float(os.environ.get("NAP", "0")))
        return self.fc(self.conv(x).mean((2, 3)))


def make():
    return Net()
"""


# Somebody presses Ctrl-C during the second forward.
INTERRUPTED_NET = """
import signal
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 2:
            signal.raise_signal(signal.SIGINT)
        return self.conv(x).mean((2, 3))
"""


# With the pixels 3, -4 and 0 in 4 places conv gives 3 and 4; the logits are 24 and 48.
SMALL_NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(2, 2)  # is never called
        self.fc = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([[1.0, 0, 0], [0, -1, 0]]).view(2, 3, 1, 1))
            self.fc.weight.copy_(torch.tensor([[2.0, 0], [0, 3]]))
            self.head.weight.zero_()
            self.head.bias.zero_()

    def forward(self, x):
        return self.fc(self.relu(self.relu(self.conv(x)) + 0).sum((2, 3)))


class Boxes(Net):
    def forward(self, x):
        sums = super().forward(x)
        box = torch.tensor([[0.0, 1, 2, 2]])
        return [{"boxes": box, "labels": torch.tensor([7]), "scores": s[:1] / 100} for s in sums]


class Masks(Net):
    def forward(self, x):
        return {"out": self.conv(x)}


class Flow(Net):
    def forward(self, x):
        return [self.conv(x)]


class Breaks(Net):
    def forward(self, x):
        raise RuntimeError("not today")


class NoWayBack(Net):
    '''The second ReLU writes over what the backward of the first one needs.'''

    def forward(self, x):
        return self.fc(self.relu(self.relu(self.conv(x))).sum((2, 3)))
"""


def two_channel_net(second: int, pooled: str) -> str:
    """A file with a ``Net``: a convolution, an in-place ReLU, ``sum`` or ``mean`` over the places,
    a linear layer.

    The channels are the first colour and ``second`` times the second; the logits are 2 and 3 times
    what is left.
    """
    return f"""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([[1.0, 0, 0], [0, {second}, 0]]).view(2, 3, 1, 1))
            self.fc.weight.copy_(torch.tensor([[2.0, 0], [0, 3]]))

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).{pooled}((2, 3)))
"""


def draw(name: str, first: float, second: float, side: int = 2) -> None:
    """Save pixels whose first two colours have these values everywhere."""
    np.save(name, np.stack([np.full((side, side), v, np.float32) for v in (first, second, 0)]))


class Looks(nn.Module):
    """A class token and the four quarters of a picture, which attend to each other by brightness.

    Each token is (1, brightness); the score of a pair is the product of both, and both heads are
    alike. An attention of channels follows, which shows neither queries nor keys.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 1, 16, 16, bias=False)
        nn.init.constant_(self.patch.weight, 1 / (3 * 16 * 16))
        self.attn = LooksAttention()
        self.gate = ChannelAttention()
        self.head = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        bright = self.patch(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([torch.ones_like(bright), bright], 2)
        first = torch.tensor([[[1.0, 0.0]]]).expand(len(x), 1, 2)
        tokens = self.gate(self.attn(torch.cat([first, tokens], 1)))
        return self.head(tokens[:, 0])


class LooksAttention(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        heads = torch.stack([tokens, tokens], 1)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads, scale=1.0)[:, 0]


class ChannelAttention(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * tokens.mean(1, keepdim=True).softmax(-1)


class LooksAround(nn.Module):
    """An attention over the patches of an image, whose order is chosen in the forward."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order, self.patch = order, nn.Conv2d(3, 4, 8, 8)
        self.attn = nn.MultiheadAttention(4, 1, batch_first=True)
        self.generator, self.turns = torch.Generator().manual_seed(0), 0

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        count = tokens.shape[1]
        if self.order == "by chance":
            tokens = tokens[:, torch.randperm(count)]
        elif self.order == "by chance of NumPy":
            tokens = tokens[:, np.random.permutation(count).tolist()]
        elif self.order == "by a generator":
            tokens = tokens[:, torch.randperm(count, generator=self.generator)]
        elif self.order == "by turns":
            self.turns += 1
            tokens = tokens.roll(self.turns, 1)
        elif self.order == "by brightness":
            bright = tokens.sum(2)[0].tolist()
            tokens = tokens[:, sorted(range(count), key=bright.__getitem__)]
        tokens = self.attn(tokens, tokens, tokens)[0]
        if self.order == "if it is bright" and x.mean() > 0.5:
            tokens = self.attn(tokens, tokens, tokens)[0]
        return tokens.mean(1)
