"""Declare what JSON documents say about images: their files, predictions and value ranges."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Annotated, TypeAlias

from hookcli.outside.documents import LEFT_OUT, Axes, NoFileName, Sha256, Whole, keywords
from hookcli.records.text import and_more, count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CLIP_FRAMES = 16  # the number of frames in a clip for a video model

_SHARES = ("probability", "share of the image", "score")
Measure: TypeAlias = Annotated[
    str, keywords(enum=[*_SHARES, "value", "depth", "pixels", "features"])
]
Box: TypeAlias = Annotated[tuple[float, ...], keywords(minItems=4, maxItems=4)]


@dataclass(frozen=True, slots=True)
class FileState:
    """The size, time and hash of an image file, which later show whether the file has changed."""

    file: str  # the path or URL; for an image in a tensor file, its name follows
    size: int = -1  # in bytes; -1 if unknown, as for a missing file
    mtime_ns: int = 0  # 0 if unknown
    sha256: str = ""  # empty if hookcli did not read the file


@dataclass(frozen=True, slots=True)
class SkippedImage:
    """An image that could not be used.

    Attributes:
        file: the file as the user gave it.
        reason: why the image could not be used.
    """

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """One prediction of the model for an image.

    Attributes:
        measure: the meaning of ``value``: ``probability`` (softmax over the logits), ``share of the
            image`` (the share of pixels whose highest logit belongs to the class), ``score`` (of a
            detected box or segment), ``value`` (an output of a regression), ``depth`` (in the units
            of the model), ``pixels`` (a length of the optical flow), or ``features`` (the model has
            no classifier, and there is no value).
        category: the name of the class; without a class, a description such as ``mean flow``.
        index: the index of the class; null when there is no class.
        value: the predicted number; null when it is not finite, and for ``features``.
        box: left, top, right and bottom of the detected object, in pixels; null if none.
    """

    measure: Measure
    category: str
    index: int | None
    value: float | None
    box: Box | None = None

    @property
    def is_share(self) -> bool:
        """Whether the value is a share from 0 to 1, which hookcli shows as a percentage."""
        return self.measure in _SHARES

    @property
    def text(self) -> str:
        """The value as text, such as ``93.1%`` or ``2.5 pixels``; empty if it is None."""
        if self.value is None:
            return ""
        if self.is_share:
            return f"{self.value:.1%}"
        return f"{self.value:.3g}{' pixels' if self.measure == 'pixels' else ''}"


@dataclass(frozen=True, slots=True)
class Score:
    """A number from the model's output that a backward pass differentiates or an ablation compares.

    Attributes:
        kind: ``logit``, ``probability``, ``cross-entropy``, ``sum``, the user's function as
            ``FILE.py:FUNCTION``, or a description such as ``mean flow in pixels``.
        value: the number; null when it is not finite.
        target: the index of the class; null when the score is not about a class.
        category: the name of the class; empty when the score is not about a class.
        box: left, top, right and bottom of the box whose score this is, in pixels of the image;
            left out if none.
    """

    kind: str
    value: float | None
    target: int | None = None
    category: str = ""
    box: Box | None = field(default=None, metadata=LEFT_OUT)

    @property
    def label(self) -> str:
        """The class, such as ``tabby (281)``; the kind if the score is not about a class."""
        return self.kind if self.target is None else f"{self.category} ({self.target})"

    @property
    def name(self) -> str:
        """What the number is, such as ``logit of tabby (281)``."""
        return self.kind if self.target is None else f"{self.kind} of {self.label}"


@dataclass(frozen=True, slots=True)
class Intensities:
    """How the values of a picture of more than 8 bits were mapped to black, grey and white.

    Attributes:
        low: the value that became black; smaller values were clipped.
        high: the value that became white; larger values were clipped.
        smallest: the smallest finite value in the picture.
        largest: the largest finite value in the picture.
        clipped: how many values lie outside the range, infinite values included.
        nan_count: how many values are NaN; they became black.
        rule: the value of ``--range``, or ``own`` if the picture's own extremes became the range.
    """

    low: float
    high: float
    smallest: float
    largest: float
    clipped: Whole = 0
    nan_count: Whole = 0
    rule: str = "full"

    @property
    def share(self) -> float:
        """The share, 0 to 1, of the range from ``low`` to ``high`` that the values span."""
        used = min(self.largest, self.high) - max(self.smallest, self.low)
        return max(0.0, used) / ((self.high - self.low) or 1.0)


def join_intensities(several: Sequence[Intensities]) -> Intensities | None:
    """Return the widest range of several pictures, with sums of their counts; None for none."""
    if not several:
        return None
    return Intensities(
        min(each.low for each in several),
        max(each.high for each in several),
        min(each.smallest for each in several),
        max(each.largest for each in several),
        sum(each.clipped for each in several),
        sum(each.nan_count for each in several),
        several[0].rule,
    )


def describe_intensities(images: Sequence[ImageResult]) -> Iterator[tuple[str, bool]]:
    """Yield sentences on how pictures of more than 8 bits were scaled, with True for a warning."""
    known = [image.intensities for image in images if image.intensities is not None]
    if (together := join_intensities(known)) is None:
        return
    ranges = sorted({range_text(each.low, each.high) for each in known})
    shown = " or ".join(ranges[:3]) + and_more(len(ranges) - 3)
    if together.rule == "own":
        text = (
            f"values from {shown} have no natural range, so the smallest is black and the largest "
            f"white; for several pictures: {suggest_range(together.low, together.high)}"
        )
        yield text, True
    elif together.rule.startswith(("minmax", "percent")):
        looks = f"`range={together.rule!r}` looks at each picture by itself"
        yield f"{looks}: pictures cannot be compared ({shown})", True
    else:
        yield f"values of more than 8 bits: black to white are {shown}", False
    if together.clipped:
        pictures = count(sum(each.clipped > 0 for each in known), "picture")
        plural = " was" if together.clipped == 1 else "s were"
        yield f"{together.clipped:,} value{plural} clipped to `range`, in {pictures}", True


def range_text(low: float, high: float) -> str:
    """Return a range as text, such as ``-1024 to 3071``."""
    return " to ".join(f"{v:.0f}" if v == int(v) else f"{v:.6g}" for v in (low, high))


def suggest_range(low: float, high: float) -> str:
    """Return the option for a range, rounded outwards: ``range=(-1024, 3071)`` in backticks."""
    high = high if high > low else low + 1
    ends = ", ".join(_round(end, up) for end, up in ((low, False), (high, True)))
    return f"`range=({ends})`"


def _round(value: float, up: bool) -> str:  # noqa: FBT001
    """Return a number as text, and round a fraction up or down to six significant digits."""
    if value == int(value):
        return f"{value:.0f}"
    digit = Decimal(1).scaleb(Decimal(value).adjusted() - 5)
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    return f"{float(Decimal(value).quantize(digit, rounding=rounding)):.6g}"


@dataclass(frozen=True, slots=True)
class ImageResult:
    """An image that went through the model.

    Attributes:
        key: the image's unique name in the run, which is safe as a file name.
        file: the file as the user gave it; bytes that are not UTF-8 become ``%XX``, and ``%``
            before two hexadecimal digits becomes ``%25``.
        width: the width in pixels, after the image was turned upright.
        height: the height in pixels, after the image was turned upright.
        sha256: the SHA-256 of the file's bytes.
        predictions: the predictions, the best first; empty for an output in an unknown form.
        pixels_shape: the shape of the network's input for this image, with the leading axis 1.
        seen: the file of a picture of the network's input, in the run folder; empty without one.
        part: left, top, right and bottom, in pixels, of the part that the network saw; left out
            unless the run saves whole tensors and the preprocessing only resizes and crops.
        intensities: how values of more than 8 bits were scaled to 8; left out for other pictures.
        note: how a clip, a pair, a page or a part of the image became the input; otherwise empty.
        score: the number from which the backward pass started; null without a backward pass.
        other_scores: the scores of the second target and of further ones.
        other_unedited_scores: the same of the model without edits.
        unedited: the predictions of the model without edits; empty in a run without edits.
        unedited_score: the score of the model without edits; null without edits or a backward pass.
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
    other_scores: tuple[Score, ...] = field(default=(), metadata=LEFT_OUT)
    other_unedited_scores: tuple[Score, ...] = field(default=(), metadata=LEFT_OUT)
    part: Box | None = field(default=None, metadata=LEFT_OUT)
    intensities: Intensities | None = field(default=None, metadata=LEFT_OUT)


def match_images(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (key in A, key in B) for each image that runs A and B have in common.

    ``a`` and ``b`` map the key of each image, its unique name in the run, to the SHA-256 of its
    file. Images match by content, preferably with the same key; or by key if no content matches.
    """
    contents: dict[str, list[str]] = {}
    for key, content in b.items():
        if a.get(key) != content:
            contents.setdefault(content, []).append(key)
    for key, content in a.items():
        if b.get(key) == content:
            yield key, key
        elif contents.get(content):
            yield key, contents[content].pop(0)
        elif key in b:
            yield key, key


def spread_evenly(count: int, wanted: int) -> list[int]:
    """Return ``wanted`` evenly spaced indices from 0 to ``count`` - 1; indices may repeat."""
    return [round(index * (count - 1) / max(1, wanted - 1)) for index in range(wanted)]
