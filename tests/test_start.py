"""What a command loads: neither torch's compiler, nor what a shorter command does without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hookcli.cli import entry

PHOTO = Path(__file__).parent.parent / "sample_images" / "cat.png"
IN = (str(PHOTO), "--layers", "conv[1]", "--weights", "random", "-q", "--size", "64")
RUN = """
import contextlib, io, json, sys
from hookcli.cli.entry import _run
codes = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["hookcli", *words]
    with contextlib.redirect_stdout(io.StringIO()):
        codes.append(_run())
print(json.dumps([codes, sorted({name.partition(".")[0] for name in sys.modules} | {
    name for name in sys.modules if name.count(".") == 1})]))
"""


def python(code: str, *words: str) -> str:
    """What a new process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(*commands: list[str]) -> set[str]:
    """The modules that a new process has loaded when the commands, one after the other, have ended well."""
    codes, modules = json.loads(python(RUN, json.dumps(commands)))
    assert set(codes) <= {0, 7}
    return set(modules)


def test_no_command_loads_the_compiler(tmp_path):
    """Nor does a detection model, which calls what torchvision imports the compiler for."""
    a, b, golden = (str(tmp_path / name) for name in ("a", "b", "golden.json"))
    modules = loaded_by(
        ["inspect", "resnet18", *IN, "-o", a],
        ["inspect", "fasterrcnn_mobilenet_v3_large_320_fpn", *IN, "-o", str(tmp_path / "boxes")],
        ["gradients", "resnet18", *IN, "-o", b],
        ["ablate", "resnet18", *IN],
        ["layers", "vit_b_16"],
        ["golden", "resnet18", *IN, "-o", golden],
        ["compare", "resnet18", *IN, "--against", "channels-last"],
        ["diff", golden, a],
        ["report", a],
    )
    assert "torchvision" in modules
    assert not modules & {"torch._dynamo", "torch._inductor"}


@pytest.mark.parametrize("words", [["--help"], ["inspect", "--help"], ["--version"]])
def test_help_loads_one_command_at_most(words):
    modules = loaded_by(words)
    assert not modules & {"torch", "numpy", "rich", "jinja2", "pyarrow", "matplotlib", "PIL"}
    assert "hookcli.cli" in modules


def test_every_command_is_listed_with_a_line_that_is_not_cut_off():
    files = {file.stem for file in Path(entry.__file__).parent.glob("*.py")}
    assert {*entry._COMMANDS} <= files
    width = 80 - len("  gradients  ")
    assert [said for said in entry._COMMANDS.values() if len(said) > width] == []
    help_of = {
        name: entry.typer.main.get_command(entry.app).commands[name].help
        for name in entry._COMMANDS
    }
    assert all(help_of.values())


AFTERWARDS = """
import sys
{before}
from hookcli.models import list_names
list_names()
import torch, torchvision
stood_in = [name for name in ("torch._dynamo", "torch._dynamo.utils") if name in sys.modules]
assert not stood_in or "torch._dynamo.eval_frame" in sys.modules, stood_in
assert not any("without_compiler" in type(finder).__module__ for finder in sys.meta_path)
{then}
import torch._dynamo, torch._dynamo.utils
assert torch._dynamo is sys.modules["torch._dynamo"]
assert torch._dynamo.utils is sys.modules["torch._dynamo.utils"]
assert torch._dynamo.utils.__file__.endswith("utils.py")
print("done")
"""
COMPILE = """
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
compiled = torch.compile(net, backend="eager")
assert torch.equal(compiled(torch.ones(1, 2)), net(torch.ones(1, 2)))
"""
EXPORT = """
net = torchvision.models.resnet18(weights=None).eval()
pixels = torch.ones(1, 3, 64, 64)
exported = torch.export.export(net, (pixels,)).module()
assert torch.equal(exported(pixels), net(pixels))
"""
ALIGN = """
from torchvision.ops import roi_align
from torchvision.ops.roi_align import is_compile_supported
boxes = [torch.tensor([[0.0, 0.0, 4.0, 4.0]])]
plain = roi_align(torch.ones(1, 1, 8, 8), boxes, 2)
torch.use_deterministic_algorithms(True)
assert torch.equal(roi_align(torch.ones(1, 1, 8, 8), boxes, 2), plain)
from torch._dynamo.utils import is_compile_supported as real
assert is_compile_supported("cpu") == real("cpu")
assert is_compile_supported("meta") == real("meta")
"""
SCRIPT = """
torch.jit.script(torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
    weights=None, weights_backbone=None))
"""


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ("", COMPILE),
        ("", EXPORT),
        ("", ALIGN),
        ("", SCRIPT),
        ("import torchvision", COMPILE),
        ("import torch._dynamo", COMPILE),
        ("import timm", COMPILE),
        ("", "import timm" + COMPILE),
    ],
    ids=[
        "compile", "export", "roi_align", "script", "torchvision before", "compiler before",
        "timm before", "timm after",
    ],
)  # fmt: skip
def test_the_compiler_works_afterwards_as_if_nothing_had_been(before, then):
    assert python(AFTERWARDS.format(before=before, then=then)).endswith("done\n")


def test_who_asks_the_stand_in_for_more_gets_the_real_module():
    code = (
        "import sys, torch\n"
        "from hookcli.without_compiler import importing_torchvision\n"
        "with importing_torchvision():\n"
        "    from torch._dynamo.utils import is_compile_supported\n"
        "    assert 'torch._dynamo' not in sys.modules\n"
        "    from torch._dynamo.utils import counters\n"
        "    assert 'torch._dynamo' in sys.modules\n"
        "import torch._dynamo\n"
        "assert torch._dynamo.utils.counters is counters\n"
        "assert is_compile_supported('cpu') == torch._dynamo.utils.is_compile_supported('cpu')\n"
    )
    python(code)


@pytest.mark.parametrize("name", ["torch._dynamo", "torch._dynamo.config"])
def test_who_imports_the_compiler_meanwhile_gets_it_whole(name):
    code = (
        f"import sys, torch, importlib\n"
        "from hookcli.without_compiler import importing_torchvision\n"
        "with importing_torchvision():\n"
        f"    importlib.import_module({name!r})\n"
        "assert torch._dynamo.utils is sys.modules['torch._dynamo.utils']\n"
        "assert torch._dynamo.utils.__file__\n"
    )
    python(code)


def test_a_survey_leaves_no_mark_on_the_functions_of_torch():
    code = (
        "import sys, torch\n"
        "from hookcli.without_compiler import running_on_meta\n"
        "with running_on_meta():\n"
        "    (torch.ones(2, device='meta') * 2).clamp(0, 1)\n"
        "    torch.cat([torch.ones(2, device='meta')] * 2)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "import gc, types\n"
        "marked = [f for f in gc.get_objects() if isinstance(f, types.FunctionType)\n"
        "          and '__dynamo_disable' in vars(f)]\n"
        "assert not marked, marked\n"
        "assert '_dynamo' not in vars(torch)\n"
    )
    python(code)
