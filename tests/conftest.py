"""Shared by all tests: no network, no user's cache, one run folder each."""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import gc
import io
import os
import shutil
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import PIL
import pytest
from PIL import Image

from hookcli.networks.without_compiler import importing_torchvision
from tests.words import replace_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from playwright.sync_api import Browser
    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.networks.source import Source

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # two workers on two cores: torch's own threads would fight

gc.disable()  # until all tests are found: neither they nor what they import are ever garbage

PILLOW = tuple(map(int, PIL.__version__.split(".")[:2]))
PHOTOS = Path(__file__).parent.parent / "sample_images"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]  # of Chromium


def pytest_configure(config: pytest.Config) -> None:
    """Import torchvision first, as hookcli does: test files that import it would load the compiler.

    pytest-xdist's main process runs no tests, so it does not import torchvision.
    """
    if config.getoption("dist", "no") == "no":
        with importing_torchvision():
            import_module("torchvision")


def pytest_collection_finish() -> None:
    """Collect only objects that tests make; unfreeze at exit, or triton complains of the rest."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)


def every_pair(
    first: Iterable[object], second: Iterable[object], third: Sequence[object]
) -> list[tuple[Any, Any, Any]]:
    """Return rows that contain every pair of values of any two arguments, but not every triple.

    ``third`` must not be longer than ``first`` or ``second``.
    """
    return [
        (one, two, third[(i + j) % len(third)])
        for i, one in enumerate(first)
        for j, two in enumerate(second)
    ]


@contextlib.contextmanager
def own_state(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """Work in ``folder`` with its own caches, and forget imported modules that tests wrote."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("TORCH_HOME", str(folder / "torch"))
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "dont_write_bytecode", True)
        before = set(sys.modules)
        yield patch
        for name in set(sys.modules) - before:
            if str(folder.parent) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def weights_drawn_once() -> Iterator[None]:
    """Draw the random weights of a torchvision model once per seed, and copy them after that.

    Large models are drawn each time, since the copies stay in memory.
    """
    from hookcli.networks import weights
    from hookcli.networks.build import build_random as before
    from hookcli.networks.modules import copy_taken
    from hookcli.networks.torchvision import Torchvision

    drawn = {}

    def build_random(source: Source, request: ModelRequest, **arguments: object) -> nn.Module:
        is_plain = isinstance(source, Torchvision) and not arguments
        if not is_plain or getattr(source.builder, "func", copy_taken) is copy_taken:
            return before(source, request, **arguments)
        assert isinstance(source, Torchvision)
        assert isinstance(source.builder, functools.partial)
        key = (source.builder.args, request.seed, request.size, request.arguments)
        if key in drawn:
            return copy.deepcopy(drawn[key])
        module = before(source, request)
        if sum(parameter.numel() for parameter in module.parameters()) < 36_000_000:
            drawn[key] = copy.deepcopy(module)
        return module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "build_random", build_random)
        yield


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path) -> Iterator[None]:
    """Every test works in a folder of its own, with caches of its own."""
    with own_state(tmp_path):
        yield


@contextlib.contextmanager
def parts_of_eight() -> Iterator[None]:
    """Parts of 8 images in place of 32: several of them in a fraction of the time."""
    from hookcli.products import figures
    from hookcli.summary import chunks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_LEAST", 8)
        patch.setattr(figures, "MOST_SKETCHED", 8)
        yield


@pytest.fixture
def small_parts() -> Iterator[None]:
    with parts_of_eight():
        yield


@contextlib.contextmanager
def interrupted_after(chunks: int) -> Iterator[None]:
    """Press Ctrl-C when a run has run so many chunks."""
    from hookcli.run.chunk_runner import ChunkRunner

    plain = ChunkRunner.run

    def run_chunk(self: Any, number: int, images: Any) -> Any:
        if number == chunks:
            raise KeyboardInterrupt
        return plain(self, number, images)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkRunner, "run", run_chunk)
        yield


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Return a function that runs hookcli in this process, so that torch is imported once.

    An option replaces an earlier one, so that tests can share words.
    """
    from hookcli.__main__ import _run

    # under ``python -m pytest`` the usage would begin with that
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None)

    def command(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["hookcli", *replace_options(words)])
        code = _run()
        return Ended(code, *capsys.readouterr())

    return command


def run_in(folder: Path, *words: object) -> Ended:
    """Run hookcli in this process and in ``folder``, for fixtures that several tests share."""
    from hookcli.__main__ import _run

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with (
        own_state(folder) as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["hookcli", *replace_options(words)])
        patch.setattr(sys.modules["__main__"], "__package__", None)
        code = _run()
        out.flush()
        err.flush()
    return Ended(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt this process, although pytest's workers ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def cat() -> Path:
    """A real photo, 451 x 300."""
    return PHOTOS / "cat.png"


@pytest.fixture
def photo() -> str:
    """A small picture without two rows or columns alike."""
    picture = Image.new("RGB", (40, 30))
    picture.putdata([(6 * x, 8 * y, x * y % 256) for y in range(30) for x in range(40)])
    picture.save("photo.png")
    return "photo.png"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which opens pages without a network."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        started = play.chromium.launch(executable_path=chromium, args=QUIET)
        yield started
        started.close()
