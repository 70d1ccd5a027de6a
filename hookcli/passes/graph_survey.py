"""The survey for ``hookcli layers`` of a file: every call that its graph shows, and its shape."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hookcli.hooks.operation_filter import add_operations
from hookcli.networks.graph_file import check_graph_request
from hookcli.passes.runner import Batch
from hookcli.passes.runners import open_graph
from hookcli.records.rows import ModelTotal, SurveyRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from hookcli.config import ModelRequest
    from hookcli.records.calls import Call, LayerInfo


@dataclass(frozen=True, slots=True)
class _Output:
    call: Call
    shape: tuple[int, ...]
    megabytes: float
    flops: tuple[int | None, int]  # None if some cannot be counted; those that can


def survey_graph(
    request: ModelRequest, forms: Sequence[str], exclude: Sequence[str], *, operations: bool
) -> tuple[tuple[SurveyRow, ...], ModelTotal, tuple[int, ...]]:
    """Return the rows of chosen layers of a file, the totals, and the shape of the input, (1, …).

    hookcli runs the file on zeros. The arguments mean the same as in
    ``passes.survey.survey_layers``.
    """
    check_graph_request(request)
    runner, described = open_graph(request)
    chosen = runner.choosing(forms, exclude)
    layers = chosen.layers
    if operations:
        layers = add_operations(layers, runner.operations)
    wanted = {layer.module_path: layer for layer in layers}
    shape = described.info.input_shape
    seen: list[_Output] = []

    def measure(call: Call, tensor: Tensor) -> None:
        megabytes = tensor.numel() * tensor.element_size() / 1e6
        cost = costs[call.layer.module_path, call.call_index]
        seen.append(_Output(call, tuple(tensor.shape), megabytes, cost))

    pixels = runner.place(torch.zeros(shape))
    flops, uncounted = runner.count_flops(pixels)
    costs = {
        (call.layer.module_path, call.call_index): _add_up(flops, runner.graph.list_values(call))
        for call in runner.graph.calls
    }
    costs["", 0] = whole = _add_up(flops, flops)
    runner.run(Batch([""], pixels), measure)
    leaves = [each for each in seen if each.call.layer.is_leaf]
    megabytes = sum(each.megabytes for each in leaves if not each.call.layer.is_operation)
    graph = runner.graph
    left_out = Counter(graph.left_out).most_common()
    total = ModelTotal(
        graph.root.params,
        *whole[:1],
        megabytes,
        *whole[1:],
        tuple(dict.fromkeys(uncounted)),
        nodes=len(graph.left_out) + sum(call.nodes for call in graph.calls),
        left_out=tuple(f"{count} {name} ({why})" for (name, why), count in left_out),
    )
    rows = tuple(_list_rows(seen, wanted, shape))
    return rows, total, (1, *shape[2:], shape[1]) if runner.inputs[0].is_nhwc else shape


def _add_up(flops: Mapping[str, int | None], values: Iterable[str]) -> tuple[int | None, int]:
    """Return the operations that compute values, None if some cannot be counted; the counted."""
    found = [flops[name] for name in values if name in flops]
    counted = sum(filter(None, found))
    return (None if None in found else counted), counted


def _list_rows(
    seen: Sequence[_Output], wanted: Mapping[str, LayerInfo], input_shape: tuple[int, ...]
) -> Iterator[SurveyRow]:
    calls = Counter((each.call.layer.module_path, each.call.output_key) for each in seen)
    for each in sorted(seen, key=lambda each: each.call.order):
        call, layer = each.call, each.call.layer
        if not (
            layer.module_path in wanted and wanted[layer.module_path].has_call(call.call_index)
        ):
            continue
        layout = layer.layout_of(each.shape, (input_shape[-2], input_shape[-1])).name
        count = calls[layer.module_path, call.output_key]
        traps = [f"called {count} times"] if count > 1 and not layer.is_operation else []
        traps += ["channels last"] if layout in ("NHWC", "NDHWC") else []
        if each.shape[:1] != (1,):
            traps.append(f"leading axis {each.shape[0] if each.shape else 'missing'} is not N")
        yield SurveyRow(
            order=call.order,
            call_id=call.id,
            module_path=layer.module_path,
            module_type=layer.module_type,
            shape=each.shape,
            layout=layout,
            params=layer.params,
            output_mb=each.megabytes,
            flops=each.flops[0],
            counted_flops=each.flops[1],
            calls=count,
            traps=tuple(traps),
        )
