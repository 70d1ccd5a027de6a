"""Declare the fields of a golden file, which keeps a run's statistics for later comparisons."""

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
from hookcli.records.shared_fields import (
    COMMAND_OR_NULL,
    Options,
    RunModel,
    SkippedImages,
    UncalledLayers,
)
from hookcli.records.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "golden"
VERSION, BUCKETS, DTYPE = 1, 67, "float32"  # the form of sketches, see distance/sketch
SketchText: TypeAlias = Annotated[
    str, keywords(contentEncoding="base64", minLength=360, maxLength=360)
]


@dataclass(frozen=True, slots=True)
class SketchForm:
    """The format of the sketches in a golden file.

    A sketch sums up a tensor in a few numbers, by a random projection. Only sketches of the same
    version can be compared.

    Attributes:
        version: the version of the format.
        buckets: the number of values in each sketch.
        dtype: the dtype of the values, which are little-endian.
    """

    version: Annotated[Whole, keywords(const=VERSION)] = VERSION
    buckets: Annotated[Whole, keywords(const=BUCKETS)] = BUCKETS
    dtype: Annotated[str, keywords(const=DTYPE)] = DTYPE


@dataclass(frozen=True)
class _CallColumns:
    """The fields of ``GoldenCall`` that come before the statistics.

    Attributes:
        image: the image's key, its unique name in the run.
        call_id: the id of the call, as tables show it: ``layer1.0.relu#1``.
        shape: the shape of one image's part of the tensor, with a batch axis of 1.
        dtype: torch's name of the dtype, such as ``float32``.
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
    """The statistics and the sketch of one tensor of one call, for one image.

    Attributes:
        sketch: the sketch of the tensor, in base64; null if the run kept no sketches.
        reason: why a gradient is missing; left out for all other tensors.
    """

    sketch: SketchText | None
    reason: str = field(default="", metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """The facts about an image that a golden file holds.

    Attributes:
        key: the image's unique name in the run.
        file: the file name, as the user gave it.
        sha256: the SHA-256 of the file's bytes.
        width: the width in pixels, after the image was turned upright.
        height: the height in pixels, after the image was turned upright.
        pixels_shape: the shape of the network's input for the image, (1, …); empty if unknown.
        note: how a clip, a pair of images or a part of the image became the input; otherwise empty.
    """

    key: str
    file: str
    sha256: Sha256
    width: Whole = 0
    height: Whole = 0
    pixels_shape: Axes = ()
    note: str = ""

    def __post_init__(self) -> None:
        if 0 in self.pixels_shape or math.prod(self.pixels_shape) > MOST_VALUES:
            raise ValueError(f"the pixels of {self.key!r} have no shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFile(Document):
    """A golden file, which ``hookcli golden`` writes and ``hookcli diff`` compares with a run.

    Attributes:
        kind: ``golden``, which tells the file from other JSON files.
        sketch: the format of the sketches in ``calls``.
        hookcli: the version of hookcli that ran the model.
        versions: the versions of everything that can affect the statistics.
        layers: the module paths of the selected layers; ``(model)`` for the model itself.
        images: the images in the order of the run.
        calls: the statistics and sketches of all calls' tensors, image by image; a module follows
            the modules that it calls.
    """

    kind: Annotated[str, keywords(const=KIND)] = KIND
    sketch: SketchForm
    hookcli: str = ""
    command: Annotated[
        Annotated[tuple[str, ...], keywords(minItems=3, prefixItems=[{"const": "hookcli"}])] | None,
        COMMAND_OR_NULL,
    ]
    options: Options = field(default=(), metadata=LEFT_OUT)
    model: RunModel
    versions: Annotated[dict[str, str], keywords(**DEFINED_VERSIONS)]
    layers: tuple[str, ...] = ()
    uncalled: UncalledLayers = ()
    images: tuple[ImageFacts, ...]
    skipped: SkippedImages = ()
    calls: tuple[GoldenCall, ...]

    def __post_init__(self) -> None:
        refuse_twice("image", [image.key for image in self.images])


def golden_facts(manifest: Mapping[str, object]) -> GoldenFile:
    """Return a golden file that has the facts of a ``manifest.json``, but no ``calls``."""
    return convert({**manifest, "sketch": {}, "calls": []}, GoldenFile)
