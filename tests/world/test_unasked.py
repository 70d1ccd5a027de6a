"""hookcli reports unrequested changes of values on stderr, on the page and in documents."""

from __future__ import annotations

import html
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from hookcli.cli.output.wording import to_words
from hookcli.config import ModelRequest
from hookcli.networks.load import load_model

RESCALED = (
    "transform_input=True, with which torchvision's own weights were trained, rescales the input: "
    "weights that were trained without it need the argument transform_input=False"
)
HALVED = (
    "the model has float16 values, which run in float32: "
    "`dtype='float16'` runs the whole model in that type"
)
TOY = """
import torch
from torch import nn
def make(dtype=torch.float16):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2)
    return nn.Sequential(*layers).to(dtype)
def double(): return make(torch.float64)
def plain(): return make(torch.float32)
def mixed():
    model = make()
    model[0].double()
    model[3].bfloat16()
    return model
"""


@pytest.fixture(autouse=True)
def toy():
    Path("net.py").write_text(TOY)
    np.save("pixels.npy", np.ones((3, 2, 2), np.float32))


def zeros_of(name):
    with torch.device("meta"):
        module = torchvision.models.get_model_builder(name)(weights=None, init_weights=False)
    state = module.state_dict()
    torch.save({k: torch.zeros(v.shape, dtype=v.dtype) for k, v in state.items()}, "w.pth")


def load(name, weights="auto", dtype="float32", **arguments):
    words = tuple((key, str(value)) for key, value in arguments.items())
    return load_model(
        ModelRequest(name, weights=weights, device="cpu", dtype=dtype, arguments=words)
    )


# --- what is said


def test_an_inception_from_a_file_says_that_its_input_is_rescaled():
    zeros_of("googlenet")
    loaded = load("googlenet", "w.pth")
    assert (loaded.module.transform_input, loaded.info.notes) == (True, (RESCALED,))
    assert (loaded.info.trained, loaded.info.warning) == (True, "")  # which is another matter
    chosen = load("googlenet", "w.pth", transform_input=False)
    assert (chosen.module.transform_input, chosen.info.notes) == (False, ())


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("net.py:make", HALVED),
        (
            "net.py:double",
            "the model has float64 values, which run in float32: no `dtype` preserves them",
        ),
        (
            "net.py:mixed",
            (
                "the model has bfloat16 and float64 values, which run in float32: "
                "`dtype='bfloat16'` runs the whole model in that type"
            ),
        ),
    ],
)
def test_an_own_model_whose_dtype_is_changed_says_so(name, note):
    loaded = load(name)
    assert loaded.info.notes == (note,)
    assert {p.dtype for p in loaded.module.parameters()} == {torch.float32}


# --- where it is said


COMMANDS = {
    "inspect": ("--layers", "leaf", "-o", "out"),
    "gradients": ("--layers", "0", "-o", "out"),
    "ablate": ("--layers", "0"),
    "sensitivity": ("--to", "bfloat16"),
    "compare": ("--layers", "0", "--against", "threads=1"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_reports_a_changed_dtype_once_on_stderr_and_in_json(run, command):
    words = ("net.py:make", "pixels.npy", "--device", "cpu", *COMMANDS[command])
    ended = run(command, *words, "--format", "json", "--quiet")
    assert ended.code == 0
    assert ended.err.splitlines().count(f"warning: {to_words(HALVED)}") == 1
    document = json.loads(ended.out)
    assert document.get("model", document)["notes"] == [HALVED]


def test_the_page_and_the_manifest_say_that_the_input_is_rescaled(run):
    zeros_of("googlenet")
    words = ("googlenet", "pixels.npy", "--weights", "w.pth", "--device", "cpu")
    np.save("pixels.npy", np.ones((3, 32, 32), np.float32))
    ended = run("inspect", *words, "--layers", "conv1.conv", "-o", "out", "--grids", "none")
    assert ended.err.splitlines().count(f"warning: {RESCALED}") == 1
    for name in ("run.json", "manifest.json", "report.json"):
        assert json.loads(Path("out", name).read_text())["model"]["notes"] == [RESCALED]
    page = html.unescape(Path("out/report.html").read_text())
    assert page.count(f"<strong>Not asked for.</strong> {RESCALED}.</p>") == 1


# --- two runs


def golden(run, file, name):
    run("golden", name, "pixels.npy", "--device", "cpu", "--layers", "0", "-o", file)


def test_what_was_done_to_one_of_two_models_is_among_what_changed(run):
    golden(run, "a.json", "net.py:plain")
    golden(run, "b.json", "net.py:make")
    ended = run("diff", "a.json", "b.json", "--match", "id", "--format", "json")
    document = json.loads(ended.out)
    assert document["notes"] == [HALVED]
    assert {"name": "model notes", "a": [], "b": [HALVED]} in document["changed"]
