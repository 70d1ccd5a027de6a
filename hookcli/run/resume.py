"""Find the saved chunks of an interrupted run that ``--resume`` can use again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hookcli.store.chunks import read_chunk, read_top, remove_chunks
from hookcli.store.locations.names import TOP
from hookcli.summary.chunks import chunk_size
from hookcli.summary.top_images import TopTally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.images.read import ImageSource
    from hookcli.plan.prepared import RunSettings
    from hookcli.records.images import FileState
    from hookcli.run.listener import ProgressListener
    from hookcli.store.folder import RunFolder
    from hookcli.summary.chunks import Chunk


_THREADS = 16  # images checked at the same time, since cloud storage is slow to answer


def resume_chunks(
    settings: RunSettings,
    sources: Sequence[ImageSource],
    folder: RunFolder,
    totals: Chunk,
    listener: ProgressListener,
) -> TopTally:
    # If a saved chunk can no longer be used, none is added, and the run starts again. Saved chunks
    # that are not added are deleted.
    chunks: list[Chunk] = []
    top = TopTally(settings.config.top_images * settings.has_several)
    if settings.config.folder.resume:
        saved = read_top(folder, len(sources))
        is_lost = saved is None and folder.holds(TOP)  # damaged, or of an earlier version
        if saved is None or saved.count != top.count:
            saved = top  # no chunk is complete
        read = partial(_read_usable, settings, sources, folder)
        chunks = [chunk for chunk in map(read, range(saved.chunks)) if chunk is not None]
        if len(chunks) == saved.chunks and not is_lost:
            top = saved
            for chunk in chunks:
                totals.merge(chunk)
            listener.resumed(len(totals.images) + len(totals.skipped))
        else:  # the saved top images also cover chunks that cannot be used
            chunks = []
            listener.warn("some saved results can no longer be used: the run begins again")
    remove_chunks(folder, len(chunks))
    return top


def _read_usable(
    settings: RunSettings, sources: Sequence[ImageSource], folder: RunFolder, number: int
) -> Chunk | None:
    chunk = read_chunk(folder, number)
    size = chunk_size(settings.config.batch_size)
    planned = sources[number * size : (number + 1) * size]
    if chunk is None or not planned or len(chunk.files) != len(planned):
        return None
    keys = {source.key for source in planned}
    is_ours = chunk.merge_key == settings.merge_key and keys.issuperset(i.key for i in chunk.images)
    if not (is_ours and all(map(folder.holds, chunk.written_files))):
        return None
    is_same = partial(_is_same, verify=settings.config.folder.verify)
    with ThreadPoolExecutor(_THREADS) as threads:
        return chunk if all(threads.map(is_same, chunk.files, planned)) else None


def _is_same(known: FileState, source: ImageSource, *, verify: bool) -> bool:
    now = source.state(verify=verify)
    return replace(now, sha256=now.sha256 or known.sha256) == known
