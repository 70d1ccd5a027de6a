"""Print a finished run: the table, the predictions, the findings, and the written files."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from hookcli.cli.output import console
from hookcli.cli.output.table import print_listing
from hookcli.cli.output.wording import to_words
from hookcli.records.attention import mean_over_heads
from hookcli.records.calls import ROOT_LABEL
from hookcli.records.command import to_command
from hookcli.records.images import describe_intensities
from hookcli.records.rows import LayerRow
from hookcli.records.rules import FLOAT16_LARGEST
from hookcli.records.runs import MOST_NAMED, UNPREPARED, weights_text
from hookcli.records.statistics import SHOWN
from hookcli.records.text import and_more, count, shape_text
from hookcli.records.uncalled import group_uncalled
from hookcli.verbs.documents import RunDocument
from hookcli.verbs.outcome import Look

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from hookcli.config import RunConfig
    from hookcli.records.attention import AttentionRow
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import ImageResult, Prediction, Score
    from hookcli.records.runs import Finding, ModelInfo
    from hookcli.run.ablation import AblationResult
    from hookcli.run.result import RunResult

_FOCUSED = 5  # for each layer, name at most this many channels that fire more inside the box
_OWN_LINES = ("untrained", "skipped", "uncalled")  # rules that are reported on lines of their own
_IMAGES = 10  # show predictions for at most this many images
_ATTENTION = 12  # show at most this many attention calls
_FINDINGS = 8  # show at most this many findings below the table
_DROPS = {
    "inspect": ("layout", "type", "dead", "zero", "shape", "sparse", "std", "max", "min", "mean"),
    "gradients": ("type", "max", "min", "mean", "zero", "shape", "std", "sparse"),
}
_FIGURES = {
    "zero" if name == "zero_fraction" else each.heading: name for name, each in SHOWN.items()
}
_LOOKS = {
    "inspect": ("#", "call", "type", "shape", "layout", *_FIGURES, "dead"),
    "gradients": ("#", "call", "type", "shape", "norm", "ratio", *_FIGURES),
}


def print_result(
    config: RunConfig, result: RunResult, output_format: str, *, says_input: bool
) -> None:
    """Print the table, the predictions, and the findings.

    With ``says_input``, also print the shape and the preprocessing of the model's input, because
    hookcli had to guess them.
    """
    drops = _DROPS[config.command]
    look = Look(
        kind=LayerRow,
        columns=_choose_columns(config),
        words=("call", "type", "shape", "layout"),
        fold=("call",),
        drop=(*(name for name in _FIGURES if name not in drops), *drops),
    )
    caption = _caption(config, result, says_input=says_input)
    print_listing(
        look, result.rows, _document(config, result), output_format=output_format, caption=caption
    )


def _caption(config: RunConfig, result: RunResult, *, says_input: bool) -> Iterator[str]:
    yield weights_text(result.model)
    if says_input:
        yield f"input: {shape_text(result.model.input_shape)}, {_input_text(config, result.model)}"
    calls_by_reason: dict[str, list[str]] = {}
    for row in result.rows:
        if _has_no_gradient(row):
            calls_by_reason.setdefault(row.reason, []).append(row.call_id)
    for reason, calls in calls_by_reason.items():
        yield f"no gradient: {', '.join(calls[:3])}{and_more(len(calls) - 3)}: {to_words(reason)}"
    images = [image for image in result.images if image.predictions or image.score]
    for image in images[:_IMAGES]:
        if image.predictions:
            yield _prediction_text(image, trained=result.model.trained)
        if image.unedited:
            yield f"  without changes: {', '.join(map(_prediction, image.unedited))}"
        if image.score:
            plain = image.unedited_score
            without = f", without changes {finite_text(plain.value)}" if plain else ""
            yield f"  score: {score_text(image.score)}{without}"
    if len(images) > _IMAGES:
        yield f"and the predictions of {len(images) - _IMAGES} more images, in report.json"
    focused = [grid for grid in result.grids if any(score != 0 for score in grid.score)]
    if focused:
        yield "channels that fire more inside the box than outside, in standard deviations:"
    for grid in focused:
        more = [p for p in zip(grid.channels, grid.score, strict=True) if p[1] is None or p[1] > 0]
        more.sort(key=lambda pair: -math.inf if pair[1] is None else -pair[1])
        best = (f"channel {c} ({finite_text(score, '.2f')})" for c, score in more[:_FOCUSED])
        yield f"  {grid.call_id}: {', '.join(best) or 'none fires more inside'}"
    yield from _attention_lines(result.attention)
    findings = [finding for finding in result.findings if finding.rule not in _OWN_LINES]
    if findings:
        yield "look here first:"
    for finding in findings[:_FINDINGS]:
        yield f"  {finding.rule}: {to_words(finding.sentence)}{_where(finding, len(result.images))}"
    if len(findings) > _FINDINGS:
        yield f"  and {len(findings) - _FINDINGS} more, in report.html"


def _where(finding: Finding, images: int) -> str:
    """Name the images of a finding; empty if it is about all ``images`` of the run."""
    if images == 1 or not 0 < len(finding.images) < images:
        return ""
    first = ", ".join(finding.images[:2])
    of = "at least " if len(finding.images) == MOST_NAMED else ""
    more = and_more(len(finding.images) - 2)
    return f"; in {of}{len(finding.images)} of {count(images, 'image')}: {first}{more}"


def _attention_lines(rows: Sequence[AttentionRow]) -> Iterator[str]:
    if rows:
        yield "attention, as means over the heads; each head is in attention.csv:"
    for row in rows[:_ATTENTION]:
        yield f"  {row.call_id.removeprefix('attention:')}: {_attention_text(row)}"
    if len(rows) > _ATTENTION:
        yield f"  and {len(rows) - _ATTENTION} more, in attention.csv"


def _attention_text(row: AttentionRow) -> str:
    if not row.function:
        return f"not visible, {row.reason}"
    parts = [count(row.heads, "head"), count(row.queries, "token")]
    if row.keys != row.queries:
        parts.append(count(row.keys, "key"))
    if row.windows > 1:
        parts.append(count(row.windows, "window"))
    entropy, share, distance = map(mean_over_heads, (row.entropy, row.prefix_share, row.distance))
    if entropy is not None and row.keys:
        parts.append(f"entropy {entropy:.2f} of {math.log(row.keys):.2f}")
    if share is not None and row.prefix:
        parts.append(f"{share:.1%} on {count(row.prefix, 'prefix token')}")
    if distance is not None:
        parts.append(f"{distance:.1f} patches away")
    return ", ".join([*parts, row.reason] if row.reason else parts)


def _document(config: RunConfig, result: RunResult) -> RunDocument:
    return RunDocument(
        command=to_command(config),
        run_folder=result.out_dir,
        model=result.model,
        images=result.images,
        skipped=result.skipped,
        uncalled=tuple(layer.row() for layer in result.uncalled),
        findings=result.findings,
        layers=result.rows,
        attention=result.attention,
    )


def _input_text(config: RunConfig, model: ModelInfo) -> str:
    if model.preprocessing == UNPREPARED:
        return "the values of the files as they are"
    request = config.run.model
    asked = (request.size, request.resize, request.mean, request.std, request.interpolation)
    if any(value is not None for value in asked):
        return "prepared as the options say, and otherwise as for ImageNet"
    if "not normalized" in model.preprocessing:
        return "scaled to 0 to 1, and not normalized; other: --size, --mean, --std"
    return "prepared as for ImageNet; other: --size, --mean, --std"


def _choose_columns(config: RunConfig) -> dict[str, Callable[[LayerRow], str]]:
    columns: dict[str, Callable[[LayerRow], str]] = {
        "#": lambda row: str(row.order),
        "call": _call_text,
        "type": lambda row: row.module_type,
        "shape": lambda row: shape_text(row.shape),
        "layout": lambda row: f"{row.layout} (inferred)" if row.layout_note else row.layout,
        "norm": lambda row: "none" if _has_no_gradient(row) else _number(row.norm),
        "ratio": lambda row: _number(row.ratio),
        "dead": lambda row: (
            "" if row.dead_channels is None else f"{row.dead_channels}/{row.channels}"
        ),
        "change": lambda row: _share(row.change),
        "sparse": lambda row: _share(row.sparsity),
        **{title: partial(_figure, name) for title, name in _FIGURES.items()},
    }
    changes = []
    if config.run.edits or config.run.prunes:
        changes.append("change")
    if config.run.prunes:
        changes.append("sparse")
    return {name: columns[name] for name in (*_LOOKS[config.command], *changes)}


def _figure(name: str, row: LayerRow) -> str:
    return SHOWN[name].format(getattr(row, name))


def _call_text(row: LayerRow) -> str:
    broken = {"NaN": row.nan_count, "Inf": row.inf_count}
    return " ".join([row.call_id, *(f"{n} {name}" for name, n in broken.items() if n > 0)])


def _has_no_gradient(row: LayerRow) -> bool:
    return bool(row.reason) and row.norm is None


def _share(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if math.isfinite(value) else "not finite"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _prediction_text(image: ImageResult, *, trained: bool) -> str:
    predictions = ", ".join(map(_prediction, image.predictions))
    text = f"{image.file}: {predictions}"
    if trained or image.predictions[0].measure == "features":
        return text
    return f"{text} (meaningless: the weights are random)"


def finite_text(value: float | None, form: str = ".5g") -> str:
    """Return a number as text; None stands for a value that is not finite."""
    return "not finite" if value is None else format(value, form)


def score_text(score: Score) -> str:
    """Return a score as text: ``logit of tabby (281) = 8.31``."""
    of = "" if score.target is None else f" of {score.category} ({score.target})"
    return f"{score.kind}{of} = {finite_text(score.value)}"


def _prediction(prediction: Prediction) -> str:
    if prediction.value is None and prediction.index is None:
        return prediction.category
    value = prediction.text or "?"
    if prediction.box is None:
        return f"{prediction.category} {value}"
    left, top, right, bottom = (round(side) for side in prediction.box)
    return f"{prediction.category} {value} at {left},{top} to {right},{bottom}"


def warn_of_damage(damage: Sequence[str]) -> None:
    """Warn that files of a run are missing or have changed; ``damage`` has a sentence for each."""
    if damage:
        more = and_more(len(damage) - 1, " (and {} more)")
        console.warn(f"the folder is not as the run left it: {damage[0]}{more}")


def print_warnings(config: RunConfig, result: RunResult) -> None:
    """Warn about requests that the run could not fulfil completely."""
    _warn_of_missing_channels(config, result)
    _warn_of_overflow(config, result)
    if config.run.images.range != "full" and not any(each.intensities for each in result.images):
        console.warn("--range has no effect: no picture has more than 8 bits")
    if result.undrawn:
        more = and_more(len(result.undrawn) - 1)
        option, why = "--cam", "no gradient reached it, or it has no feature maps"
        if config.heat is not None:
            option, why = "--heat", "it has no places on the image (the page says why)"
        console.warn(f"{option}: no picture of {result.undrawn[0]}{more}: {why}")


def _warn_of_missing_channels(config: RunConfig, result: RunResult) -> None:
    drawn = None if config.grids.mode == "none" else config.grids.channels
    saved = None if config.tensors.save is None else config.tensors.save.channels
    counts = {
        row.call_id: row.channels
        for row in result.rows
        if row.channels and math.prod(row.shape) > row.channels  # a channel has more than one value
    }
    for option, channels in (("--channels", drawn), ("--tensor-channels", saved)):
        short = [call_id for call_id, count in counts.items() if count <= max(channels or (-1,))]
        if short:
            more = and_more(len(short) - 1, ", and {} more are short of some")
            last = counts[short[0]] - 1
            console.warn(f"{option}: {short[0]} has channels 0 to {last} only{more}")


def _warn_of_overflow(config: RunConfig, result: RunResult) -> None:
    if config.tensors.save is None or config.tensors.save.dtype != "float16":
        return
    over = [
        row for row in result.rows if max(abs(row.min or 0), abs(row.max or 0)) > FLOAT16_LARGEST
    ]
    if over:
        most = max(abs(over[0].min or 0), abs(over[0].max or 0))
        more = and_more(len(over) - 1, ", and {} more")
        console.warn(
            f"--tensor-dtype float16 holds values up to {FLOAT16_LARGEST:.0f}: "
            "larger ones were saved as inf; "
            f"{over[0].call_id} reaches {most:.4g}{more}; bfloat16 holds them"
        )


def print_notes(
    result: RunResult | AblationResult, chosen: Collection[str], *, quiet: bool
) -> None:
    """Print on stderr how inputs were made from images, and which layers did not run.

    Only inputs such as clips and pairs are mentioned, not single pictures. ``chosen`` holds the
    labels of all chosen layers.
    """
    for note in dict.fromkeys(image.note for image in result.images if image.note):
        console.say(f"the model saw {to_words(note)}", quiet=quiet)
    for text, is_warning in describe_intensities(result.images):
        if is_warning:
            console.warn(text)
        else:
            console.say(text, quiet=quiet)
    print_uncalled(result.uncalled, chosen, quiet=quiet)


def print_uncalled(uncalled: Sequence[Uncalled], chosen: Collection[str], *, quiet: bool) -> None:
    """Print on stderr which layers did not run, with one line for each reason.

    ``chosen`` holds the labels of all chosen layers. hookcli needs them to replace many names by a
    glob.
    """
    for group in group_uncalled([(each.layer.label, each.reason) for each in uncalled], chosen):
        number = "" if group.is_few else f", {count(len(group.layers), 'layer')}"
        console.say(f"not called{number}: {group.names}: {group.reason}", quiet=quiet)


def print_summary(result: RunResult, *, quiet: bool, time: bool) -> None:
    """Print on stderr how many files the run wrote into which folder, and which rules failed.

    With ``time``, also print how long each stage took.
    """
    chosen = {row.module_path or ROOT_LABEL for row in result.rows}
    print_notes(result, chosen, quiet=quiet)
    complex_calls = [row.call_id for row in result.rows if row.dtype.startswith("complex")]
    if complex_calls:
        more = and_more(len(complex_calls) - 1)
        console.say(
            f"complex numbers: {complex_calls[0]}{more}: the figures describe their magnitudes",
            quiet=quiet,
        )
    written = f"wrote {count(len(result.files), 'file')} into {result.out_dir}"
    if result.skipped:
        written += f"; {count(len(result.skipped), 'image')} skipped, see skipped.csv"
    console.say(written, quiet=quiet)
    if result.failed:
        console.print_error(f"--fail-on: found {', '.join(result.failed)}")
    if time:
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in result.seconds.items())
        console.say(f"time: {stages}")
