"""What a run over images comes to: the model, the images, and everything that was recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli import errors

if TYPE_CHECKING:
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import ImageResult, SkippedImage
    from hookcli.records.pictures import Grid
    from hookcli.records.rows import LayerRow


MOST_IMAGES = 200  # of which a page shows pictures
MOST_CHANNELS = 3  # of a layer, with the images that fire them most
MOST_FIRING = 100  # images that the page of more than 200 shows because they fire some channel


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Which model ran, and with what in it.

    Attributes:
        name: as asked for.
        task: ``classification``, …
        weights: where they came from: an enum member, a file, or ``random (seed 0)``.
        trained: False when any figure depends on random numbers.
        warning: what must be known about the weights, such as that they are random; empty for trained ones.
        sha256: of the weights file or, for the user's own models without one, of the values of the state
            dict; empty for random weights of other models, and where it cannot be had.
        device: as torch names it.
        dtype: of parameters and pixels.
        preprocessing: the weights' own transforms in words.
        input_shape: of the pixels of an image of usual size, (1, …); an image's own is its ``pixels_shape``.
        notes: what was done to the model unasked that changes what it computes, each with what else can be
            done; not about values that are random, see ``warning``.
    """

    name: str
    task: str
    weights: str
    trained: bool
    warning: str = ""
    sha256: str = ""
    device: str = "cpu"
    dtype: str = "float32"
    preprocessing: str = ""
    input_shape: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that deserves a look.

    Attributes:
        rule: one of ``hookcli.summary.findings.RULES``.
        layer: the call id it is about, or a module path; empty when it is about the run.
        number: what was measured; None where nothing is.
        threshold: what it was measured against.
        sentence: for people, with the number.
        images: keys of the images that show it; empty when it is about the layer or the run as a whole.
    """

    rule: str
    layer: str
    number: float | None
    threshold: float | None
    sentence: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything a run found, in the order in which it found it.

    Attributes:
        model: which model ran.
        images: the images that went through.
        skipped: the images that did not.
        rows: one a layer call and output, over the images.
        uncalled: the selected layers that never ran.
        layers: how many layers were selected.
        findings: what deserves a look, the gravest first.
        grids: what the pictures show.
        undrawn: layers of which a Grad-CAM was asked for and none was drawn.
        failed: the rules of ``--fail-on`` that did not hold.
        out_dir: the run folder; empty when nothing was written.
        files: what was written, relative to ``out_dir``.
        seconds: how long each stage took.
    """

    model: ModelInfo
    images: tuple[ImageResult, ...]
    skipped: tuple[SkippedImage, ...]
    rows: tuple[LayerRow, ...]
    uncalled: tuple[Uncalled, ...]
    layers: int
    findings: tuple[Finding, ...] = ()
    grids: tuple[Grid, ...] = ()
    undrawn: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    out_dir: str = ""
    files: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0; 7 when a rule of ``--fail-on`` did not hold; 6 when some images were skipped."""
        if self.failed:
            return errors.FAILED_RULE
        return errors.SKIPPED if self.skipped else errors.DONE
