"""Declare the fields of ``run.json``, ``manifest.json`` and ``report.json``, and check them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

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
from hookcli.records.attention_records import AttentionMaps, AttentionRow
from hookcli.records.pictures import Grid, HeatPicture, Thumbnails
from hookcli.records.rows import LayerRow
from hookcli.records.runs import FeatureCall
from hookcli.records.shared_fields import (
    Command,
    Findings,
    ImageResults,
    Options,
    RunModel,
    SkippedImages,
    UncalledLayers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN_VERSIONS = ("hookcli", "torch", "torchvision")  # the page always names these
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
"""The JSON Schema of the versions that every run records; a run may record further versions."""


@dataclass(frozen=True, slots=True)
class TopChannel:
    """A channel, and the images with the channel's largest values.

    Attributes:
        channel: the channel, counted from 0.
        images: the keys (unique names) of the images; the image with the largest value is first.
        values: the largest value of the channel in each image; null if it is not finite.
    """

    channel: Whole
    images: tuple[str, ...]
    values: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.values):
            raise ValueError(f"top images: {len(self.values)} values of {len(self.images)} images")


@dataclass(frozen=True, slots=True)
class RankedImages:
    """The images with the largest values of each channel of a call.

    ``images`` and ``values`` have ``each`` entries for the first channel, the largest value first,
    then ``each`` entries for the second channel, and so on.

    Attributes:
        each: the number of entries of every channel.
        images: the positions of the images among the images of the report, counted from 0. If a
            channel has fewer than ``each`` images, its remaining entries are null.
        values: the largest values, with four digits; null if not finite, or without an image.
    """

    each: AtLeastOne
    images: tuple[Whole | None, ...]
    values: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.values) or len(self.images) % self.each:
            sizes = f"{len(self.images)} images and {len(self.values)} values"
            raise ValueError(f"ranked_images: {sizes}, {self.each} for each channel")


@dataclass(frozen=True, slots=True)
class FocusBox:
    """The box of ``--focus``: the part of the image that hookcli compares with the rest.

    Attributes:
        box: left, top, width and height of the box in pixels of the image, as the user gave them.
        seen: left, top, width and height of the box, as shares of the network's input.
    """

    box: tuple[int, int, int, int]
    seen: tuple[Share, Share, Share, Share]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Document):
    """The request of a run, with the versions, the code and the model that the run used.

    Attributes:
        hookcli: the version of hookcli that wrote the file.
        command: the words of the command that repeats the run; null if no command can.
        versions: the versions of everything that can affect the results.
        code: the SHA-256 of each source file of the user's model and score function, by file name.
        layers: the module paths of the selected layers; ``(model)`` for the model itself.
    """

    hookcli: str
    command: Annotated[tuple[str, ...], at_least(2)] | None
    versions: dict[str, Scalar] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    model: dict[str, object] = field(default_factory=dict)
    layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.command and self.command[0] != "hookcli":
            raise ValueError("its command belongs to another program")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList(Request):
    """The files of a complete run, as ``manifest.json`` lists them; it does not list itself."""

    files: tuple[str, ...]  # relative to the run folder
    sizes: dict[str, Whole] = field(default_factory=dict)  # in bytes, by file


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFile(Request):
    """The content of ``run.json``: the request of a run, written before all other files."""

    hookcli: str = ""
    command: Command
    options: Options = field(default=(), metadata=LEFT_OUT)
    versions: Annotated[dict[str, str], at_least(1), keywords(**DEFINED_VERSIONS)]  # type: ignore[assignment]  # written as strings
    model: RunModel  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun(RequestFile):
    """The request of a run over images, and the results of the run.

    Attributes:
        halved_batches: the number of batches that ran out of memory and ran again in halves. After
            such a batch, repeating the run may give different bytes.
        features: the saved call whose tensors describe the images best; null if hookcli knows none.
    """

    uncalled: UncalledLayers
    images: ImageResults
    skipped: SkippedImages
    findings: Findings
    halved_batches: Whole = 0
    features: FeatureCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(FinishedRun):
    """The content of ``manifest.json``: everything needed to repeat a run.

    hookcli writes the manifest last, so a run with a manifest is complete.

    Attributes:
        files: every other file of the run, relative to the run folder, sorted.
        sizes: the size of each file in ``files`` in bytes, by its name.
    """

    files: Annotated[tuple[str, ...], keywords(uniqueItems=True)] = ()
    sizes: dict[str, Whole] = field(default_factory=dict, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument(FinishedRun):
    """The content of ``report.json``, from which hookcli makes the page of a run.

    Attributes:
        layers: the rows of ``layers.csv``.
        histograms: by call id, how many values of the first image's tensor are in each of several
            equal intervals, from the smallest to the largest value; empty if no sample was taken.
        grids: the pictures of feature maps, and the channels that their tiles show.
        heats: the pictures of maps, such as Grad-CAMs, that were drawn over images.
        heatless: by call id, why ``--heat`` or ``--cam`` drew no map of it.
        thumbnails: pictures with thumbnails of at least the first 2,000 images; empty for one
            image.
        attention: the rows of ``attention.csv``; empty without ``--attention``.
        attention_maps: the maps of the attention calls, image by image; empty if none are drawn.
        focus: the box of ``--focus``; null without ``--focus``.
        written: by call id, what overwrote the call's output in place: a module (``by relu
            (ReLU)``), or an operation between modules (``inside layer1.0 (BasicBlock)``).
        top_images: by call id, the images with some channels' largest values; empty for one image.
        ranked_images: by call id, the images with the largest values of every channel; empty for
            one image, and for more than 50,000 channels.
        colours: the colours of feature maps from the lowest level to the highest, evenly spaced.
    """

    layers: tuple[LayerRow, ...]  # type: ignore[assignment]  # rows instead of module paths
    histograms: dict[str, tuple[Whole, ...]]
    grids: tuple[Grid, ...] = ()
    heats: tuple[HeatPicture, ...] = ()
    heatless: dict[str, str] = field(default_factory=dict)
    thumbnails: tuple[Thumbnails, ...] = ()
    attention: tuple[AttentionRow, ...] = ()
    attention_maps: tuple[AttentionMaps, ...] = ()
    focus: FocusBox | None
    written: dict[str, str] = field(default_factory=dict)
    top_images: dict[str, tuple[TopChannel, ...]] = field(default_factory=dict)
    ranked_images: dict[str, RankedImages] = field(default_factory=dict)
    colours: tuple[Colour, ...] = ()

    @property
    def shown_versions(self) -> Iterator[tuple[str, str]]:
        """The (package, version) pairs that the page shows, such as ``('torch', '2.5.1')``."""
        for name, version in self.versions.items():
            is_shown = name in _SHOWN_VERSIONS or name not in DEFINED_VERSIONS["required"]
            if is_shown or (name == "timm" and version):
                yield name, version

    def __post_init__(self) -> None:
        for name in _SHOWN_VERSIONS:
            if name not in self.versions:
                raise ValueError(f"versions lacks {name!r}")
        known = {row.call_id for row in self.layers}
        for index, grid in enumerate(self.grids):
            if grid.call_id not in known:
                raise ValueError(f"grids[{index}] shows {grid.call_id!r:.100}, which is no layer")


@dataclass(frozen=True, slots=True)
class FolderState:
    """The files of a run folder that are missing or damaged."""

    missing: tuple[str, ...] = ()  # pictures that are missing or damaged
    damage: tuple[str, ...] = ()  # sentences about other files
    complete: bool = True  # whether the folder has a readable manifest, which is written last
    pictures: tuple[str, ...] = ()  # the pictures for the page that exist


AS_LEFT = FolderState()
