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
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from hookcli.errors import ForwardError, RequestError
from hookcli.hooks.gradients import observe_gradients
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import bytes_of, tensors_in
from hookcli.hooks.operations import without_fast_path
from hookcli.hooks.watch import watch
from hookcli.networks.build import seeded
from hookcli.networks.load import load_model
from hookcli.networks.modules import find_modules
from hookcli.outside.urls import IN_MEMORY
from hookcli.passes.call import call_backward, call_model, is_out_of_memory
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
_SLOWEST = 3.0  # hooks take about 2 times as long in a model as between empty modules
_SECONDS, _MOST_TESTS = 0.2, 50  # for each test of the machine
_SIDE, _COPIED = 1024, 1 << 27  # of matrices; bytes, more than the caches hold
_LARGER = 4  # on a GPU
_ROOT: _Key = ("", 0)


class _Mark(NamedTuple):
    key: _Key
    starts: bool  # whether the call starts here, or ends
    value: Any  # a moment, or a ``_Level``


class _Level(NamedTuple):
    live: int  # bytes
    peak: int  # the most bytes since the last level
    flops: int  # so far
    uncounted: int  # operators so far
    size: int  # bytes of the call's inputs or outputs


@dataclass(slots=True)
class _Log:
    read: Callable[[object], Any]
    forward: list[_Mark] = field(default_factory=list)
    backward: list[_Mark] = field(default_factory=list)

    def started(self, call: Call, inputs: object) -> None:
        self.forward.append(_Mark(_key_of(call), starts=True, value=self.read(inputs)))

    def finished(self, call: Call, output: object) -> None:
        self.forward.append(_Mark(_key_of(call), starts=False, value=self.read(output)))

    def gradient(self, call: Call, _gradient: Tensor) -> None:
        if call.side != "param" and call.layer.module_path:
            self.note(_key_of(call), starts=call.side == "grad_output")

    def note(self, key: _Key, *, starts: bool) -> None:
        self.backward.append(_Mark(key, starts, self.read(None)))


def _key_of(call: Call) -> _Key:
    return call.layer.module_path, call.call_index


@dataclass(frozen=True, slots=True)
class _Clock:
    device: torch.device

    def read(self, _value: object = None) -> Any:
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
            return [*marks]
        torch.cuda.synchronize(self.device)
        first = marks[0].value
        return [each._replace(value=first.elapsed_time(each.value) / 1e3) for each in marks]

    def find_best(self, run: Callable[[], object]) -> float:
        run()
        times, end = list[float](), time.perf_counter() + _SECONDS
        while not times or (time.perf_counter() < end and len(times) < _MOST_TESTS):
            log = _Log(self.read)
            log.note(_ROOT, starts=True)
            run()
            log.note(_ROOT, starts=False)
            times.append(_length(self.settle(log.backward)))
        return min(times)


class _Meter(FlopCounter):  # type: ignore[no-untyped-call]
    """Also follows how many bytes of tensors are alive; each memory counts once, until it is freed.

    On CUDA, torch's allocator says this, and includes what kernels allocate inside themselves.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._gpu = device if device.type == "cuda" else None
        self._alive: set[int] = set()
        self.live = self._peak = 0

    def add(self, tensors: Iterable[Tensor]) -> None:
        for storage in (each.untyped_storage() for each in tensors if each.layout == torch.strided):
            number, size = int(storage._cdata), storage.nbytes()
            if number not in self._alive:
                self._alive.add(number)
                weakref.finalize(storage, self._free, number, size).atexit = False
                self.live += size
                self._peak = max(self._peak, self.live)

    def _free(self, number: int, size: int) -> None:
        self._alive.remove(number)
        self.live -= size

    def read(self, value: object) -> _Level:
        live, peak, self._peak = self.live, self._peak, self.live
        if self._gpu is not None:
            live = torch.cuda.memory_allocated(self._gpu)
            peak = torch.cuda.max_memory_allocated(self._gpu)
            torch.cuda.reset_peak_memory_stats(self._gpu)
        return _Level(live, peak, self.total, len(self.uncounted), bytes_of(value))

    def __torch_dispatch__(self, *given: Any, **named: Any) -> object:
        output = super().__torch_dispatch__(*given, **named)
        self.add(tensors_in(output))
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
        # ``log`` notes the calls of ``layers``. Unless ``followed`` is None, the backward pass also
        # runs, and ``log`` notes the gradients of the inputs and outputs of ``followed``.
        network, arguments, needs = self.network, self.make_arguments(), followed is not None
        observing = observe_gradients(network, followed, log.gradient) if followed else None
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
    if sums := [each.float().sum() for each in tensors_in(output) if each.requires_grad]:
        return torch.stack(sums).sum()
    hint = "let a parameter require one: parameter.requires_grad_()"
    raise RequestError("`backward`: no output of the model has a gradient", hint)


def _close(marks: Sequence[_Mark]) -> list[_Mark]:
    # A call starts once, with the first gradient of an output, and ends once, with the last of an
    # input. If no input needs one, it ends at the first gradient after those of calls inside it.
    last = {mark.key: index for index, mark in enumerate(marks) if not mark.starts}
    inside = {
        key: max(i for i, mark in enumerate(marks) if _is_inside(mark.key, key))
        for key in {mark.key for mark in marks}
    }
    found, started, endless = list[_Mark](), set[_Key](), list[_Key]()
    for index, mark in enumerate(marks):
        for key in [key for key in endless if index > inside[key]]:
            endless.remove(key)
            found.append(mark._replace(key=key, starts=False))
        if mark.starts and mark.key not in started:
            started.add(mark.key)
            found.append(mark)
            endless += [mark.key] if last.get(mark.key, -1) < index else []
        elif last.get(mark.key) == index:
            found.append(mark)
    return found


def _is_inside(key: _Key, other: _Key) -> bool:
    return key == other or not other[0] or key[0].startswith(f"{other[0]}.")


def _list_spans(marks: Sequence[_Mark]) -> Iterator[tuple[tuple[_Key, ...], _Mark, _Mark]]:
    """Yield the calls that run between two marks, the innermost last, and the two marks."""
    running: list[_Key] = []
    for mark, after in pairwise(marks):
        if mark.starts:
            running.append(mark.key)
        elif mark.key in running:
            running.remove(mark.key)
        yield tuple(running), mark, after


def _length(marks: Sequence[_Mark]) -> float:
    return float(marks[-1].value - marks[0].value) if marks else 0.0


class _Hooks(NamedTuple):
    inside: float  # seconds of a call that hooks take between its two marks
    outside: float  # and before and after them, in the call around it

    def of(self, mark: _Mark, after: _Mark) -> float:
        if mark.starts == after.starts:
            return (self.inside + self.outside) / 2
        return self.inside if mark.starts else self.outside


class _Empty(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return value


def _measure_hooks(clock: _Clock, *, backward: bool) -> list[_Hooks]:
    chain = nn.Sequential(*(_Empty() for _ in range(_STEPS)))
    value = torch.ones(1, device=clock.device, requires_grad=backward)
    subject = _Subject(chain, list_watchable(chain), lambda: (value,), clock)
    root, every = subject.layers[:1], subject.layers
    plain = median(_length(subject.time(root)[0]) for _ in range(_REPEATS)) / _STEPS
    found = [_find_hooks([subject.time(every)[0] for _ in range(_REPEATS)], plain)]
    if backward:
        found.append(_find_hooks([subject.time((), every)[1] for _ in range(_REPEATS)], 0.0))
    return found


def _find_hooks(passes: Iterable[Sequence[_Mark]], plain: float) -> _Hooks:
    spans = [(m.starts, a.starts, a.value - m.value) for p in passes for m, a in pairwise(p)]
    inside = median(seconds for starts, again, seconds in spans if starts and not again)
    outside = median(seconds for starts, again, seconds in spans if again and not starts)
    return _Hooks(inside, max(0.0, outside - plain))


class _Times(NamedTuple):
    own: Mapping[_Key, float]  # seconds, without the parts of the call
    whole: Mapping[_Key, float]
    unscaled: float  # the sum of all own times as the hooks measured them
    hooks: float  # seconds taken off per call


def _find_times(
    passes: Sequence[Sequence[_Mark]], plain: float, hooks: _Hooks, *, is_backward: bool = False
) -> _Times:
    # A call's time is the median over ``passes``, scaled so that all own times add up to ``plain``.
    # In a model, the caches are colder than between empty modules, and hooks slower. So hookcli
    # takes off what passes took longer than ``plain``, from once to ``_SLOWEST`` times ``hooks``.
    expected = sum(hooks.of(*pair) for pair in pairwise(passes[0]))
    factor = (median(map(_length, passes)) - plain) / expected
    hooks = _Hooks(*(min(_SLOWEST, max(1.0, factor)) * each for each in hooks))
    found = defaultdict[_Key, list[float]](list)
    around = dict[_Key, tuple[_Key, ...]]()  # the calls in which a call runs, and itself
    for marks in passes:
        times = defaultdict[_Key, float](float)
        for running, mark, after in _list_spans(marks):
            if running:
                inner = running[-1]
                if is_backward:  # a block's gradient may come after those of its last parts
                    inner = max(reversed(running), key=lambda key: len(key[0].split(".")))
                    running = tuple(key for key in running if _is_inside(inner, key))  # noqa: PLW2901
                times[inner] += after.value - mark.value - hooks.of(mark, after)
                around[inner] = max(around.get(inner, ()), running, key=len)
        for key, seconds in times.items():
            found[key].append(seconds)
    medians = {key: max(0.0, median(each)) for key, each in found.items()}
    total = sum(medians.values())
    own = {key: each * plain / total if total else 0.0 for key, each in medians.items()}
    whole = defaultdict[_Key, float](float)
    for key, seconds in own.items():
        for each in around[key]:
            whole[each] += seconds
    return _Times(own, whole, total, sum(hooks))


class _Memory(NamedTuple):
    peaks: Mapping[_Key, int]  # the most bytes while a call runs, forward or backward
    needs: Mapping[_Key, int]  # the most bytes while it runs forward
    marks: Mapping[tuple[_Key, bool], _Level]  # the starts and ends of calls
    worst: _Key  # the innermost call that runs where the most bytes are needed
    weights: int  # bytes


def _measure_memory(subject: _Subject, *, backward: bool) -> _Memory:
    meter, network = _Meter(subject.clock.device), subject.network
    meter.add((*network.parameters(), *network.buffers()))
    weights, log = meter.live, _Log(meter.read)
    with meter:
        subject.run(log, subject.layers, *([subject.layers] if backward else []))
    needs, peaks = defaultdict[_Key, int](int), defaultdict[_Key, int](int)
    most = 0, _ROOT
    for marks, found in ((log.forward, (needs, peaks)), (_close(log.backward), (peaks,))):
        for running, _, end in _list_spans(marks):
            peak = end.value.peak
            most = max(most, (peak, running[-1]) if running else most)
            for key in running:
                for each in found:
                    each[key] = max(each[key], peak)
    ends = {(mark.key, mark.starts): mark.value for mark in log.forward}
    return _Memory(peaks, needs, ends, most[1], weights)


@contextmanager
def _fitting(batch_size: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        what = f"no memory for {batch_size} images"
        raise ForwardError(what, "a smaller `batch_size`") from error


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
    clock, layers = _Clock(torch.device(loaded.info.device)), list_watchable(loaded.module)
    with seeded(request.seed), _fitting(batch_size):
        pixels = loaded.convert(torch.rand(batch_size, *shape[1:]))
        make, seed = (lambda: loaded.inputs.arguments_of(pixels.clone())), loaded.inputs.seed
        subject = _Subject(loaded.module, layers, make, clock, seed)
        memory = _measure_memory(subject, backward=backward)
    step()
    plain, times = _measure_times(subject, step, backward=backward)
    side, size = ((1, _LARGER)[clock.device.type != "cpu"] * each for each in (_SIDE, _COPIED))
    factors = pixels.new_ones(side, side)
    source, target = factors.new_empty(2, size, dtype=torch.uint8)
    product = 2 * side**3 / clock.find_best(lambda: torch.mm(factors, factors))
    copy = 2 * size / clock.find_best(lambda: target.copy_(source))
    (path, index), infos = memory.worst, {each.module_path: each for each in layers}
    measured = Measurement(
        device=loaded.info.device,
        dtype=str(pixels.dtype).removeprefix("torch."),
        batch_size=batch_size,
        threads=torch.get_num_threads(),
        seconds=plain[0],
        unscaled_seconds=times[0].unscaled,
        backward_seconds=plain[1] if backward else None,
        hook_seconds=times[0].hooks,
        peak_mb=max(memory.peaks.values()) / 1e6,
        peak_call=Call(infos[path], index).id,
        weights_mb=memory.weights / 1e6,
        best_flops_per_second=product,
        best_bytes_per_second=copy,
    )
    modules, known = find_modules(loaded.module), defaultdict[str, dict[int | None, int]](dict)
    found = []
    for row in rows:
        orders = known[row.module_path]
        is_first = row.order not in orders  # of the tensors of the call
        key = row.module_path, orders.setdefault(row.order, len(orders))
        if is_first and key in times[0].own and (key, False) in memory.marks:
            leaf = modules[key[0]] if infos[key[0]].is_leaf else None
            figures = _describe(key, memory, times, leaf, product / copy)
            row = replace(row, **figures)  # noqa: PLW2901
        found.append(row)
    return found, measured


def _measure_times(
    subject: _Subject, step: Callable[[], object], *, backward: bool
) -> tuple[list[float], list[_Times]]:
    """Return the seconds of a plain pass and of the calls, forward and, if asked, backward."""
    root, every = subject.layers[:1], subject.layers
    asked = [()] if backward else []  # a backward pass that nothing observes
    hooks = _measure_hooks(subject.clock, backward=backward)
    subject.time(root, *asked)
    plain: list[list[float]] = [[], []]
    passes: list[list[list[_Mark]]] = [[], []]
    for _ in range(_ROUNDS_BACK if backward else _ROUNDS):
        forward, back = subject.time(root, *asked)
        plain[0].append(_length(forward) - hooks[0].inside)
        plain[1].append(_length(back))
        passes[0].append(subject.time(every)[0])
        if backward:
            passes[1].append(subject.time((), every)[1])
        step()
    seconds = [*map(median, plain)]
    found = enumerate(zip(passes, seconds, hooks, strict=False))
    return seconds, [_find_times(*each, is_backward=index > 0) for index, each in found]


def _describe(
    key: _Key, memory: _Memory, times: Sequence[_Times], leaf: nn.Module | None, ridge: float
) -> dict[str, Any]:
    # ``ridge`` is the number of FLOPs per byte from which arithmetic takes longer than the copying.
    seconds, start, end = times[0].whole[key], memory.marks[key, True], memory.marks[key, False]
    flops = None if end.uncounted > start.uncounted else end.flops - start.flops
    bound = ""
    if leaf is not None and flops is not None:
        moved = start.size + end.size + bytes_of([*leaf.parameters()])
        bound = "arithmetic" if flops > ridge * moved else "memory"
    return {
        "seconds": seconds,
        "own_seconds": times[0].own[key],
        "backward_seconds": times[-1].whole.get(key) if times[1:] else None,
        "batch_output_mb": end.size / 1e6,
        "workspace_mb": max(0, memory.needs[key] - max(start.live, end.live)) / 1e6,
        "peak_mb": memory.peaks[key] / 1e6,
        "flops_per_second": flops / seconds if flops and seconds else None,
        "bound": bound,
    }
