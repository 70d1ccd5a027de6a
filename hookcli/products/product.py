"""The life cycle of a product of a run, and what a product knows about the run at each stage.

Before the run, a product says which files it may write and what they will cost. It collects from
each forward pass, writes at the end of each chunk and of the run, and gives the page what it shows.
It collects its data in a ``summary.chunks.Chunk``; the run saves chunks and adds them up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from hookcli.store.places import names
from hookcli.summary.chunks import Chunk, chunk_size
from hookcli.summary.top_images import TopTally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from hookcli.activations.collector import BatchResult
    from hookcli.config import GridStyle, RunConfig
    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageSource
    from hookcli.models.description import ModelDescription
    from hookcli.passes.attention import AttentionSettings
    from hookcli.passes.runner import Runner
    from hookcli.records.calls import LayerInfo
    from hookcli.records.images import ImageResult
    from hookcli.records.layer_records import LayerRecord
    from hookcli.records.report import ReportDocument
    from hookcli.records.rows import LayerRow
    from hookcli.records.runs import Finding
    from hookcli.render.draw.grid_writer import GridWriter
    from hookcli.store.folder import RunFolder

Job: TypeAlias = "Callable[[], None]"
"""Writes files of a chunk and records their names in it, while the model runs the next chunk."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a request on which the products of the run depend."""

    config: RunConfig
    style: GridStyle  # its mode is no longer ``auto``
    images: int  # the number of images

    @property
    def has_several(self) -> bool:
        """Whether there is more than one image."""
        return self.images > 1

    @property
    def chunk_size(self) -> int:
        """How many images a chunk holds."""
        return chunk_size(self.config.batch_size)

    @property
    def formats(self) -> int:
        """The number of formats in which each picture is written."""
        return 1 if self.style.format == "png" else 2


@dataclass(frozen=True)
class Outlook:
    """The model and the images of a run, from which products estimate their cost."""

    loaded: ModelDescription
    runner: Runner
    sources: Sequence[ImageSource]
    attention: AttentionSettings | None  # with the calls that a forward pass found

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """The layers that are observed."""
        return self.runner.layers

    @property
    def channels(self) -> list[int]:
        """About how many channels each layer returns."""
        return [channels for channels, _ in self._sizes]

    @property
    def areas(self) -> list[float]:
        """About how many values a channel of each layer has."""
        return [area for _, area in self._sizes]

    @cached_property
    def _sizes(self) -> list[tuple[int, float]]:
        return self.runner.guess_sizes(float(math.prod(self.loaded.prepare.nominal_shape[-2:])))


@dataclass(frozen=True, slots=True)
class Cost:
    """About how many files and bytes a product will write, if each layer is called once."""

    files: int = 0
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Forward:
    """A finished forward pass, for products to collect from.

    Attributes:
        result: what was observed.
        chunk: its chunk, to which products add what they collect.
        images: the results of the chunk's images by their keys, without images on which the model
            failed; a product may replace them.
        show: returns the JPEG of what the network saw of an image, by its key.
    """

    result: BatchResult
    chunk: Chunk
    images: dict[str, ImageResult]
    show: Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class EndedChunk:
    """A chunk whose images have gone through the model."""

    chunk: Chunk
    keys: Sequence[str]  # the results of its images, in order
    records: Sequence[LayerRecord]  # one per image and observed tensor, sorted by image


@dataclass(slots=True)
class RunEnd:
    """A run whose images have all gone through the model."""

    folder: RunFolder
    loaded: ModelDescription
    fitter: Fitter
    sources: Sequence[ImageSource]
    totals: Chunk = field(default_factory=Chunk)
    top: TopTally = field(default_factory=TopTally)
    rows: tuple[LayerRow, ...] = ()
    findings: Sequence[Finding] = ()
    focus: Tensor | None = None  # masks (2, H, W) of the box of ``--focus``: inside, outside


class Product:
    """One kind of result of a run. A method that a product does not override does nothing."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def note_pictures(self, chunk: Chunk, pictures: Iterable[str]) -> None:
        """Record in the chunk that pictures were written or queued, in all formats."""
        for file in pictures:
            chunk.written_files += names.list_formats(file, self.scope.style.format)

    def claim(self) -> list[str]:
        """Return the folders and files that this product may write, besides those of every run."""
        return []

    def estimate(self, _outlook: Outlook) -> Cost:
        """Return what will be written, before the run begins.

        Raises:
            RequestError: it would take more than the user allows.
        """
        return Cost()

    def collect(self, _forward: Forward, _writer: GridWriter) -> None:
        """Take what the product needs from a forward pass, and write or queue what is ready.

        Raises:
            OutputError: a file cannot be written.
        """

    def end_chunk(self, _ended: EndedChunk, _writer: GridWriter) -> Job | None:
        """Return the work that is left to write a chunk; called before the next chunk begins."""
        return None

    def close(self, _end: RunEnd) -> list[str]:
        """Write the product's last files, and return their names.

        The ``close`` methods of all products run at the same time.

        Raises:
            OutputError: a file cannot be written.
        """
        return []

    def describe(self, _end: RunEnd) -> dict[str, object]:
        """Return the product's fields of ``ReportDocument``, for the page."""
        return {}

    def illustrate(self, _document: ReportDocument, _end: RunEnd) -> list[str]:
        """Write the files that need the whole document, and return their names.

        Raises:
            OutputError: a file cannot be written or read.
        """
        return []
