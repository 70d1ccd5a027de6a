"""List a run's findings: results that deserve a closer look, such as images that are too small.

The rules that find them read records and their sums over images, never tensors. If a rule needs the
model itself, such as to find the module that produced a NaN, the caller runs the model and passes
the answer in ``Evidence``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from hookcli.records.calls import RECOMPUTED
from hookcli.records.images import join_intensities, range_text, suggest_range
from hookcli.records.rules import FLOAT16_LARGEST, RULES
from hookcli.records.runs import MOST_NAMED, Finding
from hookcli.records.text import and_more, count
from hookcli.records.uncalled import group_uncalled
from hookcli.summary.channel_findings import find_channels
from hookcli.summary.scales import find_stretch, role_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hookcli.records.calls import Call
    from hookcli.records.pictures import HeatPicture
    from hookcli.summary.call_tally import RuleHit
    from hookcli.summary.evidence import Evidence

_STRETCH = 500  # times the threshold of a single step is the threshold of a gradual change
_ROUNDING = 8  # pixels that a network's preprocessing may add


def list_findings(
    evidence: Evidence, thresholds: Mapping[str, float] = RULES
) -> tuple[Finding, ...]:
    limits = {**RULES, **thresholds}
    del limits["untrained"]  # this rule has no threshold
    found = [
        replace(finding, threshold=finding.threshold or limits.get(finding.rule))
        for find in _FINDERS
        for finding in find(evidence, limits)
    ]
    return tuple(sorted(found, key=lambda f: ([*RULES].index(f.rule), -(f.number or 0.0))))


def _find_not_finite(evidence: Evidence, _limits: Mapping[str, float]) -> Iterator[Finding]:
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
    """Return the first call whose module contains no module of the other calls; "" if no calls."""
    paths = {call_id: evidence.calls[call_id].call.layer.module_path for call_id in call_ids}
    for call_id, path in paths.items():
        start = f"{path}." if path else ""
        if not any(other != path and other.startswith(start) for other in paths.values()):
            return call_id
    return ""


def _find_unsteady(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    if len(calls := evidence.unsteady) > limits["not-deterministic"]:
        more = and_more(len(calls) - 1, " (and {} more call{s})")
        why = "dropout active in eval mode? random numbers? state?"
        sentence = f"{calls[0]} gave another result when the first image ran again{more}: {why}"
        yield Finding("not-deterministic", calls[0], float(len(calls)), sentence=sentence)


def _find_scales(evidence: Evidence, _limits: Mapping[str, float]) -> Iterator[Finding]:
    for rule, verb in (("exploding", "as large as"), ("vanishing", "smaller than")):
        by_layer: dict[str, list[tuple[str, RuleHit]]] = {}
        for call_id, hit in _list_hits(evidence, rule).items():
            layer = evidence.calls[call_id].call.layer
            by_layer.setdefault(layer.module_path, []).append((call_id, hit))
        for group in by_layer.values():
            call_id, hit = max(group, key=lambda pair: pair[1].number)
            more = and_more(len(group) - 1, " (and {} more call{s} like it)")
            call, against = (evidence.calls[key].call for key in (call_id, hit.against))
            side = "before" if against.order < call.order else "after"
            than = f"that of {against.id}, the {against.layer.module_type} {side} it"
            if role_of(call.layer.module_path).is_in_block:
                kind = f"the {against.layer.module_type} in the same place of the block {side}"
                than = f"expected from {against.id}, {kind}"
            sentence = f"the std of {call_id} is {hit.number:.3g} times {verb} {than}{more}"
            yield Finding(rule, call_id, hit.number, sentence=sentence, images=tuple(hit.images))


def _find_stretches(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    targets = dict.fromkeys(tally.call.target for tally in evidence.calls.values())
    backwards = (evidence.list_ended("grad_output", target)[::-1] for target in targets)
    rows = (evidence.list_ended("output"), *backwards)
    for rule, row in product(("exploding", "vanishing"), rows):
        limit = max(1.0, _STRETCH * limits[rule])
        if stretch := find_stretch(row, rule, limit, evidence.idle_norms):
            ends = [(tally.call.id, tally.stats.std or 1.0) for tally in stretch]
            (first, one), (last, two) = ends[0], ends[-1]
            how = "grows" if one < two else "falls"
            over = f"gradually over {len(stretch)} {stretch[0].call.layer.module_type} layers"
            sentence = f"the std {how} from {one:.3g} at {first} to {two:.3g} at {last}, {over}"
            yield Finding(rule, last, max(two / one, one / two), limit, sentence=sentence)


def _find_without_gradient(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
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
            yield Finding("no-gradient", group[0], float(len(group)), sentence=sentence)


def _find_chance(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    found: dict[str, list[HeatPicture]] = {}
    is_trained = evidence.model is None or evidence.model.trained
    for cam in evidence.cams if is_trained else ():  # random weights are a finding of their own
        if cam.test is not None and cam.test.is_chance:
            found.setdefault(cam.call_id, []).append(cam)
    for call_id, cams in found.items():
        if len(cams) > limits["chance"]:
            first, images = cams[0], tuple(dict.fromkeys(cam.image for cam in cams))
            of = "" if first.score is None else f" for {first.score.label}"
            why = "random maps find about as fast what the score depends on"
            sentence = f"the {first.method} of {call_id}{of} is no better than chance: {why}"
            yield Finding("chance", call_id, float(len(cams)), sentence=sentence, images=images)


def _find_float16(evidence: Evidence, _limits: Mapping[str, float]) -> Iterator[Finding]:
    for call_id, hit in _list_hits(evidence, "float16").items():
        largest, share = hit.number * FLOAT16_LARGEST, hit.number
        sentence = f"{call_id} reaches {largest:.0f}, {share:.0%} of what float16 can hold"
        yield Finding("float16", call_id, share, sentence=sentence, images=tuple(hit.images))


def _list_hits(evidence: Evidence, rule: str) -> dict[str, RuleHit]:
    calls = sorted(evidence.calls.items(), key=lambda pair: _moment(pair[1].call))
    return {call_id: tally.hits[rule] for call_id, tally in calls if rule in tally.hits}


def _moment(call: Call) -> tuple[int, str]:
    # Compare only keys of activations with each other, or keys of gradients. The model makes
    # gradients from the last call to the first, and an output's gradient before the input's.
    if call.side in ("output", "input"):
        return call.order, call.side
    return -call.order, {"grad_output": "0", "grad_input": "1"}.get(call.side, "2")


def _find_overwritten(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    # A hook that keeps such an output without a copy shows the overwritten values.
    written = [call_id for call_id in evidence.calls if call_id in evidence.written]
    if len(written) > limits["overwritten"]:
        first = written[0]
        more = and_more(len(written) - 1, ", as with {} more layer{s}")
        how = f"overwritten in place {evidence.written[first]}{more}"
        sentence = f"the output of {first} is {how}; the figures are those of the original output"
        yield Finding("overwritten", first, float(len(written)), sentence=sentence)


def _find_uncalled(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    reasons = {each.layer.label: each.reason for each in evidence.uncalled}
    if len(reasons) <= limits["uncalled"]:
        return
    for group in group_uncalled(reasons.items()):
        label, number = group.layers[0], len(group.layers)
        more = and_more(number - 1, " (and {} more like it)")
        sentence = f"{label} did not run: {reasons[label]}{more}"
        yield Finding("uncalled", label, float(number), sentence=sentence)


def _find_skipped(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    if len(evidence.skipped) > limits["skipped"]:
        first, number = evidence.skipped[0], len(evidence.skipped)
        example = f"{first.file!r} {first.reason}{and_more(number - 1, ' (and {} more)')}"
        sentence = f"{count(number, 'image')} skipped, see skipped.csv: {example}"
        yield Finding("skipped", "", float(number), sentence=sentence)


def _find_untrained(evidence: Evidence, _limits: Mapping[str, float]) -> Iterator[Finding]:
    if evidence.model is not None and not evidence.model.trained:
        weights = evidence.model.weights
        sentence = f"the weights are not trained ({weights}): figures say nothing about the model"
        yield Finding("untrained", "", None, sentence=sentence)


def _find_small_images(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    made_for = () if evidence.takes_any_size or not evidence.model else evidence.model.input_shape
    least = min(made_for[-2:], default=0)
    wanted = {key: max(min(seen), least) for key, (_, seen) in evidence.sizes.items()}
    shares = {key: min(given) / wanted[key] for key, (given, _) in evidence.sizes.items()}
    lacking = {key: wanted[key] - min(given) for key, (given, _) in evidence.sizes.items()}
    small = [k for k, share in shares.items() if share < limits["small"] and lacking[k] > _ROUNDING]
    if small:
        key = min(small, key=shares.__getitem__)
        given, seen = evidence.sizes[key]
        name = repr(evidence.files.get(key, key))
        more = and_more(len(small) - 1, " (and {} more image{s})")
        what = f", and the network was made for at least {wanted[key]}"
        if seen != given:
            what = f" and was resized to the {seen[1]} by {seen[0]} that the network sees"
        sentence = f"{name} is {given[1]} by {given[0]} pixels{what}{more}"
        yield Finding("small", "", shares[key], sentence=sentence, images=tuple(small))


def _find_narrow(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    if narrow := {k: v for k, v in evidence.intensities.items() if v.share < limits["narrow"]}:
        key = min(narrow, key=lambda key: narrow[key].share)
        one, every = narrow[key], join_intensities([*narrow.values()])
        low, high = (every.smallest, every.largest) if every else (0, 0)
        sentence = (
            f"{evidence.files.get(key, key)!r} holds values from "
            f"{range_text(one.smallest, one.largest)}, {one.share:.1%} of the range from "
            f"{range_text(one.low, one.high)}{and_more(len(narrow) - 1, ' (and {} more image{s})')}"
            + (f"; {suggest_range(low, high)} would suit" if low < high else "")
        )
        yield Finding("narrow", "", one.share, sentence=sentence, images=tuple(narrow))


def _find_nan_pixels(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    counts = {key: each.nan_count for key, each in evidence.intensities.items()}
    if counts := {key: number for key, number in counts.items() if number > limits["nan"]}:
        key = max(counts, key=counts.__getitem__)
        more = and_more(len(counts) - 1, " (and {} more image{s})")
        name = repr(evidence.files.get(key, key))
        sentence = f"{name} holds {counts[key]:,} NaN, which were made black{more}"
        yield Finding("nan", "", float(counts[key]), sentence=sentence, images=tuple(counts))


_FINDERS = (
    *(_find_not_finite, _find_unsteady, _find_scales, _find_stretches, _find_without_gradient),
    *(_find_chance, _find_float16, find_channels, _find_nan_pixels, _find_overwritten),
    *(_find_uncalled, _find_skipped, _find_untrained, _find_small_images, _find_narrow),
)
