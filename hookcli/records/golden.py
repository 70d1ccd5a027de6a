"""The content of a golden file: the figures of a run, and the facts that they depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeAlias

from hookcli.outside.documents import (
    LEFT_OUT,
    MOST_VALUES,
    Axes,
    Document,
    Sha256,
    Whole,
    convert,
    keywords,
    refuse_twice,
)
from hookcli.records.report import DEFINED_VERSIONS
from hookcli.records.rows import ModuleType, Side
from hookcli.records.shared_fields import RunModel, SkippedImages, UncalledLayers
from hookcli.records.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "golden"
VERSION, BUCKETS, DTYPE = 1, 67, "float32"  # of sketches, see distance/sketch
SketchText: TypeAlias = Annotated[
    str, keywords(contentEncoding="base64", minLength=360, maxLength=360)
]


@dataclass(frozen=True, slots=True)
class SketchForm:
    """The form of the sketches; sketches of different versions cannot be compared.

    Attributes:
        version: the version of the form.
        buckets: the number of values in a sketch.
        dtype: the type of these values, little-endian.
    """

    version: Annotated[Whole, keywords(const=VERSION)] = VERSION
    buckets: Annotated[Whole, keywords(const=BUCKETS)] = BUCKETS
    dtype: Annotated[str, keywords(const=DTYPE)] = DTYPE


@dataclass(frozen=True)
class _CallColumns:
    """The columns that come before the statistics.

    Attributes:
        image: the key of the image.
        call_id: the call and its layer, as in tables.
        shape: the shape of this image's part, with the leading axis 1.
        dtype: the name of the type in torch.
    """

    __slots__ = ()

    image: str
    call_id: str
    module_type: ModuleType
    side: Side
    shape: Axes
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCall(Statistics, _CallColumns):
    """The facts about one call for one image.

    Attributes:
        sketch: the sketch as text; null without a tensor.
        reason: why there is no gradient; left out if there is one.
    """

    sketch: SketchText | None
    reason: str = field(default="", metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Facts about an image of a run that golden files hold.

    Attributes:
        key: the name of the image in the run.
        file: the file name, as the user gave it.
        sha256: the hash of the file's bytes.
        width: the width in pixels, upright.
        height: the height in pixels, upright.
        pixels_shape: the shape of the network's input, (1, …); empty if it is not known.
        note: the clip, pair or part that the model saw instead of the image; otherwise empty.
    """

    key: str
    file: str
    sha256: Sha256
    width: Whole = 0
    height: Whole = 0
    pixels_shape: Axes = ()
    note: str = ""

    def __post_init__(self) -> None:
        """Raise if no network input could have this shape."""
        if 0 in self.pixels_shape or math.prod(self.pixels_shape) > MOST_VALUES:
            raise ValueError(f"the pixels of {self.key!r} have no shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFile(Document):
    """A golden file, as ``hookcli golden`` writes it.

    Attributes:
        kind: the kind of the file.
        sketch: the form of the sketches.
        hookcli: the version of hookcli that ran the model.
        command: the words that repeat the run.
        versions: the versions of everything that can change a figure, including other libraries
            that the model comes from.
        layers: the module paths of the selected layers; ``(model)`` for the model itself.
        images: the images in the order of the run.
        calls: the calls, image by image, in the order in which the tensors appeared: a module comes
            after the modules that it calls.
    """

    kind: Annotated[str, keywords(const=KIND)] = KIND
    sketch: SketchForm
    hookcli: str = ""
    command: Annotated[tuple[str, ...], keywords(minItems=3, prefixItems=[{"const": "hookcli"}])]
    model: RunModel
    versions: Annotated[dict[str, str], keywords(**DEFINED_VERSIONS)]
    layers: tuple[str, ...] = ()
    uncalled: UncalledLayers = ()
    images: tuple[ImageFacts, ...]
    skipped: SkippedImages = ()
    calls: tuple[GoldenCall, ...]

    def __post_init__(self) -> None:
        """Raise if two images have the same key."""
        refuse_twice("image", [image.key for image in self.images])


def golden_facts(manifest: Mapping[str, object]) -> GoldenFile:
    """Return the facts of a run for a golden file, without its calls.

    Raises:
        DamagedError: the manifest lacks some of them.
    """
    return convert({**manifest, "sketch": {}, "calls": []}, GoldenFile)
