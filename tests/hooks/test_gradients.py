"""Gradients under hooks, held against probes that are added to tensors, closed forms and
differences."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
import torchvision
from torch import nn
from torch.nn.functional import conv2d
from torch.utils.checkpoint import checkpoint

import hookcli
from hookcli.config import BackwardStyle, GridStyle
from hookcli.errors import RequestError
from hookcli.hooks.filter import select_layers
from hookcli.hooks.gradients import need_gradients, observe_gradients
from hookcli.networks.scores import Scorer, score_output
from hookcli.passes.eager import EagerRunner
from hookcli.passes.forward import BackwardSettings, run_backward
from tests.small_models import SMALL_MODELS, build_small


def build(name):
    if name in SMALL_MODELS:
        return build_small(name)
    torch.manual_seed(0)
    return getattr(torchvision.models, name)(weights=None).eval()


def photo(side, count=1):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def key_of(call):
    return call.side, call.layer.module_path, call.call_index, call.output_key


def observe(model, forms, pixels, score=lambda out: out[0, 7]):
    """Return every gradient by side, path, call and key, and the missing gradients."""
    found = {}
    layers = select_layers(model, forms)

    def keep(call, gradient):
        assert key_of(call) not in found
        found[key_of(call)] = gradient.clone()

    with observe_gradients(model, layers, keep) as gradients:
        score(model(pixels)).backward()
    model.zero_grad()
    return found, gradients.missing


def probe(model, paths, pixels, score=lambda out: out[0, 7]):
    """The same by ``torch.autograd.grad`` of zeros that are added to each input and output.

    Nothing of the model is then written over, since a sum is a tensor of its own.
    """
    zeros, counts, handles = {}, {}, []

    def add(side, path, key, tensor, known):
        if not isinstance(tensor, torch.Tensor):
            return tensor
        if id(tensor) not in known:
            zero = torch.zeros_like(tensor, requires_grad=True)
            zeros[side, path, counts[path] - 1, key] = zero
            known[id(tensor)] = tensor + zero
        return known[id(tensor)]

    def before(path, _module, args, kwargs):
        counts[path] = counts.get(path, 0) + 1
        known = {}
        one = len(args) == 1 and not kwargs
        args = [
            add("grad_input", path, "" if one else str(i), each, known)
            for i, each in enumerate(args)
        ]
        kwargs = {k: add("grad_input", path, k, each, known) for k, each in kwargs.items()}
        return tuple(args), kwargs

    def after(path, _module, _args, output):
        if isinstance(output, tuple):
            parts = enumerate(output)
            return tuple(add("grad_output", path, str(i), each, {}) for i, each in parts)
        return add("grad_output", path, "", output, {})

    for path, module in model.named_modules():
        if path in paths:
            handles += [
                module.register_forward_pre_hook(
                    lambda m, a, k, p=path: before(p, m, a, k), with_kwargs=True
                ),
                module.register_forward_hook(lambda m, a, o, p=path: after(p, m, a, o)),
            ]
    gradients = torch.autograd.grad(score(model(pixels)), list(zeros.values()), allow_unused=True)
    for handle in handles:
        handle.remove()
    return {k: g for k, g in zip(zeros, gradients, strict=True) if g is not None}


def assert_close(found, expected):
    scale = expected.norm()
    assert (found - expected).norm() <= 1e-5 * scale + 1e-12


@pytest.mark.parametrize("name", ["resnet18", "vit", "swin"])
def test_every_gradient_agrees_with_probes(name):
    model = build(name)
    forms = "all" if name == "resnet18" else "leaf"
    layers = [layer for layer in select_layers(model, [forms]) if layer.module_path]
    pixels = photo(64).requires_grad_()
    found, absent = observe(model, [f"path:{each.module_path}" for each in layers], pixels * 1)
    expected = probe(model, [layer.module_path for layer in layers], pixels * 1)
    sides = {at for at in found if at[0] != "param"}
    assert sides == expected.keys()
    assert len(sides) > 50
    assert not absent
    for at, gradient in expected.items():
        assert_close(found[at], gradient)


class Toy(nn.Module):
    """A convolution, whose output goes through the function ``play`` that a test passes."""

    def __init__(self, play):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.short, self.flat = nn.Conv2d(3, 4, 1), nn.Identity(), nn.Flatten()
        self.relu, self.tanh, self.play = nn.ReLU(inplace=True), nn.Tanh(), play

    def forward(self, x):
        return self.play(self, self.conv(x))


def uses_a_shortcut_after_the_write(net, x):
    short = net.short(x)
    return net.relu(x) + short


def writes_after_the_shortcut(net, x):
    short = net.short(x)
    x *= 3
    return short + x


def drops_what_came_back(net, x):
    net.relu(x)
    return net.tanh(x)


def writes_over_a_slice(net, x):
    net.relu(x[:, :2])
    return x * 1


def writes_over_a_view(net, x):
    return net.relu(net.flat(x))


def writes_over_half(net, x):
    one, two = x.split(2, 1)
    return net.tanh(one) + net.relu(two * 1)


GAMES = (
    uses_a_shortcut_after_the_write,
    writes_after_the_shortcut,
    drops_what_came_back,
    writes_over_a_slice,
    writes_over_a_view,
    writes_over_half,
)


@pytest.mark.parametrize("play", GAMES)
def test_the_models_own_gradients_are_what_they_are_without_hooks(play):
    model, pixels = Toy(play), photo(4, 2)
    model(pixels).square().sum().backward()
    plain = [parameter.grad.clone() for parameter in model.parameters()]
    runs = {"relu": play is not writes_after_the_shortcut, "tanh": "tanh" in play.__code__.co_names}
    possible = ((), ("grad_input:relu:scale=1",), ("grad_output:tanh:scale=1",))
    for layers, edit in itertools.product(("leaf", "all", "relu,flat,short"), possible):
        edits = [each for each in edit if runs[each.split(":")[1]]]
        model.zero_grad()
        with hookcli.capture(model, layers, gradients=True, edits=edits):
            model(pixels).square().sum().backward()
        for parameter, expected in zip(model.parameters(), plain, strict=True):
            assert_close(parameter.grad, expected)


def test_an_edited_input_gradient_of_a_module_that_works_in_place():
    model = Toy(drops_what_came_back)
    model.tanh = nn.Identity()
    start = torch.tensor([1.0, 2.0, -1.0, -2.0]).view(1, 4, 1, 1).requires_grad_()
    model.conv = nn.Identity()
    with hookcli.capture(model, "relu", gradients=True, edits=["grad_input:relu:scale=5"]):
        (model(start * 1) * torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 4, 1, 1)).sum().backward()
    assert start.grad.flatten().tolist() == [5, 10, 0, 0]


def test_a_view_that_is_written_over_says_so():
    model = Toy(writes_over_a_view)
    with hookcli.capture(model, "flat", gradients=True) as captured:
        model(photo(4)).sum().backward()
    assert captured.absent["grad_output:flat"] == (
        "no path leads from it to the score, or it is a view that was overwritten"
    )
    with (
        pytest.raises(RequestError, match="changed nothing"),
        hookcli.capture(model, "flat", gradients=True, edits=["grad_output:flat:zero"]),
    ):
        model(photo(4)).sum().backward()


def test_a_parameter_that_two_layers_share_is_recorded_once():
    model = nn.MultiheadAttention(4, 2)
    x = torch.randn(3, 1, 4)
    with hookcli.capture(model, "all", gradients=True) as captured:
        model(x, x, x)[0].sum().backward()
    ids = [record.call.id for record in captured.records if record.call.side == "param"]
    assert sorted(ids) == [
        "param:in_proj_bias",
        "param:in_proj_weight",
        "param:out_proj.bias",
        "param:out_proj.weight",
    ]


def test_an_edit_of_parameters_leaves_frozen_ones_alone():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].weight.requires_grad_(False)
    with hookcli.capture(model, "all", gradients=True, edits=["param:*.weight:zero"]):
        model(torch.ones(1, 2)).sum().backward()
    assert model[0].weight.grad is None
    assert model[1].weight.grad.tolist() == [[0, 0]]
    with (
        pytest.raises(RequestError, match=r"0\.weight has no gradient that could be changed"),
        hookcli.capture(model, "all", gradients=True, edits=["param:0.weight:zero"]),
    ):
        pass


def test_what_checkpointing_computes_again_has_a_reason_of_its_own():
    inner = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Tanh())

    class Thrifty(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    model = Thrifty()
    with hookcli.capture(model, "leaf", gradients=True) as captured:
        model(photo(4).requires_grad_()).sum().backward()
    again = {each: why for each, why in captured.absent.items() if "#1" in each}
    assert again
    assert set(again.values()) == {"it was recomputed during the backward pass"}


def test_a_gradient_that_does_not_exist_is_replaced_by_the_reason():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.unused = nn.Conv2d(3, 2, 1), nn.Conv2d(3, 2, 1)
            self.still, self.count = nn.Conv2d(2, 2, 1), nn.Identity()

        def forward(self, x):
            self.unused(x)
            out = self.first(x)
            with torch.no_grad():
                self.still(out)
            self.count(torch.arange(3))
            return out

    model = Model()
    model.first.bias.requires_grad_(False)
    _, absent = observe(model, ["leaf"], photo(4), lambda out: out.sum())
    assert {each.call.id: each.reason for each in absent} == {
        "grad_input:first": "no tensor before it requires a gradient",
        "grad_input:unused": "no tensor before it requires a gradient",
        "grad_output:unused": "no path leads from it to the score",
        "param:unused.weight": "no path leads from it to the score",
        "param:unused.bias": "no path leads from it to the score",
        "grad_output:still": "the model ran it with gradients disabled",
        "grad_input:still": "the model ran it with gradients disabled",
        "param:still.weight": "no path leads from it to the score",
        "param:still.bias": "no path leads from it to the score",
        "grad_input:count": "integers have no gradient",
        "grad_output:count": "integers have no gradient",
        "param:first.bias": "requires_grad is False",
    }


def state_of(model):
    return (
        [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        [p.requires_grad for p in model.parameters()],
        [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        [m.training for m in model.modules()],
        [p.detach().clone() for p in model.parameters()],
        [len(p._backward_hooks or ()) for p in model.parameters()],
        [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()],
    )


def same(one, two):
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for left, right in zip(one, two, strict=True)
        for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("how", ["success", "error"])
def test_nothing_is_left_behind(how):
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(2, 1, 1))
    model[2].weight.requires_grad_(False)
    model[0].bias.grad = torch.tensor([1.0, 2.0])
    before = state_of(model)
    layers = select_layers(model, ["leaf"])

    def observer(call, _gradient):
        if how != "success" and call.side == "grad_input":
            raise ValueError

    def step():
        with need_gradients(model), observe_gradients(model, layers, observer):
            model(photo(4)).sum().backward()

    if how == "success":
        step()
    else:
        with pytest.raises(ValueError):  # noqa: PT011
            step()
    assert same(before, state_of(model))


def backward(model, style, **words):
    """Settings of a backward pass from the sum of the outputs."""
    wanted = BackwardStyle(score="sum", **words)
    score = partial(score_output, style=wanted, aim=None, categories=())
    return BackwardSettings(
        EagerRunner(model, select_layers(model, ["conv"])), style, {"": Scorer(score)}, wanted
    )


def test_grids_of_the_activation_times_the_gradient():
    """The grids show the convolution's own output, which the next layer overwrites."""
    model = nn.Sequential(
        nn.Conv2d(1, 1, 1, bias=False),
        nn.LeakyReLU(0.5, inplace=True),
        nn.Flatten(),
        nn.Linear(4, 1, bias=False),
    )
    nn.init.constant_(model.get_parameter("0.weight"), 2.0)
    with torch.no_grad():
        model[3].weight.copy_(torch.tensor([[1.0, -1.0, 0.5, 1.0]]))
    settings = backward(model, GridStyle(mode="layers", signed=True), times_activation=True)
    pixels = torch.tensor([[[[1.0, 2.0], [4.0, -8.0]]]])
    (result,) = run_backward(settings, ["photo"], pixels)
    (picture,) = result.pictures
    # activations 2, 4, 8, -16 times 1, -1, 0.5, and half of 1
    assert picture.call.side == "grad_output"
    assert picture.content.figures[:2, 0].tolist() == [-8, 4]


def test_saliency_is_the_largest_magnitude_over_colours():
    model = nn.Sequential(nn.Conv2d(3, 1, 1), nn.Flatten())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([2.0, -5.0, 1.0]).view(1, 3, 1, 1))
    settings = backward(model, GridStyle(mode="none"), saliency=True)
    (result,) = run_backward(settings, ["photo"], photo(2))
    (heat,) = result.heats
    assert heat.values.tolist() == [[5.0, 5.0], [5.0, 5.0]]


def test_a_graph_that_outlives_the_block_gives_nothing_any_more():
    model = nn.Linear(2, 1)
    seen = []
    with observe_gradients(model, select_layers(model, ["all"]), lambda c, g: seen.append(c)):
        out = model(torch.ones(1, 2))
    out.backward()
    assert seen == []


def test_clamping_at_zero_behind_a_convolution():
    conv = nn.Conv2d(1, 1, 1, bias=False)
    nn.init.constant_(conv.weight, 2.0)
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]], requires_grad=True)
    slopes = torch.tensor([[[[1.0, -1.0], [-3.0, 5.0]]]])
    model = nn.Sequential(conv)
    with hookcli.capture(
        model, "conv", gradients=True, edits=["grad_output:conv:clamp=0:"]
    ) as captured:
        (model(x) * slopes).sum().backward()
    # of 1, -1, -3, 5 the negative ones are cut: 1 and 5 are left, 2 times each goes on
    assert x.grad.tolist() == [[[[2, 0], [0, 10]]]]
    assert conv.weight.grad.item() == 1 * 1 + 4 * 5
    grad_output = next(r for r in captured.records if r.call.side == "grad_output")
    assert (grad_output.stats.min, grad_output.stats.max) == (0, 5)


def test_records_show_gradients_after_the_edits_in_their_order():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    for weight in model.parameters():
        nn.init.constant_(weight, 1.0)
    edits = ["grad_input:1:scale=10", "grad_input:1:clamp=:4", "grad_output:0:scale=3"]
    with hookcli.capture(model, "leaf", gradients=True, edits=edits) as captured:
        model(torch.ones(1, 1)).backward()
    values = {r.call.id: r.stats.mean for r in captured.records}
    assert values["grad_output:1"] == 1
    assert values["grad_input:1"] == 4  # 1, times 10, clamped; the other order would give 10
    assert values["grad_output:0"] == 12
    assert values["param:0.weight"] == 12


def test_an_edit_in_front_of_a_module_that_works_in_place():
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(inplace=True))
    pixels = photo(4)
    with hookcli.capture(model, "leaf", edits=["input:1:scale=-1"], keep=True) as captured:
        out = model(pixels)
    plain = conv2d(pixels, model.get_parameter("0.weight"), model.get_parameter("0.bias"))
    assert torch.allclose(out, (-plain).relu())
    assert torch.allclose(captured.tensors["0"], plain)


def test_an_edit_that_changes_nothing_is_an_error_of_the_request():
    model = nn.Sequential(nn.Linear(1, 1))
    for edit in ("conv:zero", "param:*.scale:zero", "output:0{7}:zero"):
        with pytest.raises(RequestError), hookcli.capture(model, "leaf", edits=[edit]):
            model(torch.ones(1, 1))


def test_edits_leave_nothing_behind_when_a_backward_is_broken_off():
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(_context, tensor):
            return tensor.clone()

        @staticmethod
        def backward(_context, _gradient):
            raise KeyboardInterrupt

    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(2, 1, 1))
    before = state_of(model)
    edits = [
        "param:2.bias:zero",
        "grad_input:2:scale=2",
        "output:1{0}:zero",
        "grad_output:1:clamp=0:",
    ]

    def step():
        with hookcli.capture(model, "leaf", gradients=True, edits=edits):
            hidden = model[1](model[0](photo(4)))
            model[2](Breaks.apply(hidden)).sum().backward()

    with pytest.raises(KeyboardInterrupt):
        step()
    model.zero_grad()  # what the backward reached before it was broken off is the step's own
    assert same(before, state_of(model))
