"""What deserves a look: rules over the records of a run, ranked.

Everything is told from records and their per-channel summary; nothing here sees a tensor. A rule that
needs the model itself (who produced a NaN) is given what was found out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli.results import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hookcli.records import LayerRecord, Uncalled
    from hookcli.results import ModelInfo, SkippedImage

RULES: dict[str, float] = {
    "nan": 0,  # values that are NaN, more than
    "inf": 0,  # values that are infinite, more than
    "dead": 0.2,  # share of channels that are zero everywhere, at least
    "constant": 0.2,  # share of channels that hold one value other than zero, at least
    "saturated": 0.2,  # share of channels that never leave an end of their activation, at least
    "exploding": 20,  # spread over that of the layer of the same type before, at least
    "vanishing": 20,  # the other way round
    "float16": 0.5,  # largest magnitude over what float16 holds, at least
    "uncalled": 0,  # selected layers that did not run, more than
    "skipped": 0,  # images that were skipped, more than
    "untrained": 0,  # weights that are random
    "small": 1,  # shorter side of the image over what the network sees, less than
}
"""Every rule with its threshold, the gravest first."""

_ENDS = {
    "Sigmoid": (0.01, 0.99),
    "Hardsigmoid": (0.0, 1.0),
    "ReLU6": (None, 6.0),
    "Tanh": (-0.99, 0.99),
}
_FLOAT16_LARGEST = 65504.0
_LEAST_VALUES = 4  # of a channel, over all images
_PASSING = ("Identity", "Dropout", "Dropout2d", "Dropout3d", "StochasticDepth")
_ROUNDING = 8  # pixels that a network's own steps may add


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rules look at.

    Attributes:
        records: one an image, call and output.
        uncalled: selected layers that did not run.
        skipped: images that were not used.
        model: which model ran.
        sizes: height and width of each image by key, as given, and of what the network saw of it.
        producers: who made the first ``NaN`` and ``Inf``, as sentences.
    """

    records: Sequence[LayerRecord]
    uncalled: Sequence[Uncalled] = ()
    skipped: Sequence[SkippedImage] = ()
    model: ModelInfo | None = None
    sizes: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    producers: Mapping[str, str] = field(default_factory=dict)


def find(evidence: Evidence, thresholds: Mapping[str, float] = RULES) -> tuple[Finding, ...]:
    """All findings, the gravest rule first, within a rule the largest number first."""
    limits = {**RULES, **thresholds}
    found = [
        *_not_finite(evidence, limits),
        *_channels(evidence, limits),
        *_scales(evidence, limits),
        *_float16(evidence, limits),
        *_run(evidence, limits),
    ]
    order = list(RULES)
    return tuple(sorted(found, key=lambda f: (order.index(f.rule), -(f.number or 0.0))))


def _not_finite(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    """NaN and Inf: who produced them, and how many layers were seen to hold them."""
    for rule, name in (("nan", "NaN"), ("inf", "Inf")):
        counts: dict[str, int] = {}
        for record in evidence.records:
            count = record.stats.nan_count if rule == "nan" else record.stats.inf_count
            if count > limits[rule]:
                counts[record.call.id] = counts.get(record.call.id, 0) + count
        made = evidence.producers.get(name, "")
        if not counts and not made:
            continue
        layer = next(iter(counts), "")
        held = f"{_values(sum(counts.values()), name)} in {_layers(len(counts))}, first in {layer}"
        parts = [made] * bool(made) + [held] * bool(counts)
        total = float(sum(counts.values()))
        yield Finding(rule, layer, total, limits[rule], "; ".join(parts))


def _channels(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    """Channels that are dead, constant or saturated in all images of the run."""
    for call_id, group in _by_call(evidence.records):
        if group[0].call.side != "output" or not _says_something(group):
            continue
        ranges = [record.channels for record in group if record.channels is not None]
        if not ranges or len({len(each.low) for each in ranges}) != 1:
            continue
        lows = [min(values) for values in zip(*(each.low for each in ranges), strict=True)]
        highs = [max(values) for values in zip(*(each.high for each in ranges), strict=True)]
        pairs = list(zip(lows, highs, strict=True))
        dead = sum(low == 0 == high for low, high in pairs)
        constant = sum(low == high != 0 for low, high in pairs)
        stuck = sum(_at_an_end(group[0].call.layer.module_type, low, high) for low, high in pairs)
        everywhere = " in every image" if len(ranges) > 1 else ""
        for rule, count, what in (
            ("dead", dead, "are zero everywhere"),
            ("constant", constant, "hold a single value"),
            ("saturated", stuck, "never leave an end of their activation"),
        ):
            share = count / len(pairs)
            if count and share >= limits[rule]:
                sentence = f"{count} of {len(pairs)} channels of {call_id} {what}{everywhere}"
                yield Finding(rule, call_id, share, limits[rule], sentence)


def _scales(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    """The spread of a layer over that of the layer of the same type before it, image by image."""
    before: dict[tuple[str, str, str], LayerRecord] = {}
    worst: dict[tuple[str, str], Finding] = {}
    for record in sorted(evidence.records, key=lambda r: (r.image, r.call.order)):
        call = record.call
        if not record.stats.std or call.side != "output" or call.layer.module_type in _PASSING:
            continue
        form = f"{record.layout.name} {record.layout.is_spatial} {call.output_key}"
        kind = (record.image, call.layer.module_type, form)
        previous = before.get(kind)
        before[kind] = record
        if previous is None or not previous.stats.std:
            continue
        ratio = record.stats.std / previous.stats.std
        for rule, number, verb in (
            ("exploding", ratio, "larger"),
            ("vanishing", 1 / ratio, "smaller"),
        ):
            known = worst.get((rule, record.call.id))
            if number >= limits[rule] and (known is None or number > (known.number or 0)):
                sentence = (
                    f"the spread of {record.call.id} is {number:.3g} times {verb} than that of "
                    f"{previous.call.id}, the {record.call.layer.module_type} before it"
                )
                worst[rule, record.call.id] = Finding(
                    rule, record.call.id, number, limits[rule], sentence
                )
    yield from worst.values()


def _float16(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    for call_id, group in _by_call(r for r in evidence.records if r.stats.dtype == "float16"):
        largest = max(max(abs(r.stats.min or 0), abs(r.stats.max or 0)) for r in group)
        share = largest / _FLOAT16_LARGEST
        if share >= limits["float16"]:
            sentence = f"{call_id} reaches {largest:.0f}, {share:.0%} of what float16 can hold"
            yield Finding("float16", call_id, share, limits["float16"], sentence)


def _run(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    """What is said about the run as a whole."""
    alike: dict[str, list[Uncalled]] = {}
    for uncalled in evidence.uncalled:
        kind = re.sub(r"inside \S+ ", "inside ", uncalled.reason)  # whatever the module's path
        alike.setdefault(kind, []).append(uncalled)
    if len(evidence.uncalled) > limits["uncalled"]:
        for group in alike.values():
            head, rest = group[0], len(group) - 1
            label = head.layer.label
            more = f" (and {rest} more, alike)" if rest else ""
            sentence = f"{label} did not run: {head.reason}{more}"
            yield Finding("uncalled", label, float(len(group)), limits["uncalled"], sentence)
    if len(evidence.skipped) > limits["skipped"]:
        first, count = evidence.skipped[0], len(evidence.skipped)
        more = f" (and {count - 1} more)" if count > 1 else ""
        sentence = f"skipped {first.file}: {first.reason}{more}"
        yield Finding("skipped", "", float(count), limits["skipped"], sentence)
    if evidence.model is not None and not evidence.model.trained:
        sentence = f"the weights are not trained ({evidence.model.weights}): figures say nothing about the model"
        yield Finding("untrained", "", None, None, sentence)
    yield from _small_images(evidence, limits)


def _small_images(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    shares = {key: min(given) / min(seen) for key, (given, seen) in evidence.sizes.items()}
    small = {
        key: share
        for key, share in shares.items()
        if share < limits["small"]
        and min(evidence.sizes[key][1]) - min(evidence.sizes[key][0]) > _ROUNDING
    }
    if small:
        key = min(small, key=lambda each: small[each])
        given, seen = evidence.sizes[key]
        sentence = (
            f"{key} is {given[1]} by {given[0]} pixels and was resized to the {seen[1]} by {seen[0]} "
            "that the network sees"
        )
        yield Finding("small", "", small[key], limits["small"], sentence)


def _by_call(records: Iterable[LayerRecord]) -> list[tuple[str, list[LayerRecord]]]:
    groups: dict[str, list[LayerRecord]] = {}
    for record in records:
        groups.setdefault(record.call.id, []).append(record)
    return list(groups.items())


def _says_something(group: Sequence[LayerRecord]) -> bool:
    """Whether a channel was seen at several places or in several images: one value may be zero by chance."""
    first = group[0]
    places = first.stats.numel / len(first.channels.low) if first.channels else 0
    return places * len(group) >= _LEAST_VALUES


def _at_an_end(module_type: str, low: float, high: float) -> bool:
    bottom, top = _ENDS.get(module_type, (None, None))
    return (bottom is not None and high <= bottom) or (top is not None and low >= top)


def _values(count: int, name: str) -> str:
    return f"{count:,} {name} value{'' if count == 1 else 's'}"


def _layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"
