"""A notebook that uses hookcli, executed by Jupyter's kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
HOME = Path(__file__).parents[2]
CELLS = [
    """
import hookcli, torch
hookcli.inspect("squeezenet1_1", PHOTO, weights="random", size=64, device="cpu", out="out")
""",
    "run = hookcli.load_run('out')\nrun",
    "run.grid('features.0')",
    "len(run.figures())",
    """
module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
with hookcli.capture(module, keep=True) as captured:
    module(torch.ones(1, 3, 16, 16))
captured
""",
]


def test_every_result_shows_itself(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HOME), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    cells = [CELLS[0].replace("PHOTO", repr(str(HOME / "sample_images" / "cat.png"))), *CELLS[1:]]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [cell.outputs[-1].data for cell in notebook.cells]
    for data in (shown[0], shown[1]):
        assert "squeezenet1_1: 26 calls, 1 image</b>" in data["text/html"]
        assert data["text/html"].count("<img") == 4
    assert "image/png" in shown[2]
    assert shown[3]["text/plain"] == "26"
    assert "<b>Sequential: 1 tensor of 1 chosen layer" in shown[4]["text/html"]
