"""``hookcli.sensitivity``: layers rounded one by one, against plain scripts of the rounding."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hookcli
from hookcli.distance.answer import Answer

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.narrow = nn.Conv2d(8, 8, 3, groups=8)
        self.fc = nn.Linear(8, 5)
        self.narrow.weight.data *= torch.logspace(-3, 1, 8)[:, None, None, None]
        self.norm.running_var = torch.linspace(0.1, 4, 8)

    def forward(self, x):
        return self.fc(self.narrow(self.norm(self.wide(x)).relu()).mean((2, 3)))


class Calls(Net):
    def forward(self, x):
        with open("calls", "a") as file:
            file.write(str(len(x)))
        return super().forward(x)


class Features(Net):
    def forward(self, x):
        return self.narrow(self.norm(self.wide(x)).relu())


class Big(Net):
    def forward(self, x):
        return super().forward(x * 1e5)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patch = nn.Conv2d(3, 8, 4, stride=4)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.used, self.unused = nn.Module(), nn.Linear(8, 8)
        self.used.inner = nn.Linear(8, 4)
        self.block = Borrows()

    def forward(self, x):
        x = self.patch(x).flatten(2).mT
        return self.block(self.attend(x, x, x)[0].mean(1))


class Borrows(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 4)

    def forward(self, x):
        return nn.functional.linear(x, self.inner.weight)


class Same(Net):
    def forward(self, x):
        return super().forward(x) * 0


class NotFinite(Net):
    def forward(self, x):
        return super().forward(x) / 0


class Plus(Net):
    def forward(self, x):
        y = self.wide(x)
        y = y + 10 * x.sum(1, keepdim=True)
        return self.fc(self.narrow(self.norm(y).relu()).mean((2, 3)))


class PlusInPlace(Net):
    def forward(self, x):
        y = self.wide(x)
        y += 10 * x.sum(1, keepdim=True)
        return self.fc(self.narrow(self.norm(y).relu()).mean((2, 3)))


class Skips(Net):
    def forward(self, x):
        y = self.wide(x)
        return self.fc(self.narrow((y + self.norm(y)).relu()).mean((2, 3)))


class SkipsACopy(Net):
    def forward(self, x):
        y = self.wide(x)
        return self.fc(self.narrow((y + self.norm(y * 1)).relu()).mean((2, 3)))


class Cuts(Net):
    def forward(self, x):
        y = self.wide(x)
        y[:, :4] = 0
        return self.fc(self.narrow(self.norm(y).relu()).mean((2, 3)))


class Masks(Net):
    def forward(self, x):
        y = self.wide(x) * torch.tensor([0.0] * 4 + [1] * 4).view(8, 1, 1)
        return self.fc(self.narrow(self.norm(y).relu()).mean((2, 3)))


class Returns(Net):
    def forward(self, x):
        y = self.wide(x)
        return self.norm(y), y


class ReturnsACopy(Net):
    def forward(self, x):
        y = self.wide(x)
        return self.norm(y * 1), y


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.norm = nn.Linear(12, 12), nn.BatchNorm1d(12)
        self.norm.running_var = torch.logspace(-2, 2, 12)

    def forward(self, x):
        return self.norm(self.wide(x[:, 0]))


class TokensCopied(Tokens):
    def forward(self, x):
        return self.norm(self.wide(x[:, 0]) * 1)


class Acts(Net):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)  # for the same weights as in Net
        self.wide = Rectified(3, 8, 3, padding=1)


class ActsApart(Net):
    def forward(self, x):
        y = self.wide(x).relu()
        return self.fc(self.narrow(self.norm(y).relu()).mean((2, 3)))


class Rectified(nn.Conv2d):
    def forward(self, x):
        return super().forward(x).relu_()


class Block(Net):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(self.wide, self.norm)
        del self.wide, self.norm

    def forward(self, x):
        return self.fc(self.narrow(self.block(x).relu()).mean((2, 3)))


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cell = Cell(12, 12)

    def forward(self, x):
        self.cell.state = x[:, 0, 0] * 0
        for i in range(3):
            y = self.cell(x[:, 0, i])
        return y


class Cell(nn.Linear):
    def forward(self, x):
        self.state = super().forward(x) + 0.9 * self.state
        return self.state


class Hands(Net):
    def forward(self, x):
        found = {"x": x}
        self.wide(found)
        return self.fc(self.narrow(self.norm(found["y"]).relu()).mean((2, 3)))

    def __init__(self):
        super().__init__()
        self.wide = Into(3, 8, 3, padding=1)


class Into(nn.Conv2d):
    def forward(self, found):
        found["y"] = super().forward(found["x"])
        return found["y"] * 1


class Fails(Net):
    def forward(self, x):
        return self.fc(self.wide(x).flatten(1))


class Busy(Net):
    def forward(self, x):
        [x := x + 0 for _ in range(50)]  # whose ids are soon used again
        return super().forward(x)


class NormTwice(Net):
    def forward(self, x):
        return super().forward(self.norm(self.wide(x))[:, :3])


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.back = Net()
        self.fc, self.back.fc = self.back.fc, nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(self.back.narrow(self.back.wide(x).relu()).mean((2, 3)))


class TwoPaths(Net):
    def __init__(self):
        super().__init__()
        self.other = self.narrow


class Hooked(Net):
    def __init__(self):
        super().__init__()
        self.wide.register_forward_hook(lambda _module, _inputs, output: output * 3)


class Random(Net):
    def forward(self, x):
        return super().forward(x + torch.rand(()))


class Kernels(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.grid = nn.Parameter(torch.randn(3, 12, 12))
        self.conv, self.head = Kernel(8, 3, 3, 3), Kernel(8, 5)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(5, 5))
        self.centred, self.adapted = Centred(5, 5), Adapted(5, 5)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 5)).eval()
        self.last = nn.Parameter(torch.randn(5, 4))
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x):
        state = self.cell(x.mean((2, 3)))
        x = self.conv(x + self.grid).mean((2, 3))
        x = self.centred(self.normed(self.head(x)))
        return self.spectral(self.adapted(x)) @ self.last + state


class Kernel(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.kernel, self.scale = nn.Parameter(torch.randn(shape)), nn.Parameter(torch.ones(8, 1))

    def forward(self, x):
        if x.dim() == 2:
            return torch.matmul(x * self.scale[:, 0], self.kernel)
        return nn.functional.conv2d(x, self.kernel.mT.contiguous())


class Adapted(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.a, self.b = nn.Parameter(torch.randn(5, 2)), nn.Parameter(torch.randn(2, 5))

    def forward(self, x):
        return nn.functional.linear(x, self.weight + self.a @ self.b, self.bias)


class Centred(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, self.weight - self.weight.mean(), self.bias)


WAYS = {
    "w @ x": lambda x, w: (w @ x.T).T,
    "x @ w.T": lambda x, w: x @ w.T,
    "linear": nn.functional.linear,
    "x @ w": lambda x, w: x @ w,
    "matmul": lambda x, w: torch.matmul(x, other=w),
    "addmm": lambda x, w: torch.addmm(x.new_zeros(6), x, w),
    "einsum": lambda x, w: torch.einsum("bi, io -> bo", x, w),
    "implicit": lambda x, w: torch.einsum("bi,io", x, w),
    "tensordot": lambda x, w: torch.tensordot(x, w, dims=1),
    "linear of a view": lambda x, w: nn.functional.linear(x, w.T),
    "transposed": lambda x, w: nn.functional.conv_transpose1d(x[:, :, None], w[..., None])[..., 0],
}


class Matrices(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        spread = torch.logspace(-2, 2, 6)
        self.linear = nn.Linear(3, 6)
        self.linear.weight.data *= spread[:, None]
        self.kernels = nn.ModuleList(
            Matrix(way, self.linear) for way in WAYS
        )

    def forward(self, x):
        x = x.mean((2, 3))
        return torch.cat([self.linear(x), *(kernel(x) for kernel in self.kernels)], 1)


class Matrix(nn.Module):
    def __init__(self, way, linear):
        super().__init__()
        weight = linear.weight.data
        weight = weight if way in ("w @ x", "x @ w.T", "linear") else weight.mT
        self.kernel = nn.Parameter(weight.clone(memory_format=torch.contiguous_format))
        self.bias, self.way = nn.Parameter(linear.bias.data.clone()), way

    def forward(self, x):
        return WAYS[self.way](x, self.kernel) + self.bias


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.TransformerEncoderLayer(12, 2, 8, batch_first=True)  # has a fast path
        self.bias, self.scale = nn.Parameter(torch.randn(36, 12)), nn.Linear(12, 12)

    def forward(self, x):
        return self.encoder(x.flatten(1, 2) + self.bias).mean(1)


class Biased(Borrows):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.table = nn.Linear(8, 4), nn.Parameter(torch.full((1, 8), 1 / 3))

    def forward(self, x):
        return super().forward(x.repeat(1, 3, 1, 1)[:, :8].mean((2, 3)) + self.table)


class Alone(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.kernel = nn.Parameter(torch.randn(5, 3))

    def forward(self, x):
        return x.mean((2, 3)) @ self.kernel.T


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        sizes = [3, 9, 9, 9, 9, 9, 9, 9, 5]
        self.layers = nn.ModuleList(map(nn.Linear, sizes, sizes[1:]))
        for layer, spread in zip(self.layers, [0.1, 2, 0.1, 1.5, 0.2, 1, 0.1, 2.5]):
            layer.weight.data *= torch.logspace(0, spread, layer.in_features)

    def forward(self, x):
        with open("calls", "a") as file:
            file.write(str(len(x)))
        x = x.mean((2, 3))
        for layer in self.layers:
            x = layer(x).sin()
        return x


class Grows(Net):
    def forward(self, x):
        scores = super().forward(x)
        return scores.new_zeros(3, 3, int(scores.abs().sum() * 1e6) % 997)


class Again(Net):
    def forward(self, x):
        y = self.wide(x)
        many = 2 if len(y.detach().unique()) < 256 else 1  # a second call if it is rounded
        for _ in range(many):
            y = self.narrow(y)
        return self.fc(y.mean((2, 3)))


class Picks(Net):
    def __init__(self):
        super().__init__()
        self.wide = Some(3, 8, 3)


class Some(nn.Conv2d):
    def forward(self, x):
        y = super().forward(x)
        return y[:, :, : 3 + int(y.abs().sum() * 1e4) % 7]


class Drops(Net):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, training=self.training))


class OneAtATime(Net):
    def forward(self, x):
        return super().forward(x)[:1]
"""
WORDS = {"device": "cpu", "dtype": "float32"}
pytestmark = pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
FILES = tuple(f"{i}.npy" for i in range(5))


@pytest.fixture(autouse=True)
def nets():
    Path("nets.py").write_text(NET)
    random = np.random.default_rng(0)
    for file in FILES:
        np.save(file, random.normal(size=(3, 12, 12)).astype(np.float32))
    return runpy.run_path("nets.py")


def sensitivity(net="Net", *, files=FILES, to="int8", **words):
    return hookcli.sensitivity(f"nets.py:{net}", [*files], to=to, **{**WORDS, **words})


def names(found):
    return {row.layer for row in found.rows}


def fake(values, largest):
    return torch.fake_quantize_per_tensor_affine(values, largest / 127, 0, -127, 127)


def plain_losses(net, names):
    """Round the named layers with BatchNorms merged for real; return agreement, KL and rel L2."""
    pixels = torch.from_numpy(np.stack([np.load(file) for file in FILES]))
    merged = copy.deepcopy(net).eval()
    if hasattr(net, "norm"):
        merged.wide = nn.utils.fusion.fuse_conv_bn_eval(merged.wide, merged.norm)
        merged.norm = nn.Identity()
    largest, handles = {}, []
    for name, module in merged.named_modules():
        if not hasattr(module, "weight"):
            continue
        keep = lambda _m, _i, out, name=name: largest.update({name: float(out.abs().max())})  # noqa: E731
        handles.append(module.register_forward_hook(keep))
    with torch.no_grad():
        exact = merged(pixels)
    for handle in handles:
        handle.remove()
    for name in names:
        module = merged.get_submodule(name)
        scale = module.weight.detach().abs().flatten(1).amax(1) / 127
        zero = torch.zeros(len(scale), dtype=torch.int32)
        module.weight.data = torch.fake_quantize_per_channel_affine(
            module.weight.data, scale, zero, 0, -127, 127
        )
        module.register_forward_hook(lambda _m, _i, out, name=name: fake(out, largest[name]))
    with torch.no_grad():
        rounded = merged(pixels)
    one, two = exact.double().log_softmax(1), rounded.double().log_softmax(1)
    return (
        float((exact.argmax(1) == rounded.argmax(1)).double().mean()),
        float((one.exp() * (one - two)).sum(1).mean()),
        float(((rounded - exact).norm(dim=1) / exact.norm(dim=1)).mean()),
    )


def test_each_layer_alone_costs_what_a_plain_script_measures(nets):
    found = sensitivity(keep=40)
    net = nets["Net"]()
    expected = {name: plain_losses(net, [name]) for name in ("wide", "narrow", "fc")}
    rows = {row.layer: (row.agreement, row.divergence, row.rel_l2) for row in found.rows}
    assert rows == {
        name: pytest.approx(loss, rel=2e-3, abs=1e-6) for name, loss in expected.items()
    }
    order = sorted(expected, key=lambda name: -expected[name][1])
    assert [row.layer for row in found.rows] == order
    assert [row.rank for row in found.rows] == [1, 2, 3]
    document = found.document()
    loss = document.rounded
    everything = plain_losses(net, order)
    assert (loss.agreement, loss.divergence, loss.rel_l2) == pytest.approx(everything, rel=2e-3)
    assert document.keep.modules == (*order[:2],)
    kept = document.keep.loss
    assert (kept.agreement, kept.divergence, kept.rel_l2) == pytest.approx(
        plain_losses(net, order[2:]), rel=2e-3
    )


def test_the_error_of_each_channel_stands_beside_that_of_the_layer(nets):
    net, pixels = nets["Net"]().eval(), torch.from_numpy(np.stack([*map(np.load, FILES)]))
    (row,) = sensitivity(layers="narrow", per_tensor=True, round="weights").rows
    taken = net.norm(net.wide(pixels)).relu().detach()
    exact, weight = net.narrow(taken), net.narrow.weight.detach()
    net.narrow.weight.data = fake(weight, float(weight.abs().max()))
    exact, apart = exact.detach(), (net.narrow(taken) - exact).detach()
    channels = (apart.square().sum((0, 2, 3)) / exact.square().sum((0, 2, 3))).sqrt()
    assert row.channels == pytest.approx(channels.tolist(), rel=1e-3)
    assert row.own_rel_l2 == pytest.approx(float(apart.norm() / exact.norm()), rel=1e-3)
    assert row.worst_channel == int(channels.argmax()) < 4  # the small weights
    assert row.channel_worst == pytest.approx(float(channels.max()), rel=1e-3)
    error = (net.narrow.weight.detach() - weight).norm() / weight.norm()
    assert row.weight_rel_l2 == pytest.approx(float(error), rel=1e-3)


def test_n_layers_take_n_and_two_passes_after_a_trial(nets):
    found = sensitivity("Calls", batch_size=2)
    assert Path("calls").read_text().endswith("1" + "221" * (len(found.rows) + 2))
    notes = [note.text for note in found.notes if note.level == "plan"]
    assert notes == ["nets.py:Calls: 3 layers, 5 images, 5 passes"]


@pytest.mark.parametrize("size", [1, 2, 16])
def test_the_size_of_a_batch_changes_nothing(size):
    rows, others = sensitivity(batch_size=size).rows, sensitivity(batch_size=5).rows
    assert [row.layer for row in rows] == [row.layer for row in others]
    for row, other in zip(rows, others, strict=True):
        assert row.divergence == pytest.approx(other.divergence, rel=1e-3)
        assert row.own_rel_l2 == pytest.approx(other.own_rel_l2, rel=1e-3)
        assert row.channels == pytest.approx(other.channels, rel=1e-3)


def test_a_model_that_takes_one_image_at_a_time_is_given_one():
    assert len(sensitivity("OneAtATime").result.images) == 5


@pytest.mark.parametrize("most", [100, 5 * 3 * 12 * 12 * 4])
def test_images_and_outputs_that_fill_the_memory_are_refused(run, monkeypatch, most):
    monkeypatch.setattr("hookcli.comparison.rounded_passes._MOST_BYTES", most)
    ended = run("sensitivity", "nets.py:Features", *FILES, "--device", "cpu", "--to", "int8")
    assert ended.code == 2
    assert "so many images, or their outputs, take more than" in ended.err


def test_the_model_is_as_it_was_afterwards(nets):
    net = nets["Net"]().eval()
    before = copy.deepcopy(net.state_dict())
    pixels = torch.from_numpy(np.load("0.npy"))[None]
    exact = net(pixels)
    hookcli.sensitivity(net, pixels, to="int8", keep="40%")
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(net(pixels), exact)
    assert not net.fc._forward_hooks


def test_the_shortest_list_that_was_tried_reaches_the_goal(run):
    words = ("sensitivity", "nets.py:Net", *FILES, "--to", "int8", "--device", "cpu")
    rows = sensitivity().rows
    whole = sensitivity().document().rounded.rel_l2
    easy, hard = f"rel-l2<={whole * 1.01}", f"rel-l2<={min(row.rel_l2 for row in rows) * 1.01}"
    ended = run(*words, "--reach", easy, "--format", "table")
    assert ended.code == 0
    assert "all rounded: " in ended.out
    assert "which reaches rel-l2<=" in ended.out
    kept = sensitivity(reach=hard).document().keep
    assert (len(kept.modules), kept.reached) == (2, True)
    ended = run(*words, "--reach", "rel-l2<=1e-9")
    assert ended.code == 7
    assert "no list that was tried reaches rel-l2<=1e-9; the best, 2 layers left" in ended.out
    assert "at most 10 passes" in ended.err


@pytest.mark.parametrize(("most", "trials"), [(0.3, 9), (0.65, 7)])
def test_a_list_needs_each_of_its_layers_to_reach_the_goal(nets, most, trials):
    kept = sensitivity("Deep", reach=f"rel-l2<={most}", batch_size=5).document().keep
    assert Path("calls").read_text().count("5") == 8 + 2 + trials
    paths = [f"layers.{i}" for i in range(8)]

    def loss(alone):
        return plain_losses(nets["Deep"](), [path for path in paths if path not in alone])[2]

    assert kept.loss.rel_l2 == pytest.approx(loss(kept.modules), rel=1e-3)
    assert kept.loss.rel_l2 <= most
    assert 1 < len(kept.modules) < 7
    assert all(loss([*{*kept.modules} - {path}]) > most for path in kept.modules)


def test_an_overflow_of_float16_comes_first():
    found = sensitivity("Big", to="float16", round="outputs")
    first = found.rows[0]
    assert (first.rank, first.is_finite, first.rel_l2, first.divergence) == (1, False, None, None)
    assert "the output is not finite" in str(found)


def test_a_list_whose_output_is_not_finite_reaches_no_goal(monkeypatch):
    masks = lambda *_: Answer("masks", 1.0)  # noqa: E731
    monkeypatch.setattr("hookcli.comparison.rounded_passes.compare_answers", masks)
    kept = sensitivity("Big", to="float16", reach="agreement>=0.99").result.kept
    assert kept.loss.is_finite
    assert kept.modules


def test_features_are_ranked_by_their_distance():
    found = sensitivity("Features")
    assert {row.divergence for row in found.rows} == {None}
    losses = [row.rel_l2 for row in found.rows]
    assert losses == sorted(losses, reverse=True)
    assert all(loss > 0 for loss in losses)


def test_layers_that_use_a_weight_are_chosen_by_themselves():
    found = sensitivity("Attends", to="bfloat16")
    assert {row.layer for row in found.rows} == {"patch", "attend", "block"}
    assert {each.layer.label for each in found.result.uncalled} == {"unused", "used.inner"}


def test_any_weight_that_is_multiplied_makes_a_layer(run):
    found = sensitivity("Kernels")
    assert names(found) == {"conv", "head", "cell"}
    left = {each.layer.label: each.reason for each in found.result.uncalled}
    assert {*left} == {"normed", "centred", "adapted", "spectral", "(model)"}
    assert left["normed"] == left["centred"] == left["adapted"] == left["spectral"]
    assert left["normed"].startswith("its weights are computed from others")
    assert left["(model)"].startswith("it uses a weight itself")
    assert names(sensitivity("Alone")) == {"(model)"}


def test_layers_inside_a_fast_path_run_by_themselves():
    assert names(sensitivity("Encoder")) == {
        "encoder.self_attn",
        "encoder.linear1",
        "encoder.linear2",
    }


def test_a_table_that_is_added_inside_a_layer_is_no_weight(nets):
    net = nets["Biased"]()
    weight = net.inner.weight.detach()
    scale = weight.abs().amax(1) / 127
    faked = torch.fake_quantize_per_channel_affine(
        weight, scale, torch.zeros(4).int(), 0, -127, 127
    )
    (row,) = sensitivity("Biased", round="weights").rows
    assert row.layer == "(model)"
    assert row.weight_rel_l2 == pytest.approx(
        float((faked - weight).norm() / weight.norm()), rel=1e-3
    )


def test_a_weight_has_a_scale_for_each_output_channel_however_it_is_multiplied():
    found = sensitivity("Matrices", round="weights").rows
    assert len(found) == 12
    first = found[0]
    for row in found:
        assert row.weight_rel_l2 == pytest.approx(first.weight_rel_l2, rel=1e-4)
        assert row.own_rel_l2 == pytest.approx(first.own_rel_l2, rel=1e-4)


def test_a_call_that_only_the_rounded_model_makes_has_the_range_of_the_others(nets):
    pixels = torch.from_numpy(np.load("0.npy"))[None]
    net = nets["Again"]().eval().requires_grad_(requires_grad=False)
    wide, exact = net.wide(pixels), net(pixels)
    narrow = net.narrow(wide)
    y, top = fake(wide, float(wide.abs().max())), float(narrow.abs().max())
    y = fake(net.narrow(fake(net.narrow(y), top)), top)
    rounded = fake(net.fc(y.mean((2, 3))), float(exact.abs().max()))
    words = {"layers": ("wide", "narrow", "fc"), "round": "outputs", "files": ["0.npy"]}
    loss = sensitivity("Again", **words).result.rounded
    assert loss.rel_l2 == pytest.approx(float((rounded - exact).norm() / exact.norm()), rel=1e-3)


def test_the_error_inside_a_layer_is_not_known_if_its_outputs_change_their_shape():
    rows = {row.layer: row.own_rel_l2 for row in sensitivity("Picks", batch_size=1).rows}
    assert rows["wide"] is None
    assert rows["fc"] > 0


def test_kept_layers_run_in_float32_under_autocast(nets):
    document = sensitivity("Net", keep=40).document()
    model = nets["Net"]().eval()
    exec(document.keep.autocast.replace("cuda", "cpu"), {"model": model})  # noqa: S102
    types = {}
    for name, module in model.named_children():
        module.register_forward_hook(lambda _m, _i, out, name=name: types.update({name: out.dtype}))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        model(torch.zeros(1, 3, 12, 12))
    convs = {name: types[name] for name in ("wide", "narrow", "fc")}
    kept = {*document.keep.modules}
    assert convs == {name: torch.float32 if name in kept else torch.bfloat16 for name in convs}


NO_NODE = "no node of net.onnx says that it computes"
NAMELESS = "nodes of net.onnx have no names, so they are not listed:"
UNREADABLE = "layer_precisions lacks names that trtexec cannot read: b,c, it's"


@pytest.mark.parametrize(
    ("nodes", "names", "precisions", "told"),
    [
        ({"narrow": ["a", "b"], "fc": ["b", "c:d"]}, ("a", "b", "c:d"), "a b c:d", []),
        ({"narrow": ["a", ""], "fc": ["c"]}, ("a", "c"), "a c", [f"{NAMELESS} narrow"]),
        ({"narrow": [""], "fc": [""]}, (), "", [f"{NAMELESS} narrow, fc"]),
        ({"narrow": ["a"]}, ("a",), "a", [f"{NO_NODE} fc"]),
        ({}, (), "", [f"{NO_NODE} narrow, fc; is it an export of this model itself?"]),
        ({"narrow": ["a"], "fc": ["b,c", "it's"]}, ("a", "b,c", "it's"), "a", [UNREADABLE]),
    ],
)
def test_a_node_that_a_list_lacks_is_told(monkeypatch, nodes, names, precisions, told):
    monkeypatch.setattr(
        "hookcli.comparison.sensitivity.open_nodes", lambda _file: lambda path: nodes.get(path, ())
    )
    found = sensitivity(keep="60%", nodes_of="net.onnx")
    kept = found.document().keep
    assert kept.modules == ("narrow", "fc")
    assert kept.nodes_to_exclude == kept.node_block_list == names
    assert kept.layer_precisions == ",".join(f"{name}:fp32" for name in precisions.split())
    notes = [note.text for note in found.notes if note.level == "warning"]
    assert [text for text in notes if "node" in text or "layer_precisions" in text] == told


def test_a_file_may_name_a_layer_by_another_of_its_paths(monkeypatch):
    nodes = {"narrow": ["a"], "other": ["b", "a"], "fc": ["c"]}
    monkeypatch.setattr("hookcli.comparison.sensitivity.open_nodes", lambda _file: nodes.get)
    kept = sensitivity("TwoPaths", keep="60%", nodes_of="net.onnx").document().keep
    assert (kept.modules, kept.nodes_to_exclude) == (("narrow", "fc"), ("a", "b", "c"))


MERGED = [
    ("PlusInPlace", "Plus"),
    ("Skips", "SkipsACopy"),
    ("Busy", "Net"),
    ("Cuts", "Masks"),
    ("Returns", "ReturnsACopy"),
    ("Tokens", "TokensCopied"),
]


@pytest.mark.parametrize(("net", "twin"), MERGED)
def test_a_batchnorm_is_merged_only_if_nothing_comes_between(net, twin):
    rows, others = (
        {row.layer: (row.rel_l2, row.own_rel_l2) for row in sensitivity(each, per_tensor=True).rows}
        for each in (net, twin)
    )
    assert rows == {layer: pytest.approx(losses, rel=1e-3) for layer, losses in others.items()}


def test_a_layer_that_does_more_than_to_convolve_is_not_merged():
    one, two = (
        sensitivity(each, round="weights", per_tensor=True) for each in ("Acts", "ActsApart")
    )
    losses = [
        {row.layer: (row.rel_l2, row.weight_rel_l2) for row in each.rows} for each in (one, two)
    ]
    assert losses[0] == {layer: pytest.approx(loss, rel=1e-3) for layer, loss in losses[1].items()}


def test_a_block_is_rounded_like_the_layer_inside_it():
    words = {"per_tensor": True, "round": "weights"}
    (block,) = sensitivity("Block", layers="block", **words).rows
    (layer,) = sensitivity("Block", layers="block.0", **words).rows
    assert block.rel_l2 == pytest.approx(layer.rel_l2, rel=1e-3)


@pytest.mark.parametrize("net", ["Remembers", "Hands"])
def test_a_layer_with_state_or_another_way_out_costs_the_same_alone_as_with_all(net):
    layer = {"Remembers": "cell", "Hands": "wide"}[net]
    found = sensitivity(net, layers=layer)
    (row,) = found.rows
    assert row.rel_l2 == pytest.approx(found.result.rounded.rel_l2, rel=1e-3)
    assert 1e-4 < row.rel_l2 < 0.05


def test_a_batchnorm_that_runs_twice_is_not_merged():
    assert {row.layer for row in sensitivity("NormTwice").rows} == {"wide", "narrow", "fc"}


def test_a_layer_with_hooks_of_its_own_is_left_out_and_named():
    found = sensitivity("Hooked")
    assert {row.layer for row in found.rows} == {"narrow", "fc"}
    (left,) = found.result.uncalled
    assert (left.layer.label, left.reason.partition(",")[0]) == (
        "wide",
        "it has forward hooks of its own",
    )


def test_a_weight_that_nothing_reads_does_not_make_its_block_a_layer():
    found = sensitivity("Idle")
    assert {row.layer for row in found.rows} == {"back.wide", "back.narrow", "fc"}
    assert [each.layer.label for each in found.result.uncalled] == ["back.fc"]


def test_a_percentile_clips_the_outputs():
    whole = {row.layer: row.own_rel_l2 for row in sensitivity(round="outputs").rows}
    clipped = sensitivity(round="outputs", percentile=50).rows
    assert all(row.own_rel_l2 > 5 * whole[row.layer] for row in clipped)


@pytest.mark.parametrize(
    ("net", "words", "code", "message"),
    [
        ("Net", "--to int8 --keep 10% --reach rel-l2<=1", 2, "are two ways to find a list"),
        ("Net", "--to float16 --per-tensor", 2, "--per-tensor is for formats with a scale"),
        ("Net", "--to bfloat16 --percentile 99", 2, "--percentile is for formats with a scale"),
        ("Net", "--to int8 --percentile 99 --round weights", 2, "only weights are rounded"),
        ("Net", "--to int8 --per-tensor --round outputs", 2, "--per-tensor is for weights"),
        ("Net", "--to bfloat16 --dtype bfloat16", 2, "the model runs in bfloat16 already"),
        ("Net", "--to int4", 2, "int4"),
        ("Net", "--to int8 --keep 0%", 2, "--keep cannot read '0%'"),
        ("Net", "--to int8 --reach agreement>1", 2, "--reach cannot read 'agreement>1'"),
        ("Net", "--to int8 --reach agreement>=1.5", 2, "--reach cannot read"),
        ("Net", "--to int8 --round weights --layers norm", 2, "there is nothing to round"),
        ("Net", "--to int8 --layers all", 2, "is inside the model: a layer would be rounded twice"),
        ("Net", "--to int8 --layers fc --keep 50%", 2, "fc is the only layer to round"),
        ("Net", "--to int8 --keep 50% --nodes-of nets.py", 2, "--nodes-of takes an ONNX file"),
        ("Net", "--to int8 --nodes-of a.onnx", 2, "--nodes-of"),
        ("Features", "--to int8 --reach agreement>=0.9", 2, "the model's answers are no classes"),
        ("Same", "--to int8", 2, "changes no output: there is nothing to rank"),
        ("Random", "--to int8", 2, "the model returns something else each time"),
        ("Drops", "--to int8 --mode train", 2, "the model returns something else each time"),
        ("Grows", "--to int8", 2, "the outputs have other shapes when a layer is rounded"),
        ("Fails", "--to int8", 4, "the model failed in fc (Linear)"),
        ("NotFinite", "--to int8", 4, "is not finite before anything is rounded"),
    ],
)
def test_what_cannot_be_measured_is_refused(run, net, words, code, message):
    ended = run("sensitivity", f"nets.py:{net}", "0.npy", "--device", "cpu", *words.split())
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err
    assert "Traceback" not in ended.err
