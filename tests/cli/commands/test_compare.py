"""The option ``--pictures`` of ``hookcli compare``: the page, its protections, and stdout."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.toy_models import two_channel_net

WORDS = ("compare", "nets.py:Net", "a.npy", "--device", "cpu", "--layers", "leaf")
EDIT = ("--against", "edit=relu:scale=3")


@pytest.fixture(autouse=True)
def nets():
    Path("nets.py").write_text(two_channel_net(1, "mean"))
    np.save("a.npy", np.stack([np.full((2, 2), v, "f4") for v in (3, -4, 0)]))


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


def test_without_blame_there_is_no_word_of_own_errors(run):
    run(*WORDS, *EDIT, "--pictures", "p")
    page = Path("p/report.html").read_text()
    body = page[page.index("<body>") :]
    assert not re.search("own|culprit|inherited", body)


def test_made_twice_it_is_the_same_to_the_byte(run):
    for folder in ("p", "q"):
        run(*WORDS, *EDIT, "--pictures", folder, "--blame")
    one, two = ({file.name: file.read_bytes() for file in Path(f).iterdir()} for f in "pq")
    assert sorted(one) == ["01_relu.png", "02_fc.png", "report.html"]
    assert one == two


def test_the_page_before_is_replaced_and_other_files_stay(run):
    run(*WORDS, *EDIT, "--pictures", "p")
    Path("p/notes.txt").write_text("mine")
    run(*WORDS, "--against", "threads=1", "--pictures", "p")
    assert sorted(file.name for file in Path("p").iterdir()) == ["notes.txt", "report.html"]


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


def test_what_is_printed_is_the_same_with_a_page(run):
    for words in ((), ("--format", "json"), ("--format", "csv")):
        plain, drawn = (run(*WORDS, *EDIT, *words, *more) for more in ((), ("--pictures", "p")))
        assert drawn.out == plain.out
    assert json.loads(run(*WORDS, *EDIT, "--format", "json", "--pictures", "p").out)


def test_light_pictures_are_lighter(run):
    from PIL import Image

    seen = []
    for theme in ("dark", "light"):
        run(*WORDS, *EDIT, "--pictures", "p", "--theme", theme)
        seen.append(Image.open("p/01_relu.png").convert("L").getpixel((0, 0)))
    assert seen[0] < 50 < 200 < seen[1]


def test_hostile_names_are_text_on_the_page(run):
    hostile = two_channel_net(1, "mean").replace("self.relu(", "self.get_submodule('<b>x')(")
    Path("nets.py").write_text(hostile.replace("self.relu =", "self._modules['<b>x'] ="))
    words = ("--against", "edit=conv:scale=2", "--pictures", "p", "--blame")
    assert run(*WORDS, *words).code == 7
    page = Path("p/report.html").read_text()
    assert "<b>x" not in page
    assert '<a href="#call-2">&lt;b&gt;x</a>' in page
