"""Describe a comparison in sentences: the verdict, the first difference, and all other changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hookcli.distance.answer import share_text
from hookcli.distance.comparison import LEFT_OUT_KINDS
from hookcli.distance.tolerance import RTOL
from hookcli.records.text import and_more, count, fact_text, figure_text, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.distance.comparison import ChangedFact, Comparison, DiffRow, LeftOut

_METRICS = {
    "rel-l2": "relative L2",
    "max-abs": "largest difference",
    "mean-abs": "mean difference",
    "cosine": "1 - cosine",
}
_NAMED = 4  # at most this many images are named in one line
_SAME = 1e-6  # divergences and distances of answers up to this are rounding
_CHANGED = 60  # of a longer value, only the phrases that changed are shown


def verdict_text(comparison: Comparison) -> str:
    answer = comparison.answer
    if answer is not None and any(row.reason or row.max_abs for row in comparison.rows):
        is_floor = not comparison.failed and answer.kind == "output" and (answer.distance or 0) > 1
        return f"{_range_text(comparison)}; {'the output holds' if is_floor else answer.text}"
    if answer is None or not _changes(comparison):
        return first_text(comparison)
    if comparison.failed or not comparison.equal:
        return f"{first_text(comparison)}; {answer.text}"
    calls = f"{count(len(comparison.rows), 'call')} {_verb('hold', len(comparison.rows))}"
    return (
        f"{calls}, but the answer differs ({answer.text}): a layer that was not compared differs; "
        "choose more `layers`"
    )


def _changes(comparison: Comparison) -> bool:
    if (answer := comparison.answer) is None:
        return False
    if answer.kind != "output":
        return bool(answer.changed or (answer.distance or 0) > _SAME)
    limits = [each.tolerance for each in comparison.rows if each.tolerance is not None]
    is_near = answer.distance is not None and answer.distance <= max(limits, default=_SAME)
    return bool(answer.changed) and not is_near


def _range_text(comparison: Comparison) -> str:
    failed, rows = comparison.failed, comparison.rows
    # Where a floor tolerates more than the whole output, a relative distance means nothing.
    measured = [row for row in failed or rows if not row.reason and (row.tolerance or 0) < 1]
    number = f"{len(failed)} of {count(len(rows), 'call')}" if failed else count(len(rows), "call")
    text = f"{number} {_verb('differ' if failed else 'hold', len(failed or rows))}"
    farthest = max(measured, key=lambda row: _value_of(row) or 0.0, default=None)
    if farthest is None or (limit := farthest.tolerance) is None:
        return text
    allowed = f"{share_text(limit)} allowed"
    if not failed:
        names = (name for name, rtol in RTOL.items() if rtol == limit)
        dtype = None if comparison.tolerance.rtol is not None else next(names, None)
        allowed = f"{dtype} allows {share_text(limit)}" if dtype else allowed
    distance = share_text(_value_of(farthest) or 0.0)
    return f"{text}, {f'up to {distance}' if failed else f'at most {distance} off'} ({allowed})"


def first_text(comparison: Comparison) -> str:
    first, rows = comparison.first, comparison.rows
    if first is not None:
        which = first.call_id
        if first.other_call_id not in ("", first.call_id):
            which += f" (in B {first.other_call_id})"
        where = f" (worst in {first.image})" if len(comparison.images) > 1 else ""
        failed = len(comparison.failed)
        return (
            f"{which} differs first: {first.reason or _distance(first)}{where}; "
            f"{failed} of {count(len(rows), 'call')} {_verb('differ', failed)}"
        )
    images = count(len(comparison.images), "image")
    if not comparison.equal:
        missing = len(comparison.only_in_a) + len(comparison.only_in_b)
        return f"{count(missing, 'image')} in one run only; in the other {images} nothing differs"
    measured = [row for row in rows if row.tolerance is not None]
    differ = any(_value_of(row) for row in measured)
    farthest = f"; the farthest is {measured[0].call_id}: {_distance(measured[0])}"
    calls = count(len(rows), "call")
    figures = sum(row.source == "figures" for row in measured)
    where = " in the figures" if figures == len(measured) else ""
    some = f" ({figures} of them in the figures alone)" if figures and not where else ""
    none = "no difference in these" if _changes(comparison) else "no difference"
    none = "nothing beyond the tolerance" if differ else none
    held = f"{calls} of {images} {_verb('hold', len(rows))}{some}"
    return f"{none}{where}: {held}{farthest}"


def _verb(verb: str, number: int) -> str:
    return f"{verb}s" if number == 1 else verb


def _value_of(row: DiffRow) -> float | None:
    angle = None if row.cosine is None else 1 - row.cosine
    values = {"rel-l2": row.rel_l2, "max-abs": row.max_abs, "mean-abs": row.mean_abs}
    return values.get(row.metric, angle)


def _distance(row: DiffRow) -> str:
    value = figure_text(_value_of(row))
    least = "at least " if row.source == "figures" else ""
    return f"{_METRICS[row.metric]} {least}{value}, tolerance {figure_text(row.tolerance)}"


def list_notes(comparison: Comparison) -> Iterator[str]:
    for name, keys in (("A", comparison.only_in_a), ("B", comparison.only_in_b)):
        if keys:
            yield f"images only in {name}: {', '.join(keys[:3])}{and_more(len(keys) - 3)}"
    both = (row for row in comparison.rows if row.dtype and row.other_dtype)
    if others := [row for row in both if row.dtype != row.other_dtype]:
        more, row = and_more(len(others) - 1, ", and of {} more"), others[0]
        yield f"the dtype of {row.call_id} is {row.dtype}, now {row.other_dtype}{more}"
    sources = {row.source for row in comparison.rows} - {""}
    changed = () if comparison.answer is None else comparison.answer.changed
    if 0 < len(changed) < len(comparison.images):
        named = f"{', '.join(changed[:_NAMED])}{and_more(len(changed) - _NAMED)}"
        yield f"the answer is not the same for {named}"
    culprits = () if comparison.blame is None else comparison.blame.ids
    yield from _left_out_texts(comparison.left_out, culprits)
    if "figures" in sources:
        measured = [row.source for row in comparison.rows if row.source]
        of_figures = measured.count("figures")
        which = f" of {of_figures} of {len(measured)} calls" if of_figures < len(measured) else ""
        yield (
            f"only figures{which} were compared (mean, std, min, max, NaN, Inf): rel L2 and max "
            "abs are lower bounds; sketches or saved tensors of both runs tell more"
        )
    for source in sorted(sources - {"tensors", "sketches", "figures"}):
        yield f"only what {source.removeprefix('tensors ')} kept was compared"
    if "sketches" in sources:
        which = "" if sources == {"sketches"} else " of calls without max abs"
        yield (
            f"rel L2 and cosine{which} are estimates from sketches, mostly within 17 %; "
            "tensors saved in both runs give exact ones"
        )
    if not comparison.changed:
        yield "nothing else changed: model name, weights, device, threads and versions are the same"


def _left_out_texts(left_out: Sequence[LeftOut], culprits: Sequence[str]) -> Iterator[str]:
    ends = tuple(f" {each}" for each in culprits)
    for kind in LEFT_OUT_KINDS:
        calls = [each for each in left_out if each.kind == kind]
        calls.sort(key=lambda each: not each.reason.endswith(ends))
        if calls:
            named = "; ".join(f"{each.call_id} is {each.reason}" for each in calls[:2])
            number = count(len(calls), "call")
            yield f"not compared, {number}: {named}{and_more(len(calls) - 2, '; and {} more')}"


def changed_text(changed: ChangedFact) -> str:
    a, b = fact_text(changed.a), fact_text(changed.b)
    if max(len(a), len(b)) > _CHANGED:
        one, two = (re.split(r", (?![^(]*\))", text) for text in (a, b))  # not in parentheses
        a, b = (", ".join(p for p in side if p not in {*one} & {*two}) for side in (one, two))
        a, b = (text if len(text) <= 180 else f"{text[:177]}..." for text in (a, b))
    return f"changed: {changed.name}: {a}{', ' if a else ''}now {b or 'without'}"


def describe_difference(comparison: Comparison) -> str:
    lines = [verdict_text(comparison)]
    if (first := comparison.first) is not None:
        figures = (("rel L2", first.rel_l2), ("max abs", first.max_abs), ("cosine", first.cosine))
        known = [f"{name} {figure_text(value)}" for name, value in figures if value is not None]
        where = f"{first.call_id} ({first.module_type}, {shape_text(first.shape)})"
        lines.append(f"{where}: {', '.join(known) or first.reason}")
    return "\n".join([*lines, *map(changed_text, comparison.changed)])
