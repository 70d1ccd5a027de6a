"""Define the base class of a run's products (kinds of results), and resolve ``--grids auto``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from hookcli.records.images import SkippedImage
from hookcli.records.runs import MOST_IMAGES
from hookcli.store.locations import names
from hookcli.summary.chunks import Chunk, chunk_size
from hookcli.summary.tally import add_records
from hookcli.summary.top_images import TopTally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor

    from hookcli.activations.collector import BatchResult
    from hookcli.config import GridMode, GridStyle, RunConfig
    from hookcli.images.fit import Fitter
    from hookcli.images.prepare import PreparedImage
    from hookcli.images.read import ImageSource
    from hookcli.networks.description import ModelDescription
    from hookcli.passes.attention_run import AttentionSettings
    from hookcli.passes.runner import Runner
    from hookcli.records.calls import LayerInfo, Uncalled
    from hookcli.records.images import Box, ImageResult
    from hookcli.records.layer_records import LayerRecord
    from hookcli.records.report import ReportDocument
    from hookcli.records.rows import LayerRow
    from hookcli.records.runs import Finding
    from hookcli.render.draw.grid_writer import GridWriter
    from hookcli.store.folder import RunFolder

# Writes files of a chunk, and their names into the chunk, while the model works on the next one.
Job: TypeAlias = "Callable[[], None]"


@dataclass(frozen=True, slots=True)
class Scope:
    config: RunConfig
    style: GridStyle  # the mode ``auto`` has been replaced by a definite mode
    images: int  # the number of images

    @classmethod
    def of(cls, config: RunConfig, sources: Sequence[ImageSource]) -> Scope:
        style = replace(config.grids, signed=config.backward is not None)
        if style.mode == "auto":
            given = set(config.run.images.names)
            named = all(source.kept or source.file in given for source in sources)
            mode: GridMode = "layers" if named else "sheet"
            style = replace(style, mode="none" if len(sources) > MOST_IMAGES else mode)
        return cls(config, style, len(sources))

    @property
    def has_several(self) -> bool:
        return self.images > 1

    @property
    def chunk_size(self) -> int:
        return chunk_size(self.config.batch_size)

    @property
    def passes(self) -> int:
        """The number of images, times the number of targets."""
        backward = self.config.backward
        return self.images * (1 if backward is None else len(backward.aims))

    @property
    def formats(self) -> int:
        return 1 if self.style.format == "png" else 2


@dataclass(frozen=True)
class Outlook:
    loaded: ModelDescription
    runner: Runner
    attention: AttentionSettings | None  # with the attention calls that a forward pass found
    cams: int = 0  # how many Grad-CAMs each backward pass makes

    @property
    def layers(self) -> Sequence[LayerInfo]:
        return self.runner.layers

    @cached_property
    def channels(self) -> list[int]:
        return self.runner.guess_widths()


@dataclass(frozen=True, slots=True)
class Cost:
    """The estimated number and size of one product's files, if the model calls each layer once."""

    files: int = 0
    size: float = 0.0  # of all files together, in bytes
    passes: int = 0  # forward passes of the model besides the run's own


class RunningChunk:
    def __init__(
        self,
        chunk: Chunk,
        images: Sequence[PreparedImage],
        show: Callable[[Tensor], bytes],
        find_part: Callable[..., Box | None],
    ) -> None:
        self.chunk = chunk  # the results that are saved; products add what they collect
        self.keys = [image.key for image in images]  # in order, including skipped images
        self.prepared = {image.key: image for image in images}  # until the last forward pass ends
        # By key, the results of images that went through, which a product may replace, and records
        self.images: dict[str, ImageResult] = {}
        self.records: dict[str, list[LayerRecord]] = {}
        self.jobs: Sequence[Job] = ()
        self._show, self._find_part = show, find_part
        self._shown: dict[str, bytes] = {}
        self._skipped = {i.key: SkippedImage(i.file, i.reason) for i in images if i.pixels is None}

    def skip(self, image: PreparedImage, reason: str) -> None:
        self._skipped[image.key] = SkippedImage(image.file, reason)

    def show(self, key: str) -> bytes:
        """Return a JPEG of the network's input for an image that was not skipped, given its key."""
        pixels = self.prepared[key].pixels
        if key not in self._shown and pixels is not None:
            self._shown[key] = self._show(pixels)
        return self._shown[key]

    def find_part(self, key: str) -> Box | None:
        image = self.prepared[key]
        return self._find_part(image.size, as_pixels=image.is_tensor)

    def list_records(self) -> list[LayerRecord]:
        return [record for key in self.keys for record in self.records.get(key, ())]

    def sum_up(self, limits: Mapping[str, float]) -> None:
        for key in self.keys:
            add_records(self.chunk.calls, self.records.get(key, ()), limits)
        self.chunk.skipped = [self._skipped[key] for key in self.keys if key in self._skipped]
        self.chunk.images = [self.images[key] for key in self.keys if key in self.images]
        self.prepared, self._shown = {}, {}


@dataclass(slots=True)
class RunEnd:
    folder: RunFolder
    loaded: ModelDescription
    fitter: Fitter
    sources: Sequence[ImageSource]
    totals: Chunk = field(default_factory=Chunk)
    top: TopTally = field(default_factory=TopTally)
    rows: tuple[LayerRow, ...] = ()
    uncalled: tuple[Uncalled, ...] = ()
    findings: tuple[Finding, ...] = ()
    focus: Tensor | None = None  # masks (2, H, W) of the box of ``--focus``: inside, outside


class Product:
    """The base class of each kind of result of a run; most methods do nothing unless overridden."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def note_pictures(self, chunk: Chunk, pictures: Iterable[str]) -> None:
        for file in pictures:
            chunk.written_files += names.list_formats(file, self.scope.style.format)

    def claim(self) -> list[str]:
        """Return the names of files and folders that only a run with this product may write."""
        return []

    def estimate(self, _outlook: Outlook) -> Cost:
        return Cost()

    def collect(self, _result: BatchResult, _running: RunningChunk, _writer: GridWriter) -> None:
        """Collect data from a forward pass, and write or queue files that need no further data."""

    def end_chunk(self, _running: RunningChunk, _writer: GridWriter) -> Job | None:
        """Return a job that writes the remaining files of a finished chunk; None if none remain."""
        return None

    def close(self, _end: RunEnd) -> list[str]:
        """Write the last files, in parallel with other products, and return their names."""
        return []

    def describe(self, _end: RunEnd) -> dict[str, object]:
        """Map the fields of ``ReportDocument`` that come from this product to their values."""
        return {}

    def illustrate(self, _document: ReportDocument, _end: RunEnd) -> list[str]:
        """Write the files that are drawn from the whole ``report.json``, and return their names."""
        return []
