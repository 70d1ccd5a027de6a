"""What a run over images comes to: the model, the images, and everything that was recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli import errors

if TYPE_CHECKING:
    from hookcli.records import LayerRecord, Uncalled


@dataclass(frozen=True, slots=True)
class SkippedImage:
    """An image that could not be used, and why."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """One of the classes with the highest probability (softmax over the logits)."""

    index: int
    category: str
    probability: float | None


@dataclass(frozen=True, slots=True)
class ImageResult:
    """An image that went through the model.

    Attributes:
        key: safe and unique; the name of the image's folder under ``grids/``.
        file: as the user gave it.
        width: in pixels, upright.
        height: in pixels, upright.
        sha256: of the file's bytes.
        predictions: the top classes; empty when the output is not a row of logits.
    """

    key: str
    file: str
    width: int
    height: int
    sha256: str
    predictions: tuple[Prediction, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Which model ran, and with what in it.

    Attributes:
        name: as asked for.
        task: ``classification``, …
        weights: where they came from: an enum member, a file, or ``random (seed 0)``.
        trained: False when any figure depends on random numbers.
        warning: what must be known about the weights, such as that they are random; empty for trained ones.
        sha256: of the weights file; empty for random weights.
        device: as torch names it.
        dtype: of parameters and pixels.
        preprocessing: the weights' own transforms in words.
        input_shape: what one image became, (1, C, H, W).
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


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything a run found, in the order in which it found it.

    Attributes:
        model: which model ran.
        images: the images that went through.
        skipped: the images that did not.
        records: one an image, layer call and output.
        uncalled: the selected layers that never ran.
        layers: how many layers were selected.
        out_dir: the run folder; empty when nothing was written.
        files: what was written, relative to ``out_dir``.
        seconds: how long each stage took.
    """

    model: ModelInfo
    images: tuple[ImageResult, ...]
    skipped: tuple[SkippedImage, ...]
    records: tuple[LayerRecord, ...]
    uncalled: tuple[Uncalled, ...]
    layers: int
    out_dir: str = ""
    files: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0, or 6 when some images were skipped."""
        return errors.SKIPPED if self.skipped else errors.DONE
