"""``hookcli compare``: two ways to run a model, against values by hand and plain hooks."""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torchvision.models import resnet18

import hookcli
from hookcli.comparison import live, seen_calls
from hookcli.comparison.side import to_array
from hookcli.config import CompareConfig, ImageRequest, ModelRequest, RunRequest, VariantRequest
from hookcli.distance.metrics import measure_arrays
from hookcli.distance.tolerance import RTOL, Tolerance
from hookcli.plan.prepare import prepare_comparison
from hookcli.records.images import SkippedImage
from tests.extras.plain_hooks import clone_leaves
from tests.toy_models import Between, draw, two_channel_net

CPU = ("--device", "cpu")
PLAIN = (*CPU, "--layers", "all")
SMALL = ("--weights", "random", "--size", "64", "--device", "cpu")

# With the pixels 3, -4 and 0 in 4 places, conv gives 3 and -4, relu 3 and 0, and fc 6 and 0.
NETS = (
    two_channel_net(1, "mean")
    + """

class Deeper(Net):
    '''Another module between those of Net, and one fewer.'''

    def __init__(self):
        super().__init__()
        self.relu = None
        self.new = nn.ReLU()

    def forward(self, x):
        return self.fc(self.new(self.conv(x)).mean((2, 3)))


class Dropped(Net):
    '''Net, and two modules that change nothing.'''

    def __init__(self):
        super().__init__()
        self.drop, self.same = nn.Dropout(), nn.Identity()

    def forward(self, x):
        return self.fc(self.same(self.drop(self.relu(self.conv(x)).mean((2, 3)))))


class Casting(Net):
    '''Returns float32 whatever autocast does.'''

    def __init__(self):
        super().__init__()
        self.fc = Exact(2, 2, False)


class Exact(nn.Linear):
    def forward(self, x):
        return super().forward(x).float()


class Idle(Net):
    def __init__(self):
        super().__init__()
        self.idle = nn.Conv2d(3, 5, 1)


class Noisy(Net):
    '''Writes over its pixels.'''

    def forward(self, x):
        return super().forward(x.add_(torch.rand_like(x)))


class Picky(Net):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError("float32 alone")
        return super().forward(x)


the_same = Net()
"""
)


@pytest.fixture
def nets():
    Path("nets.py").write_text(NETS)
    draw("a.npy", 3, -4)
    draw("b.npy", 3, -8)


def save_heavier(file="heavy.pt"):
    """Net's weights, with the first channel of conv 1.5 times what it was."""
    save = {
        "conv.weight": torch.tensor([[1.5, 0, 0], [0, 1, 0]]).view(2, 3, 1, 1),
        "fc.weight": torch.tensor([[2.0, 0], [0, 3]]),
    }
    torch.save(save, file)


@pytest.fixture
def compare(run, nets):
    def command(net, *words, images=("a.npy",), code=0):
        plain = CPU if "--layers" in words else PLAIN
        ended = run("compare", f"nets.py:{net}", *images, *plain, "--format", "json", *words)
        assert ended.code == code, ended.err
        return json.loads(ended.out)

    return command


def by_call(document, *names):
    rows = sorted(document["layers"], key=lambda row: row["order"])
    return [(row["call_id"], *(row[name] for name in names)) for row in rows]


def changed(document):
    return [(each["name"], each["a"], each["b"]) for each in document["changed"]]


def test_other_weights_are_measured_layer_by_layer(compare):
    """conv gives 4.5 for 3, beside -4; relu cuts the -4 off; fc gives 9 for 6."""
    save_heavier()
    document = compare("Net", "--against", "weights=heavy.pt", code=7)
    assert by_call(document, "max_abs", "mean_abs", "holds") == [
        ("conv", 1.5, 0.75, False),
        ("relu", 1.5, 0.75, False),
        ("fc", 3.0, 1.5, False),
        ("(model)", 3.0, 1.5, False),
    ]
    assert [row[1] for row in by_call(document, "rel_l2")] == pytest.approx([0.3, 0.5, 0.5, 0.5])
    cosine = (3 * 4.5 + 16) / (5 * (4.5**2 + 16) ** 0.5)
    assert [row[1] for row in by_call(document, "cosine")] == pytest.approx([cosine, 1, 1, 1])
    assert (document["first"], document["equal"]) == ("conv", False)
    assert [(name, b) for name, _, b in changed(document)][:1] == [("model weights", "heavy.pt")]


def test_another_dtype_rounds_what_it_cannot_hold(compare):
    """1 + 2**-9 is 1 in bfloat16; conv then gives 3 - 2**-7 less than it should."""
    weight = torch.tensor([[1 + 2**-9, 0, 0], [0, 0, 0]]).view(2, 3, 1, 1)
    torch.save({"conv.weight": weight, "fc.weight": torch.eye(2)}, "fine.pt")
    words = ("--weights", "fine.pt", "--against", "dtype=bfloat16")
    document = compare("Net", *words)
    figures = by_call(document, "rel_l2", "max_abs", "dtype", "other_dtype", "tolerance")
    assert figures[0][1:] == (pytest.approx(1 / 513), 3 / 512, "float32", "bfloat16", 0.05)
    assert changed(document) == [("model dtype", "float32", "bfloat16")]
    assert compare("Net", *words, "--rtol", "1e-5", code=7)["first"] == "conv"


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_tensors_that_numpy_cannot_hold_or_that_are_views_become_arrays():
    plain = torch.tensor([3.0, -4.0])
    for kind in (torch.float8_e4m3fn, torch.bfloat16, torch.complex32):
        assert to_array(plain.to(kind)).tolist() == [3, -4]
    turned = torch.complex(plain, plain).conj()  # without the marks, views are 3 + 3i and 3
    assert to_array(turned).tolist() == [3 - 3j, -4 + 4j]
    assert to_array(turned.imag).tolist() == [-3, 4]


@pytest.mark.parametrize(
    ("words", "metric", "expected", "change"),
    [
        ("edit=relu:scale=3", "rel_l2", [0, 2, 2, 2], ("--edit", None, "relu:scale=3")),
        # half of conv's channels, the one with the smaller norm: both are alike, so the first goes
        ("prune=fc=0.5:ln", "rel_l2", [0, 0, 1, 1], ("--prune", None, "fc=0.5:ln")),
        # -8 instead of -4: conv differs by 4 in every second value, and nothing after relu
        ("image=b.npy", "max_abs", [4, 0, 0, 0], ("image", "a.npy", "b.npy")),
    ],
)
def test_what_b_changes_is_measured_layer_by_layer(compare, words, metric, expected, change):
    document = compare("Net", "--against", words, code=7)
    names = ("conv", "relu", "fc", "(model)")
    assert by_call(document, metric) == [*zip(names, expected, strict=True)]
    assert document["first"] == next(n for n, far in zip(names, expected, strict=True) if far)
    assert change in changed(document)
    assert document["images"] == ["a"]


def test_calls_of_only_one_model_are_listed_where_they_complete(compare):
    document = compare("Net", "--against", "model=nets.py:Deeper", code=7)
    assert by_call(document, "reason") == [
        ("conv", ""),
        ("new", "only in B"),
        ("relu", "only in A"),
        ("fc", ""),
        ("(model)", ""),
    ]
    assert document["first"] == "new"
    assert changed(document)[0] == ("model name", "nets.py:Net", "nets.py:Deeper")


@pytest.mark.parametrize(
    ("a", "b", "words"), [("Net", "Dropped", ("--blame",)), ("Dropped", "Net", ())]
)
def test_a_layer_that_changes_nothing_may_be_in_one_model_alone(compare, a, b, words):
    document = compare(a, "--against", f"model=nets.py:{b}", *words)
    assert [row["call_id"] for row in document["layers"]] == ["conv", "relu", "fc", "(model)"]
    where = "A" if a == "Dropped" else "B"
    reason = f"only in {where}, and changes nothing in evaluation mode"
    assert document["left_out"] == [
        {"call_id": name, "kind": "idle", "reason": reason} for name in ("drop", "same")
    ]


def test_another_seed_makes_other_random_weights(run, cat):
    words = (*SMALL, "--layers", "conv1", "--against", "seed=1", "--format", "json")
    ended = run("compare", "resnet18", cat, *words)
    document = json.loads(ended.out)
    assert (ended.code, document["first"]) == (7, "conv1")
    assert changed(document) == [("model weights", "random (seed 0)", "random (seed 1)")]
    assert ended.err.count("warning: the weights are RANDOM, as asked for\n") == 1


def test_threads_are_counted_on_the_other_side_alone(compare, monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    document = compare("Net", "--against", "threads=3")
    assert seen == [5, 5, 3, 5]  # A, and what was before; B, and what was before
    assert changed(document) == [("threads", 5, 3)]


def test_only_the_other_side_has_pixels_and_weights_channels_last(run, cat, monkeypatch):
    seen = []

    def look(self, x):
        seen.append([t.is_contiguous(memory_format=torch.channels_last) for t in (x, self.weight)])
        return torch.nn.functional.conv2d(x, self.weight, None, self.stride, self.padding)

    look.__module__ = torch.nn.Conv2d.__module__  # what torch does itself needs no pass before
    monkeypatch.setattr(torch.nn.Conv2d, "forward", look)
    words = ("--layers", "conv1", "--against", "channels-last", "--format", "json")
    ended = run("compare", "resnet18", cat, *SMALL, *words)
    assert ended.code == 0
    assert changed(json.loads(ended.out)) == [("memory format", "contiguous", "channels last")]
    assert seen[0] == [False, False]
    assert seen[len(seen) // 2] == [True, True]


def test_several_things_can_differ_at_once(compare):
    save_heavier()
    others = ("weights=heavy.pt", "edit=conv:zero", "image=b.npy")
    words = [word for other in others for word in ("--against", other)]
    document = compare("Net", *words, "--at", "both", code=7)
    assert by_call(document, "max_abs")[:3] == [
        ("input:(model)", 4.0),
        ("input:conv", 4.0),
        ("conv", 4.0),
    ]
    assert {name for name, _, _ in changed(document)} >= {"model weights", "--edit", "image"}
    assert document["b"] == "nets.py:Net with weights=heavy.pt, edit=conv:zero, image=b.npy"
    assert document["command"][-6:] == words


def test_random_numbers_are_the_same_on_both_sides_unless_the_seed_is_another(compare):
    assert compare("Noisy", "--against", "threads=1")["equal"]
    assert compare("Noisy", "--against", "seed=5", code=7)["first"] == "conv"


def test_a_seed_that_makes_no_weights_is_said_to_be_another(compare):
    save_heavier()
    document = compare("Net", "--weights", "heavy.pt", "--against", "seed=1")
    assert changed(document) == [("seed", 0, 1)]


def test_every_figure_of_a_real_model_is_that_of_clones_taken_by_plain_hooks(run):
    rng = np.random.default_rng(3)
    np.save("x.npy", rng.normal(size=(3, 64, 64)).astype(np.float32))
    torch.manual_seed(0)
    model = resnet18(weights=None)
    torch.save(model.state_dict(), "a.pt")
    model.layer2[0].conv2.weight.data[5] += 0.01
    torch.save(model.state_dict(), "b.pt")
    words = ("--weights", "a.pt", "--against", "weights=b.pt", "--layers", "leaf")
    ended = run("compare", "resnet18", "x.npy", *CPU, *words, "--format", "json")
    layers = sorted(json.loads(ended.out)["layers"], key=lambda row: row["order"])
    rows = {row["call_id"]: row for row in layers}
    pixels = torch.from_numpy(np.load("x.npy"))[None]
    kept = []
    for file in ("a.pt", "b.pt"):
        other = resnet18(weights=None)
        other.load_state_dict(torch.load(file))
        kept.append(clone_leaves(other.eval(), pixels)[0])
    assert [*rows] == [*kept[0]]
    assert ended.code == 7
    assert json.loads(ended.out)["first"] == "layer2.0.conv2"
    for call, one in kept[0].items():
        two, row = kept[1][call], rows[call]
        gap = two.double() - one.double()
        assert (gap.norm() / one.double().norm()).item() == pytest.approx(row["rel_l2"], 1e-9), call
        assert gap.abs().max().item() == row["max_abs"], call
        assert gap.abs().mean().item() == pytest.approx(row["mean_abs"], 1e-9), call
        assert torch.equal(one, two) == (row["rel_l2"] == 0), call


@pytest.mark.parametrize("number", [1, 9])
def test_a_skipped_image_ends_with_6_and_a_difference_with_7(run, nets, number):
    """hookcli looks at the first images before it runs the models."""
    Path("bad.png").write_text("no picture")
    for index in range(number):
        draw(f"{index}.npy", 1, index)
    images = (*(f"{index}.npy" for index in range(number)), "bad.png")
    words = ("compare", "nets.py:Net", *images, *PLAIN, "--format", "json")
    ended = run(*words, "--against", "threads=1")
    assert ended.code == 6
    assert ended.err.count("warning: skipped 'bad.png': is not a readable image\n") == 1
    document = json.loads(ended.out)
    assert document["skipped"] == [{"file": "bad.png", "reason": "is not a readable image"}]
    assert run(*words, "--against", "edit=fc:zero").code == 7


def stand_in(*keys, skipped=(), images=("folder",)):
    """What is looked at of a side before anything runs."""
    sources = [SimpleNamespace(key=key) for key in keys]
    request = SimpleNamespace(run=SimpleNamespace(images=images))
    return SimpleNamespace(request=request, sources=sources, skipped=list(skipped))


def test_an_image_that_one_of_two_models_cannot_use_is_skipped():
    bad, thin = SkippedImage("bad.png", "is no image"), SkippedImage("thin.png", "is too thin")
    a = stand_in("cat", "thin", "dog", skipped=[bad])
    b = stand_in("cat", "dog", skipped=[bad, thin])
    pairs = [(one.key, two.key) for one, two in live.pair_sources(a, b)]
    assert pairs == [("cat", "cat"), ("dog", "dog")]
    assert live.list_skipped(a, b) == [bad, thin]


@pytest.mark.parametrize(
    ("words", "code", "error", "hint"),
    [
        (
            "channels_last",
            2,
            "--against cannot read 'channels_last'",
            "did you mean channels-last? one of: model=M",
        ),
        ("seed=x", 2, "--against seed=x: not a whole number", "seed=1"),
        ("weights=none.pt", 4, "no weights and no file are called 'none.pt'", ""),
        (
            "image=more",
            2,
            "two different images are compared one with one, not 1 with 2",
            "give one image on each side",
        ),
        (
            "model=nets.py:Deeper",
            2,
            "no call is in both: 'relu' in A, and 'new' in B",
            "record the same layers and sides; if the layers have different names: ",
        ),
    ],
)
def test_sides_that_cannot_be_compared_are_refused_with_the_reason(
    run, nets, words, code, error, hint
):
    Path("more").mkdir()
    draw("more/c.npy", 1, 1)
    draw("more/d.npy", 2, 2)
    plain = ("--device", "cpu", "--layers", "ReLU", "--against", words)
    ended = run("compare", "nets.py:Net", "a.npy", *plain)
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert f"error: {error}" in ended.err
    assert f"hint: {hint}" in ended.err or not hint


SHARED = """
act = nn.SiLU()
norm = nn.BatchNorm2d(2)
scale = nn.Parameter(torch.full((1,), 1 + 2 ** -20))


class SharingNorm(Net):
    def __init__(self):
        super().__init__()
        self.relu, self.scale = nn.Sequential(norm, act, norm), scale

    def forward(self, x):
        return super().forward(x) * self.scale


"""


@pytest.fixture
def shared_nets(nets, monkeypatch):
    """A package that is imported once for both sides; a file is run again for each side."""
    Path("shared_nets.py").write_text(NETS + SHARED)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    yield monkeypatch.delitem(sys.modules, "shared_nets", raising=False)
    monkeypatch.delitem(sys.modules, "shared_nets", raising=False)


@pytest.mark.parametrize(
    ("net", "word"),
    [
        ("the_same", "prune=conv=0.5"),
        ("SharingNorm", "dtype=bfloat16"),
        ("SharingNorm", "channels-last"),
    ],
)
def test_modules_that_both_sides_would_share_are_copied_where_one_changes_them(
    run, shared_nets, net, word
):
    Path("file_nets.py").write_text(NETS + SHARED)
    words = ("a.npy", *PLAIN, "--layers", "leaf", "--against", word, "--format", "json")
    shared, own = (
        run("compare", f"{name}:{net}", *words) for name in ("shared_nets", "file_nets.py")
    )
    assert shared.code in (0, 7), shared.err
    assert json.loads(shared.out)["layers"] == json.loads(own.out)["layers"]


def test_shared_modules_that_were_changed_before_are_refused(run, shared_nets):
    words = (*PLAIN, "--dtype", "bfloat16", "--against", "dtype=float32")
    ended = run("compare", "shared_nets:SharingNorm", "a.npy", *words)
    assert ended.code == 2
    text = "error: shared_nets:SharingNorm returns the same modules again, and the other side"
    assert text in ended.err


def test_the_first_line_fits_into_80_columns_and_changed_answers_are_named(run, nets, monkeypatch):
    """The logits 2 and 3 of the second image become 2 and 0."""
    monkeypatch.setenv("COLUMNS", "80")
    draw("c.npy", 1, 1)
    words = ("nets.py:Net", "a.npy", "c.npy", *PLAIN, "--against", "edit=conv{1}:zero")
    lines = run("compare", *words).out.splitlines()
    assert lines[0] == "4 of 4 calls differ, up to 83 % (1e-05 allowed); 1 of 2 top classes change"
    assert lines[1].startswith("conv differs first: ")
    assert "the answer is not the same for c" in lines
    document = json.loads(run("compare", *words, "--format", "json").out)
    assert document["answer"]["changed"] == ["c"]
    assert (document["answer"]["kind"], document["answer"]["share"]) == ("top class", 0.5)
    assert document["verdict"] == lines[0]


def test_layers_that_do_not_run_are_accounted_for(run, nets):
    words = ("nets.py:Idle", "a.npy", *PLAIN, "--against", "threads=1", "--format", "json")
    ended = run("compare", *words)
    reason = "the model did not call it for this input"
    assert f"not called: idle: {reason}\n" in ended.err
    assert json.loads(ended.out)["uncalled"] == [{"layer": "idle", "reason": reason}]


def make_sides(net="Net", **other):
    model, images = ModelRequest(f"nets.py:{net}", device="cpu"), ImageRequest(("a.npy",))
    one, two = (RunRequest(model, images, ("all",), **more) for more in ({}, other))
    config = CompareConfig(one, VariantRequest("net", two))
    return prepare_comparison(config)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_nothing_is_left_on_the_models(nets, is_interrupted):
    a, b = make_sides(prunes=("conv=0.5",), edits=("fc:zero",))
    plain = a.runner.module.state_dict()
    before = torch.random.get_rng_state()

    def image_done(done, skipped):
        if is_interrupted:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if is_interrupted else nullcontext():
        live.compare_sides(a, b, Tolerance(), image_done)
    assert torch.equal(torch.random.get_rng_state(), before)
    for side in (a, b):
        module = side.runner.module
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
        assert list(module.state_dict()) == ["conv.weight", "fc.weight"]
        assert all(torch.equal(v, plain[k]) for k, v in module.state_dict().items())


def test_no_tensor_of_an_image_is_kept_after_its_forward_pass(nets, monkeypatch):
    """As many as A gave are alive while B runs, one fewer after each of its calls, and none in the
    end."""
    kept = []

    class Watched(seen_calls.SeenCalls):
        def __init__(self, **options):
            super().__init__(**options)
            kept.append(self)

    monkeypatch.setattr(live, "SeenCalls", Watched)
    a, b = make_sides()
    left = []
    monkeypatch.setattr(
        seen_calls,
        "measure_arrays",
        lambda *two: (left.append(len(kept[0].values)), measure_arrays(*two))[1],
    )
    live.compare_sides(a, b, Tolerance(), lambda done, skipped: None)
    assert left == [3, 2, 1, 0]
    assert kept[0].values == {}


# A second run of the same model


class Counter(nn.Module):
    """Multiplies by how often it was called, as a buffer counts."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Cache(nn.Module):
    """Keeps what it was given, and subtracts the mean of all."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def forward(self, x):
        self.kept.append(x + len(self.kept))
        return x - torch.stack(self.kept).mean(0)


class Toggle(nn.Module):
    """Changes the sign in every second call; a third call is like the first."""

    sign = 1

    def forward(self, x):
        self.sign = -self.sign
        return x * self.sign


class Momentum(nn.Module):
    """In training mode, moves a buffer towards what it sees, and subtracts it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(1, 4, 1, 1))

    def forward(self, x):
        if self.training:
            self.centre.lerp_(x.mean((2, 3), keepdim=True), 0.5)
        return x - self.centre


def run_twice(fault, **words):
    pixels = torch.linspace(-1, 1, 3 * 16 * 16).view(1, 3, 16, 16)
    net = fault if isinstance(fault, Between) else Between(fault)
    return hookcli.compare(net, pixels, against="repeat", layers="leaf", **words)


@pytest.mark.parametrize(
    ("fault", "culprits"),
    [
        (lambda x: functional.dropout(x, training=True), ["fault/op:dropout"]),
        (lambda x: x + torch.randn(x.shape), ["fault/op:add"]),
        (lambda x: x * random.random(), ["fault/op:mul"]),
        (lambda x: x * float(np.random.rand()), ["fault/op:mul"]),
        (lambda x: x * (time.perf_counter() % 1), ["fault/op:mul"]),
        (nn.Dropout(), ["fault"]),
        (Counter(), ["fault/op:add"]),
        (Cache(), ["fault/op:add", "fault/op:stack"]),
        (Toggle(), ["fault/op:mul"]),
        (Momentum(), ["fault/op:lerp"]),
    ],
)
def test_what_makes_a_second_run_another_is_named(fault, culprits):
    net = Between(fault)
    net.fault.train()
    found = run_twice(net, blame=True, mode="as-made").document()
    assert (found.first, list(found.culprits)) == (culprits[0], culprits)
    assert [(each.name, each.a, each.b) for each in found.changed] == [("run", "first", "second")]


def test_every_bit_counts_in_a_second_run_unless_a_tolerance_is_given():
    def fault(x):
        counts.append(0)
        return x * (1 + len(counts) * 2**-23)

    counts = []
    assert run_twice(fault).document().first == "fault"
    assert run_twice(fault, rtol=1e-5).document().first is None


@pytest.mark.parametrize("metric", ["rel-l2", "cosine", "max-abs"])
def test_a_model_that_returns_the_same_is_the_same_in_every_metric(metric):
    """Also where it returns NaN."""
    found = run_twice(lambda x: (x - 0.3).sqrt(), metric=metric, blame=True)
    assert (found.exit_code, found.result.blame.ids) == (0, ())


@pytest.mark.parametrize("fault", [Counter(), Cache(), Toggle(), Momentum().train()])
def test_a_second_run_leaves_the_model_as_it_was(fault):
    before = {name: value.clone() for name, value in fault.state_dict().items()}
    run_twice(fault, blame=True)
    assert all(torch.equal(value, before[name]) for name, value in fault.state_dict().items())
    assert (getattr(fault, "kept", []), getattr(fault, "sign", 1)) == ([], 1)


def test_every_image_begins_with_the_model_as_it_was_made():
    net, images = Between(Cache()), torch.ones(2, 3, 4, 4)
    found = hookcli.compare(net, images, against="repeat", layers="leaf")
    (row,) = (each for each in found.result.rows if each.call_id == "fault")
    assert (row.images, row.failed_images) == (2, 2)
    assert len({each.rel_l2 for each in found.rows if each.call_id == "fault"}) == 1


def test_active_dropout_in_every_layer_is_named_in_every_layer():
    """Although the error of each is usual for such layers."""
    drops = [nn.Dropout() for _ in range(4)]
    found = run_twice(nn.Sequential(*drops), blame=True, mode="train").document()
    assert found.culprits == ("fault.0", "fault.1", "fault.2", "fault.3")


def test_parameters_that_are_drawn_anew_are_noted(run, nets):
    Path("drawn.py").write_text(
        "import torch\nclass Net(torch.nn.Conv2d):\n"
        "    def __init__(self):\n"
        "        super().__init__(3, 2, 1)\n"
        "        torch.nn.init.ones_(self.weight)\n"
    )
    words = (*PLAIN, "--against", "repeat")
    note = "bias is drawn anew each time the model is made"
    assert run("compare", "drawn.py:Net", "a.npy", *words).err.count(note) == 1
    assert "drawn anew" not in run("compare", "nets.py:Net", "a.npy", *words).err


# Autocast


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast_computes_layers_in_its_dtype_from_weights_in_float32(compare, dtype):
    document = compare("Net", "--against", f"autocast={dtype}")
    assert by_call(document, "dtype", "other_dtype", "tolerance")[0] == (
        *("conv", "float32", dtype),
        RTOL[dtype],
    )
    assert changed(document) == [("autocast", "off", dtype)]


def test_the_tolerance_of_autocast_holds_where_no_tensor_shows_its_dtype(compare):
    document = compare("Casting", "--layers", "fc", "--against", "autocast=bfloat16")
    assert by_call(document, "dtype", "other_dtype", "tolerance") == [
        ("fc", "float32", "float32", RTOL["bfloat16"])
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--against autocast=float64", "--against autocast=float64: no such autocast"),
        ("--against dtype=bfloat16", "autocast needs weights in float32, and the model runs in"),
        ("--dtype float16", "autocast needs weights in float32, and the model runs in float16"),
        ("--against compile", "autocast cannot be combined with compile"),
    ],
)
def test_autocast_that_cannot_be_is_refused(run, nets, words, error):
    more = () if "autocast" in words else ("--against", "autocast=bfloat16")
    ended = run("compare", "nets.py:Net", "a.npy", *CPU, *words.split(), *more)
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert f"error: {error}" in ended.err


def test_a_device_without_autocast_is_refused(run, nets, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device: False)
    ended = run("compare", "nets.py:Net", "a.npy", *CPU, "--against", "autocast=float16")
    assert (ended.code, ended.out) == (2, "")
    assert "error: torch has no autocast to float16 on cpu\n" in ended.err
