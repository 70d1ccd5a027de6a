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
ended, afterwards = [], sys.argv[2]
for words in json.loads(sys.argv[1]):
    sys.argv = ["hookcli", *words]
    with contextlib.redirect_stdout(io.StringIO()):
        ended.append([_run(), sorted(sys.modules)])
print(json.dumps(ended))
exec(afterwards)
"""
AFTERWARDS = """
import torch
from hookcli.networks.without_compiler import call_without_compiler, importing_torchvision

def double(tensor): return tensor * 2
wrapped = torch._disable_dynamo(double)
def run():
    wrapped(torch.ones(2))
    assert "__dynamo_disable" in vars(double)
    (torch.ones(2, device="meta") * 2).clamp(0, 1)
call_without_compiler(run)
assert "__dynamo_disable" not in vars(double)
assert "torch._dynamo" not in sys.modules and "_dynamo" not in vars(torch)
assert not any("without_compiler" in type(finder).__module__ for finder in sys.meta_path)

with importing_torchvision():  # who asks for more gets the real module
    from torch._dynamo.utils import counters
import torch._dynamo, torch._dynamo.utils
assert torch._dynamo is sys.modules["torch._dynamo"]
assert torch._dynamo.utils.counters is counters

from torchvision.ops import roi_align
from torchvision.ops.roi_align import is_compile_supported
boxes = [torch.tensor([[0.0, 0.0, 4.0, 4.0]])]
plain = roi_align(torch.ones(1, 1, 8, 8), boxes, 2)
asked = []
module = sys.modules["torchvision.ops.roi_align"]
module._has_ops = lambda: False  # as where torchvision has no compiled operators: now it asks
module.is_compile_supported = lambda kind: asked.append(is_compile_supported(kind))
assert torch.allclose(roi_align(torch.ones(1, 1, 8, 8), boxes, 2), plain)
assert asked == [True]

net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
compiled = torch.compile(net, backend="eager")
assert torch.equal(compiled(torch.ones(1, 2)), net(torch.ones(1, 2)))
"""


def python(code: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(*commands: list[str], afterwards: str = "") -> list[set[str]]:
    ended = json.loads(python(RUN, json.dumps(commands), afterwards))
    assert {code for code, _ in ended} <= {0, 7}
    return [set(modules) for _, modules in ended]


def test_no_command_loads_the_compiler_which_works_afterwards(tmp_path):
    with own_state(tmp_path):
        *_, before, after = loaded_by(
            ["inspect", "squeezenet1_1", *IN, "-o", "a"],
            ["inspect", "timm:test_resnet", *IN, "-o", "timm"],
            ["golden", "squeezenet1_1", *IN, "-o", "golden.json"],
            ["compare", "squeezenet1_1", *IN, "--against", "channels-last"],
            ["diff", "golden.json", "a"],
            ["gradients", "squeezenet1_1", *IN, "-o", "b"],
            afterwards=AFTERWARDS,
        )
    assert not after & {"torch._dynamo", "torch._inductor", "triton"}
    assert "matplotlib" not in before
    assert "matplotlib" in after


@pytest.mark.parametrize(
    ("words", "commands"),
    [(["--help"], set()), (["inspect", "--help"], {"hookcli.verbs.inspect"})],
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
    width = 80 - len("  gradients  ")
    assert [said for said in subjects.COMMANDS.values() if len(said) > width] == []
    assert all(entry.build_command(name).help for name in subjects.COMMANDS)
