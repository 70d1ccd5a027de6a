"""Rules about the whole run: its images, its weights, and layers that did not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.records.images import join_intensities, range_text, suggest_range
from hookcli.records.runs import Finding
from hookcli.records.text import and_more, count
from hookcli.records.uncalled import group_uncalled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hookcli.summary.evidence import Evidence

_ROUNDING = 8  # pixels that a network's preprocessing may add


def _find_overwritten(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    # A hook that keeps such an output without a copy shows the overwritten values.
    written = [call_id for call_id in evidence.calls if call_id in evidence.written]
    if len(written) > limits["overwritten"]:
        first = written[0]
        more = and_more(len(written) - 1, ", as with {} more layer{s}")
        sentence = (
            f"the output of {first} is overwritten in place {evidence.written[first]}{more}; "
            "the figures are those of the original output"
        )
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
        sentence = (
            f"the weights are not trained ({evidence.model.weights}): "
            "figures say nothing about the model"
        )
        yield Finding("untrained", "", None, sentence=sentence)


def _find_small_images(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    made_for = () if evidence.takes_any_size or not evidence.model else evidence.model.input_shape
    least = min(made_for[-2:], default=0)
    wanted = {key: max(min(seen), least) for key, (_, seen) in evidence.sizes.items()}
    shares = {key: min(given) / wanted[key] for key, (given, _) in evidence.sizes.items()}
    small = [
        key
        for key, share in shares.items()
        if share < limits["small"] and wanted[key] - min(evidence.sizes[key][0]) > _ROUNDING
    ]
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
    narrow = {k: v for k, v in evidence.intensities.items() if v.share < limits["narrow"]}
    if narrow:
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
    counts = {
        k: v.nan_count for k, v in evidence.intensities.items() if v.nan_count > limits["nan"]
    }
    if counts:
        key = max(counts, key=counts.__getitem__)
        more = and_more(len(counts) - 1, " (and {} more image{s})")
        name = repr(evidence.files.get(key, key))
        sentence = f"{name} holds {counts[key]:,} NaN, which were made black{more}"
        yield Finding("nan", "", float(counts[key]), sentence=sentence, images=tuple(counts))


FINDERS = (
    _find_nan_pixels,
    _find_overwritten,
    _find_uncalled,
    _find_skipped,
    _find_untrained,
    _find_small_images,
    _find_narrow,
)
"""The rules about the run."""
