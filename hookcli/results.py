"""What a run over images comes to: the model, the images, and everything that was recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli import errors

if TYPE_CHECKING:
    from hookcli.records import Uncalled
    from hookcli.rows import LayerRow


MOST_IMAGES = 200  # of which a page shows pictures
MOST_CHANNELS = 3  # of a layer, with the images that fire them most
MOST_FIRING = 100  # images that the page of more than 200 shows because they fire some channel


@dataclass(frozen=True, slots=True)
class SkippedImage:
    """An image that could not be used, and why."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """One thing that the model says about an image.

    Attributes:
        measure: what ``value`` is: ``probability`` (softmax over the logits), ``share of the image``
            (pixels whose highest logit is this class's), ``score`` (of a box), or ``pixels`` (a flow's
            length).
        category: the name of the class, or of the figure.
        index: of the class; None where there is none.
        value: None when it is not finite.
        box: left, top, right and bottom in pixels of what the network was given.
    """

    measure: str
    category: str
    index: int | None
    value: float | None
    box: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """What a backward started at.

    Attributes:
        kind: ``logit``, ``probability``, ``cross-entropy``, ``sum``, ``FILE.py:FUNCTION``, or in words.
        value: None when it is not finite.
        target: index of the class; None without one.
        category: its name.
    """

    kind: str
    value: float | None
    target: int | None = None
    category: str = ""


@dataclass(frozen=True, slots=True)
class ImageResult:
    """An image that went through the model.

    Attributes:
        key: safe and unique; the name of the image's folder under ``grids/``.
        file: as the user gave it.
        width: in pixels, upright.
        height: in pixels, upright.
        sha256: of the file's bytes.
        predictions: the foremost first; empty when the output has no form that is known.
        pixels_shape: of what the network was given, with the leading axis 1.
        seen: file of the picture that the network saw, relative to the run folder.
        note: what was made of the image that is another one: a clip, a pair, a part; empty for the image itself.
        score: what the backward started at; None in a run without one.
        unedited: what the model says without edits; empty in a run without any.
        unedited_score: the score without edits.
    """

    key: str
    file: str
    width: int
    height: int
    sha256: str
    predictions: tuple[Prediction, ...] = ()
    pixels_shape: tuple[int, ...] = ()
    note: str = ""
    seen: str = ""
    score: Score | None = None
    unedited: tuple[Prediction, ...] = ()
    unedited_score: Score | None = None


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
class Grid:
    """A picture of one image's part of one call, and what its tiles show.

    Attributes:
        image: the image's key.
        call_id: of the call.
        file: relative to the run folder.
        size: width and height of the picture, in pixels.
        places: the first tile's ``left``, ``top``, ``width`` and ``height``, the steps to the next
            column and row, and the number of columns; None for bars.
        channels: of each tile, counted from 0.
        low: smallest value of each tile's channel.
        high: largest value.
        mean: None where the channel is not finite.
        spread: standard deviation; None where the channel is not finite.
        score: how many spreads more each channel fires inside the box of a focus; empty without one.
    """

    image: str
    call_id: str
    file: str
    size: tuple[int, int]
    places: dict[str, int] | None = None
    channels: tuple[int, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    mean: tuple[float | None, ...] = ()
    spread: tuple[float | None, ...] = ()
    score: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class HeatPicture:
    """A map that was drawn over an image.

    Attributes:
        image: the image's key.
        kind: ``cam`` or ``saliency``.
        call_id: whose Grad-CAM it is; empty for the pixels.
        file: relative to the run folder.
    """

    image: str
    kind: str
    call_id: str
    file: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that deserves a look.

    Attributes:
        rule: one of ``hookcli.findings.RULES``.
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
