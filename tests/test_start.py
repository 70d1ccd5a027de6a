"""What a command loads: neither torch's compiler, nor what a shorter command does without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hookcli import __main__ as entry
from hookcli.verbs import subjects
from tests.conftest import own_state

PHOTO = Path(__file__).parent.parent / "sample_images" / "cat.png"
IN = (str(PHOTO), "--layers", "conv[1]", "--weights", "random", "-q", "--size", "64")
RUN = """
import contextlib, io, json, sys
from hookcli.__main__ import _run
from hookcli.cli import memory
memory.collect_rarely()
ended = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["hookcli", *words]
    with contextlib.redirect_stdout(io.StringIO()):
        ended.append([_run(), sorted(sys.modules)])
print(json.dumps(ended))
"""


def python(code: str, *words: str) -> str:
    """What a new process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(*commands: list[str]) -> list[set[str]]:
    """The modules that a new process has loaded when each of the commands, one after the other, has
    ended well."""
    ended = json.loads(python(RUN, json.dumps(commands)))
    assert {code for code, _ in ended} <= {0, 7}
    return [set(modules) for _, modules in ended]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The modules that are loaded after all commands that draw no chart, and after ``gradients``,
    which draws one."""
    with own_state(tmp_path_factory.mktemp("start")):
        *_, before, after = loaded_by(
            ["inspect", "squeezenet1_1", *IN, "-o", "a"],
            ["inspect", "fasterrcnn_mobilenet_v3_large_320_fpn", *IN, "-o", "boxes"],
            ["ablate", "squeezenet1_1", *IN],
            ["layers", "vit_b_16"],
            ["inspect", "timm:test_resnet", *IN, "-o", "timm"],
            ["golden", "squeezenet1_1", *IN, "-o", "golden.json"],
            ["compare", "squeezenet1_1", *IN, "--against", "channels-last"],
            ["diff", "golden.json", "a"],
            ["report", "a"],
            ["gradients", "squeezenet1_1", *IN, "-o", "b"],
        )
    return before, after


def test_no_command_loads_the_compiler(loaded):
    _, modules = loaded
    assert "torchvision" in modules
    assert not modules & {"torch._dynamo", "torch._inductor", "triton"}


def test_matplotlib_is_loaded_only_where_it_draws(loaded):
    before, after = loaded
    assert "matplotlib" not in before
    assert "matplotlib" in after


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["inspect", "--help"], {"hookcli.verbs.inspect"}),
    ],
)
def test_help_loads_the_command_that_is_named_and_nothing_heavy(words, commands):
    (modules,) = loaded_by(words)
    assert not modules & {"torch", "numpy", "rich", "jinja2", "pyarrow", "matplotlib", "PIL"}
    assert {f"hookcli.verbs.{name}" for name in subjects.COMMANDS} & modules == commands


def test_a_name_is_completed_without_loading_other_commands_and_said_as_in_the_help():
    code = (
        "import os, sys\n"
        "os.environ |= {'_HOOKCLI_COMPLETE': 'complete_zsh', '_TYPER_COMPLETE_ARGS': 'hookcli "
        "insp'}\n"
        "from hookcli import __main__ as entry\n"
        "try: entry.app(args=[], prog_name='hookcli')\n"
        "except SystemExit: pass\n"
        "from hookcli.verbs import subjects\n"
        "print([name for name in subjects.COMMANDS if f'hookcli.verbs.{name}' in sys.modules])\n"
    )
    shown = python(code)
    assert subjects.COMMANDS["inspect"] in shown
    assert shown.endswith("['inspect']\n")


def test_a_command_that_cannot_be_imported_is_not_taken_for_one_that_there_is_not(monkeypatch):
    entry.build_command.cache_clear()
    monkeypatch.setitem(sys.modules, "hookcli.verbs.schema", None)
    monkeypatch.setattr(sys, "argv", ["hookcli", "schema"])
    with pytest.raises(ModuleNotFoundError):
        entry._run()


def test_every_command_is_listed_with_a_line_that_is_not_cut_off():
    files = {file.stem for file in (Path(entry.__file__).parent / "verbs").glob("*.py")}
    assert {*subjects.COMMANDS} <= files
    width = 80 - len("  gradients  ")
    assert [said for said in subjects.COMMANDS.values() if len(said) > width] == []
    assert all(entry.build_command(name).help for name in subjects.COMMANDS)


AFTERWARDS = """
import sys
{before}
from hookcli.networks.catalog import list_shelf_names
list_shelf_names()
import torch, torchvision
stood_in = [name for name in ("torch._dynamo", "torch._dynamo.utils") if name in sys.modules]
assert not stood_in or "torch._dynamo.eval_frame" in sys.modules, stood_in
assert not any("without_compiler" in type(finder).__module__ for finder in sys.meta_path)
{then}
import torch._dynamo, torch._dynamo.utils
assert torch._dynamo is sys.modules["torch._dynamo"]
assert torch._dynamo.utils is sys.modules["torch._dynamo.utils"]
assert torch._dynamo.utils.__file__.endswith("utils.py")
"""
COMPILE = """
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
compiled = torch.compile(net, backend="eager")
assert torch.equal(compiled(torch.ones(1, 2)), net(torch.ones(1, 2)))
"""
EXPORT = """
net = torchvision.ops.Conv2dNormActivation(3, 4).eval()
pixels = torch.ones(1, 3, 8, 8)
exported = torch.export.export(net, (pixels,)).module()
assert torch.equal(exported(pixels), net(pixels))
"""
ALIGN = """
from torchvision.ops import roi_align
from torchvision.ops.roi_align import is_compile_supported
boxes = [torch.tensor([[0.0, 0.0, 4.0, 4.0]])]
plain = roi_align(torch.ones(1, 1, 8, 8), boxes, 2)
asked = []
module = sys.modules["torchvision.ops.roi_align"]
module._has_ops = lambda: False  # as where torchvision has no compiled operators: now it asks
module.is_compile_supported = lambda kind: asked.append(is_compile_supported(kind))
assert torch.allclose(roi_align(torch.ones(1, 1, 8, 8), boxes, 2), plain)
assert asked == [True] and "torch._dynamo.eval_frame" in sys.modules
from torch._dynamo.utils import is_compile_supported as real
assert is_compile_supported("cpu") == real("cpu")
assert is_compile_supported("meta") == real("meta")
"""
SCRIPT = """
import warnings
warnings.simplefilter("ignore")  # torch's: scripting is to go
torch.jit.script(torchvision.ops.MultiScaleRoIAlign(["0"], 2, 2))
"""
PROGRAMS = {
    name: AFTERWARDS.format(before=before, then=then)
    for name, (before, then) in {
        "export": ("", EXPORT),
        "roi_align": ("", ALIGN),
        "script, compile": ("", SCRIPT + COMPILE),  # scripting loads no compiler yet
        "torchvision before": ("import torchvision", ""),
        "timm after": ("", "import timm"),
    }.items()
} | {
    "who asks the stand-in for more gets the real module": (
        "import sys, torch\n"
        "from hookcli.networks.without_compiler import importing_torchvision\n"
        "with importing_torchvision():\n"
        "    from torch._dynamo.utils import is_compile_supported\n"
        "    assert 'torch._dynamo' not in sys.modules\n"
        "    from torch._dynamo.utils import counters\n"
        "    assert 'torch._dynamo' in sys.modules\n"
        "import torch._dynamo\n"
        "assert torch._dynamo.utils.counters is counters\n"
        "assert is_compile_supported('cpu') == torch._dynamo.utils.is_compile_supported('cpu')\n"
    ),
    "who imports the compiler meanwhile gets it whole": (
        "import sys, torch, importlib\n"
        "from hookcli.networks.without_compiler import importing_torchvision\n"
        "with importing_torchvision():\n"
        "    importlib.import_module('torch._dynamo.config')\n"
        "assert torch._dynamo.utils is sys.modules['torch._dynamo.utils']\n"
        "assert torch._dynamo.utils.__file__\n"
    ),
    "an operator leaves no mark on the functions of torch": (
        "import sys, torch\n"
        "from hookcli.networks.without_compiler import call_without_compiler\n"
        "def double(tensor): return tensor * 2\n"
        "wrapped = torch._disable_dynamo(double)\n"
        "def run():\n"
        "    wrapped(torch.ones(2))\n"
        "    assert '__dynamo_disable' in vars(double)\n"
        "    (torch.ones(2, device='meta') * 2).clamp(0, 1)\n"
        "call_without_compiler(run)\n"
        "assert '__dynamo_disable' not in vars(double)\n"
        "assert 'torch._dynamo' not in sys.modules and '_dynamo' not in vars(torch)\n"
        "wrapped(torch.ones(2))\n"
        "assert 'torch._dynamo.eval_frame' in sys.modules\n"
    ),
}
# Each in a process of its own, in which torch was imported before, and what the compiler takes
# longest to import: all are forked from one.
FORKS = """
import contextlib, gc, json, os, sys, traceback, warnings
gc.disable()
warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")  # torch's
import networkx, sympy, torch, torch.onnx
with contextlib.suppress(ImportError):  # on Linux only
    import triton.language, triton.runtime

ended = {}
for name, program in json.loads(sys.argv[1]).items():
    reader, writer = os.pipe()
    if not os.fork():
        os.dup2(writer, 2)
        try:
            exec(compile(program, name, "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    os.close(writer)
    said = open(reader).read()
    ended[name] = [os.waitstatus_to_exitcode(os.wait()[1]), said]
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended():
    """Of each program its code and what it said on stderr."""
    return json.loads(python(FORKS, json.dumps(PROGRAMS)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compiler_works_afterwards_as_if_nothing_had_been(ended, name):
    assert ended[name] == [0, ""]
