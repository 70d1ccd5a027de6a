"""Compare two finished runs without torch: pair their images and calls, and measure distances."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from hookcli.comparison.left_out import find_idle, list_left_out
from hookcli.comparison.pair_by_order import find_norm
from hookcli.config import GRAPH_FILES
from hookcli.distance import sketch as sketches
from hookcli.distance.comparison import ChangedFact, Comparison, LeftOut
from hookcli.distance.judge import CallPair, Judge
from hookcli.distance.metrics import measure_arrays, measure_figures, measure_sketches
from hookcli.distance.tolerance import matches
from hookcli.errors import NoLayerMatchedError, RequestError
from hookcli.outside.urls import IN_MEMORY
from hookcli.records.calls import FOLDED
from hookcli.records.command import list_value_options, read_command
from hookcli.records.images import match_images
from hookcli.records.layouts import recall_layout
from hookcli.records.report import DEFINED_VERSIONS
from hookcli.records.runs import ModelInfo
from hookcli.records.text import and_more

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hookcli.comparison.compared_run import ComparedRun, RunCall
    from hookcli.config import Match
    from hookcli.distance.metrics import Distance
    from hookcli.distance.tolerance import Tolerance

_SAID_BY_OTHERS = ("task", "trained", "warning")  # facts that follow from a model's other facts
_FACTS: Mapping[str, Sequence[str]] = {
    "model": [each.name for each in fields(ModelInfo) if each.name not in _SAID_BY_OTHERS],
    "versions": DEFINED_VERSIONS["required"],
}


def diff_runs(
    a: ComparedRun,
    b: ComparedRun,
    tolerance: Tolerance,
    match: Match | None = None,
    *,
    keeps_images: bool = False,
) -> Comparison:
    """Compare two runs, image by image and call by call.

    ``match`` pairs calls by ``"id"`` or by ``"order"``. If it is None, hookcli pairs calls by id,
    and refuses two runs of different models, unless one is of an exported file. With
    ``keeps_images``, the result has the rows of every image, not only those of the worst image.
    """
    if match is None:
        _refuse_other_model(a, b)
    shared = _match_images(a, b)
    judge = Judge(tolerance, tuple(dtype for run in (a, b) for dtype in run.dtypes), keeps_images)
    types: dict[tuple[str, str], dict[str, None]] = {}
    left_out: dict[str, LeftOut] = {}
    is_eval = not any("--mode" in read_command(run.facts) for run in (a, b))
    for key, other in shared:
        calls = a.calls[key], b.calls[other]
        if match is None:
            calls = _name_norms(*calls), _name_norms(*calls[::-1])
        pairs = [*pair_calls(*calls, match or "id")]
        if match is None and _is_graph(a) != _is_graph(b):
            pairs = [*_leave_out(pairs, left_out, is_graph_a=_is_graph(a))]
        for one, two in pairs:
            pair = _measure_pair(key, one, two, run_a=a, run_b=b)
            if is_eval and (idle := find_idle(pair.a, pair.b)) is not None:
                left_out[idle.call_id] = idle
                continue
            judge.add(pair)
            if one is not None and two is not None:
                kinds = one.tensor.module_type, two.tensor.module_type
                if kinds[0] != kinds[1]:
                    types.setdefault(kinds, {}).setdefault(one.tensor.call_id)
    keys, others = dict(shared), {other for _, other in shared}
    notes = (note for run in (a, b) for note in run.facts["model"].get("notes") or ())
    comparison = Comparison(
        a.name,
        b.name,
        tolerance,
        rows=judge.rows(),
        changed=(
            *list_changed(a.facts, b.facts),
            *(ChangedFact(f"type of {_some(ids)}", *pair) for pair, ids in types.items()),
        ),
        images=tuple(keys),
        only_in_a=tuple(key for key in a.images if key not in keys),
        only_in_b=tuple(key for key in b.images if key not in others),
        left_out=tuple(left_out.values()),
        notes=tuple(dict.fromkeys(notes)),
        image_rows=tuple(judge.image_rows()),
    )
    check_comparison(comparison, judge)
    return comparison


def check_comparison(comparison: Comparison, judge: Judge) -> None:
    ids = [row.call_id for row in comparison.rows]
    for glob, _ in comparison.tolerance.layers:
        if not any(matches(glob, call_id) for call_id in ids):
            raise NoLayerMatchedError(glob, ids, "compared call")
    if judge.measured:
        return
    reasons = [row for row in comparison.rows if row.reason]
    if not comparison.rows:
        raise RequestError("nothing could be compared: no layer was recorded", "choose `layers`")
    if judge.missing:
        exact = "both with `tensors.save` for exact figures"
        needs_tensors = comparison.tolerance.metric in ("max-abs", "mean-abs")
        hint = f"run {exact}" if needs_tensors else f"run both with `sketch=True`, or {exact}"
        raise RequestError(f"nothing could be compared: {judge.missing}", hint)
    ones, others = ([row for row in reasons if row.reason == f"only in {run}"] for run in "AB")
    if len(ones) + len(others) == len(comparison.rows):
        names = (_some([row.call_id for row in rows]) for rows in (ones, others))
        sides = [f"{name} in {run}" for name, run in zip(names, "AB", strict=True)]
        raise RequestError(
            f"no call is in both: {', and '.join(sides)}",
            "record the same layers and sides; if the layers have different names: "
            "`hookcli.diff(match='order')`",
        )
    first = min(reasons or comparison.rows, key=lambda row: row.order)
    alike = "use the same model and images of the same size in both runs, or linear layers"
    origin = "`hookcli.inspect` with `fail_on=('nan', 'inf')`"
    hint = alike if first.reason else f"find the origin of the first NaN or Inf: {origin}"
    why = first.reason or "no value is finite in both"
    changed = [each.name for each in comparison.changed]
    if "shapes differ" in why and "model preprocessing" in changed and "model name" not in changed:
        why = f"{why}, since images are prepared in two sizes"
        hint = "give both the same crop and fit with `preprocess`, or compare `layers=('linear',)`"
    raise RequestError(f"nothing could be compared: {first.call_id}: {why}", hint)


def pair_calls(
    a: Sequence[RunCall], b: Sequence[RunCall], match: Match
) -> Iterator[tuple[RunCall | None, RunCall | None]]:
    if match == "id":
        of_a, of_b = ({call.tensor.call_id: call for call in calls} for calls in (a, b))
        for call_id, other_id in pair_ids(tuple(of_a), tuple(of_b)):
            yield of_a.get(call_id), of_b.get(other_id)
        return
    kinds_of_a, kinds_of_b = (
        [(_side(call), call.tensor.module_type, call.tensor.shape) for call in calls]
        for calls in (a, b)
    )
    # long sequences of equal sides, types and shapes, then the calls between them
    matcher = SequenceMatcher(None, kinds_of_a, kinds_of_b, autojunk=False)
    for _, start, end, other_start, other_end in matcher.get_opcodes():
        yield from zip_longest(a[start:end], b[other_start:other_end])


def pair_ids(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield ``(id, id)`` for each id in both lists, else ``(id, "")`` or ``("", id)``."""
    # The pairs are in A's order. An id that only B has follows the shared id before it in B.
    known, others = set(a), set(b)
    following: dict[str, list[str]] = {}  # calls that only B has, by the shared call before them
    before = ""
    for call_id in b:
        if call_id in known:
            before = call_id
        else:
            following.setdefault(before, []).append(call_id)
    for call_id in ("", *a):
        if call_id:
            yield call_id, call_id if call_id in others else ""
        yield from (("", single) for single in following.get(call_id, ()))


def list_changed(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ChangedFact]:
    for group, names in _FACTS.items():
        for name in names:
            one, two = a[group].get(name), b[group].get(name)
            if (one or None) != (two or None):  # older runs leave out empty facts
                yield ChangedFact(f"model {name}" if group == "model" else name, one, two)
    for name, one, two in list_value_options(read_command(a), read_command(b)):
        yield ChangedFact(name, one, two)
    old, new = a.get("code") or {}, b.get("code") or {}  # golden files have none
    changed = (file for file in sorted(old.keys() & new.keys()) if old[file] != new[file])
    yield from (ChangedFact(f"sha256 of {file}", old[file], new[file]) for file in changed)


def _side(call: RunCall) -> str:
    side, colon, _ = call.tensor.call_id.partition(":")
    return side if colon else ""


def _is_graph(run: ComparedRun) -> bool:
    return str(run.facts["model"]["name"]).endswith((*GRAPH_FILES.values(),))


def _leave_out(
    pairs: Sequence[tuple[RunCall | None, RunCall | None]],
    left_out: dict[str, LeftOut],
    *,
    is_graph_a: bool,
) -> Iterator[tuple[RunCall | None, RunCall | None]]:
    """Yield the pairs of calls to compare between a model and the graph exported from the model."""
    # The graph is run A's if ``is_graph_a``, else B's. A call is skipped, and added to ``left_out``
    # by id, if the graph lacks it or has another number of its output tensors.
    calls = [(two, one) if is_graph_a else (one, two) for one, two in pairs]
    of_model, of_graph = (
        Counter(_without_key(call[side]) for call in calls if call[side] is not None)
        for side in (0, 1)
    )
    unsure = {name for name, count in of_model.items() if of_graph.get(name, count) != count}
    calls = [(one, None if _without_key(one or two) in unsure else two) for one, two in calls]
    known = [(call.tensor, other) for call, other in calls if call is not None]
    types = {tensor.call_id: tensor.module_type for tensor, _ in known}
    common = {tensor.call_id for tensor, other in known if other is not None}
    left_out |= {each.call_id: each for each in list_left_out(types, common)}
    yield from (pair for pair, call in zip(pairs, calls, strict=True) if call[1] is not None)


def _name_norms(calls: Sequence[RunCall], others: Sequence[RunCall]) -> list[RunCall]:
    # A convolution whose BatchNorm ``others`` does not name has no counterpart, so it is left out.
    tensors = [call.tensor for call in others]
    known = {each.call_id: each.module_type for each in tensors}
    named = []
    for tensor in (call.tensor for call in calls):
        is_lost = tensor.module_type == FOLDED != known.get(tensor.call_id, FOLDED)
        call_id = find_norm(tensors, tensor.call_id) if is_lost else tensor.call_id
        named.append(replace(tensor, call_id=call_id))
    pairs = zip(calls, named, strict=True)
    return [replace(call, tensor=tensor) for call, tensor in pairs if tensor.call_id]


def _without_key(call: RunCall | None) -> str:
    return call.tensor.call_id.partition("[")[0] if call is not None else ""


def _refuse_other_model(a: ComparedRun, b: ComparedRun) -> None:
    names = (run.facts["model"]["name"] for run in (a, b))
    one, two = (re.sub(r"^hookcli\.given:(.+)", rf"\1{IN_MEMORY}", name) for name in names)
    if one != two and not (_is_graph(a) or _is_graph(b)):
        raise RequestError(
            f"{a.name!r} is a run of {one}, and {b.name!r} one of {two}",
            "these are different models: "
            "choose how to pair their calls with `match='id'` or `match='order'`",
        )


def _match_images(a: ComparedRun, b: ComparedRun) -> list[tuple[str, str]]:
    for run in (a, b):
        if not run.images:
            raise RequestError(f"{run.name!r} holds no image", "make it again with readable images")
    shared = list(match_images(a.hashes, b.hashes))
    if not shared:
        raise RequestError(
            f"no image of {a.name!r} is in {b.name!r}: {_some(a.images)} and {_some(b.images)}",
            "use the same images in both runs; for two images: `hookcli.compare`",
        )
    for key, other in shared:
        if a.images[key].sha256 != b.images[other].sha256:
            raise RequestError(
                f"{key!r} is not the same image in both: {a.images[key].file} and "
                f"{b.images[other].file} have different contents",
                "use the same file in both runs; for two images: `hookcli.compare`",
            )
    return shared


def _some(names: Collection[str]) -> str:
    return "none" if not names else f"{next(iter(names))!r}" + and_more(len(names) - 1)


def _measure_pair(
    key: str, a: RunCall | None, b: RunCall | None, run_a: ComparedRun, run_b: ComparedRun
) -> CallPair:
    """Pair the calls ``a`` and ``b`` for the image ``key``, and measure them if they are alike."""
    if a is None or b is None:
        return CallPair(key, a.tensor if a else None, b.tensor if b else None)
    if a.tensor.shape != b.tensor.shape or a.tensor.reason or b.tensor.reason:
        return CallPair(key, a.tensor, b.tensor)
    return CallPair(key, a.tensor, b.tensor, _measure(a, b, run_a, run_b))


def _measure(a: RunCall, b: RunCall, run_a: ComparedRun, run_b: ComparedRun) -> Distance:
    # The most exact data that both runs have decide; tensors must be pooled in the same way.
    if a.read and b.read and not (run_a.saved or run_b.saved):
        return _measure_saved(a, b, run_a, run_b)
    one, two = _sketch_of(a, run_a), _sketch_of(b, run_b)
    if one is not None and two is not None:
        return measure_sketches((one, two), (a.figures, b.figures))
    if a.read and b.read and run_a.pooled == run_b.pooled:
        return _measure_saved(a, b, run_a, run_b)
    return measure_figures(a.figures, b.figures)


def _measure_saved(a: RunCall, b: RunCall, run_a: ComparedRun, run_b: ComparedRun) -> Distance:
    assert a.read is not None and b.read is not None  # noqa: S101, PT018
    one, two = a.read(), b.read()
    if one.shape != two.shape:  # a run is damaged
        return measure_figures(a.figures, b.figures)
    source = " ".join(["tensors", *dict.fromkeys((*run_a.saved, *run_b.saved))])
    is_whole = one.shape == a.tensor.shape
    axis = recall_layout(a.layout, a.tensor.shape).channel_axis if is_whole else None
    return replace(measure_arrays(one, two, axis), source=source)


def _sketch_of(call: RunCall, run: ComparedRun) -> NDArray[np.float32] | None:
    if call.sketch is not None or call.read is None or run.saved:
        return call.sketch
    return sketches.sketch_values(call.read())
