"""What ``hookcli layers --measure`` measures, on models whose cost is known by hand."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import hookcli
from hookcli.errors import ForwardError, RequestError
from hookcli.passes import call, measure
from hookcli.passes.measure import _close, _find_times, _Hooks, _Mark

SIDE = 16
MAP = 3 * SIDE * SIDE * 4 / 1e6  # MB of three channels in float32


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Test the machine with small matrices, and only once."""
    for name, value in {"_SIDE": 8, "_COPIED": 1 << 10, "_SECONDS": 0, "_REPEATS": 3}.items():
        monkeypatch.setattr(measure, name, value)


class Nap(nn.Module):
    def forward(self, value):
        time.sleep(0.02)
        return value


class Between(nn.Module):
    """Takes its time itself, between the calls of its parts."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, value):
        value = self.relu(value)
        time.sleep(0.02)
        return self.relu(value)


class Doubled(nn.Module):
    """Needs two further maps for a while, and returns one."""

    def forward(self, value):
        return (value * 2 + value * 3) * 1


def measured(model, **options):
    return hookcli.layers(model, size=SIDE, measure=True, **options)


def figures(found, name):
    return {row.call_id: getattr(row, name) for row in found.rows}


def test_the_time_is_that_of_the_module_that_takes_it():
    found = measured(nn.Sequential(nn.ReLU(), Nap(), nn.Sigmoid()))
    own = figures(found, "own_seconds")
    assert own["1"] == pytest.approx(0.02, rel=0.2)
    assert sum(own.values()) - own["1"] < 0.004
    assert figures(found, "seconds")["(model)"] == pytest.approx(0.02, rel=0.2)


def test_time_between_calls_is_the_own_time_of_the_block_around_them():
    found = measured(nn.Sequential(nn.ReLU(), Between()))
    own = figures(found, "own_seconds")
    assert own["1"] == pytest.approx(0.02, rel=0.2)
    assert max(seconds for name, seconds in own.items() if name != "1") < 0.004
    assert {"1.relu", "1.relu#1"} < own.keys()


def test_own_times_add_up_to_a_plain_forward_pass():
    found = measured(nn.Sequential(nn.Conv2d(3, 16, 3), nn.Sequential(nn.ReLU(), Nap())))
    total = sum(figures(found, "own_seconds").values())
    assert total == pytest.approx(found.measured.seconds)
    assert found.measured.unscaled_seconds == pytest.approx(found.measured.seconds, rel=0.2)


def test_the_time_of_hooks_is_taken_off():
    """Of 35 s, hooks that cost 1 s inside of a call and 2 s outside of it took 7 s."""
    root, a, b = ("", 0), ("a", 0), ("b", 0)
    moments = [(root, True, 0), (a, True, 10), (a, False, 15), (b, True, 20), (b, False, 28)]
    marks = [_Mark(*each) for each in [*moments, (root, False, 35)]]
    times = _find_times([marks, marks], 28.0, _Hooks(1.0, 2.0))
    assert times.own == {root: 8.5 + 3 + 5.5, a: 4, b: 7}
    assert times.whole == {root: 28, a: 4, b: 7}
    assert (times.unscaled, times.hooks) == (28, 3)
    slower = _find_times([marks], 21.0, _Hooks(1.0, 2.0))  # the hooks took twice as long
    assert (slower.own[a], slower.hooks) == (3, 6)


def test_backward_a_part_keeps_its_time_if_its_blocks_gradient_comes_later():
    root, block, part = ("", 0), ("b", 0), ("b.q", 0)
    moments = [(root, True, 0), (part, True, 2), (block, True, 3), (part, False, 9)]
    marks = [_Mark(*each) for each in [*moments, (block, False, 10), (root, False, 12)]]
    times = _find_times([marks], 12.0, _Hooks(1e-12, 0.0), is_backward=True)
    assert times.own == pytest.approx({root: 4, part: 7, block: 1})
    assert times.whole == pytest.approx({root: 12, part: 7, block: 8})


def test_hooks_on_many_short_calls_hardly_change_the_times():
    found = measured(nn.Sequential(*(nn.Identity() for _ in range(200)), Nap()))
    assert found.measured.hook_seconds * 200 > 0.0004
    assert figures(found, "own_seconds")["200"] == pytest.approx(0.02, rel=0.2)


def test_memory_is_that_of_the_maps_that_are_alive():
    found = measured(nn.Sequential(nn.ReLU(), Doubled(), nn.ReLU(inplace=True)))
    assert figures(found, "batch_output_mb") == pytest.approx(
        dict.fromkeys(["(model)", "0", "1", "2"], MAP)
    )
    # of the model: its parts' maps; of Doubled: its input, two products, and their sum
    assert figures(found, "workspace_mb") == pytest.approx(
        {"(model)": 3 * MAP, "0": 0, "1": 2 * MAP, "2": 0}
    )
    assert figures(found, "peak_mb")["0"] == pytest.approx(2 * MAP)
    assert found.measured.peak_mb == pytest.approx(5 * MAP)  # with the pixels
    assert found.measured.peak_call == "1"


def test_weights_are_in_the_running_total_and_a_batch_is_counted_whole():
    found = measured(nn.Sequential(nn.Conv2d(3, 3, 1, bias=False)), batch_size=4)
    assert found.measured.weights_mb == pytest.approx(36 / 1e6)
    assert figures(found, "batch_output_mb")["0"] == pytest.approx(4 * MAP)
    assert found.measured.peak_mb == pytest.approx(8 * MAP + 36 / 1e6)
    row = found.rows[1]
    assert row.flops_per_second * row.seconds == pytest.approx(4 * row.flops)


def test_weights_that_are_read_once_for_one_image_bind_a_layer_by_memory(monkeypatch):
    speeds = iter([1e-3, 1e-2])  # 5 FLOPs per byte
    monkeypatch.setattr(measure._Clock, "find_best", lambda *_: next(speeds))
    found = measured(nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 4096)))
    assert figures(found, "bound")["1"] == "memory"


def test_a_batch_too_large_for_memory_is_refused(monkeypatch):
    def rand(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "rand", rand)
    with pytest.raises(ForwardError, match="no memory for 70000 images"):
        measured(nn.ReLU(), batch_size=70_000)


def test_a_layer_is_bound_by_arithmetic_or_by_memory(monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3, groups=64), nn.ReLU())
    speeds = iter([1e-3, 1e-2])  # 1.02e6 FLOP/s, and 2.05e5 bytes per second: 5 FLOPs per byte
    monkeypatch.setattr(measure._Clock, "find_best", lambda *_: next(speeds))
    found = measured(model)
    assert figures(found, "bound") == {
        "(model)": "",
        "0": "arithmetic",
        "1": "memory",
        "2": "memory",
    }


def test_the_backward_pass_is_timed_per_layer():
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(_context, value):
            return value.clone()

        @staticmethod
        def backward(_context, gradient):
            time.sleep(0.02)
            return gradient

    class SlowBack(nn.Module):
        def forward(self, value):
            return Slow.apply(value)

    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Sequential(SlowBack(), nn.ReLU()))
    found = measured(model, backward=True)
    back = figures(found, "backward_seconds")
    assert found.measured.backward_seconds == pytest.approx(0.02, rel=0.3)
    assert (back["1.0"], back["1"]) == pytest.approx((0.02, 0.02), rel=0.3)
    assert max(back["0"], back["1.1"]) < 0.005
    assert figures(found, "own_seconds")["1.0"] < 0.005


def test_a_call_without_a_gradient_of_its_input_ends_with_the_next_one():
    first, inner, other = ("a", 0), ("a.b", 0), ("c", 0)
    marks = [_Mark(first, True, 1), _Mark(inner, True, 2), _Mark(inner, False, 3)]
    closed = _close([*marks, _Mark(other, True, 5), _Mark(other, False, 6)])
    assert [(mark.key, mark.starts, mark.value) for mark in closed[3:]] == [
        (first, False, 5), (other, True, 5), (other, False, 6)
    ]  # fmt: skip


@pytest.mark.parametrize("backward", [False, True])
def test_a_model_runs_at_most_20_times_and_comes_back_as_it_was(backward):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout()).train()
    runs, before = [], {name: each.clone() for name, each in model.state_dict().items()}
    model.register_forward_hook(lambda *_: runs.append(model[0].weight.grad))
    measured(model, batch_size=2, backward=backward)
    assert runs == [None] * len(runs)
    assert len(runs) <= 20
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert model.training
    assert [each.grad for each in model.parameters()] == [None] * 4
    assert [len(each._forward_hooks) for each in model.modules()] == [1, 0, 0, 0]


def test_a_model_without_gradients_has_no_backward_pass():
    with pytest.raises(RequestError) as error:
        measured(nn.Sequential(nn.ReLU()), backward=True)
    assert str(error.value) == "`backward`: no output of the model has a gradient"
    assert error.value.hint == "let a parameter require one: parameter.requires_grad_()"


def test_a_lack_of_memory_is_the_models_error_and_has_a_hint(monkeypatch):
    class Large(nn.Module):
        def forward(self, value):
            if len(value) > 4:
                raise torch.OutOfMemoryError("out of memory")
            return value

    with pytest.raises(ForwardError) as error:
        measured(nn.Sequential(Large()), batch_size=8)
    assert "try `batch_size=1`" in error.value.hint
    assert call.is_out_of_memory(error.value.__cause__)
