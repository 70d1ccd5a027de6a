"""Each exit code of each command that can end with it, and which wins if several apply."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hookcli
from tests.conftest import run_in
from tests.toy_models import SMALL_NET
from tests.toy_runs import ToyRun

CPU = "--device cpu"
NET = f"net.py:Net pixels.npy {CPU}"
RUN = f"{NET} --grids none -q"
SKIPS = f"net.py:Net pixels.npy text.png {CPU}"
PHOTO = f"resnet18 pixels.npy {CPU}"
OUT = "-o out"
POOLED = f"--layers leaf --save tensors --pool mean {OUT}"
AT = "--similar 0,0"

DONE = {
    "inspect": f"inspect {RUN}",
    "inspect, a plan": f"inspect {NET} --dry-run",
    "inspect, nothing to resume": f"inspect {RUN} {POOLED} --resume",
    "gradients": f"gradients {RUN}",
    "ablate": f"ablate {NET}",
    "sensitivity": f"sensitivity {NET} --to int8 --percentile 50",
    "layers": "layers net.py:Net",
    "models": "models vgg*",
    "report": "report out",
    "export": "export out --to npy",
    "schema": "schema inspect",
    "golden": f"golden {NET} -q",
    "golden, of a run": "golden whole",
    "diff": "diff whole whole",
    "compare": f"compare {NET} --against threads=1",
    "places": f"places whole {AT}",
    "places, of a model": f"places {NET} {AT} -q",
    "map": "map toy",
    "probe": "probe toy --labels labels.csv",
    "similarity": "similarity toy",
}
CANNOT_BE_MET = {
    "inspect, an option": f"inspect {RUN} --wat",
    "inspect, a model": "inspect resnet43 pixels.npy",
    "inspect, a layer": f"inspect {RUN} --layers attention",
    "inspect, the limit of the disk": f"inspect {RUN} --save tensors --max-disk 0",
    "inspect, another run": f"inspect {RUN} --layers fc {OUT} --resume",
    "gradients, a target": f"gradients {RUN} --target 7",
    "ablate, a channel": f"ablate {NET} --channels 99",
    "sensitivity, nothing to round": f"sensitivity {NET} --to int8 --layers act --round weights",
    "layers, a model": "layers resnet43",
    "models, a glob": "models zzz*",
    "report, no folder": "report nothing",
    "export, a call": "export out --to npy --layers zzz",
    "schema, a name": "schema records",
    "golden, a run without sketches": "golden blocked",
    "diff, no folder": "diff nothing out",
    "diff, nothing to compare": "diff plain plain --metric mean-abs",
    "compare, nothing against": f"compare {NET}",
    "compare, an edit that changes nothing": f"compare {NET} --against edit=head:zero",
    "places, of vectors": "places whole --layers fc",
    "map, no folder": "map nothing",
    "map, of nothing saved": "map plain",
    "probe, too many folds": "probe toy --labels labels.csv --folds 6",
    "similarity, of one image": "similarity whole",
}
NO_IMAGE = {
    "inspect": f"inspect net.py:Net text.png {CPU}",
    "inspect, a plan": f"inspect net.py:Net no.png {CPU} --dry-run",
    "gradients": f"gradients net.py:Net text.png no.png {CPU}",
    "ablate": f"ablate net.py:Net text.png {CPU}",
    "sensitivity": f"sensitivity net.py:Net text.png {CPU} --to int8",
    "golden": f"golden net.py:Net text.png {CPU}",
    "compare": f"compare net.py:Net text.png {CPU} --against threads=1",
    "places": f"places net.py:Net text.png {CPU}",
    "map": f"map net.py:Net text.png {CPU}",
    "probe": f"probe net.py:Net text.png {CPU} --labels folders",
    "similarity": f"similarity net.py:Net text.png {CPU}",
}
MODEL_FAILS = {
    "inspect": f"inspect net.py:Breaks pixels.npy {CPU}",
    "inspect, with an image skipped": f"inspect net.py:Breaks pixels.npy text.png {CPU}",
    "inspect, a file that raises": f"inspect broken.py:Net pixels.npy {CPU}",
    "gradients": f"gradients net.py:Breaks pixels.npy {CPU}",
    "gradients, backwards": f"gradients net.py:NoWayBack pixels.npy {CPU}",
    "ablate": f"ablate net.py:Breaks pixels.npy {CPU}",
    "sensitivity": f"sensitivity net.py:Breaks pixels.npy {CPU} --to int8",
    "layers": "layers net.py:Breaks",
    "golden": f"golden net.py:Breaks pixels.npy {CPU}",
    "compare": f"compare net.py:Breaks pixels.npy {CPU} --against threads=1",
    "compare, weights of one side": f"compare {PHOTO} --weights random --against weights=no.pth",
    "places": f"places net.py:Breaks pixels.npy {CPU}",
    "map, weights": f"map {PHOTO} --weights no.pth",
    "similarity": f"similarity net.py:Breaks pixels.npy {CPU}",
}
CANNOT_BE_WRITTEN = {
    "inspect, a run stands there": f"inspect {RUN} {OUT}",
    "inspect, a file in the way": f"inspect {RUN} -o net.py",
    "inspect, weights": f"inspect {RUN} --prune fc=1 --save-weights net.py/w.safetensors",
    "gradients, files of others": f"gradients {RUN} -o .",
    "report, a folder in the way": "report blocked",
    "export, a file is there": "export out --to npy -o taken",
    "golden, a file that is not its own": "golden whole -o net.py",
    "diff, pictures into a run's folder": "diff whole edited --pictures out",
    "map, a file in the way": "map toy -o net.py",
    "similarity, files of others": "similarity toy -o . --overwrite",
}
SOME_SKIPPED = {
    "inspect": f"inspect {SKIPS}",
    "inspect, a plan": f"inspect net.py:Net pixels.npy no.png {CPU} --dry-run",
    "gradients": f"gradients {SKIPS}",
    "ablate": f"ablate {SKIPS}",
    "sensitivity": f"sensitivity {SKIPS} --to int8 --percentile 50",
    "golden": f"golden {SKIPS}",
    "compare": f"compare {SKIPS} --against threads=1",
    "places": f"places {SKIPS} {AT}",
}
RULE_FAILED = {
    "inspect": f"inspect {RUN} --layers all --fail-on nan,uncalled",
    "inspect, with an image skipped": f"inspect {SKIPS} --fail-on skipped",
    "gradients": f"gradients {RUN} --layers all --fail-on uncalled",
    "diff": "diff whole edited",
    "compare": f"compare {NET} --against edit=conv:zero",
}
CODES = {
    0: DONE,
    2: CANNOT_BE_MET,
    3: NO_IMAGE,
    4: MODEL_FAILS,
    5: CANNOT_BE_WRITTEN,
    6: SOME_SKIPPED,
    7: RULE_FAILED,
}
WITHOUT_DATA = (2, 3, 4, 5)

# where something of ours is called that a fault can be put into
INSIDE = {
    "inspect": "hookcli.plan.images.find_files",
    "gradients": "hookcli.plan.images.find_files",
    "ablate": "hookcli.plan.images.find_files",
    "sensitivity": "hookcli.plan.images.find_files",
    "layers": "hookcli.passes.survey.survey",
    "models": "hookcli.networks.catalog.list_catalog",
    "report": "hookcli.reading.report.remake_report",
    "export": "hookcli.reading.load.load_run",
    "schema": "hookcli.verbs.schema.json.dumps",
    "golden": "hookcli.plan.images.find_files",
    "diff": "hookcli.comparison.compared_run.load_compared_run",
    "compare": "hookcli.plan.images.find_files",
    "places": "hookcli.analysis.features.open_calls",
    "map": "hookcli.analysis.map.map_images",
    "probe": "hookcli.analysis.probe.check_labels",
    "similarity": "hookcli.analysis.similarity.compare_layers",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "net.py").write_text(SMALL_NET)
    (home / "broken.py").write_text("raise ValueError('not today')\n")
    np.save(home / "pixels.npy", np.ones((3, 2, 2), np.float32))
    (home / "text.png").write_text("hello")
    return home


@pytest.fixture(autouse=True)
def inputs(home, tmp_path):
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def runs(home, tmp_path_factory):
    """Runs that kept nothing, pooled or whole tensors, one that was edited, one whose page cannot
    be written, and one of ten images with labels."""
    runs = tmp_path_factory.mktemp("runs")
    shutil.copytree(home, runs, dirs_exist_ok=True)
    for words in (
        POOLED,
        f"{POOLED.replace('out', 'blocked')} --no-sketch",
        "--no-sketch -o plain",
        "--save tensors -o whole",
        "--save tensors --edit conv:zero -o edited",
    ):
        assert run_in(runs, *f"inspect {RUN} {words}".split()).code == 0
    (runs / "blocked/report.html").unlink()
    (runs / "blocked/report.html").mkdir()
    draw = np.random.default_rng(0)
    images = {f"photo{n}": {f"layer{m}": draw.normal(size=(1, 4)) for m in "ab"} for n in range(10)}
    ToyRun(images).write(runs / "toy")
    labels = [f"{image},{number % 2}" for number, image in enumerate(images)]
    (runs / "labels.csv").write_text("\n".join(["image,label", *labels]) + "\n")
    (runs / "taken").mkdir()
    (runs / "taken/fc.npy").write_bytes(b"mine")
    return runs


@pytest.fixture
def a_run(runs, tmp_path):
    """The runs, as links: hookcli writes a new file instead of the old one."""
    shutil.copytree(runs, tmp_path, copy_function=link, dirs_exist_ok=True)


def link(source, target):
    Path(target).unlink(missing_ok=True)
    os.link(source, target)


@pytest.mark.parametrize(
    ("code", "what"), [(code, what) for code, whats in CODES.items() for what in whats]
)
def test_a_command_ends_with_the_code_of_what_happened(run, a_run, code, what):
    ended = run(*CODES[code][what].split())
    assert ended.code == code
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    says_so_itself = code == 7 and CODES[code][what].split()[0] in ("diff", "compare")
    assert len(errors) == (code not in (0, 6) and not says_so_itself)
    assert "Traceback" not in ended.err
    if code in WITHOUT_DATA:
        assert ended.out == ""


def test_every_command_is_in_the_table(run):
    listed = run("--help").out.partition("Look inside:")[2].partition("Options:")[0]
    commands = {line.split()[0] for line in listed.splitlines() if line.startswith("  ")}
    assert commands == {words.split()[0] for words in DONE.values()} == INSIDE.keys()


def raises(error):
    def fail(*_words, **_options):
        raise error

    return fail


@pytest.mark.parametrize("command", INSIDE)
def test_an_interrupt_of_any_command_ends_with_130(run, a_run, monkeypatch, command):
    monkeypatch.setattr(INSIDE[command], raises(KeyboardInterrupt))
    ended = run(*DONE[command].split())
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.endswith("error: interrupted\n")


@pytest.mark.parametrize("command", ["inspect", "diff"])
def test_a_bug_is_raised_so_that_python_ends_with_1(run, a_run, monkeypatch, command):
    monkeypatch.setattr(INSIDE[command], raises(ZeroDivisionError("planted")))
    with pytest.raises(ZeroDivisionError, match="planted"):
        run(*DONE[command].split())


@pytest.mark.parametrize(
    ("rule", "code", "end"),
    [
        ((), 6, ""),
        (("--fail-on", "skipped"), 7, "; --fail-on found skipped"),
        (("--fail-on", "nan"), 6, ""),
    ],
)
def test_resume_of_a_complete_run_ends_with_the_code_of_the_run(run, cat, rule, code, end):
    shutil.copy(cat, "a.png")
    Path("bad.png").write_text("no picture")
    small = ("--layers", "conv1", "--size", "32", "--weights", "random", "--device", "cpu")
    words = ("inspect", "resnet18", "a.png", "bad.png", *small, "-o", "out", *rule)
    assert run(*words).code == code
    again = run(*words, "--resume")
    assert again.code == code
    line = f"the run in 'out' is complete; 1 image skipped, see skipped.csv{end}"
    assert again.err.splitlines() == [line]
    keywords: Any = {
        "layers": "conv1",
        "size": 32,
        "weights": "random",
        "device": "cpu",
        "out": "out",
    }
    with pytest.raises(hookcli.HookcliError, match="is complete; 1 image skipped") as caught:
        hookcli.inspect("resnet18", ["a.png", "bad.png"], **keywords, fail_on=rule[1:], resume=True)
    assert pickle.loads(pickle.dumps(caught.value)).exit_code == code  # noqa: S301
