"""An image of a run: its predictions, or why it was skipped, and the state of its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from hookcli.outside.documents import Axes, NoFileName, Sha256, Whole, keywords

Measure: TypeAlias = Annotated[
    str, keywords(enum=["probability", "share of the image", "score", "pixels", "features"])
]
Box: TypeAlias = Annotated[tuple[float, ...], keywords(minItems=4, maxItems=4)]


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file when it was read; its size and time show whether it has changed since.

    Attributes:
        file: the name of the file where it was found.
        size: the number of bytes; -1 when the file did not exist.
        mtime_ns: the time of its last change, in nanoseconds.
        sha256: the hash of its bytes; empty when the file could not be read.
    """

    file: str
    size: int = -1
    mtime_ns: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class SkippedImage:
    """An image that could not be used.

    Attributes:
        file: the file as the user gave it.
        reason: why it could not be used.
    """

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """One prediction of the model for an image.

    Attributes:
        measure: the meaning of ``value``: ``probability`` (softmax over the logits), ``share of the
            image`` (the pixels whose highest logit belongs to this class), ``score`` (of a box),
            ``pixels`` (the length of a flow), or ``features`` (the model has no classifier).
        category: the name of the class, or of the figure.
        index: the index of the class; null when there is no class.
        value: the figure; null when it is not finite, and for ``features``.
        box: left, top, right and bottom, in pixels of the network's input; null without a box.
    """

    measure: Measure
    category: str
    index: int | None
    value: float | None
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """The number from which a backward pass started.

    Attributes:
        kind: ``logit``, ``probability``, ``cross-entropy``, ``sum``, ``FILE.py:FUNCTION``, or a
            description in words.
        value: the number; null when it is not finite.
        target: the index of the class; null when the score is not about a class.
        category: the name of the class.
    """

    kind: str
    value: float | None
    target: int | None = None
    category: str = ""


@dataclass(frozen=True, slots=True)
class ImageResult:
    """An image that went through the model.

    Attributes:
        key: a safe and unique name, also of the image's folder under ``grids/``.
        file: the file as the user gave it; bytes that are not UTF-8 become ``%XX``, and ``%``
            before two hexadecimal digits becomes ``%25``.
        width: the width in pixels, after the image was turned upright.
        height: the height in pixels, after the image was turned upright.
        sha256: the SHA-256 of the file's bytes.
        predictions: the predictions, the best first; empty when the model's output has an unknown
            form.
        pixels_shape: the shape of the network's input for this image, with the leading axis 1.
        seen: a picture of the network's input, a file name relative to the run folder; empty
            without one.
        note: how the input was made when it is not the image itself (a clip, a pair, a part of it);
            empty otherwise.
        score: the number from which the backward pass started; null in a run without one.
        unedited: the predictions without edits; empty in a run without edits.
        unedited_score: the score without edits; null in a run without edits or a backward pass.
    """

    key: str
    file: str
    width: Whole
    height: Whole
    sha256: Sha256
    predictions: tuple[Prediction, ...] = ()
    pixels_shape: Axes = ()
    note: str = ""
    seen: NoFileName = ""
    score: Score | None = None
    unedited: tuple[Prediction, ...] = ()
    unedited_score: Score | None = None
