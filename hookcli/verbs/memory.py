"""Accept models, pictures and runs that a Python program passes as objects; keep runs in memory.

hookcli writes pictures, and the files of a run without ``out``, into the memory storage of fsspec.
It registers a model under a name, and leaves the model unchanged, even if the call fails.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from hookcli.errors import RequestError
from hookcli.outside.urls import HELD, Url

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_ROOT = Url(HELD)
_COPIED = {"weights", "prune", "save_weights"}  # keywords that write weights
_NEEDS_FILES = {"resume": "continues a run", "dry_run": "plans", "cluster": "runs elsewhere"}
_PICTURES = "images", "pair"
_numbers = itertools.count(1)


def new_folder() -> Url:
    return _ROOT / str(next(_numbers))


def forget(folder: Url) -> None:
    from hookcli.store.locations import storage

    for name in storage.list_files(folder):
        storage.remove_file(folder / name)


class HeldFolder:
    """Deletes a run folder that is in memory as soon as Python frees this object."""

    def __init__(self, folder: Url) -> None:
        weakref.finalize(self, forget, folder).atexit = False


def read_all(folder: Url) -> dict[str, bytes]:
    from hookcli.store.locations import storage

    names = list(storage.list_files(folder))
    return dict(zip(names, storage.read_files([folder / name for name in names]), strict=True))


@contextmanager
def held(keywords: Mapping[str, Any], known: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield ``keywords`` with names for objects in memory; these are valid inside the block."""
    given = {name: value for name, value in keywords.items() if value is not None}
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())  # importing rich draws numbers
        plain = {name: _name(stack, name, value, given) for name, value in given.items()}
        changed = [name for name in given if plain[name] is not given[name]]
        if any(_is_module(given[n]) or n in _PICTURES for n in changed):
            for name, what in _NEEDS_FILES.items():
                if given.get(name):
                    hint = "write a model as FILE.py:FUNCTION, and images into files"
                    raise RequestError(f"`{name}` {what}, so it cannot take things in memory", hint)
        if "images" in changed and str(given.get("labels")) == "folders":
            hint = "give a list with a label for each image"
            raise RequestError("`labels='folders'` needs photos in files", hint)
        if _is_module(given.get("model")):
            kept = _as_it_is(given["model"])
            plain = {key: value for key, value in kept.items() if key in known} | plain
        yield plain


def _name(stack: ExitStack, name: str, value: Any, given: Mapping[str, Any]) -> Any:
    if isinstance(value, (str, bytes, int, float, bool, os.PathLike)):
        return value
    if name == "model" and _is_module(value):
        return _hold_module(stack, value, given)
    if name == "against" and (_is_module(value) or isinstance(value, Mapping)):
        changes = {"model": value} if _is_module(value) else value
        other = changes.get("model")
        if not _is_module(other):
            return value
        kept = {n: m for n, m in _as_it_is(other).items() if n == "dtype" and n not in given}
        return {**kept, **changes, "model": _hold_module(stack, other, {**given, **changes})}
    if folder := find_folder(value):
        if name == "against":
            raise RequestError("`against` cannot be a run", "compare runs with `hookcli.diff`")
        return folder
    if hasattr(value, "golden"):
        from hookcli.comparison.golden import render_golden
        from hookcli.store.locations import storage

        held_folder = new_folder()
        stack.callback(forget, held_folder)
        storage.write_file(held_folder / "golden.json", render_golden(value.golden).encode())
        return held_folder / "golden.json"
    if name in _PICTURES:
        names = _hold_pictures(stack, value)
        if name == "pair" and isinstance(names, list):
            if len(names) != 1:
                raise RequestError("`pair` is one image", "give one picture or file")
            return names[0]
        return names
    return value


def find_folder(value: Any) -> str:
    """Return the folder of a ``Run``, or of a result that has a run; ``""`` for other objects."""
    reading = sys.modules.get("hookcli.reading.load")
    if reading is not None and isinstance(value, reading.Run):
        return str(value.folder)
    return str(getattr(value, "run_folder", ""))


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _hold_module(stack: ExitStack, module: Any, given: Mapping[str, Any]) -> str:
    from hookcli.networks.own_code import hold
    from hookcli.passes.unchanged import unchanged

    copies, keeps_dtype = not _COPIED.isdisjoint(given), "dtype" not in given
    name = stack.enter_context(hold(module, copies=copies, keeps_dtype=keeps_dtype))
    if not copies:
        stack.enter_context(unchanged(module))
        for parameter in module.parameters():
            parameter.grad = None  # a backward pass must not add to the user's gradients
    return name


def _as_it_is(module: Any) -> dict[str, Any]:
    from hookcli.config import DTYPES

    values = [*module.parameters(), *module.buffers()]
    dtypes = {str(each.dtype).removeprefix("torch.") for each in values if each.is_floating_point()}
    kept: dict[str, Any] = {"device": str(values[0].device) if values else "cpu"}
    if len(dtypes) == 1 and dtypes <= {*DTYPES}:
        kept["dtype"] = dtypes.pop()
    return kept


def _hold_pictures(stack: ExitStack, value: Any) -> Any:
    things = value if isinstance(value, (list, tuple)) else [value]
    if all(isinstance(each, (str, os.PathLike)) for each in things):
        return value
    from hookcli.images.held import encode_images
    from hookcli.store.locations import storage

    folder, names, number = new_folder(), [], itertools.count()
    stack.callback(forget, folder)
    for thing in things:
        if isinstance(thing, (str, os.PathLike)):
            names.append(os.fspath(thing))
            continue
        for suffix, data in encode_images(thing):
            names.append(str(folder / f"image-{next(number)}{suffix}"))
            storage.write_file(names[-1], data)
    return names
