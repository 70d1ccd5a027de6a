"""The model of a run over images, its findings, and the number of images that it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeAlias

from hookcli.outside.documents import Axes, Sha256, keywords
from hookcli.records.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.records.images import ImageResult


Rule: TypeAlias = Annotated[str, keywords(enum=list(RULES))]
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
    threshold: float | None = None
    sentence: str = field(kw_only=True)
    images: tuple[str, ...] = field(default=(), kw_only=True)


def choose_pictured(
    images: Sequence[ImageResult], findings: Iterable[Finding]
) -> Sequence[ImageResult]:
    """Return the images that get large pictures, at most 200.

    If there are more than 200 images, only images that findings name get large pictures.
    """
    if len(images) <= MOST_IMAGES:
        return images
    named = {key for finding in findings for key in finding.images}
    return [image for image in images if image.key in named][:MOST_IMAGES]
