"""Provide ``hookcli.load_run``, whose result reads a run's tables and tensors on demand."""

from __future__ import annotations

import csv
import fnmatch
import io
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hookcli.errors import RequestError
from hookcli.outside.documents import DamagedError, convert, value_types
from hookcli.outside.urls import HELD, to_location
from hookcli.reading.pictures import find_grid, open_grid
from hookcli.reading.run_files import (
    AGAIN,
    cannot_read,
    name_close,
    open_files,
    quote,
    read_json,
    require_file,
)
from hookcli.reading.shards import array_dtype, read_rows
from hookcli.records.golden import golden_facts
from hookcli.records.report import FileList
from hookcli.records.rows import LayerRow
from hookcli.records.runs import Finding
from hookcli.records.statistics import layer_cells
from hookcli.records.tensor_index import TensorIndex
from hookcli.records.text import count, shape_text
from hookcli.render.report import notebook
from hookcli.store.locations import names
from hookcli.store.ownership import list_damage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow
    from PIL import Image

    from hookcli.outside.urls import Location
    from hookcli.reading.run_files import RunFiles
    from hookcli.reading.shards import Array
    from hookcli.records.tensor_index import SavedTensor

# The pictures that a notebook shows, in its order
_PICTURES = names.CAM, names.SALIENCY, names.HEAT, names.ATTENTION, names.GRIDS, names.SHEETS
_TABLES = "run.layers, run.records and run.grid(CALL)"
_SavedRows: TypeAlias = "dict[str, tuple[SavedTensor, int]]"
"""For each image key, in the run's order: the saved tensor with this image, and the row in it."""

# The type of each column's values; columns that a later version added are read as text.
_TYPES = {n: kind if kind in (int, float) else str for n, kind in value_types(LayerRow).items()}


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run, which ``load_run`` opens.

    hookcli reads each table and each array from its file when you ask for it, and raises a
    RequestError if the file is missing or damaged.

    Example:
        >>> run = hookcli.load_run("hookcli-runs/resnet34-photos")
        >>> run["layer1.0.conv1"].shape
        (12, 64, 56, 56)

    Attributes:
        files: the files of the run folder.
        manifest: the content of ``manifest.json``.
        saved: the saved tensors, by call id.
        damage: sentences about pictures and pages that are missing, or whose size differs from the
            size in the manifest.
    """

    files: RunFiles
    manifest: dict[str, Any]
    saved: Mapping[str, tuple[SavedTensor, ...]]
    damage: tuple[str, ...] = ()
    _rows: dict[str, _SavedRows] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:  # the generated __repr__ would print the whole manifest
        calls = count(len(self.calls), "call")
        saved = f"tensors of {calls}" if self.saved else f"no tensors: {_TABLES}"
        return f"Run({quote(self.folder)}, {count(len(self.images), 'image')}, {saved})"

    @property
    def folder(self) -> Location:
        """The path or the URL of the run folder."""
        return self.files.location

    @property
    def images(self) -> tuple[str, ...]:
        """The keys (unique names) of the images that went through the model, in the run's order."""
        return tuple(image["key"] for image in self.manifest["images"])

    @property
    def calls(self) -> tuple[str, ...]:
        """The call ids whose tensors were saved; empty for a run without ``save="tensors"``."""
        return tuple(self.saved)

    @property
    def layers(self) -> list[dict[str, Any]]:
        """The rows of ``layers.csv``, with the cells of each row by column.

        A cell in a column of numbers is a number, or None if empty. Other cells are texts.
        """
        try:
            text = self.files.read(names.LAYERS).decode()
            header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
            return [
                {name: _read_cell(name, cell) for name, cell in zip(header, row, strict=True)}
                for row in rows
            ]
        except (OSError, ValueError, csv.Error) as error:
            raise cannot_read(self.folder / names.LAYERS, error) from error

    @property
    def records(self) -> pyarrow.Table:
        """The Arrow table in ``records.parquet``, with one row per image and tensor of a call."""
        import pyarrow as pa

        from hookcli.reading.parquet_reader import read_records

        try:
            parts = filter(names.is_records_file, self.manifest["files"])
            found = list(filter(self.files.has, parts))
            if not found:
                raise RequestError(f"the run in {quote(self.folder)} has no {names.RECORDS}", AGAIN)
            return read_records(map(self.files.open, found))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise cannot_read(self.folder / names.RECORDS, error) from error

    def figures(self) -> pyarrow.Table:
        """Return the rows of ``layers.csv`` as an Arrow table with typed columns.

        Example:
            >>> run.figures().to_pandas().sort_values("zero_fraction")
        """
        import pyarrow as pa

        rows = self.layers
        known = list(rows[0]) if rows else list(_TYPES)
        arrow = {int: pa.int64(), float: pa.float64(), str: pa.string()}
        schema = pa.schema([(name, arrow[_TYPES.get(name, str)]) for name in known])
        try:
            return pa.Table.from_pylist(rows, schema)
        except (pa.ArrowException, OverflowError) as error:
            raise cannot_read(self.folder / names.LAYERS, error) from error

    def grid(self, call_id: str, image_key: str | None = None) -> Image.Image:
        """Return the picture of a call's feature maps as a Pillow image.

        In a run that drew one sheet per image, the picture is the part of the sheet that shows the
        call.

        Args:
            call_id: the id of the call, as tables show it.
            image_key: the key of the image; None for the first image with a picture of the call.

        Raises:
            RequestError: the run drew no such picture, or the file is missing or damaged.
        """
        return open_grid(self.files, find_grid(self.files, call_id, image_key))

    def _repr_html_(self) -> str:
        try:
            findings = convert(self.manifest.get("findings", ()), tuple[Finding, ...])
        except DamagedError as error:
            raise cannot_read(self.folder / names.MANIFEST, error) from error
        layers, model = self.layers, self.manifest["model"]
        title = f"{model['name']}: {count(len(layers), 'call')}, {count(len(self.images), 'image')}"
        notes = [
            *notebook.describe_run(model["weights"], findings),
            *([] if str(self.folder).startswith(HELD) else [f"the run folder: {self.folder}"]),
        ]
        rows = [_layer_cells(row) for row in layers[: notebook.MOST_ROWS]]
        pictures = notebook.read_pictures(self._list_pictures(), self.files.read)
        return notebook.render_layers(title, notes, rows, total=len(layers), pictures=pictures)

    def _list_pictures(self) -> list[str]:
        indices = {key: index for index, key in enumerate(self.images)}

        def rank(name: str) -> tuple[int, int]:
            folder, key = name.removesuffix(".png").split("/")[:2]
            return _PICTURES.index(folder), indices.get(key, len(indices))

        files = filter(names.is_run_file, self.manifest["files"])
        shown = (n for n in files if n.partition("/")[0] in _PICTURES and n.endswith(".png"))
        return sorted(shown, key=rank)

    def images_of(self, call_id: str) -> tuple[str, ...]:
        """Return the image key of each row of ``run[call_id]``.

        Images for which no tensor of the call was saved are left out.

        Raises:
            RequestError: no tensor of this call was saved, or the index of the saved tensors names
                an image that the manifest does not have.
        """
        if call_id not in self.saved:
            error = _no_tensor(self, call_id)
            tables = f"; the statistics are in run.rows or, if it was loaded, in {_TABLES}"
            error.hint += "" if self.saved else tables
            raise error
        known = {key for tensor in self.saved[call_id] for key in tensor.images}
        strangers = sorted(known.difference(self.images))
        what = f"the image {strangers[0]!r}, unknown to the manifest" if strangers else "no image"
        if strangers or not known:
            file = quote(self.folder / names.INDEX)
            raise RequestError(f"{file} is damaged: {call_id!r} has {what}", AGAIN)
        return tuple(key for key in self.images if key in known)

    def shape_of(self, call_id: str) -> tuple[int, ...]:
        """Return the shape of ``run[call_id]``, (images, …), without reading a tensor.

        Raises:
            RequestError: no tensor of this call was saved, or the images' tensors differ in shape.
        """
        images = self.images_of(call_id)
        if len({tensor.shape[1:] for tensor in self.saved[call_id]}) == 1:
            return (len(images), *self.saved[call_id][0].shape[1:])
        shapes = {key: tensor.shape[1:] for key, (tensor, _) in _rows_of(self, call_id).items()}
        first, shape = images[0], shapes[images[0]]
        for key, other in shapes.items():
            if other != shape:
                raise RequestError(
                    f"the images' tensors of {call_id!r} differ in shape: "
                    f"{first} has {shape_text(shape)}, {key} has {shape_text(other)}",
                    "save with `pool='mean'`, "
                    f"or read one image: run.tensor({call_id!r}, {first!r})",
                )
        return (len(shapes), *shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.calls)

    def __getitem__(self, call_id: str) -> Array:
        """Return the tensors of a call for all images as one array (images, …), in the run's order.

        bfloat16 is returned as float32. Images for which no tensor of the call was saved are left
        out; ``images_of`` returns the image key of each row.
        """
        shape, tensors = self.shape_of(call_id), self.saved[call_id]
        for tensor in tensors:
            # Check the shard before allocating memory for the shape that the index names.
            read_rows(self.files, tensor, 0, 0)
        row_of = {key: row for row, key in enumerate(self.images_of(call_id))}
        whole = np.empty(shape, np.result_type(*map(array_dtype, tensors)))
        for tensor in tensors:
            rows = [row_of[key] for key in tensor.images]
            whole[rows] = read_rows(self.files, tensor, 0, len(rows))
        return whole

    def tensor(self, call_id: str, image_key: str) -> Array:
        """Return the tensor of a call for one image, without an axis for images.

        bfloat16 is returned as float32.

        Raises:
            RequestError: no tensor of this call was saved for this image, numpy lacks the dtype, or
                the shard is damaged.
        """
        rows = _rows_of(self, call_id)
        if image_key not in rows:
            what = f"no tensor of {call_id!r} was saved for an image {image_key!r}"
            raise RequestError(what, name_close(image_key, rows))
        tensor, row = rows[image_key]
        return read_rows(self.files, tensor, row, row + 1).reshape(tensor.shape[1:])


def load_run(folder: str | os.PathLike[str]) -> Run:
    """Open the folder of a finished run, on this machine or at a URL.

    Files at a URL are copied to this machine when you ask the run for their content.

    Example:
        >>> run = hookcli.load_run("hookcli-runs/resnet34-photos")
        >>> run["layer1.0.conv1"].mean(axis=0)

    Raises:
        RequestError: the folder is not a run folder, the run is unfinished, its manifest or index
            is damaged, or a table or shard is missing or has the wrong size.
        OutputError: the cloud storage at the URL cannot be used.
    """
    try:
        folder = to_location(os.fspath(folder))
    except TypeError as error:
        what = f"load_run takes a folder, not {type(folder).__name__}"
        hint = "an outcome of `hookcli.inspect` has its run: OUTCOME.run"
        raise RequestError(what, hint) from error
    files = open_files(folder)
    require_file(files, names.MANIFEST)
    document, listed = read_json(files, names.MANIFEST, FileList)
    try:
        golden_facts(document)
    except DamagedError as error:
        file = quote(folder / names.MANIFEST)
        raise RequestError(f"{file} is damaged: {error}", AGAIN) from error
    damage = list_damage(listed.sizes, files.measure)
    for name in filter(names.holds_data, damage):
        raise RequestError(f"the run in {quote(folder)} is damaged: {damage[name]}", AGAIN)
    saved = _read_index(files) if names.INDEX in listed.files else {}
    return Run(files, document, saved, tuple(damage.values()))


def _read_index(files: RunFiles) -> dict[str, tuple[SavedTensor, ...]]:
    """Read the index of saved tensors by call id; equal tuples of image keys share their memory."""
    calls = read_json(files, names.INDEX, TensorIndex)[1].calls
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    return {
        call_id: tuple(
            replace(tensor, images=shared.setdefault(tensor.images, tensor.images))
            for tensor in tensors
        )
        for call_id, tensors in calls.items()
    }


def choose_calls(run: Run, forms: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the saved calls that match any of ``forms``, in the order of the run.

    A form is a call id, a glob pattern, or several of these, separated by commas. Raise a
    RequestError for a form that matches no saved call.
    """
    chosen: set[str] = set()
    for form in forms:
        separate = [form] if form in run.calls else [each for each in form.split(",") if each]
        for each in separate or [form]:
            pattern = each.replace("[", "[[]")  # a bracket in a form begins an output key
            matched = [call_id for call_id in run.calls if fnmatch.fnmatchcase(call_id, pattern)]
            if not matched:
                raise _no_tensor(run, each)
            chosen.update(matched)
    return tuple(call_id for call_id in run.calls if call_id in chosen)


def _rows_of(run: Run, call_id: str) -> _SavedRows:
    if call_id not in run._rows:
        images = run.images_of(call_id)
        rows: _SavedRows = {}
        for tensor in run.saved[call_id]:
            rows |= {key: (tensor, row) for row, key in enumerate(tensor.images)}
        run._rows[call_id] = {key: rows[key] for key in images}
    return run._rows[call_id]


def _no_tensor(run: Run, call_id: str) -> RequestError:
    if not run.saved:
        hint = f"{AGAIN}, with `save='tensors'`"
        return RequestError(f"the run in {quote(run.folder)} saved no tensors", hint)
    return RequestError(f"no tensor of {call_id!r} was saved", name_close(str(call_id), run.saved))


def _layer_cells(row: Mapping[str, Any]) -> dict[str, str]:
    call_id, kind, shape = (str(row.get(name, "")) for name in ("call_id", "module_type", "shape"))
    return layer_cells(call_id, kind, shape, row)


def _read_cell(name: str, text: str) -> int | float | str | None:
    kind = _TYPES.get(name, str)
    return text if kind is str else kind(text) if text else None
