"""``hookcli gradients`` from the command line to the run folder, and edits in ``inspect``."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from hookcli import load_run
from hookcli.cli.output.wording import to_words
from hookcli.networks.scores import load_score
from tests.toy_models import two_channel_net

SMALL = ("--weights", "random", "--device", "cpu", "--size", "64", "-o", "out")
PLAIN = (*SMALL, "--grids", "none")


@pytest.fixture
def net():
    load_score.cache_clear()
    return write_net()


def write_net():
    source = (
        two_channel_net(-1, "sum")
        + """

class Still(Net):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


class Odd(Net):
    def forward(self, x):
        return {"what": super().forward(x)}


class Idle(Net):
    def __init__(self):
        super().__init__()
        self.aux = nn.Linear(2, 2)


def total(output, target):
    return output["what"][0, 1] * 10


def broken(output, target):
    raise ValueError("not today")
"""
    )
    Path("net.py").write_text(source)
    np.save("pixels.npy", np.stack([np.full((2, 2), v, np.float32) for v in (3.0, -4.0, 0.0)]))
    return "net.py:Net"


def rows(folder="out"):
    with (Path(folder) / "layers.csv").open(newline="") as table:
        return {row["call_id"]: row for row in csv.DictReader(table)}


def document(folder="out"):
    return json.loads((Path(folder) / "report.json").read_text())


OWN = ("pixels.npy", "-o", "out", "--grids", "none", "--layers", "leaf")


def test_every_figure_is_the_one_worked_out_by_hand(run, net):
    # relu(conv) is 3 and 4 at each of 4 places; the logits are 2 * 12 and 3 * 16: class 1 is
    # predicted
    code, _, err = run("gradients", net, *OWN, "--input-grad")
    assert code == 0, err
    found = rows()
    facts = {call: (row["shape"], row["norm"], row["mean"]) for call, row in found.items()}
    expected = {
        "grad_output:fc": ("1x2", 1, 0.5),
        "grad_input:fc": ("1x2", 3, 1.5),
        "param:fc.weight": ("2x2", 20, 7),  # 12 and 16 in the second row
        "grad_output:relu": ("1x2x2x2", 6, 1.5),
        "grad_input:relu": ("1x2x2x2", 6, 1.5),
        "grad_output:conv": ("1x2x2x2", 6, 1.5),
        "grad_input:conv": ("1x3x2x2", 6, -1),
        "param:conv.weight": ("2x3x1x1", 60, (36 - 48) / 6),
    }
    assert facts.keys() == expected.keys()
    for call, (shape, norm, mean) in expected.items():
        assert facts[call][0] == shape
        assert math.isclose(float(facts[call][1]), norm, rel_tol=1e-6), call
        assert math.isclose(float(facts[call][2]), mean, rel_tol=1e-6), call
    assert math.isclose(float(found["param:fc.weight"]["ratio"]), 20 / math.sqrt(13), rel_tol=1e-6)
    assert document()["images"][0]["score"] == {
        "kind": "logit",
        "value": 48.0,
        "target": 1,
        "category": "class 1",
    }


@pytest.mark.parametrize(
    ("words", "value", "slope"),
    [
        (("--score", "probability"), 1.0, 0.0),
        (("--score", "cross-entropy", "--target", "0"), 24.0, 1.0),
        (("--score", "sum"), 72.0, 1.0),
    ],
)
def test_each_score_has_the_value_and_the_slope_worked_out_by_hand(run, net, words, value, slope):
    assert run("gradients", net, *OWN, *words).code == 0
    (image,) = document()["images"]
    assert math.isclose(image["score"]["value"], value, rel_tol=1e-5)
    assert math.isclose(float(rows()["grad_output:fc"]["max"]), slope, abs_tol=1e-6)


def test_a_score_of_ones_own(run, net):
    words = ("gradients", "net.py:Odd", *OWN)
    code, _, err = run(*words)
    assert (code, err.splitlines()[-2:]) == (
        2,
        [
            "error: there is no score for an output of this form",
            (
                "hint: choose one of its tensors with --output-key, use --score sum, "
                "or a function of your own: --score FILE.py:FUNCTION"
            ),
        ],
    )
    assert run(*words, "--score", "net.py:total", "--overwrite").code == 0
    assert document()["images"][0]["score"]["value"] == 480
    code, _, err = run(*words, "--score", "net.py:broken", "--overwrite")
    assert code == 4
    assert "--score net.py:broken raised ValueError: not today" in err
    for wrong in ("net.py:absent", "nowhere:total", "nowhere.py:total"):
        assert run(*words, "--score", wrong, "--overwrite").code == 2


def test_the_reason_is_shown_if_there_is_no_gradient(run, net):
    code, out, err = run("gradients", "net.py:Idle", *OWN)
    assert code == 0, err
    found = rows()
    reason = "the gradient of the image was not requested: use `input_grad`"
    assert (found["grad_input:conv"]["reason"], found["grad_input:conv"]["norm"]) == (reason, "")
    assert f"no gradient: grad_input:conv: {to_words(reason)}" in out
    assert found["param:aux.weight"]["reason"] == "no path leads from it to the score"
    assert "not called: aux" in err


def test_a_model_that_no_gradient_can_pass_is_refused(run, net):
    code, _, err = run("gradients", "net.py:Still", *OWN)
    assert code == 4
    assert "error: no gradient leads back from the score\n" in err
    Path("whole.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Whole(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Identity()\n"
        "        self.register_buffer('weight', torch.ones(12, 2, dtype=torch.int8))\n"
        "    def forward(self, x):\n"
        "        return self.conv(x).flatten(1) @ self.weight.float()\n"
    )
    code, out, err = run("gradients", "whole.py:Whole", *OWN, "--overwrite")
    assert (code, out) == (2, "")
    assert "error: whole.py:Whole has no parameter that takes a gradient: is it quantized?" in err


@pytest.mark.parametrize(
    ("target", "message", "hint"),
    [
        ("tabbi", "--target: no category is called 'tabbi'", "did you mean 'tabby'"),
        ("cat", "--target: no category is called 'cat'", "did you mean 'Madagascar cat'"),
        ("cardigan", "--target: 2 classes are called 'cardigan'", "give the index: 264 or 474"),
        ("-1", "--target: there is no class -1", "classes are 0 to 999"),
    ],
)
def test_targets_that_do_not_exist_are_refused(run, cat, target, message, hint):
    code, out, err = run("gradients", "resnet18", cat, *PLAIN, "--target", target, "--dry-run")
    error, told = err.splitlines()
    assert (code, out, error) == (2, "", f"error: {message}")
    assert told.startswith(f"hint: {hint}")


def test_a_folder_of_images_is_resumable_and_adds_up(run, net):
    Path("photos").mkdir()
    for number in range(3):
        noise = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(noise).save(f"photos/{number}.png")
    words = ("gradients", net, "--size", "8", *OWN[3:])
    squares = {}
    for number in range(3):
        assert run(*words, f"photos/{number}.png", "-o", f"o{number}").code == 0
        for call, row in rows(f"o{number}").items():
            if row["norm"]:
                squares.setdefault(call, []).append(float(row["norm"]) ** 2)
    assert run(*words, "photos", "-o", "out").code == 0
    norms = {call: float(row["norm"]) for call, row in rows().items() if row["norm"]}
    assert norms == {
        call: pytest.approx(math.sqrt(np.mean(each)), rel=1e-5) for call, each in squares.items()
    }
    assert run(*words, "photos", "-o", "out", "--resume").code == 0


def test_gradients_are_saved_as_tensors(run, net):
    assert run("gradients", net, *OWN, "--save", "tensors").code == 0
    saved = load_run("out")
    assert saved["grad_output:fc"].tolist() == [[0, 1]]
    assert saved["grad_input:fc"].tolist() == [[0, 3]]


# Findings


NAN = """
import torch
from torch import nn


class Root(nn.Module):
    def forward(self, x):
        return (x * 0).sqrt() + x  # the slope of sqrt at zero is infinite, times zero NaN


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.root, self.fc = nn.Conv2d(3, 2, 1), Root(), nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(self.root(self.conv(x)).mean((2, 3)))

"""


def test_a_gradient_that_is_nan_is_put_down_to_its_maker(run, net):
    Path("nan.py").write_text(NAN)
    code, out, _ = run("gradients", "nan.py:Net", *OWN, "--fail-on", "nan")
    assert code == 7
    (finding,) = (f for f in document()["findings"] if f["rule"] == "nan")
    assert finding["sentence"].startswith("NaN is made by the backward of root (Root): ")
    assert "first in grad_input:root" in finding["sentence"]
    assert "look here first:" in out


def test_layers_without_a_gradient_are_found(run):
    Path("cut.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a, self.b = nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1)\n"
        "    def forward(self, x):\n"
        "        return self.b(self.a(x).detach()).mean((2, 3))\n"
    )
    np.save("pixels.npy", np.ones((3, 2, 2), np.float32))
    assert run("gradients", "cut.py:Net", *OWN, "--fail-on", "no-gradient").code == 7
    (finding,) = (f for f in document()["findings"] if f["rule"] == "no-gradient")
    assert finding["sentence"] == "a gets no gradient: no path leads from it to the score"


# Edits


def test_an_edit_shows_its_effect(run, net):
    code, out, err = run("inspect", net, *OWN, "--edit", "conv{0}:zero")
    assert code == 0, err
    found = rows()
    # channel 0 is 3 at four places, channel 1 is 4: the distance is 6 of 10
    assert math.isclose(float(found["conv"]["change"]), 0.6, rel_tol=1e-6)
    assert float(found["fc"]["min"]) == 0
    assert math.isclose(float(found["fc"]["change"]), 24 / math.hypot(24, 48), rel_tol=1e-6)
    (image,) = document()["images"]
    assert [p["index"] for p in image["unedited"]] == [1, 0]
    assert "without changes: " in out


def test_edits_are_made_in_the_order_given(run, net):
    for edits, expected in (
        (("conv:clamp=:1", "conv:scale=5"), 5),
        (("conv:scale=5", "conv:clamp=:1"), 1),
    ):
        words = [word for edit in edits for word in ("--edit", edit)]
        assert run("inspect", net, *OWN, *words, "--overwrite").code == 0
        assert float(rows()["conv"]["max"]) == expected


def test_gradients_with_edits(run, net):
    edits = ("--edit", "fc:scale=2", "--edit", "param:conv.*:zero", "--edit", "output:relu{1}:zero")
    assert run("gradients", net, *OWN, "--target", "1", *edits).code == 0
    found = rows()
    assert float(found["grad_output:fc"]["max"]) == 2
    assert float(found["grad_input:fc"]["max"]) == 6
    assert float(found["param:conv.weight"]["norm"]) == 0
    assert float(found["grad_output:relu"]["max"]) == 6  # of what comes out after the edit
    assert float(found["grad_input:relu"]["max"]) == 0  # nothing gets through the zero
    assert float(found["grad_output:fc"]["change"]) == 1


@pytest.mark.parametrize(
    ("command", "edit", "message"),
    [
        ("inspect", "conv:clmap=0:", "{}: at position 6: 'clmap' is not an edit"),
        ("inspect", "grad_output:conv:zero", "{}: grad_output is a gradient"),
        ("inspect", "conv{2}:zero", "{}: conv has no channel 2"),
        ("gradients", "layer9:zero", "no layer matches 'layer9'"),
        ("gradients", "param:*.scale:zero", "no parameter matches '*.scale'"),
    ],
)
def test_edits_that_cannot_be_made(run, net, command, edit, message):
    message = message.replace("{}", f"--edit '{edit}'")
    code, out, err = run(command, net, *OWN, "--edit", edit)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}"), err
    assert not Path("out").exists()


def test_how_far_images_are_from_the_unedited_run_adds_up(run, net):
    # channel 0 of both images is scaled to nothing: 3 of the hypotenuse of 3 and 4, and 1 of that
    # of 1 and 2
    one, two = np.zeros((3, 2, 2), np.float32), np.zeros((3, 2, 2), np.float32)
    one[0], one[1], two[0], two[1] = 3, -4, 1, -2
    np.save("pixels.npy", np.stack([one, two]))
    words = ("inspect", net, *OWN[:-1], "conv", "--edit", "conv{0}:zero", "--batch-size", "2")
    assert run(*words).code == 0
    expected = math.sqrt(((3 / 5) ** 2 + 1 / 5) / 2)
    assert math.isclose(float(rows()["conv"]["change"]), expected, rel_tol=1e-6)
    each = pq.read_table("out/records.parquet").column("change").to_pylist()
    assert each == pytest.approx([3 / 5, math.sqrt(1 / 5)])


def test_an_edit_that_flips_the_prediction_leaves_the_target(run, net):
    # 24 against 48 becomes 24 against 0: class 0 would be predicted, and the score stays class 1's
    code, out, _ = run("gradients", net, *OWN, "--edit", "output:conv{1}:zero")
    assert code == 0
    (image,) = document()["images"]
    assert [p["index"] for p in image["predictions"]] == [0, 1]
    assert (image["score"]["target"], image["score"]["value"]) == (1, 0)
    assert (image["unedited_score"]["target"], image["unedited_score"]["value"]) == (1, 48)
    assert "score: logit of class 1 (1) = 0, without changes 48" in out
    assert float(rows()["grad_output:fc"]["change"]) == 0


@pytest.mark.parametrize("edit", ["output:conv:set=nan", "grad_output:relu:set=nan"])
def test_nan_of_an_edit_is_put_down_to_it(run, net, edit):
    assert run("gradients", net, *OWN, "--edit", edit).code == 0
    (finding,) = (f for f in document()["findings"] if f["rule"] == "nan")
    assert finding["sentence"].startswith(f"NaN is made by the edit {edit!r}; ")


def test_a_grad_cam_that_cannot_be_drawn_is_reported(run, net):
    code, out, err = run("gradients", net, *OWN, "--cam", "fc", "--cam", "relu")
    assert code == 0
    why = "one value per channel, as after pooling: an earlier layer has maps"
    assert f"warning: --cam: no map of fc: {why}" in err.splitlines()
    assert [heat["call_id"] for heat in document()["heats"]] == ["relu"]
    assert "grad_output:fc" in out  # ``--layers`` asks for the layers, too


@pytest.mark.parametrize(
    ("words", "said", "warning"),
    [
        # the second channel is 1 and 3 in two corners, and its slope 3: the map is 3 and 9
        ([], ["class 1 (1)", "12", "lower right: 100,100", "0.01%"], ""),
        (
            ["--target", "0"],
            ["class 0 (0)", "0", "nowhere: it is zero everywhere"],
            "it is blank: ",
        ),
        (["--score", "cross-entropy"], ["nowhere: no value is positive"], "it is blank: no value"),
    ],
)
def test_the_terminal_says_what_a_grad_cam_shows(run, net, words, said, warning):
    pixels = np.zeros((3, 100, 100), np.float32)
    pixels[1, 0, 0], pixels[1, -1, -1] = -1, -3
    np.save("pixels.npy", pixels)
    code, out, err = run("gradients", net, *OWN[:-2], "--cam", "relu", *words)
    assert code == 0
    row = re.split(r" {2,}", out.splitlines()[2].strip())
    assert set(said) <= set(row), row
    assert (f"no map of relu for pixels.npy: {warning}" in err) == bool(warning)
    assert err.splitlines()[-1] == "open first: out/report.html"


def test_several_targets_are_a_block_of_rows_and_a_map_each(run, net):
    noise = np.random.default_rng(0).normal(size=(3, 32, 32)).astype(np.float32)
    noise[:2] += np.array([3, -4], np.float32)[:, None, None]
    np.save("pixels.npy", noise)
    words = ("gradients", net, *OWN, "--cam", "relu", "--saliency", "--save", "tensors")
    expected, maps, said = [], [], []
    for target in ("1", "0"):
        assert run(*words, "--target", target, "--overwrite").code == 0
        expected += [row | {"call_id": f"{call}@{target}"} for call, row in rows().items()]
        maps += [Path("out", heat["file"]).read_bytes() for heat in document()["heats"]]
        said += [(heat["peak"], heat["half"]) for heat in document()["heats"]]
    targets = ("--target", "1", "--target", "0", "--target", "1")
    code, out, _ = run(*words, *targets, "--overwrite")
    found, heats = [row | {"target": ""} for row in rows().values()], document()["heats"]
    assert (code, found) == (0, expected)
    assert [Path("out", heat["file"]).read_bytes() for heat in heats][1::2] == maps[1::2]
    assert [(heat["peak"], heat["half"]) for heat in heats] == said
    assert said[0] != said[2]
    names = [(heat["call_id"], heat["score"]["category"]) for heat in heats]
    one, two = "class 1", "class 0"
    assert names == [("relu@1", one), ("", one), ("relu@0", two), ("", two)]
    saved = load_run("out")
    assert saved["grad_input:fc@1"].tolist() == [[0, 3]]
    assert saved["grad_input:fc@0"].tolist() == [[2, 0]]
    assert out.index("score: logit of class 1 (1) = ") < out.index("score: logit of class 0 (0) = ")


def test_a_class_that_does_not_exist_costs_no_finished_run(run, net):
    assert run("gradients", net, *OWN).code == 0
    before = sorted(Path("out").rglob("*"))
    ended = run("gradients", net, *OWN, "--target", "1", "--target", "2", "--overwrite")
    assert (ended.code, sorted(Path("out").rglob("*"))) == (2, before)


HEADS = """
from torch import nn


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 1, 1), nn.Conv2d(3, 1, 1)

    def forward(self, x):
        return [self.a(x).mean((1, 2, 3)), self.b(x).mean((1, 2, 3))]


def head(output, target):
    return output[target].sum()
"""


def test_a_map_that_one_of_several_targets_lacks_is_named(run):
    Path("heads.py").write_text(HEADS)
    np.save("pixels.npy", np.ones((3, 4, 4), np.float32))
    words = ("gradients", "heads.py:Heads", *OWN, "--cam", "a,b", "--score", "heads.py:head")
    err = run(*words, "--target", "0", "--target", "1").err
    assert "warning: --cam: no map of a@1 and 1 more: no gradient reached it" in err.splitlines()


def test_each_of_several_targets_has_its_score_without_changes(run, net):
    edit = ("--edit", "output:fc{1}:scale=2", "--edit", "output:fc{0}:scale=3")
    out = run("gradients", net, *OWN, *edit, "--target", "1", "--target", "0").out
    assert "logit of class 1 (1) = 96, without changes 48" in out
    assert "logit of class 0 (0) = 72, without changes 24" in out


STEADY = """
import torch
from torch import nn


def make():
    blocks = [nn.Sequential(nn.Linear(2, 2, bias=False), nn.Identity()) for _ in range(4)]
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 2), *blocks, nn.Linear(2, 2, bias=False))
    for each in net.modules():
        if isinstance(each, nn.Linear) and each.weight.shape == (2, 2):
            nn.init.eye_(each.weight)
    net[-1].weight.data[1] *= 1e6
    return net
"""


def test_the_gradient_of_one_class_is_not_measured_against_that_of_another(run, net):
    Path("steady.py").write_text(STEADY)
    words = ("gradients", "steady.py:make", *OWN, "--fail-on", "vanishing,exploding")
    assert run(*words, "--target", "0", "--target", "1").code == 0
    assert run(*words, "--target", "1", "--target", "0", "--overwrite").code == 0


def test_predictions_of_several_images_are_a_column_and_of_many_a_count(run, net):
    pixels = np.zeros((11, 3, 2, 2), np.float32)
    pixels[:, 0], pixels[8:, 1] = 1, -1
    for number, last in (
        (2, "two.npy[1]: class 0 100.0%"),
        (11, "predicted: class 0 8, class 1 3"),
    ):
        np.save("two.npy", pixels[:number])
        out = run("inspect", net, "two.npy", *OWN[1:-1], "fc", "--overwrite").out
        assert last in out.splitlines()


ATTENTION = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attention, self.fc = nn.MultiheadAttention(3, 1, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        tokens = x.flatten(2).transpose(1, 2)
        return self.fc(self.attention(tokens, tokens, tokens)[0].mean(1))
"""


def test_a_pruned_module_that_is_used_and_never_called(run, net):
    Path("attend.py").write_text(ATTENTION)
    code, _, err = run("inspect", "attend.py:Net", *OWN, "--prune", "linear=0.5")
    assert code == 0, err
    assert float(rows()["attention[0]"]["change"]) > 0
