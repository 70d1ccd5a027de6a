"""An image of a run: what the model said of it, or why it was skipped, and the state of its file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileState:
    """A file as it was when it was read; sizes and times tell whether it has changed since.

    Attributes:
        file: as found.
        size: in bytes; -1 when it was not there.
        mtime_ns: when it was changed last.
        sha256: of its bytes; empty when it could not be read.
    """

    file: str
    size: int = -1
    mtime_ns: int = 0
    sha256: str = ""


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
