"""The life that all products of a run have, and what is known of the run in each part of it.

A product says beforehand which files it may write and what they will cost. It collects from each
forward, writes at the end of each chunk and of the run, and gives the page what it shows. What it
collects stands in ``summary.chunks.Chunk``, which is saved and added up.
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
"""Writes files of a chunk and notes them in it, while the model runs the next one."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is asked of a run, as far as its products depend on it."""

    config: RunConfig
    style: GridStyle  # whose mode is not ``auto`` any more
    images: int  # their number

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
        """In how many formats each picture is written."""
        return 1 if self.style.format == "png" else 2


@dataclass(frozen=True)
class Outlook:
    """What a run will be given, by which its products estimate what they will cost."""

    loaded: ModelDescription
    runner: Runner
    sources: Sequence[ImageSource]
    attention: AttentionSettings | None  # with the calls that a forward has found

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
    """About how many files a product will write, if each layer is called once, and their bytes."""

    files: int = 0
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward that has ended, for products to collect from.

    Attributes:
        result: what was observed.
        chunk: the chunk that it belongs to, to which products add what they collect.
        images: the results of the images of the chunk by their keys; a product may replace them.
            The images on which the model failed have none.
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
    keys: Sequence[str]  # of its images, in their order
    records: Sequence[LayerRecord]  # one per image and observed tensor, image by image


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
    focus: Tensor | None = None  # masks (2, H, W) of the inside and the outside of ``--focus``


class Product:
    """One kind of what a run makes. A method that a product does not have does nothing."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def note_pictures(self, chunk: Chunk, pictures: Iterable[str]) -> None:
        """Note pictures that were written or queued, in all formats."""
        for file in pictures:
            chunk.written_files += names.list_formats(file, self.scope.style.format)

    def claim(self) -> list[str]:
        """Return the folders and single files that may be written, beside those of every run."""
        return []

    def estimate(self, _outlook: Outlook) -> Cost:
        """Return what will be written, before the run begins.

        Raises:
            RequestError: it would take more than is allowed.
        """
        return Cost()

    def collect(self, _forward: Forward, _writer: GridWriter) -> None:
        """Take what is wanted of a forward, and write or queue what is ready.

        Raises:
            OutputError: a file cannot be written.
        """

    def end_chunk(self, _ended: EndedChunk, _writer: GridWriter) -> Job | None:
        """Return what is left to be written of a chunk; it is called before the next one begins."""
        return None

    def close(self, _end: RunEnd) -> list[str]:
        """Write what comes at the end of the run, and return the names of the files.

        Those of all products run at the same time.

        Raises:
            OutputError: a file cannot be written.
        """
        return []

    def describe(self, _end: RunEnd) -> dict[str, object]:
        """Return the fields of ``ReportDocument`` that the page shows of it."""
        return {}

    def illustrate(self, _document: ReportDocument, _end: RunEnd) -> list[str]:
        """Write what is drawn from the whole document, and return the names of the files.

        Raises:
            OutputError: a file cannot be written or read.
        """
        return []
