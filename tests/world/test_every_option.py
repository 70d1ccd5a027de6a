"""Every option of every command changes what hookcli does, or hookcli refuses it.

A new option needs a line in ``CASES``: the words that a user adds to the command, and either what
they change, or a part of the message with which hookcli refuses them. Commands share requests, so
each case runs with one command that has the option, and each request of each command is in a case.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hookcli import __main__ as entry
from hookcli.outside.flags import list_fields
from hookcli.verbs.subjects import COMMANDS
from tests.conftest import own_state, run_in
from tests.words import find_option, replace_options

MODEL = '''
import torch
from torch import nn

class Net(nn.Module):
    """The values depend on all that an option can change."""

    def __init__(self, shift, bands, flags):
        super().__init__()
        self.shift, self.flags = shift, flags
        self.conv = nn.Conv2d(bands, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(4, 3)
        self.spare = nn.Linear(4, 3)

    def forward(self, pixels, gain=1.0):
        if isinstance(pixels, dict):
            pixels, gain = self.relu(pixels["pixels"]), pixels["gain"]
        if "fail" in self.flags and pixels.amin((1, 2, 3)).max() > 0.5:
            raise ValueError("too bright")
        extra = len(pixels) + 10 * self.training + 100 * torch.get_num_threads()
        if "nan" in self.flags:
            extra = torch.nan
        maps = self.relu(self.conv(pixels * gain + self.shift + extra / 1000))
        logits = self.fc(maps.mean((2, 3)))
        return (logits, -logits) if "both" in self.flags else logits

def make(shift="0", bands="3", flags=""):
    return Net(float(shift), int(bands), flags)

class Renamed(nn.Module):
    def __init__(self):
        super().__init__()
        net = make()
        self.first, self.second, self.last = net.conv, net.relu, net.fc

    def forward(self, pixels):
        return self.last(self.second(self.first(pixels)).mean((2, 3)))

def renamed():
    return Renamed()
'''
RUN = "inspect model.py:make photos --size 16"
RUNS = {  # the words of each run that commands read, by its folder
    "runs/plain": f"{RUN} --layers conv,relu --save tensors",
    "runs/other": f"{RUN} --layers conv,relu --save tensors --seed 1",
    "runs/leaf": f"{RUN} --layers leaf --grids none",
    "runs/leaves": f"{RUN} --layers leaf --grids none --seed 1",
    "runs/renamed": f"{RUN.replace('make', 'renamed')} --layers all",
    "runs/nan": f"{RUN} --model-arg flags=nan",
    "runs/resumed": f"{RUN} --grids none",
    "runs/gradients": f"{RUN.replace('inspect', 'gradients')} --grids none",
    "analysed": "places runs/plain",
    "others": "places runs/other",
    "exported": "export runs/plain --to npy",
}
# The words that a command has besides those of a case. A case may replace each option, and the
# images ``photos``.
MODEL_WORDS = "model.py:make photos --size 16"
OF_A_MODEL = f"{MODEL_WORDS} --keep-run kept"  # an analysis
ANALYSIS = f"{OF_A_MODEL} -o out"
BASES = {
    "inspect": f"{MODEL_WORDS} -o out --grids none --format json",
    "gradients": f"{MODEL_WORDS} -o out --grids none --format json",
    "layers": "model.py:make --size 16",
    "models": "resnet18",
    "ablate": f"{MODEL_WORDS} --format json",
    "sensitivity": f"{MODEL_WORDS} --to int8 --format json",
    "compare": f"{MODEL_WORDS} --against dtype=bfloat16 --format json",
    "diff": "photos",
    "golden": MODEL_WORDS,
    "places": ANALYSIS,
    "map": ANALYSIS,
    "probe": f"{ANALYSIS} --labels folders --folds 2",
    "similarity": f"{ANALYSIS} --layers conv,relu",
    "report": "runs/plain",
    "export": "runs/plain -o out --to npy",
    "schema": "",
}
RUNNING = "inspect gradients"
ANALYSES = "places map probe similarity"
READING = f"golden {ANALYSES}"  # commands that take a run or a model
FED = f"{RUNNING} ablate sensitivity compare {READING}"  # commands that run a model on images
# Commands that say nothing but warnings, which they also say if they are quiet.
ALIKE = {(each, "--quiet") for each in ("layers", "models", "report", "export", "schema")}
# Where each command shows the figures of the layers.
FIGURES = dict.fromkeys(RUNNING.split(), "out/layers.csv")
FIGURES |= dict.fromkeys(ANALYSES.split(), "kept/layers.csv")


@dataclass(frozen=True)
class Case:
    """What a user adds to a command, and what happens then.

    Attributes:
        words: the words, of which the first is the option that the case is about.
        shows: a glob of what the words change: a file, ``stdout``, ``stderr`` or ``code``; or
            ``figures``, which is the place of ``FIGURES`` or stdout.
        refused: a part of the message with which hookcli refuses the words, instead of ``shows``.
        of: the commands; empty for all that have the option.
        base: words that the command has in addition, also without ``words``.
        images: what replaces the images ``photos``, both runs of ``hookcli diff``, or, if it is a
            run, the model and images of an analysis.
        apart: whether each verb reads the option itself, although they share its request.
    """

    words: str
    shows: str = ""
    refused: str = ""
    of: str = ""
    base: str = ""
    images: str = "photos"
    apart: bool = False

    @property
    def option(self):
        return self.words.split()[0].partition("=")[0]


CASES = [
    # Layers
    Case(
        "--layers relu",
        "figures",
        of=f"{RUNNING} layers ablate compare {READING.replace('probe ', '')}",
    ),
    Case("--layers conv", "figures", of="probe"),
    Case("--layers conv", "stdout", of="sensitivity"),
    Case("--layers relu", "out/*", of="export"),
    Case("--exclude conv", "figures", base="--layers conv,relu,fc"),
    Case("--at input", "figures", of="inspect compare golden"),
    Case("--ops", "stdout"),
    # Output
    Case("-o new", "new*", of=f"{RUNNING} golden export"),
    Case("-o new", "new*", of=ANALYSES, images="runs/plain"),
    Case("--overwrite", "code", base="-o runs/plain", of=RUNNING),
    Case("--overwrite", "code", base="-o analysed", of=ANALYSES, images="runs/plain"),
    Case("--overwrite", "code", base="-o exported", of="export"),
    Case("--overwrite", "code", base="-o model.py", of="golden"),
    Case("--overwrite", refused="no effect without -o", of="golden"),
    Case("--resume", "code", base="-o runs/resumed", of="inspect"),
    Case("--resume", "code", base="-o runs/gradients", of="gradients"),
    Case("--verify", refused="--resume"),
    Case("--format csv", "stdout", of=f"{RUNNING} layers models ablate sensitivity compare diff"),
    Case("--format csv", "stdout", of=ANALYSES, images="runs/plain"),
    Case("--format json", "stdout", of="report export"),
    Case("--quiet", "stderr", of=RUNNING),
    Case("--quiet", "stderr", base="--layers all", of="ablate compare golden"),
    Case("--quiet", "stderr", of="sensitivity"),
    Case("--quiet", "stderr", of=ANALYSES, images="runs/plain"),
    Case("--quiet", "stderr", base="--pictures new", of="diff"),
    Case("--time", "stderr"),
    Case("--dry-run", "stdout"),
    Case("--sort name", "stdout"),
    Case("--depth 0", "stdout"),
    Case("--measure", "stdout"),
    Case("--batch-size 2", "stdout", base="--measure", of="layers"),
    Case("--batch-size 2", refused="--batch-size has no effect without --measure", of="layers"),
    Case("--backward", "stdout", base="--measure"),
    Case("--device cuda:99", "code", base="--measure", of="layers"),
    Case("--dtype bfloat16", "stdout", base="--measure", of="layers"),
    Case("-o costs", "costs/*", base="--measure", of="layers"),
    Case("--overwrite", "code", base="--measure -o analysed", of="layers"),
    # Model
    Case("--weights other.pth", "figures"),
    Case("--seed 1", "figures", base="--weights random"),
    Case("--device cuda:99", refused="cuda", of=FED),
    Case("--dtype bfloat16", "figures", of=FED),
    Case("--size 12", "figures"),
    Case("--resize 19", "figures"),
    Case("--bands 2,1,0", "figures", of=FED),
    Case("--bands 0,1", "code", of="layers"),
    Case("--mean 1,1,1", "figures", of=FED),
    Case("--mean 1 --std 1", "code", of="layers"),
    Case("--std 2,2,2", "figures", of=FED),
    Case("--std 2 --mean 1", "code", of="layers"),
    Case("--interpolation nearest", "figures"),
    Case("--preprocess fit=letterbox", refused="--preprocess and --size both say", of=FED),
    Case("--model-arg shift=1", "figures", of=FED),
    Case("--model-arg bands=5", "*", of="layers"),
    Case("--input gain=2", "figures", of=FED),
    Case("--input nosuch=2", "code", of="layers"),
    Case(
        "--inputs-as dict",
        "figures",
        base="--input gain=2",
        of=FED,
    ),
    Case("--inputs-as dict", "stdout", base="--input gain=2", of="layers"),
    Case("--categories names.txt", "stdout", of=f"{RUNNING} ablate"),
    Case("--categories names.txt", "kept/*", of=ANALYSES),
    Case("--output-key 1", "stdout", base="--model-arg flags=both", of=f"{RUNNING} ablate"),
    Case("--output-key 1", "kept/*", base="--model-arg flags=both", of=ANALYSES),
    Case("--output-key 1", "stdout", base="--model-arg flags=both", of="compare golden"),
    Case("--output-key 1", "stdout", base="--model-arg flags=both", of="sensitivity"),
    Case("--mode train", "figures"),
    Case("--like resnet18", refused="--like"),
    Case("--provider cuda", refused="--provider"),
    Case("--input-layout NHWC", refused="--input-layout"),
    # Images
    Case("--no-recursive", "*", images="nested"),
    Case("--null", "code", images="@null.txt"),
    Case("--null", refused="no effect without @LIST"),
    Case("--on-error skip", "code", base="--model-arg flags=fail"),
    Case("--workers 3", "workers", images="many", of=f"{RUNNING} {READING}"),
    Case("--pair cat.png", refused="takes no pair"),
    Case("--clip", refused="takes no clip", images="photos/a"),
    Case("--range minmax", "figures", images="deep"),
    Case("--range minmax", refused="--range"),
    Case("--page 1", "figures", images="pages"),
    Case("--batch-size 1", "figures", of=f"inspect ablate {READING}"),
    # Changes
    Case("--edit conv:scale=2", "figures"),
    Case("--prune conv=0.5", "figures"),
    Case("--save-weights new.safetensors", "new.safetensors", base="--prune conv=0.5"),
    Case("--save-weights new.safetensors", refused="--prune"),
    # Pictures
    Case("--grids sheet", "out/sheets/*"),
    Case("--top 1", "out/grids/*", base="--grids layers", of=RUNNING),
    Case("--channels 1", "out/grids/*", base="--grids layers", of=RUNNING),
    Case("--rank index", "out/grids/*", base="--grids layers"),
    Case("--scale layer", "out/grids/*", base="--grids layers"),
    Case("--colormap gray", "out/grids/*", base="--grids layers"),
    Case("--tile 32", "out/grids/*", base="--grids layers"),
    Case("--theme light", "out/grids/*", base="--grids layers", of=RUNNING),
    Case("--theme light", "out/*.png", of=ANALYSES, images="runs/plain", apart=True),
    Case("--picture-format svg", "out/grids/*.svg", base="--grids layers"),
    Case("--focus 4,4,9,9", "out/grids/*", base="--grids layers", images="cat.png"),
    Case("--overview", "out/overview.png"),
    Case("--heat mean", "out/heat/*"),
    Case("--top-images 1", "out/top_images.csv"),
    # Tensors
    Case("--save tensors", "out/tensors/*"),
    Case("--pool mean", "out/tensors/*", base="--save tensors", of=RUNNING),
    Case("--pool max", "out/*", of="map probe similarity", images="runs/plain"),
    Case("--tensor-dtype float16", "out/tensors/*", base="--save tensors"),
    Case("--tensor-channels 0", "out/tensors/*", base="--save tensors"),
    Case("--max-disk 1e-9", "code", base="--save tensors"),
    Case("--max-disk 1", refused="--save"),
    Case("--no-sketch", "out/records.parquet/*"),
    # Attention
    Case("--attention all", refused="attention"),
    Case("--patch 3,3", refused="--patch"),
    Case("--rollout", refused="--rollout"),
    # Findings
    Case("--rule uncalled=5", "stdout", base="--layers all"),
    Case("--fail-on uncalled", "code", base="--layers all"),
    # Machine
    Case("--threads 3", "figures"),
    Case("--cluster auto --threads 3", refused="--cluster"),
    Case("--cluster-workers 2", refused="cluster"),
    Case("--cpus-per-worker 2", refused="cluster"),
    Case("--gpus-per-worker 1", refused="cluster"),
    Case("--storage-option anon=true", refused="--storage-option"),
    # Gradients and ablation
    Case("--target 1", "figures"),
    Case("--score probability", "figures"),
    Case("--input-grad", "out/layers.csv"),
    Case("--times-activation", "out/grids/*", base="--grids layers"),
    Case("--cam relu", "out/cam/*"),
    Case("--saliency", "out/saliency/*"),
    Case("--cam-method layercam", "out/cam/*/*", base="--cam conv"),
    Case("--no-judge", "stdout", base="--cam conv"),
    Case("--cam-mean", "out/cam/*/*", base="--cam conv,relu"),
    Case("--text cat", refused="takes no texts", of="gradients"),
    Case("--channels 1", "stdout", of="ablate"),
    Case("--to bfloat16", "stdout", of="sensitivity"),
    Case("--round weights", "stdout"),
    Case("--per-tensor", "stdout"),
    Case("--percentile 90", "stdout"),
    Case("--keep 50%", "stdout", of="sensitivity"),
    Case("--reach rel-l2<=1e-9", "code", of="sensitivity"),
    Case("--batch-size 1", "stdout", of="sensitivity", base="--keep 50%"),
    Case("--nodes-of net.py", base="--keep 50%", refused="takes an ONNX file"),
    Case("--top 1", "stdout", base="--format table", of="sensitivity"),
    Case("--top 1", "stdout", base="--format table", of="ablate"),
    Case("--top 1", "stdout", base="--format table --layers conv,relu", of="compare"),
    Case("--top 1", "stdout", of="diff"),
    # Models
    Case("--source hf", "stdout"),
    Case("--fetch --source hf", refused="--fetch"),
    # Compare and diff
    Case("--against mode=train", "stdout"),
    Case("--against batch=2", "stdout"),
    Case("--against repeat", "stdout", of="compare"),
    Case("--against autocast=bfloat16", "stdout"),
    Case("--against preprocess=order=bgr", "stdout"),
    Case("--metric max-abs", "stdout"),
    Case("--rtol 100", "code", base="--against mode=train", of="compare"),
    Case("--rtol 100", "code", of="diff"),
    Case("--atol 100", "code", base="--against mode=train", of="compare"),
    Case("--atol 100", "code", of="diff"),
    Case("--atol 1 --metric cosine", refused="--atol has no effect on --metric cosine"),
    Case("--layer-tolerance *=100", "code", base="--against mode=train", of="compare"),
    Case("--layer-tolerance *=100", "code", of="diff"),
    Case("--equal-nan", "stdout", base="--model-arg flags=nan", of="compare"),
    Case("--equal-nan", "stdout", images="runs/nan runs/nan", of="diff"),
    Case("--blame", "stdout"),
    Case("--match order", refused="--match", of="compare"),
    Case("--match order", "stdout", images="runs/plain runs/renamed", of="diff"),
    Case("--sort worst", "stdout", base="--layers all", of="compare"),
    Case("--sort worst", "stdout", images="runs/leaf runs/leaves", of="diff"),
    Case("--keep-export new.onnx", refused="--keep-export"),
    Case("--pictures new", "new/*"),
    Case("--theme light", "new/*", base="--pictures new", of="compare diff"),
    Case("--theme light", refused="--pictures", of="compare diff"),
    # Analyses
    Case("--keep-run new", "new/*"),
    Case("--pca --similar 3,3", refused="--pca"),
    Case("--foreground", "out/places.parquet", images="runs/plain"),
    Case("--basis others", "out/places.parquet", images="runs/plain"),
    Case("--similar 3,3", "out/places.parquet", images="runs/plain"),
    Case("--correspond photos/b/1.png", "out/places.parquet", images="runs/plain"),
    Case(
        "--at 3,3", "stdout", base="--correspond photos/b/1.png", of="places", images="runs/plain"
    ),
    Case("--mutual", "out/places.parquet", base="--correspond photos/b/1.png", images="runs/plain"),
    Case("--image photos/b/1.png", "out/places.parquet", base="--similar 3,3", images="runs/plain"),
    Case("--neighbours 1", "out/neighbours.csv", images="runs/plain"),
    Case("--duplicates 1000", "out/*", images="runs/plain"),
    Case("--labels folders", "out/map.csv", of="map", images="runs/plain"),
    Case("--labels labels.csv", "out/*", of="probe", images="runs/plain"),
    Case("--folds 3", "out/*", images="many"),
    Case("--control runs/other", "out/probe.csv", images="runs/plain"),
    # Report and export
    Case("--single-file", "runs/plain/report.html"),
    Case("--open", "browser"),
    Case("--to csv", "out/*", of="export"),
]


# Other words that have no effect together, and the message.
TOGETHER = {
    "--channels all --top 3": "--top has no effect with --channels all",
    "--channels 1,2 --rank mean": "--rank mean has no effect with --channels",
    "--focus 4,4,9,9 --rank mean": "--rank mean has no effect with --focus",
    "--grids none --channels all": "--channels all has no effect with --grids none",
    "--grids none --tile 32": "--tile 32 has no effect with --grids none",
    "--grids none --picture-format svg": "--picture-format svg has no effect with --grids none",
    "--rule dead=2": "--rule dead=2: not from 0 to 1",
    "--rule dead=0.5 --rule dead=0.6": "--rule has two values for 'dead'",
    "--input gain=1 --input gain=2": "--input has two values for 'gain'",
    "--weights a.pth --weights=b.pth": "--weights can be given only once",
    "-o a --out b": "--out can be given only once",
    "--sketch --no-sketch": "--sketch can be given only once",
}


def list_commands(case):
    all_with = [each for each in COMMANDS if find_option(each, case.option)]
    return case.of.split() or [each for each in all_with if (each, case.option) not in ALIKE]


def list_words(command, case, words=""):
    """The words of a command; an option of the case replaces the same option of the base."""
    is_diff = (command, case.images) == ("diff", "photos")
    images = "runs/plain runs/other" if is_diff else case.images
    replaced = OF_A_MODEL if images == "runs/plain" else "photos"
    base = replace_options(
        [command, *BASES[command].replace(replaced, images).split()], *case.base.split()
    )
    return tuple(replace_options(base, *words.split()))


def find_requests(command, case):
    names = {case.option, *find_option(command, case.option).opts}
    verb = getattr(import_module(f"hookcli.verbs.{command}"), command).verb
    left = [(command, each, each) for each in verb.fields]
    while left:
        owner, field, given = left.pop()
        if field.request is not None:
            left += [(field.request, each, given) for each in list_fields(field.request)]
        if field.flag is not None and names & set(field.flag.name.split("/")):
            return owner, given.request
    return command, None


def choose_rows(cases):
    """Return each case with one command of each request that holds its option.

    And, of each command, one case of each request that its verb is given.
    """
    rows, reached = [], set()
    for case in cases:
        for command in list_commands(case):
            owner, given = find_requests(command, case)
            covers = {(case, owner), (command, given)}
            if case.apart or not covers <= reached:
                reached |= covers
                rows.append((command, case))
    return rows


ROWS = [(command, case) for case in CASES for command in list_commands(case)]
CHANGES = choose_rows([case for case in CASES if case.shows])
REFUSALS = [(list_commands(case)[0], case) for case in CASES if case.refused]


def name_row(row):
    return f"{row[0]} {row[1].words}"


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    numbers = np.random.default_rng(0)

    def save(name, shape=(20, 24, 3), kind=np.uint8, low=0, **options):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        values = numbers.integers(low, np.iinfo(kind).max, shape, kind, endpoint=True)
        Image.fromarray(values).save(folder / name, **options)

    (folder / "model.py").write_text(MODEL)
    for label in "ab":
        for number in range(2):
            save(f"photos/{label}/{number}.png")
    save("photos/b/1.png", low=250)
    for number in range(9):
        save(f"many/{'ab'[number % 2]}/{number}.png")
    for number in range(4):
        save(f"deep/{'ab'[number % 2]}/{number}.png", (20, 24), np.uint16, low=60000)
        second = Image.fromarray(numbers.integers(0, 255, (20, 24, 3), np.uint8))
        save(f"pages/{'ab'[number % 2]}/{number}.tif", save_all=True, append_images=[second])
    save("nested/0.png")
    save("nested/inner/1.png")
    save("cat.png")
    (folder / "names.txt").write_text("cat\ndog\nbird\n")
    images = [f"photos/{label}/{number}.png" for label in "ab" for number in range(2)]
    (folder / "null.txt").write_bytes(b"\0".join(image.encode() for image in images))
    labels = [f"{image},{number % 2}" for number, image in enumerate(images)]
    (folder / "labels.csv").write_text("\n".join(["image,label", *labels]))
    names = {"conv": (4, 3, 3, 3), "fc": (3, 4), "spare": (3, 4)}
    state = {f"{name}.weight": torch.ones(shape) for name, shape in names.items()}
    state |= {f"{name}.bias": torch.zeros(shape[0]) for name, shape in names.items()}
    torch.save(state, folder / "other.pth")
    for name, words in RUNS.items():
        ended = run_in(folder, *words.split(), "-o", name)
        assert ended.code == 0, ended.err
    return World(folder)


@pytest.fixture(scope="session")
def plain_commands():
    return {}


@pytest.fixture
def observe(world, run, monkeypatch):
    from hookcli.images import prepare
    from hookcli.passes import measure

    noted = {}

    def load(dataset, num_workers, **_options):
        noted["workers"] = num_workers
        return map(dataset.__getitem__, range(len(dataset)))

    def observe(*words):
        noted.clear()
        with own_state(world.folder):
            code, out, err = run(*words)
        if out.startswith("{"):
            document = json.loads(out)
            document.pop("command", None)
            out = json.dumps(document)
        return {"code": code, "stdout": out, "stderr": err, **noted, **world.restore()}

    monkeypatch.setattr(prepare, "DataLoader", load)
    for name, value in {"_SIDE": 8, "_COPIED": 1 << 10, "_SECONDS": 0}.items():
        monkeypatch.setattr(measure, name, value)  # a quick test of the machine's speed
    monkeypatch.setattr("webbrowser.open", lambda url: noted.update(browser=url))
    return observe


class World:
    def __init__(self, folder):
        self.folder = folder
        self.folders = {folder for folder, _, _ in os.walk(folder)}
        self.files = {file: (file.read_bytes(), self._mark(file)) for file in self._list()}

    def restore(self):
        """Undo all changes, and return the content of new and changed files by name."""
        found, now = {}, set(self._list())
        for file in now:
            if file not in self.files or self._mark(file) != self.files[file][1]:
                found[str(file.relative_to(self.folder))] = file.read_bytes()
                file.unlink()
        for file, (data, _) in self.files.items():
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
                self.files[file] = data, self._mark(file)
        for folder, _, _ in sorted(os.walk(self.folder), reverse=True):
            if folder not in self.folders:
                Path(folder).rmdir()
        return found

    def _list(self):
        return [Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names]

    def _mark(self, file):
        facts = file.stat()
        return facts.st_mtime_ns, facts.st_size, facts.st_ino


@pytest.mark.parametrize(
    ("command", "case"), [pytest.param(*row, id=name_row(row)) for row in CHANGES]
)
def test_an_option_changes_what_the_command_does(observe, plain_commands, command, case):
    shows = FIGURES.get(command, "stdout") if case.shows == "figures" else case.shows
    words = list_words(command, case)
    if words not in plain_commands:
        plain_commands[words] = observe(*words)
    plain = plain_commands[words]
    changed = observe(*list_words(command, case, case.words))
    differ = [each for each in {**plain, **changed} if plain.get(each) != changed.get(each)]
    assert any(fnmatch(each, shows) for each in differ), (
        plain["stderr"],
        changed["stderr"],
        differ,
    )


@pytest.mark.parametrize(
    ("command", "case"), [pytest.param(*row, id=name_row(row)) for row in REFUSALS]
)
def test_an_option_without_effect_is_refused(observe, command, case):
    ended = observe(*list_words(command, case, case.words))
    message = ended["stderr"].partition("error: ")[2].partition("\nhint:")[0]
    assert (ended["code"], case.refused in message) == (2, True), ended["stderr"]


@pytest.mark.parametrize("words", TOGETHER)
def test_words_that_have_no_effect_together_are_refused(world, capsys, words):
    with own_state(world.folder) as patch:
        command = ["inspect", "model.py:make", "cat.png", "--seed", "1", *words.split()]
        patch.setattr(sys, "argv", ["hookcli", *command])  # the fixture ``run`` replaces words
        code = entry._run()
    assert (code, capsys.readouterr().err.partition("\n")[0]) == (2, f"error: {TOGETHER[words]}")
    assert world.restore() == {}


@pytest.mark.parametrize(
    "words",
    [("report",), ("golden", "runs/plain", "-o"), ("export", "runs/plain", "--to", "npy", "-o")],
)
def test_a_name_that_is_too_long_is_refused(observe, words):
    ended = observe(*words, "x" * 5000)
    assert (ended["code"], ended["stderr"]) == (2, "error: the name of a file is too long\n")


def test_every_option_of_every_command_has_a_case():
    covered = {(command, find_option(command, case.option)) for command, case in ROWS}
    missing = [
        f"{command} {option.opts[-1]}"
        for command in COMMANDS
        for option in entry.build_command(command).params
        if option.param_type_name == "option" and (command, option) not in covered
        if (command, option.opts[-1]) not in ALIKE
    ]
    assert missing == []
