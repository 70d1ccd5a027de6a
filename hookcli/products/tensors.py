"""Collect the tensors of ``--save``, estimate their size, and refuse more than ``--max-disk``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hookcli.errors import RequestError
from hookcli.products.product import Cost, Product
from hookcli.store.locations import names
from hookcli.store.locations.folders import open_folder

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.activations.collector import BatchResult
    from hookcli.products.product import Job, Outlook, RunEnd, RunningChunk, Scope
    from hookcli.render.draw.grid_writer import GridWriter


class Tensors(Product):
    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._kept: dict[str, dict[str, Tensor]] = {}

    def claim(self) -> list[str]:
        return [names.TENSORS]

    def estimate(self, outlook: Outlook) -> Cost:
        """Run the model to estimate the size; raise a RequestError if it exceeds ``--max-disk``."""
        from hookcli.passes.forward import measure_saved

        request = self.scope.config.tensors
        if request.save is None:
            return Cost()
        pixels = outlook.loaded.pixels_to_try()
        total = measure_saved(outlook.runner, pixels, request.save) * self.scope.passes
        check_disk(total, request.max_disk)
        return Cost(1 + -(-self.scope.images // self.scope.chunk_size), total)

    def collect(self, result: BatchResult, running: RunningChunk, _writer: GridWriter) -> None:
        for call_id, key, tensor in result.kept:
            self._kept.setdefault(call_id, {})[key] = tensor
        for each in () if result.attention is None else result.attention.calls:
            if each.kept is not None:
                self._kept.setdefault(each.call.id, {})[result.keys[0]] = each.kept
        save = self.scope.config.tensors.save
        if save is not None and save.pool not in ("mean", "max"):
            for key in result.keys:
                if key in running.images:
                    running.images[key] = replace(running.images[key], part=running.find_part(key))

    def end_chunk(self, running: RunningChunk, writer: GridWriter) -> Job | None:
        kept, self._kept = self._kept, {}
        return partial(_write_tensors, running, kept, writer) if kept else None

    def close(self, end: RunEnd) -> list[str]:
        from hookcli.activations.pooling import saved_channels
        from hookcli.store.tensors import write_index

        if not (shards := [*filter(names.is_shard, end.totals.written_files)]):
            return []
        channels = saved_channels(end.rows, self.scope.config.tensors.save)
        read = open_folder(end.folder.path).read_part
        return [write_index(end.folder.write, read, shards, channels)]


def _write_tensors(
    running: RunningChunk, kept: dict[str, dict[str, Tensor]], writer: GridWriter
) -> None:
    from hookcli.store.tensors import write_shard

    in_order = {
        call_id: [(key, tensors[key]) for key in running.keys if key in tensors]
        for call_id, tensors in kept.items()
    }
    running.chunk.written_files.append(write_shard(writer.write, running.chunk.number, in_order))


def check_disk(
    total: float,
    most: float,
    hint: str = "fewer `layers`, `pool='mean'`, `save.dtype='float16'`, or a greater `max_disk`",
) -> None:
    """Raise a RequestError with ``hint`` if ``total`` bytes exceed ``most`` times 1e9 bytes."""
    if total > most * 1e9:
        size = f"{total / 1e9:.4g} GB"
        raise RequestError(f"the tensors would take {size}, more than `max_disk={most:g}`", hint)
