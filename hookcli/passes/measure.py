"""Measure what each call of a model costs on this machine: seconds, memory, and the speed reached.

The weights and the pixels are random: the cost does not depend on them, except in models that
compute more where they find more, such as detectors. Plain passes alternate with passes in which
hooks note the time before and after each call. Passes through empty modules show what the hooks
themselves cost, and hookcli takes this off. One more pass follows the memory and counts operations.
"""

from __future__ import annotations

import time
import weakref
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from hookcli.errors import RequestError
from hookcli.hooks.gradients import observe_gradients
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import tensors_in
from hookcli.hooks.operations import without_fast_path
from hookcli.hooks.watch import watch
from hookcli.networks.build import seeded
from hookcli.networks.load import load_model
from hookcli.networks.modules import find_modules
from hookcli.outside.urls import IN_MEMORY
from hookcli.passes.call import call_backward, call_model
from hookcli.passes.flops import FlopCounter
from hookcli.records.calls import Call
from hookcli.records.rows import Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hookcli.config import ModelRequest
    from hookcli.records.calls import LayerInfo
    from hookcli.records.rows import SurveyRow

_Key: TypeAlias = tuple[str, int]  # the module's path, and the index of the call
_ROUNDS, _ROUNDS_BACK = 6, 4  # with the survey, a model runs at most 20 times
_STEPS, _REPEATS = 100, 5  # empty modules, and passes through them
_SLOWEST = 3.0  # hooks take up to 2 times as long in a model as between empty modules
_SECONDS, _MOST_TESTS = 0.2, 50  # for each test of the machine
_SIDE, _SIDE_GPU = 1024, 4096  # of the matrices that the machine multiplies
_COPIED, _COPIED_GPU = 1 << 27, 1 << 29  # bytes, more than the caches hold
_ROOT: _Key = ("", 0)


@dataclass(frozen=True, slots=True)
class _Mark:
    key: _Key
    starts: bool  # whether the call starts here, or ends
    value: Any  # a moment, or a ``_Level``


@dataclass(frozen=True, slots=True)
class _Level:
    live: int  # bytes
    peak: int  # the most bytes since the last level
    flops: int  # so far
    uncounted: int  # operators so far


@dataclass(slots=True)
class _Log:
    read: Callable[[], Any]
    forward: list[_Mark] = field(default_factory=list)
    backward: list[_Mark] = field(default_factory=list)
    sizes: dict[_Key, tuple[int, int]] | None = None  # bytes of inputs and outputs; None: not noted

    def started(self, call: Call, inputs: object) -> None:
        if self.sizes is not None:
            self.sizes[_key_of(call)] = _bytes_of(inputs), 0
        self.forward.append(_Mark(_key_of(call), starts=True, value=self.read()))

    def finished(self, call: Call, output: object) -> None:
        self.forward.append(_Mark(_key_of(call), starts=False, value=self.read()))
        if self.sizes is not None:
            self.sizes[_key_of(call)] = self.sizes[_key_of(call)][0], _bytes_of(output)

    def gradient(self, call: Call, _gradient: Tensor) -> None:
        if call.side != "param" and call.layer.module_path:
            self.note(_key_of(call), starts=call.side == "grad_output")

    def note(self, key: _Key, *, starts: bool) -> None:
        self.backward.append(_Mark(key, starts, self.read()))


def _key_of(call: Call) -> _Key:
    return call.layer.module_path, call.call_index


def _bytes_of(value: object) -> int:
    return sum(each.numel() * each.element_size() for each in tensors_in(value))


@dataclass(frozen=True, slots=True)
class _Clock:
    device: torch.device

    def read(self) -> Any:
        if self.device.type == "cuda":  # an event needs no waiting, and notes the GPU's own time
            event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self.device))
            return event
        if self.device.type == "mps":
            torch.mps.synchronize()
        return time.perf_counter()

    def settle(self, marks: Sequence[_Mark]) -> list[_Mark]:
        """Replace what ``read`` returned by seconds."""
        if self.device.type != "cuda" or not marks:
            return list(marks)
        torch.cuda.synchronize(self.device)
        first = marks[0].value
        return [replace(each, value=first.elapsed_time(each.value) / 1e3) for each in marks]

    def time(self, run: Callable[[], object]) -> float:
        moments = [_Mark(_ROOT, starts=True, value=self.read())]
        run()
        moments.append(_Mark(_ROOT, starts=False, value=self.read()))
        start, end = self.settle(moments)
        return float(end.value - start.value)


class _Meter(FlopCounter):  # type: ignore[no-untyped-call]
    """Also follows how many bytes of tensors are alive; each memory counts once, until it is freed.

    On CUDA, torch's allocator says this, and includes what kernels allocate inside themselves.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._gpu = device if device.type == "cuda" else None
        self._alive: set[int] = set()
        self._live = self._peak = 0

    def add(self, tensor: Tensor) -> int:
        """Follow the memory of a tensor, and return its bytes, or 0 if it is known already."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # a sparse tensor
            return 0
        number, size = int(storage._cdata), storage.nbytes()
        if number in self._alive:
            return 0
        self._alive.add(number)
        weakref.finalize(storage, self._free, number, size).atexit = False
        self._live += size
        self._peak = max(self._peak, self._live)
        return size

    def _free(self, number: int, size: int) -> None:
        self._alive.remove(number)
        self._live -= size

    def read(self) -> _Level:
        live, peak, self._peak = self._live, self._peak, self._live
        if self._gpu is not None:
            live = torch.cuda.memory_allocated(self._gpu)
            peak = torch.cuda.max_memory_allocated(self._gpu)
            torch.cuda.reset_peak_memory_stats(self._gpu)
        return _Level(live, peak, self.total, len(self.uncounted))

    def __torch_dispatch__(self, *given: Any, **named: Any) -> object:
        output = super().__torch_dispatch__(*given, **named)
        for tensor in tensors_in(output):
            self.add(tensor)
        return output


@dataclass(frozen=True, slots=True)
class _Subject:
    network: nn.Module
    layers: tuple[LayerInfo, ...]  # the model itself comes first
    make_arguments: Callable[[], tuple[object, ...]]
    clock: _Clock
    seed: int = 0

    def run(
        self, log: _Log, layers: Sequence[LayerInfo], followed: Sequence[LayerInfo] | None = None
    ) -> None:
        """Run the model once; ``log`` notes the calls of ``layers``.

        Unless ``followed`` is None, also run the backward pass, and note the gradients of the
        inputs and outputs of ``followed``.
        """
        network, arguments = self.network, self.make_arguments()
        observing = observe_gradients(network, followed, log.gradient) if followed else None
        needs = followed is not None
        with without_fast_path(), torch.set_grad_enabled(needs), observing or nullcontext():
            with watch(network, layers, log.started, log.finished, ends_first=True):
                output = call_model(network, arguments, seed=self.seed)
            if needs:
                total = _add_up(output)
                del output, arguments
                log.note(_ROOT, starts=True)
                call_backward(total)
                log.note(_ROOT, starts=False)
        for parameter in network.parameters():
            parameter.grad = None

    def time(self, *which: Any) -> tuple[list[_Mark], list[_Mark]]:
        log = _Log(self.clock.read)
        self.run(log, *which)
        return self.clock.settle(log.forward), self.clock.settle(_close(log.backward))


def _add_up(output: object) -> Tensor:
    sums = [each.float().sum() for each in tensors_in(output) if each.requires_grad]
    if not sums:
        raise RequestError(
            "`backward`: no output of the model has a gradient",
            "let a parameter require one: parameter.requires_grad_()",
        )
    return torch.stack(sums).sum()


def _close(marks: Sequence[_Mark]) -> list[_Mark]:
    """Return marks of gradients so that each call starts once, and ends once.

    A call starts with the first gradient of an output, and ends with the last of an input. If no
    input needs a gradient, it ends as soon as a call that is not inside it goes on.
    """
    last = {mark.key: index for index, mark in enumerate(marks) if not mark.starts}
    found: list[_Mark] = []
    started, endless = set[_Key](), list[_Key]()
    for index, mark in enumerate(marks):
        for key in [key for key in endless if not mark.key[0].startswith(f"{key[0]}.")]:
            endless.remove(key)
            found.append(replace(mark, key=key, starts=False))
        if mark.starts and mark.key not in started:
            started.add(mark.key)
            found.append(mark)
            if last.get(mark.key, -1) < index:
                endless.append(mark.key)
        elif last.get(mark.key) == index:
            found.append(mark)
    return found


def _list_spans(marks: Sequence[_Mark]) -> Iterator[tuple[tuple[_Key, ...], _Mark, _Mark]]:
    """Yield the calls that run between two marks, the innermost last, and the two marks."""
    running: list[_Key] = []
    for mark, after in pairwise(marks):
        if mark.starts:
            running.append(mark.key)
        elif mark.key in running:
            running.remove(mark.key)
        yield tuple(running), mark, after


@dataclass(frozen=True, slots=True)
class _HookCost:
    inside: float = 0.0  # seconds of a call that hooks take between its two marks
    outside: float = 0.0  # and before and after them, in the call around it

    def __mul__(self, factor: float) -> _HookCost:
        return _HookCost(self.inside * factor, self.outside * factor)

    def of(self, mark: _Mark, after: _Mark) -> float:
        if mark.starts == after.starts:
            return (self.inside + self.outside) / 2
        return self.inside if mark.starts else self.outside


@dataclass(frozen=True, slots=True)
class _Times:
    own: Mapping[_Key, float]  # seconds, without the parts of the call
    whole: Mapping[_Key, float]
    unscaled: float  # the sum of all own times as the hooks measured them
    hooks: _HookCost


def _find_times(passes: Sequence[Sequence[_Mark]], plain: float, hooks: _HookCost) -> _Times:
    """Return each call's median over ``passes``, such that all of them add up to ``plain``.

    Between a model's layers, hooks run out of colder caches than between empty modules. So hookcli
    takes off what the passes took longer than ``plain``, from once to ``_SLOWEST`` times ``hooks``.
    """
    if not passes or not passes[0]:
        return _Times({}, {}, 0.0, hooks)
    extra = median(map(_length, passes)) - plain
    expected = sum(hooks.of(*pair) for pair in pairwise(passes[0]))
    hooks *= min(_SLOWEST, max(1.0, extra / expected))
    own, whole = defaultdict[_Key, list[float]](list), defaultdict[_Key, list[float]](list)
    for marks in passes:
        mine, all_of = defaultdict[_Key, float](float), defaultdict[_Key, float](float)
        for running, mark, after in _list_spans(marks):
            seconds = after.value - mark.value - hooks.of(mark, after)
            for key in running:
                mine[key] += seconds if key == running[-1] else 0.0
                all_of[key] += seconds
        for key in all_of:
            own[key].append(mine[key])
            whole[key].append(all_of[key])
    middle = {key: max(0.0, median(each)) for key, each in own.items()}
    total = sum(middle.values())
    scale = plain / total if total else 1.0
    return _Times(
        {key: seconds * scale for key, seconds in middle.items()},
        {key: max(0.0, median(each)) * scale for key, each in whole.items()},
        total,
        hooks,
    )


class _Empty(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return value


def _measure_hooks(clock: _Clock, *, backward: bool) -> tuple[_HookCost, _HookCost]:
    chain = nn.Sequential(*(_Empty() for _ in range(_STEPS)))
    value = torch.ones(1, device=clock.device, requires_grad=backward)
    subject = _Subject(chain, list_watchable(chain), lambda: (value,), clock)
    root, every = subject.layers[:1], subject.layers
    plain = median(_length(subject.time(root)[0]) for _ in range(_REPEATS)) / _STEPS
    forward = [subject.time(every)[0] for _ in range(_REPEATS)]
    there = _find_cost(forward, plain)
    if not backward:
        return there, _HookCost()
    return there, _find_cost([subject.time((), every)[1] for _ in range(_REPEATS)], 0.0)


def _find_cost(passes: Iterable[Sequence[_Mark]], plain: float) -> _HookCost:
    spans = [(m.starts, a.starts, a.value - m.value) for p in passes for m, a in pairwise(p)]
    inside = median(seconds for starts, again, seconds in spans if starts and not again)
    outside = median(seconds for starts, again, seconds in spans if again and not starts)
    return _HookCost(inside, max(0.0, outside - plain))


def _length(marks: Sequence[_Mark]) -> float:
    return float(marks[-1].value - marks[0].value) if marks else 0.0


@dataclass(frozen=True, slots=True)
class _Memory:
    there: Mapping[_Key, int]  # the most bytes while a call runs forward
    back: Mapping[_Key, int]  # and while its backward pass runs
    starts: Mapping[_Key, _Level]
    ends: Mapping[_Key, _Level]
    sizes: Mapping[_Key, tuple[int, int]]
    worst: _Key  # the innermost call that runs where the most bytes are needed
    weights: int  # bytes


def _measure_memory(subject: _Subject, *, backward: bool) -> _Memory:
    meter, network = _Meter(subject.clock.device), subject.network
    weights = sum(meter.add(each) for each in (*network.parameters(), *network.buffers()))
    log = _Log(meter.read, sizes={})
    with meter:
        subject.run(log, subject.layers, *([subject.layers] if backward else []))
    spans = [*_list_spans(log.forward), *_list_spans(_close(log.backward))]
    _, worst = max((end.value.peak, running[-1]) for running, _, end in spans if running)
    there, back = (_find_peaks(marks) for marks in (log.forward, _close(log.backward)))
    starts = {mark.key: mark.value for mark in log.forward if mark.starts}
    ends = {mark.key: mark.value for mark in log.forward if not mark.starts}
    return _Memory(there, back, starts, ends, log.sizes or {}, worst, weights)


def _find_peaks(marks: Sequence[_Mark]) -> dict[_Key, int]:
    peaks = defaultdict[_Key, int](int)
    for running, _, end in _list_spans(marks):
        for key in running:
            peaks[key] = max(peaks[key], end.value.peak)
    return peaks


def find_speeds(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Return the best FLOP/s of a matrix product, and the best bytes per second of a copy."""
    clock, is_cpu = _Clock(device), device.type == "cpu"
    side, size = (_SIDE, _COPIED) if is_cpu else (_SIDE_GPU, _COPIED_GPU)
    factors = torch.rand(side, side, device=device, dtype=dtype)
    source = torch.zeros(size, device=device, dtype=torch.uint8)
    target = torch.zeros_like(source)
    product = _find_best(clock, lambda: torch.mm(factors, factors))
    return 2 * side**3 / product, 2 * size / _find_best(clock, lambda: target.copy_(source))


def _find_best(clock: _Clock, run: Callable[[], object]) -> float:
    run()
    times, end = [clock.time(run)], time.perf_counter() + _SECONDS
    while time.perf_counter() < end and len(times) < _MOST_TESTS:
        times.append(clock.time(run))
    return min(times)


@dataclass(frozen=True, slots=True)
class _Costs:
    memory: _Memory
    there: _Times
    back: _Times
    modules: Mapping[str, nn.Module]
    ridge: float  # FLOPs per byte, above which arithmetic takes longer than moving the bytes

    def of(self, key: _Key) -> dict[str, Any]:
        """Return the fields that a call adds to its row; none if it did not run."""
        if key not in self.there.own or key not in self.memory.ends:
            return {}
        seconds, memory = self.there.whole[key], self.memory
        start, end, peak = memory.starts[key], memory.ends[key], memory.there[key]
        flops = None if end.uncounted > start.uncounted else end.flops - start.flops
        return {
            "seconds": seconds,
            "own_seconds": self.there.own[key],
            "backward_seconds": self.back.whole.get(key),
            "batch_output_mb": memory.sizes[key][1] / 1e6,
            "workspace_mb": max(0, peak - max(start.live, end.live)) / 1e6,
            "peak_mb": max(peak, memory.back.get(key, 0)) / 1e6,
            "flops_per_second": flops / seconds if flops and seconds else None,
            "bound": self._find_bound(key, flops),
        }

    def _find_bound(self, key: _Key, flops: int | None) -> str:
        module = self.modules[key[0]]
        if flops is None or any(module.children()):
            return ""
        weights = sum(_bytes_of(each) for each in module.parameters())
        moved = sum(self.memory.sizes[key]) + weights
        return "arithmetic" if flops > self.ridge * moved else "memory"

    def join(self, rows: Iterable[SurveyRow]) -> Iterator[SurveyRow]:
        calls = defaultdict[str, dict[int | None, int]](dict)
        for row in rows:
            known = calls[row.module_path]
            is_first = row.order not in known  # of the tensors of the call
            key = row.module_path, known.setdefault(row.order, len(known))
            yield replace(row, **self.of(key)) if is_first else row


def count_passes(*, backward: bool) -> int:
    """Return how often ``measure_model`` calls ``step``."""
    return 1 + (_ROUNDS_BACK if backward else _ROUNDS)


def measure_model(
    request: ModelRequest,
    rows: Iterable[SurveyRow],
    shape: tuple[int, ...],
    batch_size: int,
    *,
    backward: bool = False,
    step: Callable[[], object] = lambda: None,
) -> tuple[list[SurveyRow], Measurement]:
    """Return ``rows`` with what their calls cost for a batch of random pixels, and the totals.

    ``shape`` is the input's shape for one image. hookcli calls ``step`` after each round of passes.
    """
    weights = "auto" if request.name.endswith(IN_MEMORY) else "random"
    loaded = load_model(replace(request, weights=weights))
    device = torch.device(loaded.info.device)
    with seeded(request.seed):
        pixels = loaded.convert(torch.rand(batch_size, *shape[1:]))
    network, inputs = loaded.module, loaded.inputs
    subject = _Subject(
        network,
        list_watchable(network),
        lambda: inputs.arguments_of(pixels.clone()),
        _Clock(device),
        inputs.seed,
    )
    memory = _measure_memory(subject, backward=backward)
    step()
    there, back, seconds = _measure_times(subject, step, backward=backward)
    product, copy = find_speeds(device, pixels.dtype)
    labels = {layer.module_path: layer for layer in subject.layers}
    measured = Measurement(
        device=loaded.info.device,
        dtype=str(pixels.dtype).removeprefix("torch."),
        batch_size=batch_size,
        threads=torch.get_num_threads(),
        seconds=seconds[0],
        unscaled_seconds=there.unscaled,
        backward_seconds=seconds[1] if backward else None,
        hook_seconds=there.hooks.inside + there.hooks.outside,
        peak_mb=max(*memory.there.values(), *memory.back.values()) / 1e6,
        peak_call=Call(labels[memory.worst[0]], memory.worst[1]).id,
        weights_mb=memory.weights / 1e6,
        best_flops_per_second=product,
        best_bytes_per_second=copy,
    )
    costs = _Costs(memory, there, back, find_modules(network), product / copy)
    return [*costs.join(rows)], measured


def _measure_times(
    subject: _Subject, step: Callable[[], object], *, backward: bool
) -> tuple[_Times, _Times, tuple[float, float]]:
    """Return the times of all calls forward and backward, and the time of a plain pass each way."""
    root, every = subject.layers[:1], subject.layers
    asked = [()] if backward else []  # a backward pass that nothing observes
    hooks, hooks_back = _measure_hooks(subject.clock, backward=backward)
    subject.time(root, *asked)
    plain, plain_back = list[float](), list[float]()
    there, back = list[list[_Mark]](), list[list[_Mark]]()
    for _ in range(_ROUNDS_BACK if backward else _ROUNDS):
        forward, behind = subject.time(root, *asked)
        plain.append(_length(forward) - hooks.inside)
        plain_back.append(_length(behind))
        there.append(subject.time(every)[0])
        if backward:
            back.append(subject.time((), every)[1])
        step()
    seconds = median(plain), median(plain_back)
    times = _find_times(there, seconds[0], hooks), _find_times(back, seconds[1], hooks_back)
    return *times, seconds
