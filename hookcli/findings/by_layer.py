"""Rules about one layer: its values, its channels, and its spread beside that of the layer before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.findings.rules import count_layers
from hookcli.results import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hookcli.findings.rules import Evidence
    from hookcli.records import LayerRecord

_ENDS = {
    "Sigmoid": (0.01, 0.99),
    "Hardsigmoid": (0.0, 1.0),
    "ReLU6": (None, 6.0),
    "Tanh": (-0.99, 0.99),
    "Hardswish": (None, 3.0),  # from there on it is the identity; its lower end is zero
}
_FLOAT16_LARGEST = 65504.0
_LEAST_VALUES = 4  # of a channel, over all images
_PASSING = ("Identity", "Dropout", "Dropout2d", "Dropout3d", "StochasticDepth")


def find_not_finite(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    """NaN and Inf: who produced them, and how many layers were seen to hold them."""
    for rule, name in (("nan", "NaN"), ("inf", "Inf")):
        counts: dict[str, int] = {}
        images: dict[str, None] = {}
        for record in evidence.records:
            count = record.stats.nan_count if rule == "nan" else record.stats.inf_count
            if count > limits[rule]:
                counts[record.call.id] = counts.get(record.call.id, 0) + count
                images[record.image] = None
        made = evidence.producers.get(name, "")
        if not counts and not made:
            continue
        layer = next(iter(counts), "")
        held = f"{_values(sum(counts.values()), name)} in {count_layers(len(counts))}, first in {layer}"
        parts = [made] * bool(made) + [held] * bool(counts)
        total = float(sum(counts.values()))
        yield Finding(rule, layer, total, limits[rule], "; ".join(parts), tuple(images))


def find_channels(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
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


def find_scales(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    """The spread of a layer over that of the layer of the same type before it, image by image."""
    before: dict[tuple[str, str, str], LayerRecord] = {}
    worst: dict[tuple[str, str], Finding] = {}
    images: dict[tuple[str, str], list[str]] = {}
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
            if number < limits[rule]:
                continue
            images.setdefault((rule, call.id), []).append(record.image)
            known = worst.get((rule, call.id))
            if known is None or number > (known.number or 0):
                sentence = (
                    f"the spread of {call.id} is {number:.3g} times {verb} than that of "
                    f"{previous.call.id}, the {call.layer.module_type} before it"
                )
                worst[rule, call.id] = Finding(rule, call.id, number, limits[rule], sentence)
    for place, finding in worst.items():
        yield replace(finding, images=tuple(images[place]))


def find_float16(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    """float16 near the largest number it holds."""
    for call_id, group in _by_call(r for r in evidence.records if r.stats.dtype == "float16"):
        reached = {r.image: max(abs(r.stats.min or 0), abs(r.stats.max or 0)) for r in group}
        near = [i for i, v in reached.items() if v / _FLOAT16_LARGEST >= limits["float16"]]
        if near:
            largest = max(reached.values())
            share = largest / _FLOAT16_LARGEST
            sentence = f"{call_id} reaches {largest:.0f}, {share:.0%} of what float16 can hold"
            yield Finding("float16", call_id, share, limits["float16"], sentence, tuple(near))


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
