"""What a run on a cluster writes, held to a run on this machine; workers live in this process."""

from __future__ import annotations

import errno
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from hookcli.outside.files import cannot_write
from hookcli.store.chunks import ChunkFiles
from tests.cluster.fake_ray import FakeRay, put_in_place
from tests.conftest import interrupted_after, own_state, run_in
from tests.world.test_folders import assert_same_folders, draw
from tests.world.test_on_error import SKIP, images, inspected, unlucky

THERE = ("--cluster", "auto", "--cluster-workers", "2")
HERE = ("--threads", "1")


@pytest.fixture(autouse=True)
def ray(monkeypatch):
    """A stand-in for Ray."""
    return put_in_place(monkeypatch, FakeRay())


def run_both(run, *words):
    """The end of the command on the cluster; on this machine it ends and warns alike."""
    here, there = run(*words, *HERE, "-o", "here"), run(*words, *THERE, "-o", "there")
    assert (there.code, list_told(there)) == (here.code, list_told(here))
    return there


def list_told(ended):
    return [
        line for line in ended.err.splitlines() if line.startswith(("warning", "error", "hint"))
    ]


def read_tables(out):
    return {file.name: file.read_bytes() for file in Path(out).glob("*.csv")}


def test_maps_over_the_images_are_the_same_on_the_cluster(run):
    Path("many").mkdir()
    for number in range(34):
        draw(f"many/p{number:02}.png", number)
    words = ("--layers", "conv[1:2]", "--size", "32", "--heat", "mean", "--grids", "none")
    ended = run_both(run, "inspect", "tests.toy_models:Squeezed", "many", *words)
    assert ended.code == 0
    assert_same_folders(Path("here"), Path("there"))
    assert len([*Path("there/heat").rglob("*.png")]) == 34 * 2


def test_an_image_on_which_the_model_fails_ends_the_run_with_the_same_tables(run):
    unlucky(65, 68)
    folder = images(70)
    Path(folder, "00.npy").write_bytes(b"no array")
    ended = run_both(run, *inspected(folder)[:-2])
    assert ended.code == 4
    assert "'many/65.npy': the model failed in second" in ended.err
    assert read_tables("here").keys() == {"layers.csv", "skipped.csv"}
    assert read_tables("here") == read_tables("there")


def test_a_run_that_ended_with_an_error_of_the_model_goes_on_without_the_image(run):
    unlucky(40)
    folder = images(70)
    assert run(*inspected(folder, out="there"), *THERE).code == 4
    ended = run(*inspected(folder, *SKIP, out="there"), *THERE, "--resume")
    assert ended.code == 6, ended.err
    assert "continuing after 32 of 70 images" in ended.err
    assert run(*inspected(folder, *SKIP, *HERE, out="here")).code == 6
    assert_same_folders("here", "there")


def test_the_top_images_of_calls_whose_channels_vary_are_those_of_this_machine(run):
    """The first image decides which number of channels counts, in whatever chunk another begins."""
    Path("net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.part, self.late = nn.Identity(), nn.Identity()\n"
        "    def forward(self, x):\n"
        "        number = round(x.max().item())\n"
        "        x = self.part(x[:, : 1 + number % 5 % 3])\n"
        "        return self.late(x) if number > 40 else x\n"
    )
    words = inspected(images(70))[:-2]
    more = ("--batch-size", "1", "--layers", "all", "--top-images", "40")
    assert run_both(run, *words, *more).code == 0
    assert_same_folders("here", "there")
    assert len(Path("here/top_images.csv").read_text().splitlines()) > 80


def test_a_full_disk_is_met_with_the_hint_of_this_machine(run, monkeypatch):
    def save(files, path, chunk):
        error = OSError(errno.ENOSPC, "No space left on device")
        raise cannot_write(path / "parts/000000.json", error) from error

    monkeypatch.setattr(ChunkFiles, "save", save)
    unlucky()
    ended = run(*inspected(images(40)), *THERE)
    assert ended.code == 5
    assert ended.err.splitlines()[-2:] == [
        f"error: cannot write '{Path.cwd()}/out/parts/000000.json': No space left on device",
        "hint: make room and continue with --resume, or choose another folder with -o",
    ]


def test_what_ray_writes_of_a_cluster_for_the_run_alone_goes_with_it(run, ray):
    def begin(name, *_args):
        assert Path(ray.initialized["_temp_dir"], "session").is_dir()
        if name == "run":
            raise KeyboardInterrupt

    ray.before = begin
    unlucky()
    assert run(*inspected(images(3)), *THERE).code == 130
    assert not Path(ray.initialized["_temp_dir"]).exists()


def sharing(check):
    """A model whose values depend on how many images share a forward."""
    Path("net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.rare = nn.Conv2d(3, 2, 1), nn.Identity()\n"
        "    def forward(self, x):\n"
        "        numbers = set(x.amax((1, 2, 3)).round().int().tolist())\n"
        f"        assert {check}, 'unlucky'\n"
        "        y = self.first(x + len(x))\n"
        "        return (self.rare(y) if 50 in numbers else y).mean((2, 3))\n"
    )


PARTS = ("--batch-size", "4")


def test_a_first_chunk_without_any_image_is_run_before_the_others(run, ray):
    starts = []
    ray.before = lambda name, *work: starts.extend((w.number, w.start.first_shape) for w in work)
    sharing("True")
    folder = images(80)
    for number in range(33):
        Path(folder, f"{number:02}.npy").write_bytes(b"no array")
    ended = run_both(run, *inspected(folder)[:-2], *PARTS)
    assert ended.code == 6, ended.err
    assert starts == [(0, ()), (1, ()), (2, (3, 4, 4))]
    assert_same_folders("here", "there")


def test_chunks_are_run_again_when_one_before_them_shows_that_images_may_not_share(run, ray):
    ran = Counter()
    ray.before = lambda name, *work: ran.update(w.number for w in work)
    sharing("len(x) == 1 or 40 not in numbers")
    ended = run_both(run, *inspected(images(70))[:-2], *PARTS)
    assert ended.code == 0, ended.err
    assert ended.err.count("from here on images go through one at a time") == 1
    assert (ran[0], ran[1], ran[2]) == (1, 1, 2)
    assert_same_folders("here", "there")


def test_the_effects_of_edits_in_workers_are_reported_as_on_this_machine(run):
    """One makes Inf of what was finite, one changes a layer that runs in the second chunk alone."""
    sharing("True")
    edits = ("--edit", "first:scale=1e38", "--edit", "rare:scale=2")
    ended = run_both(run, *inspected(images(70))[:-2], *PARTS, *edits)
    assert ended.code == 0, ended.err
    assert "first:scale=1e38" in "".join(
        finding["sentence"]
        for finding in json.loads(Path("there/report.json").read_text())["findings"]
    )
    assert_same_folders("here", "there")


# Going on


def kill_there(run, ray, words):
    """What a run on the cluster that is killed in its third chunk leaves."""

    def begin(name, *work):
        if name == "run" and work[0].number == 2 and not Path("cut").exists():
            shutil.copytree("killed", "cut")

    ray.before = begin
    assert run(*words, *THERE, "-o", "killed").code == 0


def leave_here(run, ray, words):
    with interrupted_after(chunks=2):
        assert run(*words, *HERE, "-o", "cut").code == 130


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A model, images, and a run over them that was not interrupted; the words of the run."""
    folder = tmp_path_factory.mktemp("whole")
    with own_state(folder):
        sharing("40 not in numbers or len(x) == 1")
        words = (*inspected(images(70))[:-2], *PARTS)
    assert run_in(folder, *words, *HERE, "-o", "whole").code == 0
    return folder, words


@pytest.mark.parametrize(
    ("leave", "goes_on"),
    [(kill_there, HERE), (leave_here, THERE)],
)
def test_a_run_resumed_elsewhere_has_the_bytes_of_an_uninterrupted_run(
    run, ray, whole, leave, goes_on
):
    folder, words = whole
    shutil.copytree(folder, ".", dirs_exist_ok=True)
    leave(run, ray, words)
    ended = run(*words, *goes_on, "-o", "cut", "--resume")
    assert ended.code == 0, ended.err
    assert "continuing after " in ended.err
    assert_same_folders("cut", "whole")
