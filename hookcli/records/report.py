"""The JSON documents of a run folder: the request, the results, and the content of the page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from hookcli.outside.documents import (
    LEFT_OUT,
    AtLeastOne,
    Colour,
    Document,
    Scalar,
    Share,
    Whole,
    at_least,
    keywords,
)
from hookcli.records.attention import AttentionMaps, AttentionRow
from hookcli.records.pictures import Grid, HeatPicture, Thumbnails
from hookcli.records.rows import LayerRow
from hookcli.records.shared_fields import (
    Command,
    Findings,
    ImageResults,
    RunModel,
    SkippedImages,
    UncalledLayers,
)

_SHOWN_VERSIONS = ("hookcli", "torch", "torchvision")  # page.html.j2 names these
_TEXT = {"type": "string"}
PACKAGES = ("hookcli", "torch", "torchvision", "pillow", "numpy")
"""The packages whose versions every run depends on."""
_VERSIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(PACKAGES, _TEXT),
    "timm": {**_TEXT, "description": "Empty where no part of the model is timm's."},
    "python": _TEXT,
    "platform": _TEXT,
    "processor": {
        **_TEXT,
        "description": "On a GPU its name, with the versions of CUDA and cuDNN; elsewhere the "
        "instructions that torch uses of the CPU, such as AVX2.",
    },
    "threads": {**_TEXT, "description": "Of torch, on the CPU."},
    "matmul": {
        **_TEXT,
        "description": "How precise torch's products of float32 matrices are: highest, high or "
        "medium.",
    },
    "memory_format": {
        "enum": ["contiguous", "channels last"],
        "description": "Of weights and pixels.",
    },
    "mha_fast_path": {
        "enum": ["", "off"],
        "description": "Off where operations of a model with nn.MultiheadAttention were observed, "
        "whose attention is then computed in single steps; otherwise empty.",
    },
}
DEFINED_VERSIONS: dict[str, Any] = {"properties": _VERSIONS, "required": [*_VERSIONS]}
"""The schema for the versions of a run; other libraries may add theirs."""


@dataclass(frozen=True, slots=True)
class TopChannel:
    """A channel, and the images that fire it most.

    Attributes:
        channel: the channel, counted from 0.
        images: the keys of the images, the strongest first.
        values: the largest value of the channel in each image; null if it is not finite.
    """

    channel: Whole
    images: tuple[str, ...]
    values: tuple[float | None, ...]

    def __post_init__(self) -> None:
        """Raise if there is not one value for each image."""
        if len(self.images) != len(self.values):
            raise ValueError(f"top images: {len(self.values)} values of {len(self.images)} images")


@dataclass(frozen=True, slots=True)
class RankedImages:
    """The images that fire each channel of a call most: channel after channel, the largest first.

    Attributes:
        each: the number of images of every channel.
        images: their positions among the images of the run; null if a channel has fewer.
        values: the largest value of the channel in each image, with four digits; null if it is not
            finite, or there is no image.
    """

    each: AtLeastOne
    images: tuple[Whole | None, ...]
    values: tuple[float | None, ...]

    def __post_init__(self) -> None:
        """Raise if the channels differ in their numbers of images and values."""
        if len(self.images) != len(self.values) or len(self.images) % self.each:
            raise ValueError(
                f"ranked_images: {len(self.images)} images and {len(self.values)} values, "
                f"{self.each} for each channel"
            )


@dataclass(frozen=True, slots=True)
class FocusBox:
    """The box of ``--focus``.

    Attributes:
        box: left, top, width and height in pixels of the image, as the user gave them.
        seen: the same box as shares of the width and height of the network's input.
    """

    box: tuple[int, int, int, int]
    seen: tuple[Share, Share, Share, Share]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Document):
    """The request of an earlier run, with the facts that identify the run.

    Attributes:
        hookcli: the version of hookcli that wrote the file.
        versions: the versions of everything that can change a figure, including other libraries
            that the model comes from.
        code: the SHA-256 of each source file of the user's own model, by its name.
        layers: the module paths of the selected layers; ``(model)`` for the model itself.
    """

    hookcli: str
    command: Annotated[tuple[str, ...], at_least(2)]
    versions: dict[str, Scalar] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    model: dict[str, object] = field(default_factory=dict)
    layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise if the command is not one of hookcli."""
        if self.command[0] != "hookcli":
            raise ValueError("its command belongs to another program")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList(Request):
    """The files of a complete run, from its ``manifest.json``.

    Attributes:
        files: the names of the files, relative to the run folder, without the manifest itself.
        sizes: the size of each file in bytes; empty in manifests of earlier versions.
    """

    files: tuple[str, ...]
    sizes: dict[str, Whole] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DoneImage:
    """An image of a complete run, either used or skipped.

    Attributes:
        file: the file, with the row of a tensor file.
        sha256: the hash of the file; empty for a skipped one.
    """

    file: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneRun(Request):
    """The request of a complete run and its images, from its ``manifest.json``."""

    images: tuple[DoneImage, ...] = ()
    skipped: tuple[DoneImage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFile(Request):
    """The request, in ``run.json``, the first file in a run folder."""

    hookcli: str = ""
    command: Command
    versions: Annotated[dict[str, str], at_least(1), keywords(**DEFINED_VERSIONS)]  # type: ignore[assignment]  # written as these
    model: RunModel  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun(RequestFile):
    """The request of a run over images, and its results.

    Attributes:
        halved_batches: the number of batches that took too much memory and ran in halves; such a
            run need not equal another one byte by byte.
    """

    uncalled: UncalledLayers
    images: ImageResults
    skipped: SkippedImages
    findings: Findings
    halved_batches: Whole = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(FinishedRun):
    """Everything needed to repeat a run: ``manifest.json``.

    It is written last, so its presence means that the run is complete.

    Attributes:
        files: every other file of the run, relative to the run folder, sorted.
        sizes: the size of each of these files in bytes; runs of earlier versions lack it.
    """

    files: Annotated[tuple[str, ...], keywords(uniqueItems=True)] = ()
    sizes: dict[str, Whole] = field(default_factory=dict, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument(FinishedRun):
    """The content of ``report.json``, from which the page of a run is made.

    Attributes:
        layers: the rows of ``layers.csv``.
        histograms: for each call id, a sample of the first image's values: how many are in each of
            the equal intervals from the smallest to the largest value; empty without a sample.
        grids: the pictures of layers, and the content of their tiles.
        heats: the maps that were drawn over images.
        thumbnails: the pictures that hold thumbnails, of the first 2,000 images or more; empty for
            one image.
        attention: the rows of ``attention.csv``; empty without ``--attention``.
        attention_maps: the maps of the attention calls, image by image; empty without
            ``--attention``, and where no pictures are drawn.
        focus: the box of ``--focus``; null without one.
        written: by call id, the module that overwrote the call's output in place.
        top_images: by call id, channels with the images that fire them most; empty for one image.
        ranked_images: by call id, the images that fire every channel most; empty for one image, and
            for more than 50,000 channels.
        colours: the colours of feature maps from the lowest level to the highest, evenly spaced.
    """

    layers: tuple[LayerRow, ...]  # type: ignore[assignment]  # their rows, not their names
    histograms: dict[str, tuple[Whole, ...]]
    grids: tuple[Grid, ...] = ()
    heats: tuple[HeatPicture, ...] = ()
    thumbnails: tuple[Thumbnails, ...] = ()
    attention: tuple[AttentionRow, ...] = ()
    attention_maps: tuple[AttentionMaps, ...] = ()
    focus: FocusBox | None
    written: dict[str, str] = field(default_factory=dict)
    top_images: dict[str, tuple[TopChannel, ...]] = field(default_factory=dict)
    ranked_images: dict[str, RankedImages] = field(default_factory=dict)
    colours: tuple[Colour, ...] = ()

    def __post_init__(self) -> None:
        """Raise if a version that the page names, or the layer of a picture, is missing."""
        for name in _SHOWN_VERSIONS:
            if name not in self.versions:
                raise ValueError(f"versions lacks {name!r}")
        known = {row.call_id for row in self.layers}
        for place, grid in enumerate(self.grids):
            if grid.call_id not in known:
                raise ValueError(f"grids[{place}] shows {grid.call_id!r:.100}, which is no layer")


@dataclass(frozen=True, slots=True)
class FolderState:
    """How a run folder differs from what the run wrote."""

    missing: tuple[str, ...] = ()  # pictures that are missing or damaged
    damage: tuple[str, ...] = ()  # sentences about other files
    complete: bool = True  # a readable manifest exists; it is written last


AS_LEFT = FolderState()
