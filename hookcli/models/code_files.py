"""The source files of the user's own models, by hash. Nothing here runs them."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.outside.files import read_regular
from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

    from torch import nn

_LIBRARIES = {"hookcli", "torch", "numpy", "PIL"}  # wherever they are
_INSTALLED = {"site-packages", "dist-packages"}
_MOST_SOURCE = 1 << 20  # bytes of a file whose functions are suggested
_STANDARD = Path(os.__file__).parent


def hash_code(module: nn.Module, names: Iterable[str], libraries: Set[str]) -> dict[str, str]:
    """Return the sha256 of each source file of the user's that a model is made of, by its name.

    These are the files that are named, those of the classes of all modules, and those that they
    import, without installed packages and ``libraries``, those of the sources of models. A file
    has the name by which it is imported, so that it has the same name in a folder that was moved.
    Of the names only ``FILE.py:FUNCTION`` and ``package.module:NAME`` count.
    """
    wanted = [name.rpartition(":")[0] for name in names]
    seen = {Path(place).stem for place in wanted if place.endswith(".py")}  # imported as these
    wanted += {type(each).__module__ for each in module.modules()}
    hashes: dict[str, str] = {}
    while wanted:
        name = wanted.pop()
        found = None if name in seen else _find_file(name, libraries)
        seen.add(name)
        if found is not None:
            label, file, package = found
            source = _read(file)
            hashes[label] = hashlib.sha256(source).hexdigest()
            wanted += _list_imports(source, package)
    return dict(sorted(hashes.items()))


def list_definitions(file: Path) -> list[str]:
    """Return the functions and classes at the top of a source file that may make a model.

    Functions stand first. It is empty for a file that cannot be read or parsed.
    """
    with suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        body = ast.parse(read_regular(file, _MOST_SOURCE)).body
        return [
            each.name
            for kind in (ast.FunctionDef, ast.ClassDef)
            for each in body
            if isinstance(each, kind) and not each.name.startswith("_")
        ]
    return []


def _find_file(name: str, libraries: Set[str]) -> tuple[str, Path, str] | None:
    """Return the name, the path and the package of a source file; None if it is not the user's.

    The name is ``FILE.py``, or that of a module, which a forward may import only later.
    """
    if name.endswith(".py"):
        return name, Path(name), ""
    module = sys.modules.get(name)
    if module is None:
        file, is_package = _find_unloaded(name)
    else:
        file, is_package = (
            Path(str(ask(module, "__file__", ""))),
            ask(module, "__path__") is not None,
        )
    if file.suffix != ".py" or name.partition(".")[0] in _LIBRARIES | libraries:
        return None
    if file.is_relative_to(_STANDARD) or not _INSTALLED.isdisjoint(file.parts):
        return None
    place = name.replace(".", "/")
    if is_package:
        return f"{place}/__init__.py", file, name
    return f"{place}.py", file, name.rpartition(".")[0]


def _find_unloaded(name: str) -> tuple[Path, bool]:
    """Return the file of a module that was not imported yet, and whether it is a package's.

    It is empty if there is none, or if the package around it was not imported either.
    """
    parent = name.rpartition(".")[0]
    places = ask(sys.modules.get(parent), "__path__") if parent else None
    if parent and places is None:
        return Path(), False
    spec = None
    with suppress(ImportError, ValueError, TypeError, OSError):
        spec = PathFinder.find_spec(name, places)
    if spec is None or spec.origin is None:
        return Path(), False
    return Path(spec.origin), spec.submodule_search_locations is not None


def _list_imports(source: bytes, package: str) -> Iterator[str]:
    """Yield the names of what a source file may import, and of the packages around it."""
    nodes: Iterable[ast.AST] = ()
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # it has changed meanwhile
        nodes = ast.walk(ast.parse(source))
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # beyond the top, in a ``try``
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def _read(file: Path) -> bytes:
    """Return the content of a file; empty if it is gone."""
    with suppress(OSError):
        return file.read_bytes()
    return b""
