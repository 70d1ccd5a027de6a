"""Run ``inspect`` and ``gradients``; make their tables, the lines below a table, and warnings."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from hookcli import errors
from hookcli.outside.foreign import require_package
from hookcli.outside.urls import HELD, Url, to_location
from hookcli.records.attention_records import mean_over_heads
from hookcli.records.command import command_words, repeatable
from hookcli.records.pictures import list_focused
from hookcli.records.rows import LayerRow
from hookcli.records.rules import FLOAT16_LARGEST
from hookcli.records.runs import MOST_NAMED, UNPREPARED, weights_text
from hookcli.records.statistics import SHOWN
from hookcli.records.text import and_more, count, figure_text, shape_text
from hookcli.store.locations.names import PAGE
from hookcli.verbs import memory
from hookcli.verbs.messages import describe_images, describe_uncalled, show_page, warn_of_skipped
from hookcli.verbs.outcome import Look, Outcome, Page, Table, UnwrittenOutcome, statistic_text
from hookcli.verbs.runs import execute, plan_text, prepare, with_downloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hookcli.config import RunConfig
    from hookcli.reading.load import Run
    from hookcli.records.attention_records import AttentionRow
    from hookcli.records.images import ImageResult, Prediction, Score
    from hookcli.records.pictures import HeatPicture
    from hookcli.records.runs import Finding, ModelInfo
    from hookcli.run.result import RunResult
    from hookcli.verbs.call import Note, VerbCall
    from hookcli.verbs.documents import RunDocument

_OWN_LINES = ("untrained", "skipped", "uncalled")  # rules that are reported on lines of their own
_IMAGES = 10  # show the predictions of each of at most this many images
_CLASSES = 5  # of more images, count this many predicted classes
_CAMS = 20  # show at most this many Grad-CAMs
_DOWN, _ACROSS = ("upper", "middle", "lower"), ("left", "middle", "right")
_CAM_COLUMNS = (
    "hottest at: x,y in the picture as the network saw it; "
    "half within: the smallest share of it that holds half of the Grad-CAM"
)
_TESTED = "; hottest 10%, random 10%: the share of the score that blurring these places takes"
_ATTENTION = 12  # show at most this many attention calls
_FINDINGS = 8  # show at most this many findings below the table
_DROPS = {
    "inspect": ("layout", "type", "dead", "zero", "shape", "sparse", "std", "max", "min", "mean"),
    "gradients": ("type", "max", "min", "mean", "zero", "shape", "std", "sparse"),
}
_FIGURES = {"zero" if name == "zero_fraction" else one.heading: name for name, one in SHOWN.items()}
_LOOKS = {
    "inspect": ("#", "call", "type", "shape", "layout", *_FIGURES, "dead"),
    "gradients": ("#", "call", "type", "shape", "norm", "ratio", *_FIGURES),
}


@dataclass(frozen=True, kw_only=True)
class Inspection(Outcome):
    """The results of running images through a model: statistics, files and saved tensors.

    Example:
        >>> run = hookcli.inspect("resnet34", "cat.jpg", save="tensors")
        >>> run["layer3"].shape
        (1, 256, 14, 14)

    Attributes:
        result: the model, the images, and a row per layer call; see ``RunResult``.
    """

    config: RunConfig
    result: RunResult
    notes: Sequence[Note]
    knows_input: bool  # whether the model says how its input is prepared
    shows_cams: bool = False  # whether the table is about Grad-CAMs instead of layers
    holder: memory.HeldFolder | None = None  # keeps the files of a run in memory

    @property
    def rows(self) -> tuple[LayerRow, ...]:
        return self.result.rows

    def __repr__(self) -> str:
        what = f"{count(len(self.rows), 'call')} of {count(len(self.result.images), 'image')}"
        return f"<Inspection of {self.result.model.name}: {what}>"

    @property
    def stats(self) -> dict[str, LayerRow]:
        """The row of each call, by id: ``run.stats["layer1.0.conv1"].mean``."""
        return {row.call_id: row for row in self.rows}

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.result.findings

    @property
    def exit_code(self) -> int:
        return self.result.exit_code

    @property
    def run_folder(self) -> str:
        return self.result.out_dir

    @cached_property
    def files(self) -> Mapping[str, Path | bytes]:
        folder = to_location(self.run_folder)
        if isinstance(folder, Url):
            return memory.read_all(folder)
        return {name: folder / name for name in self.result.files}

    @cached_property
    def run(self) -> Run:
        """The finished run, as ``load_run`` opens it; it also has the statistics of each image."""
        from hookcli.reading.load import load_run

        run = load_run(self.run_folder)
        vars(run.files)["holder"] = self.holder  # the files live as long as the run
        return run

    @property
    def page(self) -> Page:
        return Page(self.files, PAGE)

    def __getitem__(self, call_id: str) -> Any:
        """Return the saved tensors of a call as an array (images, …)."""
        return self.run[call_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.run)

    def __contains__(self, call_id: object) -> bool:
        return call_id in self.run.calls

    def to_pandas(self) -> Any:
        """Return the rows as a data frame of pandas, which must be installed."""
        require_package("a data frame needs", "pandas", "pandas", "")
        return self.run.figures().to_pandas()

    def document(self) -> RunDocument:
        from hookcli.verbs.documents import RunDocument

        result = self.result
        return RunDocument(
            command=repeatable(command_words(self.config.command, self.config)),
            run_folder="" if result.out_dir.startswith(HELD) else result.out_dir,
            model=result.model,
            images=result.images,
            skipped=result.skipped,
            uncalled=tuple(layer.row() for layer in result.uncalled),
            findings=result.findings,
            layers=result.rows,
            attention=result.attention,
            cams=result.cams,
        )

    def table(self) -> Table[Any]:
        if self.shows_cams:
            look, rows = _cam_look(self.result), self.result.cams[:_CAMS]
            return Table(look=look, rows=rows, caption=[*_caption(self)])
        drops = _DROPS[self.config.command]
        look = Look(
            kind=LayerRow,
            columns=_choose_columns(self.config),
            words=("call", "type", "shape", "layout"),
            fold=("call",),
            drop=(*(name for name in _FIGURES if name not in drops), *drops),
        )
        return Table(look=look, rows=self.rows, caption=[*_caption(self)])

    def _repr_html_(self) -> str:
        return self.run._repr_html_()


@dataclass(frozen=True, kw_only=True)
class Planned(UnwrittenOutcome):
    """The result of a dry run: ``notes`` describe the plan, and nothing was written."""

    skipped: int  # images that could not be used

    @property
    def exit_code(self) -> int:
        return errors.choose_code(skipped=bool(self.skipped))

    def text(self) -> str:
        return ""


def inspect_run(
    call: VerbCall, config: RunConfig, *, dry_run: bool, time: bool, open_page: bool
) -> Inspection | Planned:
    """Run the model on the images, and write the run folder; with ``dry_run``, only plan it."""
    config = replace(config, run=with_downloads(call, config.run))
    if dry_run:
        return _plan(call, config)
    from hookcli.plan.check import check_memory

    is_held = config.folder.out is None and not call.listener.writes
    if is_held:
        config = replace(config, folder=replace(config.folder, out=memory.new_folder()))
    holder = memory.HeldFolder(Url(str(config.folder.out))) if is_held else None
    prepared = prepare(call, config, keeps=not is_held)
    if is_held:
        plan = prepared.settings.plan
        check_memory(plan.images, plan.megabytes)
    if prepared.cam_reason:
        call.say(f"`cam`: {prepared.cam_reason}")
    knows_input = prepared.model.loaded.knows_input
    result = execute(call, prepared, keeps=not is_held)
    call.listener.end()
    _warn(call, config, result)
    _sum_up(call, config, result, time=time, is_held=is_held)
    if open_page:
        show_page(call, to_location(result.out_dir) / PAGE)
    return Inspection(
        config=config,
        result=result,
        notes=call.notes,
        knows_input=knows_input,
        shows_cams="layers" not in call.given and bool(config.backward and config.backward.cams),
        holder=holder,
    )


def _plan(call: VerbCall, config: RunConfig) -> Planned:
    from hookcli.plan.prepare import plan_run

    with call.listener.no_data():
        plan = plan_run(config)
    call.answer(plan_text(config, plan))
    if config.attention is not None:
        call.answer(
            "not counted: the files of `attention`, which are known only after a forward pass "
            "with weights"
        )
    if plan.operations:
        found = count(plan.operations, "operation")
        call.answer(f"the layers include {found}, found by one forward of the first image")
    warn_of_skipped(call, plan.skipped)
    return Planned(notes=call.notes, skipped=len(plan.skipped))


def _caption(outcome: Inspection) -> Iterator[str]:
    config, result = outcome.config, outcome.result
    if outcome.shows_cams:
        rest = and_more(len(result.cams) - _CAMS, "; {} more are on the page")
        tested = _TESTED * any(cam.test for cam in result.cams)
        yield _CAM_COLUMNS + tested + rest if result.cams else "no layer of `cam` has a map"
    meaningless = "" if result.model.trained else ": predictions would mean nothing"
    yield f"{weights_text(result.model)}{meaningless}"
    if not outcome.knows_input:
        yield f"input: {shape_text(result.model.input_shape)}, {_input_text(config, result.model)}"
    calls_by_reason: dict[str, list[str]] = {}
    for row in result.rows:
        if _has_no_gradient(row) and not outcome.shows_cams:
            calls_by_reason.setdefault(row.reason, []).append(row.call_id)
    for reason, calls in calls_by_reason.items():
        yield f"no gradient: {', '.join(calls[:3])}{and_more(len(calls) - 3)}: {reason}"
    yield from _answer_lines(result, says_score=not outcome.shows_cams)
    focused = [grid for grid in result.grids if any(score != 0 for score in grid.score)]
    if focused:
        yield "channels that fire more inside the box than outside, in standard deviations:"
    for grid in focused:
        fired = (f"channel {c} ({finite_text(score, '.2f')})" for c, score in list_focused(grid))
        yield f"  {grid.call_id}: {', '.join(fired) or 'none fires more inside'}"
    yield from _attention_lines(result.attention)
    findings = [finding for finding in result.findings if finding.rule not in _OWN_LINES]
    if findings:
        yield "look here first:"
    for finding in findings[:_FINDINGS]:
        yield f"  {finding.rule}: {finding.sentence}{_where(finding, len(result.images))}"
    if len(findings) > _FINDINGS:
        yield f"  and {len(findings) - _FINDINGS} more, in report.html"


def _answer_lines(result: RunResult, *, says_score: bool) -> Iterator[str]:
    """Yield lines with the predictions and scores of a few images, or the counts of classes."""
    images, trained = result.images, result.model.trained
    if len(images) > _IMAGES:
        best = Counter(
            p.category for image in images for p in image.predictions[:1] if p.index is not None
        )
        classes = ", ".join(f"{name} {number}" for name, number in best.most_common(_CLASSES))
        if best and trained:
            yield f"predicted: {classes}{and_more(len(best) - _CLASSES)}"
        scores = ((image.score, *image.other_scores) for image in images if image.score)
        for column in zip(*scores, strict=True) if says_score else ():
            values = [score.value for score in column if score.value is not None]
            labels = {score.name for score in column}
            ends = f"{finite_text(min(values))} to {finite_text(max(values))}" if values else "none"
            what = labels.pop() if len(labels) == 1 else "score"
            yield f"{what}: {ends}; report.json has that of every image"
        return
    most = 1 if images[1:] else None
    width = max(len(image.file) for image in images) + 1
    for image in images:
        known = [p for p in image.predictions if trained or p.index is p.value is None]
        texts = [_join(known[:most])] if known else []
        if known and image.unedited:
            texts.append(f"without changes: {_join(image.unedited[:most])}")
        scored = (image.score, *image.other_scores) if says_score else ()
        texts += [f"score: {_with_plain(score_text(s), s, image)}" for s in scored if s]
        lines = ["; ".join(texts)] if most and texts else texts
        heads = [f"{image.file}:", *[""] * len(lines)]
        yield from (f"{head:<{width}} {line}" for head, line in zip(heads, lines, strict=False))


def _cam_look(result: RunResult) -> Look[Any]:
    images = {image.key: image for image in result.images}

    def say_where(cam: HeatPicture) -> str:
        if cam.peak is None:
            return f"nowhere: {cam.blank}"
        (x, y), (height, width) = cam.peak, images[cam.image].pixels_shape[-2:]
        words = dict.fromkeys((_DOWN[int(3 * y)], _ACROSS[int(3 * x)]))
        return f"{' '.join(words)}: {x * width:.0f},{y * height:.0f}"

    columns: dict[str, Callable[[HeatPicture], str]] = {
        "image": lambda cam: images[cam.image].file,
        "CAM of": lambda cam: cam.call_id,
        "class": lambda cam: "" if cam.score is None else cam.score.label,
        "score": lambda cam: (
            ""
            if cam.score is None
            else _with_plain(finite_text(cam.score.value), cam.score, images[cam.image])
        ),
        "hottest at": say_where,
        "half within": lambda cam: "" if cam.half is None else f"{figure_text(100 * cam.half)}%",
    }
    if any(cam.test for cam in result.cams):
        columns["hottest 10%"] = lambda cam: _share(cam.test.taken if cam.test else None)
        columns["random 10%"] = lambda cam: _share(cam.test.at_random if cam.test else None)
    if any(cam.box for cam in result.cams):
        columns["in box"] = lambda cam: {None: "", True: "yes", False: "no"}[cam.is_inside]
    fold, single = ("image", "CAM of", "class"), ["image"] * (len(images) == 1)
    drop = ("score", *single, "half within", "random 10%", "in box", "hottest 10%")
    return Look(kind=LayerRow, columns=columns, words=(*fold, "hottest at"), fold=fold, drop=drop)


def _where(finding: Finding, images: int) -> str:
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


def _input_text(config: RunConfig, model: ModelInfo) -> str:
    if model.preprocessing == UNPREPARED:
        return "the values of the files as they are"
    request = config.run.model
    if "not normalized" in model.preprocessing and request.preprocess is None:
        grey = "turned grey, " * model.preprocessing.startswith("turned grey")
        return f"{grey}scaled to 0 to 1, and not normalized; other: `size`, `mean`, `std`"
    names = ("size", "resize", "mean", "std", "interpolation", "preprocess")
    if any(getattr(request, name) is not None for name in names):
        return "prepared as the options say, and otherwise as for ImageNet"
    return "prepared as for ImageNet; other: `size`, `mean`, `std`"


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
        **{title: partial(statistic_text, name) for title, name in _FIGURES.items()},
    }
    changes = {"change": config.run.edits or config.run.prunes, "sparse": config.run.prunes}
    names = (*_LOOKS[config.command], *(name for name, has_any in changes.items() if has_any))
    return {name: columns[name] for name in names}


def _call_text(row: LayerRow) -> str:
    broken = {"NaN": row.nan_count, "Inf": row.inf_count}
    return " ".join([row.call_id, *(f"{n} {name}" for name, n in broken.items() if n > 0)])


def _has_no_gradient(row: LayerRow) -> bool:
    return bool(row.reason) and row.norm is None


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}" if math.isfinite(value) else "not finite"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def finite_text(value: float | None, form: str = ".5g") -> str:
    """Format a number; return ``not finite`` for None, which stands for NaN and infinity."""
    return "not finite" if value is None else format(value, form)


def score_text(score: Score) -> str:
    """Return a score as text, such as ``logit of tabby (281) = 8.31``."""
    return f"{score.name} = {finite_text(score.value)}"


def _with_plain(text: str, score: Score, image: ImageResult) -> str:
    for plain in (image.unedited_score, *image.other_unedited_scores):
        if plain is not None and (plain.kind, plain.target) == (score.kind, score.target):
            return f"{text}, without changes {finite_text(plain.value)}"
    return text


def _join(predictions: Sequence[Prediction]) -> str:
    return ", ".join(map(_prediction, predictions))


def _prediction(prediction: Prediction) -> str:
    if prediction.value is None and prediction.index is None:
        return prediction.category
    value = prediction.text or "?"
    if prediction.box is None:
        return f"{prediction.category} {value}"
    left, top, right, bottom = (round(side) for side in prediction.box)
    return f"{prediction.category} {value} at {left},{top} to {right},{bottom}"


def _warn(call: VerbCall, config: RunConfig, result: RunResult) -> None:
    _warn_of_missing_channels(call, config, result)
    _warn_of_overflow(call, config, result)
    if config.run.images.range != "full" and not any(each.intensities for each in result.images):
        call.warn("`range` has no effect: no picture has more than 8 bits")
    files = {image.key: image.file for image in result.images}
    missing = [*result.undrawn.items()]
    missing += [
        (f"{cam.call_id} for {files[cam.image]}", f"it is blank: {cam.blank}")
        for cam in result.cams
        if cam.blank
    ]
    for reason in dict.fromkeys(reason for _, reason in missing):
        labels = [label for label, why in missing if why == reason]
        option = "`cam`" if config.heat is None else "`heat`"
        call.warn(f"{option}: no map of {labels[0]}{and_more(len(labels) - 1)}: {reason}")


def _warn_of_missing_channels(call: VerbCall, config: RunConfig, result: RunResult) -> None:
    drawn = None if config.grids.mode == "none" else config.grids.channels
    saved = None if config.tensors.save is None else config.tensors.save.channels
    counts = {
        row.call_id: row.channels
        for row in result.rows
        if row.channels and math.prod(row.shape) > row.channels  # a channel has more than one value
    }
    for option, channels in (("`channels`", drawn), ("`tensor_channels`", saved)):
        short = [call_id for call_id, count in counts.items() if count <= max(channels or (-1,))]
        if short:
            more = and_more(len(short) - 1, ", and {} more are short of some")
            call.warn(f"{option}: {short[0]} has channels 0 to {counts[short[0]] - 1} only{more}")


def _warn_of_overflow(call: VerbCall, config: RunConfig, result: RunResult) -> None:
    if config.tensors.save is None or config.tensors.save.dtype != "float16":
        return
    largest = [(row.call_id, max(abs(row.min or 0), abs(row.max or 0))) for row in result.rows]
    if over := [pair for pair in largest if pair[1] > FLOAT16_LARGEST]:
        (call_id, most), more = over[0], and_more(len(over) - 1, ", and {} more")
        call.warn(
            f"`tensor_dtype='float16'` holds values up to {FLOAT16_LARGEST:.0f}: "
            "larger ones were saved as inf; "
            f"{call_id} reaches {most:.4g}{more}; bfloat16 holds them"
        )


def _sum_up(
    call: VerbCall, config: RunConfig, result: RunResult, *, time: bool, is_held: bool
) -> None:
    describe_images(call, result.images)
    describe_uncalled(call, result.uncalled)
    if complex_calls := [row.call_id for row in result.rows if row.dtype.startswith("complex")]:
        some = f"{complex_calls[0]}{and_more(len(complex_calls) - 1)}"
        call.say(f"complex numbers: {some}: the figures describe their magnitudes")
    written = f"wrote {count(len(result.files), 'file')} into {result.out_dir}"
    if result.skipped:
        written += f"; {count(len(result.skipped), 'image')} skipped, see skipped.csv"
    if not is_held:
        call.say(written)
    if result.failed:
        call.fail(f"`fail_on`: found {', '.join(result.failed)}")
    if time:
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in result.seconds.items())
        call.answer(f"time: {stages}")
    if config.save_weights is not None:
        call.say(f"wrote {config.save_weights}")
    if not is_held:
        call.say(f"open first: {to_location(result.out_dir) / PAGE}")
