"""Write ``records.parquet``, estimate the size of tables, and choose whether a run sketches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hookcli.config import MOST_SKETCHED
from hookcli.products.product import Cost, Product

if TYPE_CHECKING:
    from hookcli.products.product import Job, Outlook, RunEnd, RunningChunk, Scope
    from hookcli.render.draw.grid_writer import GridWriter

# Sizes in bytes:
_LAYER_BYTES = 4_000  # per layer in the page, its JSON and layers.csv
_IMAGE_BYTES = 3_000  # per image in the page and the manifest
_ROW_BYTES, _SKETCH_BYTES = 40, 280  # per row of records.parquet, and per sketch in it
_PARQUET_BYTES = 13_000  # per chunk: records.parquet without rows


def keeps_sketches(scope: Scope) -> bool:
    asked = scope.config.tensors.sketch
    return scope.images <= MOST_SKETCHED if asked is None else asked


class Figures(Product):
    def estimate(self, outlook: Outlook) -> Cost:
        scope = self.scope
        calls = len(outlook.layers) * len(scope.config.sides)
        chunks = -(-scope.images // scope.chunk_size)
        row = _ROW_BYTES + (_SKETCH_BYTES if keeps_sketches(scope) else 0)
        of_images = scope.passes * (_IMAGE_BYTES + calls * row)
        return Cost(chunks, calls * _LAYER_BYTES + of_images + chunks * _PARQUET_BYTES)

    def end_chunk(self, running: RunningChunk, writer: GridWriter) -> Job:
        # This import takes 0.2 s. In the thread that writes, it could wait forever: a Ctrl-C during
        # an import of the main thread may leave CPython's import lock locked.
        import hookcli.store.parquet  # noqa: F401

        return partial(_write_records, running, writer)

    def describe(self, end: RunEnd) -> dict[str, object]:
        totals = end.totals
        histograms = {call_id: tally.histogram for call_id, tally in totals.calls.items()}
        return {"layers": end.rows, "histograms": histograms, "written": totals.written}


def _write_records(running: RunningChunk, writer: GridWriter) -> None:
    from hookcli.store.parquet import write_records

    chunk = running.chunk
    pictures = {(grid.image, grid.call_id): grid.file for grid in chunk.grids}  # already drawn
    file = write_records(writer.write, chunk.number, running.list_records(), pictures)
    chunk.written_files.append(file)
