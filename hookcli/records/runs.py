"""The result of a run over images: the model, the images, and all records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from hookcli import errors
from hookcli.outside.documents import Axes, Sha256, said
from hookcli.outside.notebook import MOST_NOTES, MOST_ROWS, read_pictures, render_layers
from hookcli.records.rules import RULES
from hookcli.records.statistics import figures_of, layer_cells
from hookcli.records.text import and_more, count, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hookcli.records.attention import AttentionRow
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import ImageResult, SkippedImage
    from hookcli.records.pictures import Grid
    from hookcli.records.rows import LayerRow


Rule: TypeAlias = Annotated[str, said(enum=list(RULES))]
UNPREPARED = "none: exact pixels"  # the preprocessing of tensor files
MOST_IMAGES = 200  # images with feature maps and pictures of the input, unless asked for
MOST_THUMBNAILS = 2_000  # images on a page
MOST_NAMED = 200  # images that are named for one rule
MOST_CHANNELS = 3  # channels per layer that are shown with the images that fire them most
MOST_RANKED = 50_000  # images that a page names for all channels together; they take 0.25 MB
MOST_FIRING = 100  # images that a page of more than 200 shows because they fire some channel


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that ran, its weights, and its settings.

    Attributes:
        name: the name under which the user requested it.
        task: the task of the model, such as ``classification``.
        weights: the source of the weights: an enum member, a file, or ``random (seed 0)``.
        trained: False when any figure depends on random numbers.
        warning: a warning about the weights for users, such as that they are random; empty for
            trained weights.
        sha256: the SHA-256 of the weights file or, for the user's own models without one, of the
            values of the state dict; empty for random weights of other models, and when it cannot
            be computed.
        device: torch's name of the device.
        dtype: the dtype of the parameters and of the pixels.
        preprocessing: the transforms of the weights in words, or that there are none if all images
            are tensor files.
        input_shape: the shape of the pixels of an image of usual size, (1, …), or of the first
            tensor file for the user's own model; an image's own shape is its ``pixels_shape``.
        notes: unrequested changes to the model that affect what it computes, each with the
            alternatives. Random values are reported in ``warning`` instead.
    """

    name: str
    task: str
    weights: str
    trained: bool
    warning: str = ""
    sha256: Sha256 = ""
    device: str = "cpu"
    dtype: str = field(kw_only=True)
    preprocessing: str = ""
    input_shape: Axes = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that deserves a closer look.

    Attributes:
        rule: the rule, as ``--fail-on`` and ``--rule`` take it.
        layer: the call id or module path that it is about; empty when it is about the run.
        number: the measured number; null when the rule measures nothing.
        threshold: the threshold with which the number was compared; null when there is none.
        sentence: the finding in words, with the number.
        images: the keys of the images that show it; empty when it is about a layer or the whole
            run.
    """

    rule: Rule
    layer: str
    number: float | None
    threshold: float | None
    sentence: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """The results of a run, in the order in which hookcli found them.

    Example:
        >>> result = hookcli.inspect_images(config)
        >>> {row.call_id: row.mean for row in result.rows}

    Attributes:
        model: the model that ran.
        images: the images that went through the model.
        skipped: the images that could not be used.
        rows: one row per call and output, over all images.
        uncalled: the selected layers that never ran.
        layers: the number of selected layers.
        findings: the findings, the most serious first.
        grids: the pictures of feature maps, and the content of their tiles.
        attention: one row per attention call, over all images.
        undrawn: the layers for which a Grad-CAM was requested and none was drawn.
        failed: the rules of ``--fail-on`` with a finding.
        out_dir: the run folder; empty when nothing was written.
        files: the written files, relative to ``out_dir``.
        seconds: the duration of each stage, by its name.
    """

    model: ModelInfo
    images: tuple[ImageResult, ...]
    skipped: tuple[SkippedImage, ...]
    rows: tuple[LayerRow, ...]
    uncalled: tuple[Uncalled, ...]
    layers: int
    findings: tuple[Finding, ...] = ()
    grids: tuple[Grid, ...] = ()
    attention: tuple[AttentionRow, ...] = ()
    undrawn: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    out_dir: str = ""
    files: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """7 when a rule of ``--fail-on`` has a finding, else 6 when images were skipped, else 0."""
        if self.failed:
            return errors.FAILED_RULE
        return errors.SKIPPED if self.skipped else errors.DONE

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the model, the findings, the layers and some grids."""
        notes = [*describe_run(self.model.weights, self.findings), *self._list_places()]
        rows = [
            layer_cells(row.call_id, row.module_type, shape_text(row.shape), figures_of(row))
            for row in self.rows[:MOST_ROWS]
        ]
        title = run_title(self.model.name, len(self.rows), len(self.images))
        grids = dict.fromkeys(grid.file for grid in self.grids if self.out_dir)
        pictures = read_pictures(grids, Path(self.out_dir).joinpath)
        return render_layers(title, notes, rows, len(self.rows), pictures)

    def _list_places(self) -> Iterator[str]:
        if self.skipped:
            yield f"{count(len(self.skipped), 'image')} skipped"
        if self.out_dir:
            yield f"the run folder: {self.out_dir}"


def run_title(model: str, calls: int, images: int) -> str:
    """Return the title line of a run in a notebook."""
    return f"{model}: {count(calls, 'call')}, {count(images, 'image')}"


def describe_run(weights: str, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield lines about a run: its weights, and the most serious findings."""
    yield f"weights: {weights}"
    for finding in findings[:MOST_NOTES]:
        yield f"{finding.rule}: {finding.sentence}"
    if len(findings) > MOST_NOTES:
        yield and_more(len(findings) - MOST_NOTES, "and {} more finding{s}")


def choose_pictured(
    images: Sequence[ImageResult], findings: Iterable[Finding]
) -> Sequence[ImageResult]:
    """Return the images with large pictures: all images or, if more than 200, those in findings.

    These are at most 200.
    """
    if len(images) <= MOST_IMAGES:
        return images
    named = {key for finding in findings for key in finding.images}
    return [image for image in images if image.key in named][:MOST_IMAGES]
