"""``hookcli.compare`` from Python, and the option ``--pictures``: the page and its protections."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hookcli
from tests.toy_models import pointwise, two_channel_net

WORDS = ("compare", "nets.py:Net", "a.npy", "--device", "cpu", "--layers", "leaf")
pytestmark = pytest.mark.filterwarnings("ignore:the weights are as:hookcli.HookcliWarning")
EDIT = ("--against", "edit=relu:scale=3")


@pytest.fixture(autouse=True)
def nets():
    Path("nets.py").write_text(two_channel_net(1, "mean"))
    np.save("a.npy", np.stack([np.full((2, 2), v, "f4") for v in (3, -4, 0)]))


# From Python


def test_a_model_is_compared_with_a_variant_and_nothing_is_written(capfd):
    before = sorted(Path().rglob("*"))
    found = hookcli.compare(
        "nets.py:Net", "a.npy", against={"edit": "relu:scale=3"}, blame=True, layers="leaf"
    )
    assert (capfd.readouterr().out, sorted(Path().rglob("*"))) == ("", before)
    assert (found.exit_code, found.files, found.page) == (7, {}, None)
    assert found.result.blame.ids == ("relu",)
    assert [(row.call_id, row.image, row.holds) for row in found.rows] == [
        ("conv", "a", True),
        ("relu", "a", False),
        ("fc", "a", False),
    ]
    document = found.document()
    assert document.command[-3:] == ("--against", "edit=relu:scale=3", "--blame")
    assert (document.first, document.calls) == ("relu", found.rows)
    assert found.table().headlines[0] == document.verdict


def test_the_leaves_of_an_export_are_compared_unless_the_user_chose_layers():
    words = {"against": "torch-export", "device": "cpu"}
    chosen, usual = (
        hookcli.compare("nets.py:Net", "a.npy", **words, **layers)
        for layers in ({"layers": "conv"}, {})
    )
    assert [row.call_id for row in chosen.rows] == ["conv", "(model)"]
    assert [row.call_id for row in usual.rows] == ["conv", "relu", "fc", "(model)"]


def test_two_models_in_memory_are_compared_and_stay_as_they_are():
    old, new = (nn.Sequential(pointwise([2.0, 0, 0]), nn.ReLU()) for _ in range(2))
    with torch.no_grad():
        new[0].weight.mul_(1.5)
    found = hookcli.compare(old.train(), torch.ones(2, 3, 2, 2), against=new, layers="leaf")
    assert [(row.call_id, row.image, row.max_abs) for row in found.rows] == [
        (layer, image, 1.0) for layer in "01" for image in ("image-0", "image-1")
    ]
    assert (old.training, old[1].training, old[0].weight.sum().item()) == (True, True, 2)


def test_pictures_are_on_the_page_of_the_outcome():
    found = hookcli.compare(
        "nets.py:Net", "a.npy", against=["edit=relu:scale=3"], layers="leaf", pictures="p"
    )
    assert found.page.path == Path("p/report.html")
    assert found.page.html.count('"data:image/png;base64,') == len(found.files) - 1 == 2
    assert found.notes[-1].text == "open first: p/report.html"


def test_what_cannot_be_compared_is_said_in_words_of_python():
    with pytest.raises(hookcli.HookcliError) as caught:
        hookcli.compare("nets.py:Net", "a.npy", against="bfloat16")
    assert caught.value.message == "`against` cannot read 'bfloat16'"
    assert caught.value.hint.startswith("did you mean dtype=bfloat16? one of: model=M ")
    with pytest.raises(hookcli.HookcliError, match="`keep_export` needs a model to export"):
        hookcli.compare("nets.py:Net", "a.npy", against="mode=train", keep_export="net.onnx")


# The option --pictures


def test_the_page_has_the_verdict_and_after_it_the_culprits(run):
    """relu gives 9 for 3, and fc 18 for 6."""
    ended = run(*WORDS, *EDIT, "--pictures", "p", "--blame")
    assert (ended.code, ended.err.splitlines()[-1]) == (7, "open first: p/report.html")
    page = Path("p/report.html").read_text()
    (box,) = re.findall(r'<p class="verdict differs" role="note">(.*?)</p>', page)
    verdict, first, blame = box.split("<br>")
    assert verdict == "2 of 3 calls differ, up to 200 % (1e-05 allowed); same top class, KL 0.03"
    assert first == (
        "relu differs first: relative L2 2, tolerance 1e-05; 2 of 3 calls differ "
        '<a href="#call-1">See it</a>'
    )
    assert blame.startswith("1 culprit: relu (ReLU), own error 2, of which rounding explains ")
    assert '<tr><th scope="row">--edit</th><td>none</td><td>relu:scale=3</td></tr>' in page


def test_a_folder_of_others_is_refused_before_the_model_runs(run):
    Path("p").mkdir()
    Path("p/notes.txt").write_text("mine")
    Path("nets.py").write_text("raise SystemExit")
    ended = run(*WORDS, *EDIT, "--pictures", "p")
    assert (ended.code, ended.out) == (5, "")
    assert ended.err == (
        "error: 'p' holds files that no comparison wrote\n"
        "hint: choose another folder for --pictures\n"
    )
