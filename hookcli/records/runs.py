"""Declare fields of a run's model and findings, and how many images a page shows at most."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeAlias

from hookcli.outside.documents import Axes, Sha256, keywords
from hookcli.records.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.records.images import ImageResult

Rule: TypeAlias = Annotated[str, keywords(enum=list(RULES))]
ASSUMED = (
    "the model does not say how its images are prepared, so they are prepared as for ImageNet: "
    "`like=MODEL` prepares them as for another model"
)
GREY = (
    "the model takes one channel, so pictures are turned grey, scaled to 0 to 1, and not "
    "normalized: `mean=M` and `std=S` normalize them"
)
UNPREPARED = "none: exact pixels"  # the preprocessing of tensor files
MOST_IMAGES = 200  # a run over more images draws feature maps only if the user asks for them
MOST_THUMBNAILS = 2_000  # images that a page shows
MOST_NAMED = 200  # images that one finding names
MOST_CHANNELS = 3  # channels per layer that a page shows with the images of their largest values
MOST_RANKED = 50_000  # images that a page names for all channels together; they take 0.25 MB
MOST_FIRING = 100  # pictures of images with a channel's largest value, if there are over 200 images


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that ran, its weights, and its settings.

    Attributes:
        name: the name under which the user requested the model.
        task: the task of the model, such as ``classification``.
        weights: where the weights come from: an enum member, a file, or ``random (seed 0)``.
        trained: whether all weights are trained, so that no result depends on random numbers.
        warning: a warning about the weights, for example that they are random; otherwise empty.
        sha256: the SHA-256 of the weights file, or of the state dict of the user's own model; empty
            for random weights, and if hookcli cannot compute it.
        device: torch's name of the device.
        dtype: the dtype of the parameters and of the pixels.
        preprocessing: how the pixels are prepared, in words; ``none: exact pixels`` for tensors.
        input_shape: the shape of the network's input (1, …) for an image of usual size, or for the
            first tensor file; each image has its own in ``pixels_shape``.
        notes: sentences on what affects the model's output without being asked for, such as parts
            in another dtype, and on what to do about it.
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
class FeatureCall:
    """The saved layer call whose output describes images best, and serves as their features.

    Attributes:
        call_id: the id of the layer's call, such as ``layer1.0.relu#1``.
        reason: why hookcli chose the call, in words.
    """

    call_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a run that deserves a closer look, such as dead channels of a layer.

    Attributes:
        rule: the rule, as ``--fail-on`` and ``--rule`` take it.
        layer: the call id or module path that the finding is about; empty if it is about the run.
        number: the measured number; null when the rule measures nothing.
        threshold: the threshold of the rule; null if it has none.
        sentence: the finding in words, with the number.
        images: the keys of images that show the finding; empty if it is about no images.
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
    """Return the images that get large pictures on the page: all images, if there are up to 200.

    In a larger run, these are the first 200 images that findings name.
    """
    if len(images) <= MOST_IMAGES:
        return images
    named = {key for finding in findings for key in finding.images}
    return [image for image in images if image.key in named][:MOST_IMAGES]


def weights_text(model: ModelInfo) -> str:
    """Return where the weights come from, followed by a warning if they are not trained."""
    return f"weights: {model.weights}{'' if model.trained else ', NOT TRAINED'}"
