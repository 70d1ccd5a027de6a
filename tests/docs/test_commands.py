"""What the README and the site tell people to type works, in the order in which it stands there.

A page is a session in a folder of its own, beside the sample photos:

- `sh` blocks are commands, and `console` blocks are commands after `$ ` with what they print;
- a block with a title is a file of that name, which the commands after it may use;
- `python` blocks without a title run one after the other, in one namespace;
- a block after the comment `<!-- not run: REASON -->` is not run; its options exist (test_options).

No weights are downloaded: `--weights auto` falls back to random ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from PIL import Image
from torchvision.models import resnet34

from hookcli.__main__ import _run

pytestmark = pytest.mark.docs

HOME = Path(__file__).parent.parent.parent
EXAMPLES = "commands.md"  # the page with the examples of --help
# The longest page first, so that no worker waits for it at the end.
PAGES = sorted((HOME / "docs").rglob("*.md"), key=lambda page: (page.name != EXAMPLES, page))
PAGES.insert(1, HOME / "README.md")
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n)?"
    r"(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^ *```",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?")
# What the examples of --help find in the folder.
MODEL = """
from collections import OrderedDict
from torch import nn, manual_seed


def make():
    manual_seed(0)
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(3, 4, 3),
            avgpool=nn.AdaptiveAvgPool2d(1),
            flat=nn.Flatten(),
            fc=nn.Linear(4, 3),
        )
    )
"""
CODES = {"diff": {0, 7}, "compare": {0, 7}}  # others end with 0, or 7 with --fail-on


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str
    reason: str  # why it is not run; empty if it is


def read_blocks(page: Path) -> list[Block]:
    return [
        Block(
            found["language"],
            found["title"] or "",
            re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            found["reason"] or "",
        )
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def list_commands(block: Block) -> list[tuple[str, str]]:
    joined = block.text.replace("\\\n", " ")
    if block.language == "console":
        parts = re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]
        return [(command, said) for command, _, said in (part.partition("\n") for part in parts)]
    lines = [line.split("  #")[0].strip() for line in joined.splitlines()]
    return [(line, "") for line in lines if line and not line.startswith("#")]


def ends_well(words: list[str], code: int) -> bool:
    return code in CODES.get(words[1], {0, 7} if "--fail-on" in words else {0})


def run_here(words: list[str]) -> tuple[int, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        sys.argv = words
        code = _run()
    return code, printed.getvalue()


def run_line(line: str, environment: dict[str, str]) -> None:
    if line.startswith("hookcli ") and not re.search(r"[|<>;&$]", line):
        code, printed = run_here(shlex.split(line))
        assert ends_well(shlex.split(line), code), f"{line}: {code}\n{printed}"
        return
    ended = subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode in (0, 7), f"{line}: {ended.returncode}\n{ended.stdout}{ended.stderr}"


def masked(text: str) -> list[str]:
    """The words of each line, without numbers, rules and widths; gaps of tables are of 3 spaces."""
    lines = [
        re.sub(" {3,}", "   ", NUMBER.sub("0", line).strip(" ─")) for line in text.splitlines()
    ]
    return list(filter(None, lines))


@pytest.fixture
def environment(tmp_path, monkeypatch):
    folder, programs = tmp_path / "work", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / "sample_images").symlink_to(HOME / "sample_images")
    for name, start in (("hookcli", f"{sys.executable} -m hookcli"), ("python", sys.executable)):
        file = programs / name
        file.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
        file.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("BROWSER", "true")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody answers
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", f"{HOME}:{folder}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "argv", ["hookcli"])
    return dict(os.environ)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))
def test_a_page_does_what_it_says(page, environment):
    names: dict[str, object] = {}
    if page.name == EXAMPLES:
        prepare_examples()
    for block in read_blocks(page):
        if block.reason:
            continue
        if block.title:
            file = Path(block.title)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)  # noqa: S102
        elif block.language == "sh":
            for line, _ in list_commands(block):
                run_line(line, environment)
        elif block.language == "console":
            for line, said in list_commands(block):
                code, printed = run_here(shlex.split(line))
                assert ends_well(shlex.split(line), code), f"{line}: {code}\n{printed}"
                assert_printed(said, printed, line)
        else:
            assert block.language in ("text", "toml", "yaml", "json"), block


def assert_printed(said: str, printed: str, line: str) -> None:
    """Each line that the page shows is printed, in this order; a line `...` stands for any."""
    lines = iter(masked(printed))
    for wanted in masked(said):
        if wanted != "...":
            assert wanted in lines, f"{line} does not print {wanted!r} here:\n{printed}"


def prepare_examples() -> None:
    Path("model.py").write_text(MODEL)
    Path("photos").mkdir()
    shutil.copy("sample_images/rocket.jpg", "cat.jpg")
    shutil.copy("sample_images/rocket.jpg", "photos")
    shutil.copy("sample_images/coffee.png", "dog.jpg")
    labels = ["image,label"]
    for number in range(10):
        label = ("cats", "dogs")[number % 2]
        Path("pets", label).mkdir(parents=True, exist_ok=True)
        with Image.open("cat.jpg") as photo:
            photo.crop((number, 0, 200 + number, 200)).save(f"pets/{label}/{number}.png")
        labels.append(f"{number}.png,{label}")
    Path("labels.csv").write_text("\n".join(labels))
    torch.save(resnet34(weights=None).state_dict(), "new.pth")
    for line in (
        "golden resnet34 cat.jpg -o new.json",
        "inspect model.py:make cat.jpg -o hookcli-runs/before",
        "inspect model.py:make cat.jpg -o hookcli-runs/after",
        "inspect model.py:make photos --save tensors --pool mean -o hookcli-runs/resnet34-photos",
        "inspect model.py:make pets --save tensors --pool mean -o hookcli-runs/old",
        "inspect model.py:make pets --save tensors --pool mean -o hookcli-runs/new",
        "inspect resnet18 pets --save tensors --pool mean -o hookcli-runs/resnet18",
        "inspect model.py:make cat.jpg dog.jpg --save tensors -o hookcli-runs/vit",
    ):
        assert run_here(["hookcli", *line.split()])[0] == 0
