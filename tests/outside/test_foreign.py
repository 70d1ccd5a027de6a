"""Models with hostile code, which raises any exception anywhere and changes its process."""

from __future__ import annotations

import contextlib
import hashlib
import io
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
from hookcli.outside.foreign import ForeignCode, Forgiveness, Surroundings, ask
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
    "gradients, tensors": ("gradients", "{}", "photo.png", *RUN, "--save", "tensors"),
    "ablate": ("ablate", "{}", "photo.png", *PLAIN),
    "ablate, dry run": ("ablate", "{}", "photo.png", *PLAIN, "--dry-run"),
    "compare": ("compare", "{}", "photo.png", *PLAIN, "--against", "threads=1"),
    "golden": ("golden", "{}", "photo.png", *PLAIN),
    "layers": ("layers", "{}", "--size", "8"),
}


def words_of(command, name="net.py:Net"):
    return [word.format(name) for word in COMMANDS[command]]


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


class Shy:
    """An output that raises when it is asked for its ``words``."""

    @property
    def words(self):
        raise ValueError("no words")


def test_code_of_others_that_a_hook_of_ours_runs_raises_the_models_errors():
    class Net(nn.Module):
        def forward(self, x):
            return Shy()

    def listen(_call, value):
        return value.words

    ours = FunctionType(listen.__code__, {"__name__": "hookcli.anything"})
    with pytest.raises(ForwardError, match="no words"):
        call_under(ours, Net())


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


def test_an_interrupt_inside_a_model_is_an_interrupt():
    class Net(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_model(Net(), (torch.ones(1),))


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


def test_what_raises_in_a_hook_of_ours_on_a_gradient_passes_through_unchanged():
    leaf = torch.ones(1, requires_grad=True)
    listen = raising(BugError("ours"), "hookcli.anything")
    value = leaf * 2
    value.register_hook(lambda gradient: listen(None, gradient))
    with pytest.raises(BugError):
        call_backward(value.sum())


# --- a model that cannot take several images at once


def net_of_one():
    """A model whose forward takes one image and no more."""
    net(
        "):\n        assert len(x) == 1, 'one image at a time'\n        return "
        "self.conv(x).mean((2, 3))"
    )


def test_the_layers_of_a_model_that_cannot_take_batches_are_listed(run):
    net_of_one()
    ended = run("layers", "net.py:Net", "--size", "8", "--format", "csv")
    assert ended.code == 0, ended.err
    assert [row.split(",")[1] for row in ended.out.splitlines()] == ["call_id", "(model)", "conv"]


def test_channels_of_a_model_that_cannot_take_batches_are_zeroed_one_at_a_time(run):
    net_of_one()
    ended = run("ablate", "net.py:Net", "photo.png", *PLAIN, "--format", "csv")
    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == 3


# --- what makes a model

ODD = "class Odd(BaseException):\n    pass\n"
BROKEN = {
    "a BaseException": (ODD + "def Net(): raise Odd('no luck')", "net.py:Net raised Odd: no luck"),
    "a GeneratorExit": (
        "def Net(): raise GeneratorExit",
        "net.py:Net raised GeneratorExit: GeneratorExit",
    ),
    "a BaseException at import": (ODD + "raise Odd('bye')", "the code in net.py raised Odd: bye"),
    "a GeneratorExit at import": (
        "raise GeneratorExit(3)",
        "the code in net.py raised GeneratorExit: 3",
    ),
    "an error without words": (
        (
            "class Mute(Exception):\n    def __str__(self): raise BaseException('mute')\n"
            "def Net(): raise Mute"
        ),
        "net.py:Net raised Mute: Mute",
    ),
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
    "a module that contains itself": (
        (
            "def Net():\n    part = nn.Sequential(nn.ReLU())\n    part.add_module('me', part)\n"
            "    return nn.ModuleList([part])"
        ),
        "net.py:Net raised RecursionError: maximum recursion depth exceeded",
    ),
    "a model that contains itself": (
        "Net = nn.Sequential(nn.Sequential(nn.ReLU()))\nNet[0].add_module('up', Net)",
        "net.py:Net raised RecursionError: maximum recursion depth exceeded",
    ),
    "__getattr__ without end": (
        (
            "class Net(nn.Sequential):\n    def __init__(self): super().__init__(nn.Conv2d(3, "
            "2, 1))\n"
            "    def __getattr__(self, name): return self.nothing"
        ),
        "net.py:Net raised RecursionError: maximum recursion depth exceeded",
    ),
    "named_modules that raises": (
        "class Net(nn.ReLU):\n    def named_modules(self, *_a, **_k): raise KeyError('names')",
        "net.py:Net raised KeyError: 'names'",
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
    "eval that raises": (
        ODD + "class Net(nn.ReLU):\n    def eval(self): raise Odd('awake')",
        "net.py:Net raised Odd: awake",
    ),
    "no constructor of nn.Module": (
        "class Net(nn.Module):\n    def __init__(self): pass",
        "net.py:Net raised AttributeError: 'Net' object has no attribute '_modules'",
    ),
    "a class": ("def Net(): return nn.ReLU", "net.py:Net returned a type, not an nn.Module"),
    "a generator": (
        "def Net(): yield nn.ReLU()",
        "net.py:Net returned a generator, not an nn.Module",
    ),
    "something without a class": (
        ODD
        + "class Thing:\n    @property\n    def __class__(self): raise Odd('none')\nNet = Thing()",
        "net.py:Net raised Odd: none",
    ),
}


def test_eval_and_to_of_a_model_may_return_nothing(run):
    write(
        "class Net(nn.ReLU):\n"
        "    def eval(self): super().eval()\n"
        "    def to(self, *how, **more): super().to(*how, **more)"
    )
    assert run(*words_of("inspect"), "--layers", "all").code == 0


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_built_or_walked_ends_with_4_and_one_line(run, kind):
    text, expected = BROKEN[kind]
    write(text)
    assert error_of(run(*words_of("inspect"))).startswith(expected)
    assert not Path("out").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_cannot_be_built_or_walked(run, command):
    text, expected = BROKEN["a model that contains itself"]
    write(text)
    assert error_of(run(*words_of(command))).startswith(expected)


def test_a_module_may_be_in_several_places():
    part = nn.Sequential(nn.ReLU(), nn.ReLU())
    check_structure("twice", nn.Sequential(part, part, nn.ModuleList([part])))


# --- errors without end

ENDLESS = {
    "forward": "return self(x)",
    "forward after a layer": "return self(x + self.conv(x).mean())",
    "an error that says itself": "raise type('Mute', (Exception,), {'__str__': lambda self: "
    "str(self)})",
}


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        *((command, "forward") for command in COMMANDS),
        ("inspect", "forward after a layer"),
        ("gradients", "an error that says itself"),
    ],
)
def test_a_forward_without_end_ends_every_command_with_4(run, command, kind):
    net(f"): {ENDLESS[kind]}")
    error = error_of(run(*words_of(command)))
    assert "the model failed in " in error
    assert "recursion depth exceeded" in error or error.endswith(": Mute")


def test_a_property_without_end_is_none(run):
    """torch never asks for these, hookcli does: the model works all the same."""
    names = ("weight", "embed_dim", "out_channels", "image_size", "_orig_mod", "normalized_shape")
    prop = "\n".join(f"    @property\n    def {name}(self): return self.{name}" for name in names)
    net("): return self.conv(x)\n" + prop)
    ended = run(*words_of("inspect"), "--layers", "all")
    assert ended.code == 0, ended.err


def test_an_interrupt_while_a_property_is_asked_for_is_an_interrupt():
    class Net(nn.Module):
        @property
        def out_channels(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(Net(), "out_channels")


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


def test_a_property_that_ends_the_process_is_none():
    assert ask(Leaving(SystemExit(3)), "out_channels", 7) == 7


@pytest.mark.parametrize(
    "block", [Forgiveness, lambda: ForeignCode("the model"), lambda: contextlib.nullcontext()]
)
def test_a_signal_that_ends_the_process_ends_it_in_foreign_code_too(block):
    with pytest.raises(Termination), block():
        call_model(Leaving(Termination(143)), (torch.ones(1),))
    with pytest.raises(Termination), block():
        raise Termination(143)


def test_a_failure_is_reported_without_asking_the_model_for_what_it_cannot_say(run):
    net("): raise ValueError('wrong')", weight="raise BaseException('none')")
    text = Path("net.py").read_text().replace("    def weight", "    @property\n    def weight")
    Path("net.py").write_text(text)
    assert error_of(run(*words_of("inspect"))) == "the model failed in (model) (Net): wrong"


def test_an_output_whose_tensors_cannot_be_had_has_none(run):
    write(
        "class Box:\n    @property\n    def tensors(self): raise BaseException('shut')\n"
        "class Net(nn.Module):\n"
        "    def __init__(self): super().__init__(); self.conv = nn.Conv2d(3, 2, 1)\n"
        "    def forward(self, x): self.conv(x); return Box()\n"
    )
    ended = run(*words_of("inspect"), "--layers", "all", "--format", "csv")
    assert ended.code == 0, ended.err
    assert [row.split(",")[1] for row in ended.out.splitlines()] == ["call_id", "conv"]
    assert "not called: (model): it ran, but returned no tensor: net.Box" in ended.err


def test_an_output_in_5000_lists_is_walked(run):
    net("):\n        y = self.conv(x)\n        for _ in range(5000): y = [y]\n        return y")
    ended = run(*words_of("inspect"), "--format", "csv")
    assert ended.code == 0, ended.err


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("command", ["inspect", "tensors", "gradients", "compare", "layers"])
def test_an_output_without_a_shape_is_refused(run, command):
    net("): return torch.nested.nested_tensor([self.conv(x).mean((2, 3))[0], x.new_ones(3)])")
    ended = run(*words_of(command), "--layers", "all")
    assert ended.code == 2, ended.err
    assert ended.err.splitlines()[-1] == (
        "error: a layer returned a nested tensor, which has no shape of its own"
    )


# --- hooks that are taken off

TAKEN_OFF = {
    "cleared": "y = self.conv(x); self.conv._forward_hooks.clear(); return y",
    "cleared before": "self.conv._forward_hooks.clear(); return self.conv(x)",
    "replaced": "self.conv._forward_hooks = type(self.conv._forward_hooks)(); return self.conv(x)",
    "popped": "self.conv._forward_hooks.popitem(); return self.conv(x)",
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


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"ablate, dry run"}))
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


def test_hooks_before_a_call_that_are_taken_off_are_missed_too(run):
    net("): self.conv._forward_pre_hooks.clear(); return self.conv(x)")
    error = error_of(run(*words_of("inspect"), "--at", "input"))
    assert error.startswith(
        "the model removed the hooks from conv (Conv2d) during its forward pass"
    )


def test_what_was_seen_before_hooks_were_taken_off_is_not_left_in_a_table(run):
    net(f"): {TAKEN_OFF['cleared']}")
    assert run(*words_of("inspect"), "--layers", "all").code == 4
    assert Path("out/layers.csv").read_text().count("\n") == 1


@pytest.mark.parametrize("command", ["inspect", "gradients", "ablate", "layers"])
def test_a_model_that_takes_its_modules_away_ends_with_a_code_of_ours(run, command):
    net(
        "):\n        y = self.conv(x).mean((2, 3))\n        self._modules.clear()\n        return y"
    )
    ended = run(*words_of(command), *(["--score", "sum"] * (command in ("gradients", "ablate"))))
    assert ended.code in (0, 4), ended.err


def clear_hooks_while_captured(error=None):
    model = Doubler()
    with hookcli.capture(model, "part"):
        model(torch.ones(1))
        model.part._forward_hooks.clear()
        if error is not None:
            raise error


def test_capture_says_that_hooks_were_taken_off():
    with pytest.raises(ForwardError, match=r"^the model removed the hooks from part \(ReLU\) "):
        clear_hooks_while_captured()


def test_an_error_inside_the_block_outranks_the_error_about_removed_hooks():
    with pytest.raises(BugError):
        clear_hooks_while_captured(BugError())


def test_a_model_may_take_its_own_hooks_off_and_put_others_on(run):
    net(
        "):\n        handle = self.conv.register_forward_hook(lambda *_: None)\n"
        "        y = self.conv(x)\n        handle.remove()\n"
        "        torch.nn.utils.parametrizations.weight_norm(self.conv)\n        return y"
    )
    ended = run(*words_of("inspect"), "--layers", "all")
    assert ended.code == 0, ended.err


def test_a_module_that_takes_another_registration_is_hooked_all_the_same(run):
    net("): return self.conv(x)", register_forward_hook="raise BaseException('no hooks')")
    ended = run(*words_of("inspect"), "--layers", "all", "--format", "csv")
    assert ended.code == 0, ended.err
    assert "(model)" in ended.out


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


def run_of_a_still_net(run, words):
    """What a run leaves whose model does not move."""
    net(
        "):\n        return self.fc(self.conv(x).mean((2, 3)))",
        init="self.conv, self.fc = nn.Conv2d(3, 2, 1), nn.Linear(2, 2)",
    )
    ended = run(*words)
    assert ended.code == 0, ended.err
    files = {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()}
    for name in ("out", "w.safetensors"):
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink(missing_ok=True)
    return ended, files


@pytest.mark.parametrize(
    ("command", "when"), [*(("inspect", when) for when in MOVES), ("gradients", "in its forward")]
)
def test_a_model_that_changes_the_working_directory_changes_nothing_else(run, when, command):
    here = Path.cwd()
    Path("forms.txt").write_text("conv\n")
    images = [
        f"photo{number}.png" for number in range(10)
    ]  # so many are read when their turn comes
    for name in images:
        shutil.copy("photo.png", name)
    words = [command, "net.py:Net", *images, *PLAIN, "-o", "out", "--layers", "@forms.txt"]
    words += ["--prune", "conv=0.5", "--save-weights", "w.safetensors", "--grids", "layers"]
    words += ["--save", "tensors"]
    still, expected = run_of_a_still_net(run, words)
    moving_net(when)
    ended = run(*words)
    assert (ended.code, ended.err, ended.out) == (0, still.err, still.out)
    assert Path.cwd() == here
    found = {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()}
    assert found.keys() == expected.keys()
    code, still_code = (files.pop(Path("net.py")) for files in (found, expected))
    own, still_own = (hashlib.sha256(text).hexdigest().encode() for text in (code, still_code))
    found = {file: data.replace(own, still_own) for file, data in found.items()}
    assert [str(file) for file in found if found[file] != expected[file]] == []
    assert list(Path("far").iterdir()) == []


def test_a_factory_finds_files_beside_the_copy_of_its_file():
    Path("far").mkdir()
    torch.save(nn.Conv2d(3, 5, 1), "far/part.pt")
    write("os.chdir('far')\ndef Net(): return torch.load('part.pt', weights_only=False)")
    here = Path.cwd()
    request = ModelRequest("net.py:Net", device="cpu")
    assert load_model(request).module.out_channels == 5
    assert Path.cwd() == here


@pytest.mark.parametrize("ending", ["pass", "raise KeyError('lost')"])
def test_a_score_that_changes_the_working_directory_changes_nothing_else(run, ending):
    net("): return self.fc(self.conv(x).mean((2, 3)))", init=TWO)
    Path("far").mkdir()
    name = f"score_{len(ending)}.py"  # it is imported once
    text = f"os.chdir('far')\ndef score(output, target):\n    {ending}\n    os.chdir('..')\n"
    write(f"{text}    return output.sum()", name)
    here = Path.cwd()
    ended = run("gradients", "net.py:Net", "photo.png", *RUN, "--score", f"{name}:score")
    assert ended.code == (0 if ending == "pass" else 4), ended.err
    assert Path.cwd() == here
    assert Path("out/run.json").is_file()
    assert list(Path("far").iterdir()) == []


TWO = "self.conv, self.fc = nn.Conv2d(3, 2, 1), nn.Linear(2, 2)"


def test_a_model_that_leaves_for_a_folder_that_is_gone_is_brought_back(run):
    net(
        "):\n        os.mkdir('gone'); os.chdir('gone'); os.rmdir(os.getcwd())\n        return "
        "self.conv(x)"
    )
    assert run(*words_of("inspect"), "--layers", "all").code == 0
    assert Path("out/manifest.json").is_file()


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


def test_a_file_that_raises_the_recursion_limit_beyond_the_stack_gets_less(run):
    before = sys.getrecursionlimit()
    try:
        net("): return self(x)")
        text = Path("net.py").read_text()
        Path("net.py").write_text(f"{text}\nsys.setrecursionlimit(10**6)")
        assert error_of(run(*words_of("layers"))).startswith("the model failed in")
        assert sys.getrecursionlimit() == 8000
    finally:
        sys.setrecursionlimit(before)


# --- the streams


class Talk(io.StringIO):
    """A stream that keeps what was written when it is closed."""

    text = ""

    def close(self):
        self.text = self.getvalue()
        super().close()


STREAMS = {
    "no stderr": "sys.stderr = None",
    "another stderr": "sys.stderr = open(os.devnull, 'w')",
    "stderr is no stream": "sys.stderr = 5",
    "no stdout": "sys.stdout = None",
    "another stdout": "sys.stdout = open(os.devnull, 'w')",
}


@pytest.mark.filterwarnings("ignore:unclosed file")
@pytest.mark.parametrize(
    ("what", "where"),
    [*((what, "in its forward") for what in STREAMS), ("no stderr", "at import")],
)
def test_a_model_that_changes_the_streams_changes_nothing_that_we_say(run, what, where):
    words = (*words_of("inspect"), "--format", "csv")
    net("): return self.conv(x)")
    expected = run(*words)
    shutil.rmtree("out")
    net(
        f"):\n        {STREAMS[what] if where == 'in its forward' else 'pass'}\n        return "
        f"self.conv(x)"
    )
    if where == "at import":
        Path("net.py").write_text(Path("net.py").read_text() + STREAMS[what])
    assert run(*words) == expected


def test_what_is_said_after_a_model_has_closed_stderr_goes_to_its_number(run, monkeypatch):
    net("): sys.stderr.close(); raise ValueError('wrong')")
    talk, before = Talk(), os.dup(2)
    try:
        with Path("said").open("w") as said:
            os.dup2(said.fileno(), 2)
        monkeypatch.setattr(sys, "stderr", talk)
        assert run(*words_of("inspect")).code == 4
    finally:
        os.dup2(before, 2)
        os.close(before)
    # the model has closed stderr before the run: when hookcli looked at how it ends
    lines = Path("said").read_text().splitlines()
    assert "error: the model failed in (model) (Net): wrong" in lines
    assert "into out" in lines[0]


def test_the_number_of_a_stream_that_a_model_closes_is_given_to_no_file():
    numbers = [os.dup(number) for number in (1, 2)]
    try:
        with Surroundings():
            os.close(1)
            os.close(2)
        with Path("next").open("w") as file:
            taken = file.fileno()
        assert os.path.samestat(os.fstat(2), Path(os.devnull).stat())
    finally:
        for number, kept in zip((1, 2), numbers, strict=True):
            os.dup2(kept, number)
            os.close(kept)
    assert taken > 2


# --- names that are no text


@pytest.mark.parametrize(
    ("name", "shown"), [("\ud800", "%ED%A0%80"), ("a%41", "a%2541"), ("\udcff", "%FF")]
)
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
