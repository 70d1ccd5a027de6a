"""Write the results of ``--attention``: ``attention.csv``, and pictures of attention maps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.config import GridStyle
from hookcli.outside import tables
from hookcli.products.product import Cost, Product
from hookcli.products.tensors import check_disk
from hookcli.records.attention_records import AttentionMaps, AttentionRow
from hookcli.records.pictures import HeatPicture
from hookcli.store.locations import names
from hookcli.summary.attention_tally import AttentionTally
from hookcli.summary.chunks import merge_by_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.activations.attention_maps import CallAttention, ImageAttention, QueryMap
    from hookcli.activations.collector import BatchResult
    from hookcli.products.product import Outlook, RunEnd, RunningChunk
    from hookcli.render.draw.grid_writer import GridWriter
    from hookcli.summary.chunks import Chunk

_PICTURE_BYTES = 600_000  # bytes of a call's picture with default tiles
_FLOAT_BYTES = 4
_ROLLOUT = "000_rollout.png"


class AttentionHeads(Product):
    def claim(self) -> list[str]:
        pictures = [names.ATTENTION] if self.scope.style.mode == "layers" else []
        return [names.ATTENTION_TABLE, *pictures]

    def estimate(self, outlook: Outlook) -> Cost:
        found, scope = outlook.attention, self.scope
        if found is None:
            return Cost()
        ((_, first),) = found.found.items()
        calls, images, files, size = first.calls, scope.images, 1, 0.0
        if found.draws:
            pictures = images * (len(calls) + found.rollout) * scope.formats
            area = (scope.style.tile / GridStyle().tile) ** 2
            size = pictures * area * _PICTURE_BYTES + found.limit * images
            files += pictures + images * len(calls)
        if found.keeps:
            places = [call.places for call in calls]
            of_image = sum(p.heads * p.queries.numel() * p.keys.shape[1] for p in places)
            saved = of_image * _FLOAT_BYTES * images
            hint = "fewer layers in `attention`, fewer images, or a greater `max_disk`"
            check_disk(saved, scope.config.tensors.max_disk, hint)
            size += saved
            files += 2
        return Cost(files, size)

    def collect(self, result: BatchResult, running: RunningChunk, writer: GridWriter) -> None:
        attention, chunk = result.attention, running.chunk
        if attention is None:
            return
        for row in attention.rows:
            merge_by_call(chunk.attention, {row.call_id: AttentionTally.of(row)})
        if attention.rollout or any(each.query or each.maps for each in attention.calls):
            before = len(chunk.heats)
            _draw(attention, running.show(attention.image), chunk, writer)
            self.note_pictures(chunk, [heat.file for heat in chunk.heats[before:]])

    def close(self, end: RunEnd) -> list[str]:
        table = tables.render_csv(AttentionRow, _list_rows(end))
        return [end.folder.write(names.ATTENTION_TABLE, table.encode())]

    def describe(self, end: RunEnd) -> dict[str, object]:
        return {"attention": _list_rows(end), "attention_maps": end.totals.attention_maps}


def _list_rows(end: RunEnd) -> tuple[AttentionRow, ...]:
    return tuple(tally.means() for tally in end.totals.attention.values())


def _draw(attention: ImageAttention, seen: bytes, chunk: Chunk, writer: GridWriter) -> None:
    image = attention.image
    if attention.rollout is not None:
        file = names.picture_file(names.ATTENTION, image, _ROLLOUT)
        _write_heads(writer, file, image, seen, attention.rollout, ["all layers"], "rollout")
        chunk.heats.append(HeatPicture(image, "rollout", "", file))
    for each in attention.calls:
        name, call_id = names.grid_name(replace(each.call, side="output")), each.call.id
        if each.query is not None:
            file = names.picture_file(names.ATTENTION, image, name)
            labels = [
                f"head {head}" + ("" if entropy is None else f", entropy {entropy:.2f}")
                for head, entropy in enumerate(each.row.entropy)
            ]
            what = f"of {each.call.layer.label}"
            _write_heads(writer, file, image, seen, each.query, labels, what)
            chunk.heats.append(HeatPicture(image, "attention", call_id, file))
        if each.maps is not None:
            chunk.attention_maps.append(_write_maps(image, name, each, writer))
            chunk.written_files.append(chunk.attention_maps[-1].file)


def _write_maps(image: str, name: str, call: CallAttention, writer: GridWriter) -> AttentionMaps:
    from hookcli.render.draw.attention_grid import draw_maps

    assert call.maps is not None  # noqa: S101
    maps = call.maps
    file = names.picture_file(names.ATTENTION, image, name.removesuffix(".png") + ".maps.png")
    writer.write(file, draw_maps(maps.levels.numpy()))
    grids = call.row.query_grid, maps.query_grid, maps.map_grid
    tokens = maps.is_thinned, maps.has_class_token
    return AttentionMaps(image, call.call.id, file, call.row.heads, *grids, *tokens)


def _write_heads(
    writer: GridWriter,
    file: str,
    image: str,
    seen: bytes,
    query: QueryMap,
    labels: Sequence[str],
    what: str,
) -> None:
    from hookcli.render.draw.attention_grid import draw_heads

    of = "of the class token" if query.mark is None else "of the framed patch"
    title, values = f"Attention {what} {of}   {writer.title_of(image)}", query.values.numpy()
    canvas = draw_heads(seen, values, labels, [title], mark=query.mark, tile=writer.style.tile)
    writer.write_over_photo(file, canvas)
