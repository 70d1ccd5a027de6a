"""Compute the rows of ``hookcli layers``: calls, shapes and cost of modules, and traps for hooks.

A trap is a reason why a simple hook on a layer misleads. The survey runs a model without weights,
on the meta device if possible. It reads only shapes and version counters of tensors, never a value.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from hookcli.errors import ForwardError, NestedTensorError
from hookcli.hooks.channel_trails import follow_channels
from hookcli.hooks.filter import add_operations, select_layers
from hookcli.hooks.layers import explain_uncalled, list_layers
from hookcli.hooks.layouts import LayoutWatcher
from hookcli.hooks.nested import bytes_of, named_tensors
from hookcli.hooks.operations import without_fast_path
from hookcli.hooks.parameters import count_parameters
from hookcli.hooks.watch import WriteWatcher, watch
from hookcli.networks.graph_file import check_graph_request
from hookcli.networks.inputs import PLAIN
from hookcli.networks.load import build_skeleton
from hookcli.passes.call import call_model
from hookcli.passes.find_operations import find_named_operations
from hookcli.passes.flops import FlopCounter
from hookcli.passes.runner import Batch
from hookcli.passes.runners import open_graph
from hookcli.records.layouts import INFERRED
from hookcli.records.rows import ModelTotal, SurveyRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hookcli.config import ModelRequest
    from hookcli.hooks.operations import FoundOperation
    from hookcli.networks.inputs import ModelInputs
    from hookcli.records.calls import Call, LayerInfo
    from hookcli.records.layouts import Layout


@dataclass(frozen=True, slots=True)
class Survey:
    # of each tensor that a call of a chosen layer returned, in the order in which the calls
    # started; then of each layer that returned no tensor or did not run
    rows: tuple[SurveyRow, ...]
    total: ModelTotal
    notes: tuple[str, ...] = ()  # changes that hookcli made to the model on its own


@dataclass(frozen=True, slots=True)
class _Output:
    call: Call  # with the key of the output
    shape: tuple[int, ...]
    size: int  # in bytes
    flops: int | None  # the floating-point operations of the call; None if some cannot be counted
    counted: int  # those that can


@dataclass(slots=True)
class _Watcher:
    counter: FlopCounter
    layouts: LayoutWatcher
    called: set[str] = field(default_factory=set)
    outputs: list[_Output] = field(default_factory=list)
    writes: WriteWatcher = field(default_factory=WriteWatcher)
    uncounted: dict[int, str] = field(default_factory=dict)  # the innermost module of each operator
    _starts: list[tuple[int, int]] = field(default_factory=list)

    def started(self, call: Call, inputs: object) -> None:
        self.writes.started(call, inputs)
        self.layouts.started(call, inputs)
        self._starts.append((self.counter.total, len(self.counter.uncounted)))

    def finished(self, call: Call, output: object) -> None:
        self.writes.finished(call, output)
        self.layouts.finished(call, output)
        self.called.add(call.layer.module_path)
        flops, first = self._starts.pop()
        missed = range(first, len(self.counter.uncounted))
        self.uncounted = dict.fromkeys(missed, call.layer.label) | self.uncounted
        counted = self.counter.total - flops
        cost = None if missed or self.counter.is_blind else counted, counted
        for key, tensor in named_tensors(output):
            if tensor.is_nested:
                raise NestedTensorError
            named = replace(call, output_key=key)
            self.outputs.append(_Output(named, tuple(tensor.shape), bytes_of(tensor), *cost))


def survey(
    model: nn.Module,
    selected: Sequence[LayerInfo],
    input_shape: tuple[int, ...],
    inputs: ModelInputs = PLAIN,
    operations: Sequence[FoundOperation] = (),
) -> Survey:
    # ``operations`` must be all operations of the model if operations are to be described.
    layers = (*list_layers(model), *(each.layer for each in operations))
    copies = {each.layer.module_path for each in operations if not each.computes}
    pixels = _blank(model, input_shape)
    size = inputs.size_of(pixels)
    watcher = _watch_forward(model, layers, inputs.arguments_of(pixels), size)
    outputs = watcher.outputs
    doubled = []
    if not inputs.alone:
        two = inputs.arguments_of(_blank(model, (2, *input_shape[1:])))
        with contextlib.suppress(ForwardError):  # some models accept only one image at a time
            doubled = _watch_forward(model, layers, two, size).outputs
    leads = {entry.call.id: entry.shape[:1] for entry in doubled}
    calls = _count_calls(outputs)
    keys = Counter((entry.call.layer.module_path, entry.call.call_index) for entry in outputs)
    wanted = {layer.module_path: layer for layer in selected}
    rows = []
    for entry in outputs:
        call = entry.call
        path, index, key = call.layer.module_path, call.call_index, call.output_key
        if path in wanted and wanted[path].has_call(index):
            lead = leads.get(call.id, (2,))
            written = watcher.writes.written.get(call.id, "")
            layer = watcher.layouts.infer(call.layer)
            layout = layer.layout_of(entry.shape, size, f"output:{key}")
            row = _row(entry, layout, calls[path, key], keys[path, index], lead, written)
            if path in copies:
                row = replace(row, traps=("no new values, so op:* leaves it out", *row.traps))
            rows.append(row)
    rows.sort(key=lambda row: row.order or 0)
    shown = {entry.call.layer.module_path for entry in outputs}
    missing = [layer for layer in selected if layer.module_path not in shown]
    bare = (_bare_row(model, layer, watcher.called) for layer in missing)
    return Survey((*rows, *bare), _add_up(model, watcher))


def survey_layers(
    request: ModelRequest, forms: Sequence[str], exclude: Sequence[str], *, operations: bool
) -> tuple[Survey, tuple[int, ...]]:
    if request.is_file:
        return _survey_graph(request, forms, exclude, operations=operations)
    loaded = build_skeleton(request)
    found = find_named_operations(loaded, forms, exclude, ("re:op:",) if operations else ())
    chosen = select_layers(loaded.module, forms, exclude, found)
    if operations:
        chosen = add_operations(chosen, found)
    shape, module, inputs = loaded.info.input_shape, loaded.module, loaded.inputs
    try:
        made = survey(module, chosen, shape, inputs=inputs, operations=found)
    except ForwardError:
        first = next((each for each in module.modules() if isinstance(each, nn.Conv2d)), None)
        is_given = loaded.knows_input or request.bands or request.mean or request.std
        if is_given or first is None or first.in_channels == shape[1]:
            raise
        shape = (1, first.in_channels, *shape[2:])
        made = survey(module, chosen, shape, inputs=inputs, operations=found)
    return replace(made, notes=loaded.info.notes), shape


def _add_up(model: nn.Module, watcher: _Watcher) -> ModelTotal:
    flops, uncounted = watcher.counter.total, watcher.counter.uncounted
    described = (f"{name} in {watcher.uncounted[at]}" for at, name in enumerate(uncounted))
    return ModelTotal(
        count_parameters(model),
        None if uncounted else flops,
        _megabytes_of_leaves(watcher.outputs),
        counted_flops=flops,
        uncounted=tuple(dict.fromkeys(described)),
        stored_params=sum(p.numel() for p in model.parameters() if not is_lazy(p)),
    )


def _megabytes_of_leaves(outputs: Sequence[_Output]) -> float:
    layers = [each for each in outputs if not each.call.layer.is_operation]
    return sum(each.size for each in layers if each.call.layer.is_leaf) / 1e6


def _blank(model: nn.Module, shape: tuple[int, ...]) -> Tensor:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    values = itertools.chain(model.parameters(), model.buffers())
    floats = {value.dtype for value in values if value.is_floating_point()}
    dtype = floats.pop() if len(floats) == 1 else torch.float32
    return torch.zeros(shape, device=device, dtype=dtype)


def _watch_forward(
    model: nn.Module,
    layers: Sequence[LayerInfo],
    arguments: tuple[object, ...],
    size: tuple[int, int],
) -> _Watcher:
    counter = FlopCounter()
    watcher = _Watcher(counter, LayoutWatcher(size, follow_channels(model, arguments)))
    with (
        torch.no_grad(),
        without_fast_path(),  # the fast path hides attention from the counter
        watcher.layouts.trails,  # outside the counter, which does not count what they do
        counter,
        watch(model, layers, watcher.started, watcher.finished),
    ):
        call_model(model, arguments)
    return watcher


def _row(
    entry: _Output,
    layout: Layout,
    calls: int,
    several: int = 1,
    lead: tuple[int, ...] = (2,),
    written: str = "",
) -> SurveyRow:
    shape, layer = entry.shape, entry.call.layer
    traps = [f"written over in place {written}"] if written else []
    if calls > 1 and not layer.is_operation:
        traps.append(f"called {calls} times")
    if several > 1:
        traps.append(f"{several} outputs")
    if layout.name in ("NHWC", "NDHWC"):
        traps.append("channels last")
    if layout.inferred:
        traps.append(f"layout {INFERRED}")
    if shape[:1] != (1,):
        traps.append(f"leading axis {shape[0] if shape else 'missing'} is not N")
    elif lead != (2,):
        traps.append("leading axis 1 is shared by all images")
    return SurveyRow(
        order=entry.call.order,
        call_id=entry.call.id,
        module_path=layer.module_path,
        module_type=layer.module_type,
        shape=shape,
        layout=layout.name,
        params=layer.params,
        output_mb=entry.size / 1e6,
        flops=entry.flops,
        counted_flops=entry.counted,
        calls=calls,
        traps=tuple(traps),
    )


def _bare_row(model: nn.Module, layer: LayerInfo, called: set[str]) -> SurveyRow:
    ran = layer.module_path in called
    trap = "returns no tensor" if ran else f"not called: {explain_uncalled(model, layer)}"
    return SurveyRow(
        order=None,
        call_id=layer.label,
        module_path=layer.module_path,
        module_type=layer.module_type,
        shape=None,
        layout="",
        params=layer.params,
        output_mb=None,
        flops=None,
        calls=int(ran),
        traps=(trap,),
    )


def _count_calls(outputs: Sequence[_Output]) -> Counter[tuple[str, str]]:
    return Counter((each.call.layer.module_path, each.call.output_key) for each in outputs)


def _survey_graph(
    request: ModelRequest, forms: Sequence[str], exclude: Sequence[str], *, operations: bool
) -> tuple[Survey, tuple[int, ...]]:
    check_graph_request(request)
    runner, described = open_graph(request)
    layers = runner.choosing(forms, exclude).layers
    if operations:
        layers = add_operations(layers, runner.operations)
    wanted = {layer.module_path: layer for layer in layers}
    shape = described.info.input_shape
    seen: list[_Output] = []

    def measure(call: Call, tensor: Tensor) -> None:
        cost = costs[call.layer.module_path, call.call_index]
        seen.append(_Output(call, tuple(tensor.shape), bytes_of(tensor), *cost))

    pixels = runner.to_device(torch.zeros(shape))
    flops, uncounted = runner.count_flops(pixels)
    graph = runner.graph
    costs = {
        (each.layer.module_path, each.call_index): _add_up_graph(flops, graph.list_values(each))
        for each in graph.calls
    }
    costs["", 0] = whole = _add_up_graph(flops, flops)
    runner.run(Batch([""], pixels), measure)
    left_out = Counter(graph.left_out).most_common()
    total = ModelTotal(
        graph.root.params,
        whole[0],
        _megabytes_of_leaves(seen),
        whole[1],
        tuple(dict.fromkeys(uncounted)),
        nodes=len(graph.left_out) + sum(call.nodes for call in graph.calls),
        left_out=tuple(f"{count} {name} ({why})" for (name, why), count in left_out),
    )
    shown = (1, *shape[2:], shape[1]) if runner.inputs[0].is_nhwc else shape
    return Survey(tuple(_list_rows(seen, wanted, shape)), total), shown


def _add_up_graph(flops: Mapping[str, int | None], values: Iterable[str]) -> tuple[int | None, int]:
    found = [flops[name] for name in values if name in flops]
    counted = sum(filter(None, found))
    return (None if None in found else counted), counted


def _list_rows(
    seen: Sequence[_Output], wanted: Mapping[str, LayerInfo], input_shape: tuple[int, ...]
) -> Iterator[SurveyRow]:
    calls = _count_calls(seen)
    for each in sorted(seen, key=lambda each: each.call.order):
        call, layer = each.call, wanted.get(each.call.layer.module_path)
        if layer is not None and layer.has_call(call.call_index):
            layout = call.layer.layout_of(each.shape, (input_shape[-2], input_shape[-1]))
            count = calls[layer.module_path, call.output_key]
            yield _row(each, replace(layout, inferred=False), count)
