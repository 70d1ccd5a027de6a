"""The content of ``report.json``, from which the page of a run is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from hookcli.documents import AtLeastOne, Colour, Command, Versions, Whole
from hookcli.records.attention import AttentionMaps, AttentionRow
from hookcli.records.images import ImageResult, SkippedImage
from hookcli.records.pictures import Grid, HeatPicture, Thumbnails
from hookcli.records.rows import LayerRow
from hookcli.records.runs import Finding, ModelInfo

_VERSIONS = ("hookcli", "torch", "torchvision")  # that page.html.j2 names


@dataclass(frozen=True, slots=True)
class UncalledLayer:
    """A selected layer that did not run, and the reason."""

    layer: str
    reason: str


@dataclass(frozen=True, slots=True)
class TopChannel:
    """A channel, the keys of the images that fire it most, and its largest value in each.

    A value is None if it is not finite.
    """

    channel: int
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
        images: their positions among the images of the run; None where a channel has fewer.
        values: the largest value of the channel in each, with four digits; None if it is not
            finite, or there is no image.
    """

    each: AtLeastOne
    images: tuple[Whole | None, ...]
    values: tuple[float | None, ...]

    def __post_init__(self) -> None:
        """Raise if a channel has not as many images and values as the others."""
        if len(self.images) != len(self.values) or len(self.images) % self.each:
            raise ValueError(
                f"ranked_images: {len(self.images)} images and {len(self.values)} values, "
                f"{self.each} for each channel"
            )


@dataclass(frozen=True, slots=True)
class FocusBox:
    """The box of ``--focus``, as the user gave it and as shares of the picture that is shown."""

    box: tuple[int, int, int, int]
    seen: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """The content of ``report.json``, from which the page of a run is made.

    Attributes:
        command: the words that repeat the run.
        model: the model that ran.
        versions: the versions of everything that the run depended on.
        images: the images that went through the model.
        skipped: the images that did not.
        uncalled: the selected layers that did not run.
        findings: the findings, the gravest first.
        layers: the rows of ``layers.csv``.
        histograms: the histograms by call id, see ``LayerRecord.histogram``.
        grids: the pictures of layers, and what their tiles show.
        focus: the box of ``--focus``; None without one.
        heats: the maps that were drawn over images.
        thumbnails: the pictures of thumbnails.
        attention: the figures of the attention calls.
        attention_maps: the maps of the attention calls, image by image.
        written: the module that wrote over what a call returned, by call id.
        top_images: channels with the images that fire them most, by call id.
        ranked_images: the images that fire every channel most, by call id; empty if there are too
            many channels for a page.
        colours: the colours of feature maps from the lowest level to the highest, as CSS writes
            them.
    """

    command: Command
    model: ModelInfo
    versions: Versions
    images: tuple[ImageResult, ...]
    skipped: tuple[SkippedImage, ...]
    uncalled: tuple[UncalledLayer, ...]
    findings: tuple[Finding, ...]
    layers: tuple[LayerRow, ...]
    histograms: dict[str, tuple[Whole, ...]]
    grids: tuple[Grid, ...]
    focus: FocusBox | None
    heats: tuple[HeatPicture, ...] = ()
    thumbnails: tuple[Thumbnails, ...] = ()
    attention: tuple[AttentionRow, ...] = ()
    attention_maps: tuple[AttentionMaps, ...] = ()
    written: dict[str, str] = field(default_factory=dict)
    top_images: dict[str, tuple[TopChannel, ...]] = field(default_factory=dict)
    ranked_images: dict[str, RankedImages] = field(default_factory=dict)
    colours: tuple[Colour, ...] = ()

    def __post_init__(self) -> None:
        """Raise if a version that the page names is missing, or the layer of a picture."""
        for name in _VERSIONS:
            if name not in self.versions:
                raise ValueError(f"versions lacks {name!r}")
        known = {row.call_id for row in self.layers}
        for place, grid in enumerate(self.grids):
            if grid.call_id not in known:
                raise ValueError(f"grids[{place}] is of {grid.call_id!r:.100}, which is no layer")
