"""A notebook that uses hookcli, executed by Jupyter's kernel."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
HOME = Path(__file__).parents[2]
PHOTOS = HOME / "sample_images"
PAGES = ("run.page", "hookcli.report('before')")
BLOCK = [
    """
import hookcli, numpy, time, torch
from PIL import Image
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer3, self.layer4 = torch.nn.Conv2d(3, 8, 3, 4), torch.nn.Conv2d(8, 8, 3, 4)
        self.norm, self.fc = torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 300)
        self.register_buffer("seen", torch.zeros(()))
        self.layer3.register_forward_hook(lambda *_: calls.append(1))
    def forward(self, pixels):
        return self.fc(self.layer4(self.norm(self.layer3(pixels).relu())).mean((2, 3)))
torch.manual_seed(0)  # a map that is blank by chance would be one warning more
calls, old, new = [], Net(), Net()
picture, array = Image.open("cat.png"), numpy.asarray(Image.open("coffee.png").convert("RGB"))
""",
    "hookcli.inspect('resnet18', 'cat.png', layers='conv', weights='random')",
    """
run = hookcli.inspect(old, [picture, "rocket.jpg", array], layers="layer3", save="tensors")
run
""",
    "assert run['layer3'].shape == (3, 8, 56, 56)\nrun.table()",
    "run.page",
    "hookcli.gradients(old, picture, target=281, cam='layer4')",
    "hookcli.compare(old, picture, against=new)",
    """
hookcli.compare("resnet18", "cat.png", against="dtype=bfloat16", blame=True, weights="random")
""",
    "hookcli.layers(old, size=224)",
    """
hookcli.inspect(old, picture, layers="layer3", out="before")
hookcli.inspect(new, picture, layers="layer3", out="after")
hookcli.diff("before", "after")
""",
    "hookcli.golden('before', out='g.json')",
    "hookcli.report('before')",
    "kept = hookcli.inspect(old, 'photos', layers='layer3', save='tensors', out='my-run')\nkept",
    "hookcli.places(kept, layers='layer3')",
    "hookcli.map(kept)",
    "hookcli.probe(kept, labels='folders')",
    """
other = hookcli.inspect(new, "photos", layers="conv", save="tensors")
hookcli.similarity(kept, other)
""",
    """
from hookcli.verbs.call import VerbListener
with VerbListener().count(2, "images", is_long=True) as bar:
    for _ in range(2):
        time.sleep(0.3)
        bar.step()
""",
    "assert old.training and calls and old.seen == old.norm.running_mean.sum() == 0",
]


def execute(cells, folder, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HOME), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute()
    return notebook.cells


def test_every_verb_runs_on_photos_and_shows_itself(tmp_path, monkeypatch):
    for photo in PHOTOS.glob("*.*g"):
        shutil.copy(photo, tmp_path)
    for name in ("cat", "coffee"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for turn in range(6):
            picture = Image.open(PHOTOS / f"{name}.png").convert("RGB")
            picture.rotate(5 * turn).save(tmp_path / "photos" / name / f"{turn}.png")
    *verbs, bar, last = execute(BLOCK, tmp_path, monkeypatch)[1:]
    assert (bar.outputs[0].data["text/html"], last.outputs) == ("", [])
    for cell in verbs:
        *said, shown = cell.outputs
        assert "<" in shown.data["text/html"], cell.source
        assert "object at 0x" not in shown.data["text/plain"], cell.source
        warnings = "".join(each.get("text", "") for each in said).splitlines()
        assert len({*warnings}) == len(warnings), cell.source
        assert "█" not in "".join(warnings), cell.source
    pages = [c.outputs[-1].data["text/html"] for c in verbs if c.source in PAGES]
    assert [page.count("<iframe") for page in pages] == [1, 1]
    assert not [page for page in pages if "src=&quot;seen/" in page]
    gradients = next(c for c in verbs if "cam=" in c.source).outputs[-1].data["text/html"]
    assert gradients.index("_layer4") < gradients.index("001_layer3")
