"""What a capture block writes to TensorBoard, and shows in a notebook."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import hookcli
from tests import toy_models as toys
from tests.toy_models import pixel


class Writer:
    """Remembers the numbers and pictures that TensorBoard's writer would write."""

    def __init__(self):
        self.scalars, self.images = {}, {}

    def add_scalar(self, tag, value, step):
        self.scalars[tag, step] = value

    def add_image(self, tag, array, step):
        self.images[tag, step] = array


def log(model, pixels, **options):
    writer = Writer()
    with hookcli.capture(model, "conv", **options) as captured:
        model(pixels).sum().backward()
    captured.log_to(writer, 7, prefix="net")
    return writer


def test_activations_have_their_distribution():
    writer = log(toys.InplaceRelu(), pixel(1.0))  # the convolution gives -2 and 1
    assert writer.scalars == {
        ("net/conv/mean", 7): -0.5,
        ("net/conv/std", 7): pytest.approx(1.5),
        ("net/conv/zero_fraction", 7): 0.0,
        ("net/conv/nan_count", 7): 0,
        ("net/conv/inf_count", 7): 0,
    }
    assert writer.images == {}


def test_gradients_have_their_size():
    writer = log(toys.InplaceRelu(), pixel(3.0), gradients=True)
    # only the second channel passes the ReLU: the gradient of its weight is the pixel
    figures = {tag: value for (tag, _), value in writer.scalars.items() if "param:" in tag}
    assert figures == {
        "net/param:conv.weight/norm": pytest.approx(3.0),
        "net/param:conv.weight/max_abs": 3.0,
        "net/param:conv.weight/nan_count": 0,
        "net/param:conv.weight/inf_count": 0,
    }
    assert writer.scalars["net/grad_output:conv/norm", 7] == 1.0


def test_what_was_kept_is_drawn_channel_by_channel():
    # light on the diagonal in the first channel, dark on it in the second: mirrored, 4 pixels apart
    diagonal = torch.eye(2).view(1, 1, 2, 2)
    writer = log(nn.Sequential(toys.pointwise([1.0], [-1.0])), diagonal, keep=True)
    ((tag, step),) = writer.images
    array = writer.images[tag, step]
    assert (tag, step, array.shape[0], str(array.dtype)) == ("net/0", 7, 3, "uint8")
    one, other = array[:, 47:111, 10:74], array[:, 47:111, 78:142]
    assert (one[:, :, ::-1] == other).all()
    assert (one[:, 0, 0] > one[:, 0, -1] + 100).all()


def test_a_notebook_shows_the_calls_and_small_grids_of_what_was_kept():
    model = toys.UncalledBranch().eval()
    with hookcli.capture(model, "conv", keep=True) as captured:
        model(torch.ones(1, 1, 4, 4))
    html = captured._repr_html_()
    assert "<b>UncalledBranch: 1 tensor of 3 chosen layers</b>" in html
    assert "spare did not run: the model did not call it for this input" in html
    assert ">1x1x4x4</td>" in html
    assert html.count("<img") == 1
