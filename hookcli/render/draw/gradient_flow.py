"""Collect the data of gradient-flow charts: each layer's norms, and a mark for NaN, 0 or none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.records.rows import LayerRow

Mark: TypeAlias = Literal["", "broken", "none", "zero"]
MARKS: dict[Mark, str] = {"broken": "NaN or Inf", "none": "no gradient", "zero": "zero everywhere"}
RATIO = "norm of a weight's gradient over that of the weight"


@dataclass(frozen=True, slots=True)
class FlowLayer:
    call_id: str  # the module path if only gradients of parameters are known
    norm: float | None  # of the output's gradient
    params: tuple[float, ...]  # of the parameters' gradients; only at a module's first call
    ratio: float | None  # a parameter's gradient norm divided by the parameter's norm; the largest
    mark: Mark
    note: str  # the reason for the mark in words


def list_flow_layers(rows: Sequence[LayerRow]) -> list[FlowLayer]:
    target = rows[0].target if rows else ""  # the first of several
    rows = sort_by_end(r for r in rows if r.side != "grad_input" and r.target == target)
    first: dict[str, str] = {}
    for row in rows:
        if row.side == "grad_output":
            first.setdefault(row.module_path, row.call_id)
    groups: dict[str, list[LayerRow]] = {}
    for row in rows:
        path = row.module_path
        call = first.get(path, path) if row.side == "param" else row.call_id
        groups.setdefault(call, []).append(row)
    return [_describe(call, group) for call, group in groups.items()]


def sort_by_end(rows: Iterable[LayerRow]) -> list[LayerRow]:
    """Sort the rows by the end of their calls: a block comes after its parts, the model last."""
    rows = sorted(rows, key=lambda row: row.order)
    running: list[LayerRow] = []
    ends: dict[int, int] = {}
    for row in rows:
        running = [each for each in running if _is_inside(row, each)] + [row]
        ends |= {each.order: row.order for each in running}
    return sorted(rows, key=lambda row: (ends[row.order], -row.order))


def _is_inside(row: LayerRow, block: LayerRow) -> bool:
    start = block.module_path
    return not start or row.module_path.startswith((f"{start}.", f"{start}/"))


def _describe(call: str, rows: Sequence[LayerRow]) -> FlowLayer:
    given = [row.norm for row in rows if row.norm is not None and not row.reason]
    nan, inf = sum(row.nan_count for row in rows), sum(row.inf_count for row in rows)
    mark: Mark = ""
    note = ""
    if nan or inf or not all(map(math.isfinite, given)):
        mark = "broken"
        note = f"{nan} NaN, {inf} Inf" if nan or inf else "the norm is not finite"
    elif not given:
        mark, note = "none", next((row.reason for row in rows if row.reason), MARKS["none"])
    elif not any(given):
        mark, note = "zero", "the gradient is zero everywhere"
    outputs = [_shown(row.norm, row) for row in rows if row.side == "grad_output"]
    params = [_shown(row.norm, row) for row in rows if row.side == "param"]
    ratios = filter(None, (_shown(row.ratio, row) for row in rows))
    norm, ratio = next(iter(outputs), None), max(ratios, default=None)
    return FlowLayer(call, norm, tuple(filter(None, params)), ratio, mark, note)


def _shown(value: float | None, row: LayerRow) -> float | None:
    if value is None or row.nan_count or row.inf_count or not math.isfinite(value):
        return None
    return value if value > 0 else None
