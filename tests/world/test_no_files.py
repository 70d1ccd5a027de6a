"""hookcli opens only regular files: it neither waits for a pipe nor reads a device."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from hookcli.images.read import read_images

SMALL = ("--weights", "random", "--size", "64", "--layers", "conv1", "--device", "cpu", "-o", "run")
NO_FILE = "is not a regular file"


@pytest.fixture(autouse=True)
def guard():
    """A test that waits at a pipe is ended, and one that reads a device runs out of memory
    early.
    """

    resource = pytest.importorskip("resource")  # not on Windows

    def give_up(_signal, _frame):
        raise TimeoutError("still waiting")

    before = signal.signal(signal.SIGALRM, give_up)
    most = resource.getrlimit(resource.RLIMIT_AS)
    pages = Path("/proc/self/statm")
    if pages.exists():  # elsewhere the clock alone ends it
        used = int(pages.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), most[1]))
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    resource.setrlimit(resource.RLIMIT_AS, most)


class Writer:
    """A writer that waits for a reader of its pipe."""

    def __init__(self, file):
        self._file = str(file)
        os.mkfifo(file)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()
        self._thread.join(
            0.05
        )  # until it waits: a test may put a file in the place of the pipe at once

    def _wait(self):
        with contextlib.suppress(BrokenPipeError):
            os.close(os.open(self._file, os.O_WRONLY))

    def is_waiting(self):
        """Return whether nobody has opened the other end."""
        self._thread.join(0.05)
        return self._thread.is_alive()

    def release(self):
        reader = os.open(self._file, os.O_RDONLY | os.O_NONBLOCK)
        self._thread.join(10)
        os.close(reader)


@pytest.fixture
def writer():
    """Makes pipes, each with somebody waiting at it; nobody may have disturbed them."""
    made = []

    def make(file):
        made.append(Writer(file))
        return str(file)

    yield make
    undisturbed = [each.is_waiting() for each in made]
    for each in made:
        each.release()
    assert all(undisturbed)


@pytest.fixture(params=["pipe", "zero"])
def no_file(request, writer):
    """A name with a suffix that stands for a pipe, or for a device that never ends."""

    def make(name):
        if request.param == "pipe":
            return writer(name)
        Path(name).symlink_to("/dev/zero")
        return name

    return make


def photo(name):
    Image.linear_gradient("L").save(name)
    return name


# Images


@pytest.mark.parametrize("name", ["a.png", "a.npy"])
def test_an_image_that_is_no_file_is_skipped(run, no_file, name):
    ended = run("inspect", "resnet18", no_file(name), *SMALL)
    assert (ended.code, ended.out) == (3, "")
    assert f"error: no image can be used: '{name}' {NO_FILE}\n" in ended.err


def test_what_is_no_file_in_a_folder_is_skipped_with_the_reason(run, no_file):
    Path("photos").mkdir()
    for number in range(9):
        photo(f"photos/{number}.png")
    no_file("photos/a.png")
    no_file("photos/b.tif")
    ended = run("inspect", "resnet18", "photos", *SMALL, "--grids", "none", "--workers", "0")
    assert ended.code == 6
    with Path("run/skipped.csv").open() as file:
        rows = [(row["file"], row["reason"]) for row in csv.DictReader(file)]
    assert rows == [("photos/a.png", NO_FILE), ("photos/b.tif", NO_FILE)]


# Lists


def test_a_list_that_is_no_file_is_refused(run, no_file):
    ended = run("inspect", "resnet18", f"@{no_file('list')}", *SMALL)
    assert ended.code == 2
    assert f"error: cannot read the list '@list': it {NO_FILE}\n" in ended.err
    assert (
        "hint: pipe the output of the other command to standard input, and write '-' for it"
        in ended.err
    )


def test_a_list_of_layers_that_is_no_file_is_refused(run, no_file):
    ended = run(
        "inspect", "resnet18", photo("a.png"), *SMALL, "--exclude", f"@{no_file('layers.txt')}"
    )
    assert ended.code == 2
    assert f"error: cannot read the layer list 'layers.txt': {NO_FILE}\n" in ended.err


# Weights and code


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_weights_that_are_no_file_are_refused(run, no_file, name):
    ended = run("inspect", "resnet18", photo("a.png"), *SMALL, "--weights", no_file(name))
    assert ended.code == 4
    assert f"error: cannot read the weights {name}: it {NO_FILE}\n" in ended.err


def test_code_that_is_no_file_is_refused(run, no_file):
    no_file("own.py")
    for words in (["own.py:make"], ["resnet18", "--score", "own.py:score"]):
        command = "gradients" if len(words) > 1 else "inspect"
        ended = run(command, words[0], photo("a.png"), *SMALL, *words[1:])
        assert ended.code == 2
        assert f"error: cannot read 'own.py': {NO_FILE}\n" in ended.err


# What is looked at is what is opened


@pytest.fixture
def exchanged(monkeypatch):
    """Every file turns into a pipe between the look at its name and its opening."""
    os.mkfifo("exchanged")
    before = os.open

    def open_other(_name, flags, *more, **options):
        return before("exchanged", os.O_RDONLY | os.O_NONBLOCK)

    def begin():
        monkeypatch.setattr(os, "open", open_other)

    yield begin
    monkeypatch.setattr(os, "open", before)


def test_a_file_is_looked_at_again_when_it_is_open(exchanged):
    from hookcli.errors import RequestError, WeightsError
    from hookcli.hooks.filter import select_layers
    from hookcli.images.find import find_files
    from hookcli.networks.own_code import import_code
    from hookcli.networks.weights_file import read_weights_file

    photo("a.png")
    Path("list").write_text("a.png\n")
    Path("own.py").write_text("x = 1\n")
    state = {"weight": torch.zeros(2)}
    torch.save(state, "w.pth")
    save_file(state, "w.safetensors")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    exchanged()
    assert read_images(["a.png"])[1][0].reason == NO_FILE
    with pytest.raises(RequestError, match=NO_FILE):
        find_files(["@list"])
    with pytest.raises(RequestError, match=NO_FILE):
        select_layers(model, ["@list"])
    with pytest.raises(RequestError, match=NO_FILE):
        import_code("own.py")
    for name in ("w.pth", "w.safetensors"):
        with pytest.raises(WeightsError, match=NO_FILE):
            read_weights_file(Path(name))
