"""Models with hostile code, which raises any exception anywhere and changes its process."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import hookcli
from hookcli.config import ModelRequest
from hookcli.errors import ForwardError, RequestError, Termination
from hookcli.hooks.layers import list_layers
from hookcli.hooks.watch import watch
from hookcli.networks.load import load_model
from hookcli.networks.own_code import check_structure
from hookcli.outside.foreign import ForeignCode, Forgiveness, ask
from hookcli.passes.call import call_backward, call_model
from hookcli.reading.load import load_run

PLAIN = ("--weights", "random", "--device", "cpu", "--size", "8")
RUN = (*PLAIN, "--grids", "none", "-o", "out")


@pytest.fixture(autouse=True)
def photo():
    Image.fromarray(np.arange(3 * 12 * 12, dtype=np.uint8).reshape(12, 12, 3)).save("photo.png")


def write(text, name="net.py"):
    Path(name).write_text(f"import os, sys\nimport torch\nfrom torch import nn\n{text}")


def net(forward, *, init="self.conv = nn.Conv2d(3, 2, 1)", **more):
    """A class ``Net`` in ``net.py``; ``more`` are methods by their names, bodies of one line."""
    lines = [
        "class Net(nn.Module):",
        "    def __init__(self):",
        f"        super().__init__(); {init}",
    ]
    lines += [f"    def {name}(self, *_a, **_k): {body}" for name, body in more.items()]
    write("\n".join([*lines, f"    def forward(self, x{forward}", ""]))


def error_of(ended, code=4):
    """The message of a command that ended as it should: one line, a hint, and no traceback."""
    assert ended.code == code, ended.err
    lines = ended.err.splitlines()
    assert lines[-2].startswith("error: "), ended.err
    assert lines[-1].startswith("hint: "), ended.err
    assert not [line for line in lines if "Traceback" in line]
    return lines[-2].removeprefix("error: ")


# --- one door to the model

COMMANDS = {
    "inspect": ("inspect", "{}", "photo.png", *RUN),
    "tensors": ("inspect", "{}", "photo.png", *RUN, "--save", "tensors"),
    "dry run": ("inspect", "{}", "photo.png", *RUN, "--save", "tensors", "--dry-run"),
    "gradients": ("gradients", "{}", "photo.png", *RUN),
    "ablate": ("ablate", "{}", "photo.png", *PLAIN),
    "compare": ("compare", "{}", "photo.png", *PLAIN, "--against", "threads=1"),
    "golden": ("golden", "{}", "photo.png", *PLAIN),
    "layers": ("layers", "{}", "--size", "8"),
}


def words_of(command):
    return [word.format("net.py:Net") for word in COMMANDS[command]]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_forward_of_two_arguments_ends_every_command_with_4(run, command):
    net(", y): return self.conv(x)")
    ended = run(*words_of(command))
    assert "give a value for all images: --input y=FILE.npy" in ended.err
    error = error_of(ended)
    assert error.endswith(
        "the model failed in (model) (Net): Net.forward() missing 1 required positional "
        "argument: 'y'"
    )


class Doubler(nn.Module):
    """Twice its input; ``part`` is a module of torch's own, whose hooks are called in its place."""

    def __init__(self):
        super().__init__()
        self.part = nn.ReLU()

    def forward(self, x):
        return self.part(x) * 2


def call_under(listener, model=None):
    """``call_model`` while a listener of ours sees what the parts of the model return."""
    model = model or Doubler()
    with watch(model, list_layers(model), None, listener):
        return call_model(model, (torch.ones(1),))


class BugError(Exception):
    """What a mistake in a hook of ours raises."""


def raising(error, module):
    """What raises ``error`` where it is shown anything, as if it stood in ``module``."""

    def listen(*shown):
        if shown[-1] is not None:
            raise error

    return FunctionType(listen.__code__, {"__name__": module}, "listen", None, listen.__closure__)


@pytest.mark.parametrize("error", [BugError("ours"), RequestError("no channel 7"), KeyError("x")])
def test_an_error_of_a_hook_of_ours_passes_through_unchanged(error):
    with pytest.raises(type(error)) as caught:
        call_under(raising(error, "hookcli.anything"))
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("cannot allocate memory: 5 bytes"), RecursionError("deep")],
)
def test_memory_and_depth_run_out_by_the_models_doing_wherever_it_is_noticed(error):
    with pytest.raises(ForwardError) as caught:
        call_under(raising(error, "hookcli.anything"))
    assert caught.value.__cause__ is error


def test_an_error_of_a_hook_of_others_is_the_models():
    model = Doubler()
    model.part.register_forward_hook(raising(KeyError("theirs"), "net"))
    with pytest.raises(ForwardError, match=r"(?m)^the model failed in part \(ReLU\): 'theirs'$"):
        call_under(lambda *_: None, model)


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), BaseException("odd"), StopIteration()]
)
def test_whatever_a_model_raises_is_a_forward_error(error):
    class Net(nn.Module):
        def forward(self, x):
            raise error

    with pytest.raises(ForwardError) as caught:
        call_model(Net(), (torch.ones(1),))
    assert caught.value.__cause__ is error


def test_what_raises_in_a_backward_of_the_models_own_is_the_models():
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2

        @staticmethod
        def backward(context, gradient):
            raise KeyError("no way back")

    with pytest.raises(ForwardError, match=r"^the backward pass failed: 'no way back'$"):
        call_backward(Failing.apply(torch.ones(1, requires_grad=True)).sum())


# --- what makes a model

ODD = "class Odd(BaseException):\n    pass\n"
BROKEN = {
    "a BaseException": (ODD + "def Net(): raise Odd('no luck')", "net.py:Net raised Odd: no luck"),
    "a BaseException at import": (ODD + "raise Odd('bye')", "the code in net.py raised Odd: bye"),
    "an error that says itself without end": (
        "class Mute(Exception):\n    def __str__(self): return str(self)\ndef Net(): raise Mute",
        "net.py:Net raised Mute: Mute",
    ),
    "a Sequential 2,000 deep": (
        (
            "def Net():\n    part = nn.Conv2d(3, 2, 1)\n"
            "    for _ in range(2000): part = nn.Sequential(part)\n    return part"
        ),
        "net.py:Net raised RecursionError: maximum recursion depth exceeded",
    ),
    "a model that contains itself": (
        "Net = nn.Sequential(nn.Sequential(nn.ReLU()))\nNet[0].add_module('up', Net)",
        "net.py:Net: (model) (Sequential) contains itself, as 0.up",
    ),
    "named_modules that lies": (
        (
            "class Net(nn.ReLU):\n    def named_modules(self, *_a, **_k): return [('', self), "
            "('part', 5)]"
        ),
        (
            "net.py:Net: named_modules returns 'part' (int), and get_submodule a different module "
            "or none"
        ),
    ),
    "no constructor of nn.Module": (
        "class Net(nn.Module):\n    def __init__(self): pass",
        "net.py:Net raised AttributeError: 'Net' object has no attribute '_modules'",
    ),
    "a generator": (
        "def Net(): yield nn.ReLU()",
        "net.py:Net returned a generator, not an nn.Module",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_built_or_walked_ends_with_4_and_one_line(run, kind):
    text, expected = BROKEN[kind]
    write(text)
    assert error_of(run(*words_of("inspect"))).startswith(expected)
    assert not Path("out").exists()


def test_a_module_may_be_in_several_places():
    part = nn.Sequential(nn.ReLU(), nn.ReLU())
    check_structure("twice", nn.Sequential(part, part, nn.ModuleList([part])))


# --- errors without end


def test_a_property_without_end_is_none(run):
    """torch never asks for these, hookcli does: the model works all the same."""
    names = ("weight", "embed_dim", "out_channels", "image_size", "_orig_mod", "normalized_shape")
    prop = "\n".join(f"    @property\n    def {name}(self): return self.{name}" for name in names)
    net("): return self.conv(x)\n" + prop)
    ended = run(*words_of("inspect"), "--layers", "all")
    assert ended.code == 0, ended.err


def test_a_recursion_limit_beyond_the_stack_is_lowered():
    before = sys.getrecursionlimit()
    with ForeignCode("the model"):
        sys.setrecursionlimit(10**6)
    try:
        assert sys.getrecursionlimit() == 8000
    finally:
        sys.setrecursionlimit(before)


def test_a_forward_without_end_ends_with_4(run):
    net("): return self(x)")
    error = error_of(run(*words_of("inspect")))
    assert "the model failed in " in error
    assert "recursion depth exceeded" in error


class Leaving(nn.Module):
    """A module whose code ends the process when it is asked for something."""

    def __init__(self, leave):
        super().__init__()
        self.leave = leave

    @property
    def out_channels(self):
        raise self.leave

    def forward(self, x):
        raise self.leave


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Termination(143)])
def test_what_ends_the_process_ends_it_in_foreign_code_too(end):
    model = Leaving(end)
    for use in (lambda: call_model(model, (torch.ones(1),)), lambda: ask(model, "out_channels")):
        for block in (Forgiveness(), ForeignCode("the model")):
            with pytest.raises(type(end)), block:
                use()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_output_without_a_shape_is_refused(run):
    net("): return torch.nested.nested_tensor([self.conv(x).mean((2, 3))[0], x.new_ones(3)])")
    ended = run(*words_of("inspect"), "--layers", "all")
    assert ended.code == 2, ended.err
    assert ended.err.splitlines()[-1] == (
        "error: a layer returned a nested tensor, which has no shape of its own"
    )


# --- hooks that are taken off

TAKEN_OFF = {
    "cleared": "y = self.conv(x); self.conv._forward_hooks.clear(); return y",
    "deleted": "y = self.conv(x); del self.conv._forward_hooks; return y",
}


@pytest.mark.parametrize("how", TAKEN_OFF)
def test_a_model_that_removes_hooks_is_named_with_the_removed_hooks(run, how):
    net(f"): {TAKEN_OFF[how]}")
    assert error_of(run(*words_of("inspect"))) == (
        "the model removed the hooks from conv (Conv2d) during its forward pass, "
        "so its outputs were not observed"
    )
    assert not Path("out/manifest.json").exists()


@pytest.mark.parametrize("command", ["gradients", "ablate", "compare", "layers"])
def test_every_command_says_who_takes_hooks_off(run, command):
    net(
        "):\n        for part in self.modules(): part._forward_hooks.clear()\n        return "
        "self.conv(x).mean((2, 3))"
    )
    error = error_of(run(*words_of(command), "--layers", "all"))
    assert error.endswith(
        "the model removed the hooks from (model) (Net) during its forward pass, "
        "so its outputs were not observed"
    )


def test_what_was_seen_before_hooks_were_taken_off_is_not_left_in_a_table(run):
    net(f"): {TAKEN_OFF['cleared']}")
    assert run(*words_of("inspect"), "--layers", "all").code == 4
    assert Path("out/layers.csv").read_text().count("\n") == 1


def test_capture_says_that_hooks_were_taken_off():
    model = Doubler()
    captured = hookcli.capture(model, "part")
    captured.__enter__()
    model(torch.ones(1))
    model.part._forward_hooks.clear()
    with pytest.raises(ForwardError, match=r"^the model removed the hooks from part \(ReLU\) "):
        captured.__exit__(None, None, None)


def test_a_model_may_take_its_own_hooks_off_and_put_others_on(run):
    net(
        "):\n        handle = self.conv.register_forward_hook(lambda *_: None)\n"
        "        y = self.conv(x)\n        handle.remove()\n"
        "        torch.nn.utils.parametrizations.weight_norm(self.conv)\n        return y"
    )
    ended = run(*words_of("inspect"), "--layers", "all")
    assert ended.code == 0, ended.err


# --- the working directory

MOVES = {
    "at import": ("os.makedirs('far', exist_ok=True); os.chdir('far')\n", "", ""),
    "when it is built": ("", "os.makedirs('far', exist_ok=True); os.chdir('far'); ", ""),
    "in its forward": ("", "", "os.makedirs('far', exist_ok=True); os.chdir('far'); "),
}


def moving_net(when):
    """A model that changes the working directory to ``far``; it ends in a classifier."""
    at_import, built, forward = MOVES[when]
    net(
        f"):\n        {forward}return self.fc(self.conv(x).mean((2, 3)))",
        init=f"{built}self.conv, self.fc = nn.Conv2d(3, 2, 1), nn.Linear(2, 2)",
    )
    Path("net.py").write_text(
        Path("net.py").read_text().replace("class Net", f"{at_import}class Net")
    )


@pytest.mark.parametrize("when", MOVES)
def test_a_model_that_changes_the_working_directory_changes_nothing_else(run, when):
    here = Path.cwd()
    Path("forms.txt").write_text("conv\n")
    images = [f"photo{number}.png" for number in range(10)]  # later ones are read in their turn
    for name in images:
        shutil.copy("photo.png", name)
    words = ["inspect", "net.py:Net", *images, *PLAIN, "-o", "out", "--layers", "@forms.txt"]
    words += ["--prune", "conv=0.5", "--save-weights", "w.safetensors", "--grids", "layers"]
    moving_net(when)
    ended = run(*words, "--save", "tensors")
    assert ended.code == 0, ended.err
    assert Path.cwd() == here
    assert load_run("out")["conv"].shape[0] == 10
    assert Path("w.safetensors").is_file()
    assert list(Path("far").iterdir()) == []


def test_a_factory_finds_files_beside_the_copy_of_its_file():
    Path("far").mkdir()
    torch.save(nn.Conv2d(3, 5, 1), "far/part.pt")
    write("os.chdir('far')\ndef Net(): return torch.load('part.pt', weights_only=False)")
    here = Path.cwd()
    request = ModelRequest("net.py:Net", device="cpu")
    assert load_model(request).module.out_channels == 5
    assert Path.cwd() == here


def test_a_working_directory_that_the_model_deletes_is_an_error_of_its_own(run):
    here = Path(
        "here"
    ).resolve()  # by its name: wherever else the model runs, nothing else is deleted
    here.mkdir()
    os.chdir(here)
    net(
        f"):\n        os.chdir('..'); import shutil; shutil.rmtree({str(here)!r})\n        return x"
    )
    error = error_of(run("inspect", "net.py:Net", "../photo.png", *RUN, "--layers", "all"))
    assert error.startswith("cannot go back to the working directory '")


# --- the streams


@pytest.mark.filterwarnings("ignore:unclosed file")
@pytest.mark.parametrize("change", ["sys.stderr = None", "sys.stdout = open(os.devnull, 'w')"])
def test_a_model_that_changes_the_streams_changes_nothing_that_we_say(run, change):
    words = (*words_of("inspect"), "--format", "csv")
    net("): return self.conv(x)")
    expected = run(*words)
    shutil.rmtree("out")
    net(f"): {change}; return self.conv(x)")
    assert run(*words) == expected


# --- names that are no text


@pytest.mark.parametrize(("name", "shown"), [("\ud800", "%ED%A0%80"), ("a%41", "a%2541")])
def test_a_module_of_any_name_goes_through_every_table_and_the_page(run, name, shown):
    net("): return next(self.children())(x)", init=f"self.add_module({name!r}, nn.Conv2d(3, 2, 1))")
    words = (*words_of("tensors"), "--sketch", "--format", "csv")
    assert [row.split(",")[1] for row in run(*words).out.splitlines()[1:]] == [shown]
    assert load_run("out").records["call_id"].to_pylist() == [shown]
    assert list(json.loads(Path("out/report.json").read_bytes())["histograms"]) == [shown]
    for command in (("report", "out"), ("golden", "out"), ("export", "out", "--to", "npy")):
        assert run(*command).code == 0


def test_weights_whose_names_are_no_text_are_not_saved(run):
    net("): return next(self.children())(x)", init="self.add_module('\\ud800', nn.Conv2d(3, 2, 1))")
    pruning = ("--prune", "conv=0.5", "--save-weights", "w.safetensors")
    ended = run(*words_of("inspect"), *pruning)
    assert error_of(ended, 5).endswith("w.safetensors': '\\ud800.bias' cannot be a name in it")
    assert not Path("w.safetensors").exists()
