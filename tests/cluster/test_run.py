"""What a run on a cluster writes, held to a run on this machine; workers live in this process."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from hookcli.files import cannot_write
from hookcli.store.chunk_folder import ChunkFiles
from tests.cluster.fake_ray import FakeRay, put_in_place
from tests.run.test_folders import assert_same_folders
from tests.run.test_on_error import SKIP, images, inspected, unlucky

THERE = ("--cluster", "auto", "--cluster-workers", "2")
HERE = ("--threads", "1")


ORDERS = pytest.mark.parametrize("ray", [0, 1], indirect=True)


@pytest.fixture(autouse=True)
def ray(request, monkeypatch):
    """A stand-in for Ray; its seed decides the order in which chunks come back."""
    return put_in_place(monkeypatch, FakeRay(seed=getattr(request, "param", 0)))


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


@ORDERS
@pytest.mark.parametrize("first", [1, 70])
def test_an_image_on_which_the_model_fails_ends_the_run_with_the_same_tables(run, first):
    unlucky(first, 75)
    folder = images(80)
    Path(folder, "00.npy").write_bytes(b"no array")
    ended = run_both(run, *inspected(folder)[:-2])
    assert ended.code == 4
    assert f"'many/{first:02}.npy': the model failed in second" in ended.err
    assert read_tables("here").keys() == {"layers.csv", "skipped.csv"}
    assert read_tables("here") == read_tables("there")
    ended = run(*inspected(folder, *SKIP, out="there"), *THERE, "--resume")
    assert ended.code == 6, ended.err
    run(*inspected(folder, *SKIP, *HERE, out="whole"))
    assert_same_folders("whole", "there")


@ORDERS
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
    folder = images(80)
    words = (*inspected(folder)[:-2], "--batch-size", "1", "--layers", "all", "--top-images", "40")
    assert run_both(run, *words).code == 0
    assert_same_folders("here", "there")
    assert len(Path("here/top_images.csv").read_text().splitlines()) > 80


@pytest.mark.parametrize("has_name", [True, False])
def test_a_full_disk_is_met_with_the_hint_of_this_machine(run, monkeypatch, has_name):
    def save(files, path, chunk, top):
        error = OSError(errno.ENOSPC, "No space left on device")
        if has_name:
            raise cannot_write(path / "parts/000000.json", error) from error
        raise error

    monkeypatch.setattr(ChunkFiles, "save", save)
    unlucky()
    ended = run(*inspected(images(40)), *THERE)
    file = "out/parts/000000.json" if has_name else "out"
    assert ended.code == 5
    assert ended.err.splitlines()[-2:] == [
        f"error: cannot write '{Path.cwd()}/{file}': No space left on device",
        "hint: make room and continue with --resume, or choose another folder with -o",
    ]


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_what_ray_writes_of_a_cluster_for_the_run_alone_goes_with_it(run, ray, is_interrupted):
    def begin(name, *_args):
        assert Path(ray.initialized["_temp_dir"], "session").is_dir()
        if is_interrupted and name == "run":
            raise KeyboardInterrupt

    ray.before = begin
    unlucky()
    assert run(*inspected(images(3)), *THERE).code == 130 * is_interrupted
    assert not Path(ray.initialized["_temp_dir"]).exists()


def test_a_cluster_that_is_there_keeps_its_own_folder(run, ray):
    unlucky()
    assert run(*inspected(images(3)), *THERE, "--cluster", "10.0.0.5:6379").code == 0
    assert (ray.initialized["address"], ray.initialized["_temp_dir"]) == ("10.0.0.5:6379", None)
