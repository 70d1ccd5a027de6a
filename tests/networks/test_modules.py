"""The modules of compiled models and of TorchScript."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookcli.networks.modules import (
    find_modules,
    list_classes,
    note_compiled,
    run_eagerly,
    strip_wrapped,
    unwrap,
)

NOTE = "compiled: its layers are run in eager mode; the compiled one: `against=('compile',)`"


def compiled(module):
    return torch.compile(module, backend="eager")


def method():
    class Method(nn.Module):
        @torch.compile(backend="eager")  # imports the compiler
        def forward(self, x):
            return x + 1

    return Method()


class Holds(nn.Module):
    def __init__(self):
        super().__init__()
        self.run = torch.compile(lambda x: x + 1, backend="eager")

    def forward(self, x):
        return self.run(x)


def in_place():
    module = nn.Sequential(nn.ReLU())
    module.compile(backend="eager")
    return module


def test_compiled_parts_have_the_paths_of_a_plain_model():
    net = nn.Sequential(nn.ReLU(), compiled(nn.Sequential(compiled(nn.Tanh()))))
    found = find_modules(compiled(net))
    assert [*found] == ["", "0", "1", "1.0"]
    assert [type(module).__name__ for module in found.values()] == [
        "Sequential",
        "ReLU",
        "Sequential",
        "Tanh",
    ]


@pytest.mark.parametrize(
    ("path", "stripped"),
    [
        ("_orig_mod", ""),
        ("a._orig_mod._orig_mod.b", "a.b"),
        ("my_orig_mod.a_orig_mod", "my_orig_mod.a_orig_mod"),
    ],
)
def test_a_path_is_stripped_of_the_wrappers_alone(path, stripped):
    assert strip_wrapped(path) == stripped


def test_only_the_wrapper_of_a_whole_model_is_taken_off():
    net = nn.Sequential(compiled(nn.ReLU()))
    assert unwrap(compiled(net)) is net
    assert unwrap(net) is net


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(compiled(nn.ReLU())),
        in_place,
        method,
        lambda: nn.Sequential(Holds()),
    ],
)
def test_a_model_with_anything_compiled_gets_a_note(make):
    assert note_compiled(make()) == NOTE


def test_a_model_of_torch_export_is_not_compiled():
    program = torch.export.export(nn.Sequential(nn.ReLU()), (torch.ones(1),), strict=False)
    assert note_compiled(torch.export.unflatten(program)) == ""
    assert note_compiled(nn.Sequential(nn.ReLU())) == ""


@pytest.mark.parametrize("make", [lambda: compiled(nn.ReLU()), in_place, method, Holds])
def test_nothing_is_compiled_inside_the_blocks_and_all_after_the_last(make):
    def backend(graph, _examples):
        graphs.append(graph)
        return graph.forward

    graphs = []
    function = torch.compile(make(), backend=backend)
    first, second = run_eagerly(), run_eagerly()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    function(torch.ones(2))
    assert graphs == []
    second.__exit__(None, None, None)
    torch.compile(lambda x: x * 2, backend=backend)(torch.ones(2))
    assert len(graphs) == 1


def test_a_compiler_that_is_loaded_in_the_block_runs_eagerly_too(monkeypatch):
    """As with ``torch.cond`` in a process that has not loaded the compiler yet."""
    monkeypatch.setattr("hookcli.networks.modules._COMPILER", "not.loaded.yet")
    before, graphs = torch.compile, []
    with run_eagerly():
        monkeypatch.setattr("hookcli.networks.modules._COMPILER", "sys")
        function = torch.compile(lambda x: x + 1, backend=lambda *given: graphs.append(given))
        assert function(torch.ones(1)) == 2
    assert graphs == []
    assert torch.compile is before


@pytest.mark.filterwarnings("ignore:`torch.jit.:FutureWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning")
def test_a_part_of_torchscript_has_the_class_that_was_scripted():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1)

        def forward(self, x):
            return self.conv(x)

    traced = torch.jit.trace(Own(), torch.ones(1, 1, 2, 2))
    assert [each.__name__ for each in list_classes(traced)] == ["Own"]
    assert list_classes(traced.conv)[:2] == nn.Conv2d.__mro__[:2]
    assert list_classes(Own())[0] is Own
