"""Rules about single layers: NaN and Inf, standard deviations, gradients, and float16 values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.records.calls import RECOMPUTED
from hookcli.records.rules import FLOAT16_LARGEST
from hookcli.records.runs import MOST_NAMED, Finding
from hookcli.records.text import and_more, count
from hookcli.summary.scales import role_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hookcli.records.calls import Call
    from hookcli.summary.call_tally import RuleHit
    from hookcli.summary.evidence import Evidence


def find_not_finite(evidence: Evidence, _limits: Mapping[str, float]) -> Iterator[Finding]:
    """Yield findings about NaN and Inf, with their producer and the number of affected layers."""
    for rule, name in (("nan", "NaN"), ("inf", "Inf")):
        hits = _list_hits(evidence, rule)
        made = evidence.producers.get(name, "")
        if not hits and not made:
            continue
        layer, total = _first_part(evidence, hits), sum(hit.number for hit in hits.values())
        values = f"{int(total):,} {name} value{'' if total == 1 else 's'}"
        parts = [made] if made else []
        if hits:
            parts.append(f"{values} in {count(len(hits), 'layer')}, first in {layer}")
        images = dict.fromkeys(image for hit in hits.values() for image in hit.images)
        number, shown = total if hits else None, tuple(images)[:MOST_NAMED]
        yield Finding(rule, layer, number, sentence="; ".join(parts), images=shown)


def _first_part(evidence: Evidence, call_ids: Iterable[str]) -> str:
    """Return the id of the first call that is no block around another; empty without calls."""
    paths = {call_id: evidence.calls[call_id].call.layer.module_path for call_id in call_ids}
    for call_id, path in paths.items():
        start = f"{path}." if path else ""
        if not any(other != path and other.startswith(start) for other in paths.values()):
            return call_id
    return ""


def find_scales(evidence: Evidence, _limits: Mapping[str, float]) -> Iterator[Finding]:
    """Yield findings about calls whose standard deviation explodes or vanishes in some image."""
    for rule, verb in (("exploding", "as large as"), ("vanishing", "smaller than")):
        by_layer: dict[str, list[tuple[str, RuleHit]]] = {}
        for call_id, hit in _list_hits(evidence, rule).items():
            layer = evidence.calls[call_id].call.layer
            by_layer.setdefault(layer.module_path, []).append((call_id, hit))
        for group in by_layer.values():
            call_id, hit = max(group, key=lambda pair: pair[1].number)
            more = and_more(len(group) - 1, " (and {} more call{s} like it)")
            call, against = (evidence.calls[key].call for key in (call_id, hit.against))
            sentence = (
                f"the spread of {call_id} is {hit.number:.3g} times {verb} "
                f"{_expected(call, against)}{more}"
            )
            yield Finding(rule, call_id, hit.number, sentence=sentence, images=tuple(hit.images))


def find_without_gradient(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    """Yield findings about layers whose output gets no gradient."""
    alike: dict[str, list[str]] = {}
    for call_id, tally in evidence.calls.items():
        is_lost = tally.reason not in ("", RECOMPUTED) and not tally.stats.finite
        if tally.call.side == "grad_output" and is_lost:
            alike.setdefault(tally.reason, []).append(call_id)
    for reason, group in alike.items():
        if len(group) > limits["no-gradient"]:
            label = group[0].removeprefix("grad_output:")
            more = and_more(len(group) - 1, " (and {} more like it)")
            sentence = f"{label} gets no gradient: {reason}{more}"
            number = float(len(group))
            yield Finding("no-gradient", group[0], number, sentence=sentence)


def find_float16(evidence: Evidence, _limits: Mapping[str, float]) -> Iterator[Finding]:
    """Yield findings about float16 values near the largest number that float16 can hold."""
    for call_id, hit in _list_hits(evidence, "float16").items():
        largest, share = hit.number * FLOAT16_LARGEST, hit.number
        sentence = f"{call_id} reaches {largest:.0f}, {share:.0%} of what float16 can hold"
        yield Finding("float16", call_id, share, sentence=sentence, images=tuple(hit.images))


def _expected(call: Call, against: Call) -> str:
    side = "before" if against.order < call.order else "after"
    kind = against.layer.module_type
    if role_of(call.layer.module_path).is_in_block:
        return f"expected from {against.id}, the {kind} in the same place of the block {side}"
    return f"that of {against.id}, the {kind} {side} it"


def _list_hits(evidence: Evidence, rule: str) -> dict[str, RuleHit]:
    """Return the hits of a rule by call id, in the order in which the model made the tensors."""
    calls = sorted(evidence.calls.items(), key=lambda pair: _moment(pair[1].call))
    return {call_id: tally.hits[rule] for call_id, tally in calls if rule in tally.hits}


def _moment(call: Call) -> tuple[int, str]:
    # Compare only keys of activations with each other, or keys of gradients. The model makes
    # gradients from the last call to the first, and an output's gradient before the input's.
    if call.side in ("output", "input"):
        return call.order, call.side
    return -call.order, {"grad_output": "0", "grad_input": "1"}.get(call.side, "2")


FINDERS = (find_not_finite, find_scales, find_without_gradient, find_float16)
"""The rules about layers."""
