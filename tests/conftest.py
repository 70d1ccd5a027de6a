"""Shared by all tests: no network, no user's cache, one run folder each."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # two workers on two cores: torch's own threads would fight

PHOTOS = Path(__file__).parent.parent / "sample_images"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test works in a folder of its own, with caches of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a test imports of files that tests wrote is forgotten after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path.parent) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """The command in this process, so that torch is imported once."""
    from hookcli.__main__ import _run

    def command(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["hookcli", *map(str, words)])
        code = _run()
        return Ended(code, *capsys.readouterr())

    return command


@pytest.fixture
def cat() -> Path:
    """A real photo, 451 x 300."""
    return PHOTOS / "cat.png"
