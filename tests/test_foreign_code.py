"""Models whose code does what code of others may do: raise anything, anywhere, and change the process it runs in."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from hookcli import hooks
from hookcli.calling import call_backward, call_model
from hookcli.errors import ForwardError, RequestError
from hookcli.layers import list_layers

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
    error = error_of(run(*words_of(command)))
    assert error.endswith(
        "the model failed in (model) (Net): Net.forward() missing 1 required positional argument: 'y'"
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
    with hooks.watch(model, list_layers(model), None, listener):
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
    with pytest.raises(ForwardError, match=r"^the model failed in part \(ReLU\): 'theirs'$"):
        call_under(lambda *_: None, model)


def test_code_of_others_that_a_hook_of_ours_runs_raises_the_models_errors():
    class Mean(nn.Module):
        def forward(self, x):
            return {Weird(): x}

    with pytest.raises(ForwardError, match="no words"):
        call_under(lambda _call, value: list(hooks.named_tensors(value)), Mean())


class Weird:
    def __str__(self):
        raise ValueError("no words")


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

    with pytest.raises(ForwardError, match=r"^the backward failed: 'no way back'$"):
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
        "):\n        assert len(x) == 1, 'one image at a time'\n        return self.conv(x).mean((2, 3))"
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
