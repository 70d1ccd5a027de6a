"""The command in a pipeline: lines of JSON, terminals and none, readers that leave."""

from __future__ import annotations

import csv
import io
import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hookcli.rows import ChannelRow
from hookcli.sinks.table import render_line

from .toy_models import SMALL_NET

PLAIN = ("--device", "cpu", "--layers", "leaf")
LISTS = {
    "inspect": ("inspect", "net.py:Net", "pixels.npy", "nan.npy", *PLAIN),
    "gradients": ("gradients", "net.py:Net", "pixels.npy", *PLAIN),
    "ablate": ("ablate", "net.py:Net", "pixels.npy", *PLAIN),
    "layers": ("layers", "net.py:Net"),
    "models": ("models", "resnet*"),
}  # fmt: skip
ROWS = {"inspect": "layers", "gradients": "layers", "ablate": "channels"}


@pytest.fixture(autouse=True)
def small_net():
    """A model, its pixels, and pixels that are not all numbers."""
    Path("net.py").write_text(SMALL_NET)
    pixels = np.stack([np.full((2, 2), v, np.float32) for v in (3.0, -4.0, 0.0)])
    np.save("pixels.npy", pixels)
    pixels[0, 0, 0] = np.nan
    np.save("nan.npy", pixels)


def strict(line):
    """What a line of JSON says; NaN and Infinity, which are no JSON, are refused."""
    return json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


# --- lines of JSON


@pytest.mark.parametrize("command", LISTS)
def test_jsonl_is_the_rows_of_the_document_a_line_each(run, command):
    document = strict(run(*LISTS[command], "--format", "json").out)
    lines = run(*LISTS[command], "--format", "jsonl").out.splitlines()
    assert [strict(line) for line in lines] == [
        {"schema_version": 1} | row for row in document[ROWS.get(command, command)]
    ]
    assert all(line.startswith('{"schema_version": 1, ') for line in lines)


@pytest.mark.parametrize("command", LISTS)
def test_jsonl_has_the_rows_and_columns_of_csv(run, command):
    header, *rows = csv.reader(io.StringIO(run(*LISTS[command], "--format", "csv").out))
    lines = [strict(line) for line in run(*LISTS[command], "--format", "jsonl").out.splitlines()]
    assert [list(line) for line in lines] == [["schema_version", *header]] * len(rows)
    assert len(lines) > 1


def test_jsonl_of_ablate_holds_the_channels_that_its_table_leaves_out(run):
    lines = run(*LISTS["ablate"], "--top", "1", "--format", "jsonl").out.splitlines()
    assert [strict(line)["rank"] for line in lines] == [1, 2, 3, 4, 5, 6]  # of three layers


def test_a_figure_that_is_not_finite_is_null_and_text_is_ascii():
    line = render_line(ChannelRow(1, "猫\n", 0, float("nan"), float("-inf"), 0.1 + 0.2, 9))
    assert line == (
        '{"schema_version": 1, "rank": 1, "layer": "\\u732b\\n", "channel": 0, "effect": null, '
        '"score": null, "plain_score": 0.30000000000000004, "images": 9}\n'
    )


def test_what_is_beside_the_rows_is_told_on_stderr(run):
    Path("text.png").write_text("hello")
    code, out, err = run(*LISTS["inspect"], "text.png", "-o", "out", "--format", "jsonl")
    assert (code, len(out.splitlines())) == (6, 4)  # conv, relu twice, fc
    assert "not called: head: " in err
    assert "warning: skipped 'text.png': " in err


def test_each_line_is_one_write_so_that_a_reader_never_has_half_a_line():
    """A socket keeps writes apart, as files opened to append and pipes do for short ones."""
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "hookcli", "models", "--format", "jsonl"]
    seen = []
    with subprocess.Popen(command, stdout=writer) as running:
        writer.close()
        while packet := reader.recv(1 << 16):
            seen.append(packet)
    reader.close()
    assert running.returncode == 0
    assert len(seen) == 121
    assert all(strict(packet)["name"] for packet in seen)
    assert all(packet.endswith(b"\n") for packet in seen)


# --- files that were written


@pytest.fixture
def saved(run):
    """A run with tensors."""
    assert run(*LISTS["inspect"], "--save", "tensors", "-o", "out").code == 0


@pytest.fixture
def exported(saved, run):
    """The files that ``hookcli export`` says it wrote, in each format."""
    return {
        form: run("export", "out", "--to", "npy", "-o", form, "--format", form).out
        for form in ("text", "json", "jsonl")
    }


def test_export_tells_which_file_is_of_which_call(exported):
    names = ["conv.npy", "relu.npy", "relu_1.npy", "fc.npy", "images.csv"]
    rows = list(
        zip(
            names,
            ["conv", "relu", "relu#1", "fc", ""],
            [[2, 2, 2, 2], [2, 2, 2, 2], [2, 2, 2, 2], [2, 2], None],
            strict=True,
        )
    )
    assert exported["text"].splitlines() == [f"text/{name}" for name in names]
    assert strict(exported["json"]) == {
        "schema_version": 1,
        "files": [{"file": f"json/{f}", "call_id": c, "shape": s} for f, c, s in rows],
    }
    assert [strict(line) for line in exported["jsonl"].splitlines()] == [
        {"schema_version": 1, "file": f"jsonl/{f}", "call_id": c, "shape": s} for f, c, s in rows
    ]
    for name, _, shape in rows[:-1]:
        assert list(np.load(f"json/{name}").shape) == shape


def test_a_file_is_told_when_it_is_there_and_not_at_the_end(saved, run, monkeypatch):
    told = []
    monkeypatch.setattr(
        "hookcli.cli.console.print_data",
        lambda text: told.append((text, sorted(p.name for p in Path("arrays").glob("*.npy")))),
    )
    run("export", "out", "--to", "npy", "-o", "arrays")
    assert told[:2] == [
        ("arrays/conv.npy\n", ["conv.npy"]),
        ("arrays/relu.npy\n", ["conv.npy", "relu.npy"]),
    ]


def test_report_tells_what_is_missing_in_its_document(saved, run):
    missing = next(Path("out/grids").rglob("*.png"))
    missing.unlink()
    row = {"file": "out/report.html", "call_id": "", "shape": None}
    assert run("report", "out").out == "out/report.html\n"
    assert strict(run("report", "out", "--format", "jsonl").out) == {"schema_version": 1} | row
    assert strict(run("report", "out", "--format", "json").out) == {
        "schema_version": 1,
        "files": [row],
        "complete": True,
        "missing": [str(missing.relative_to("out"))],
    }
