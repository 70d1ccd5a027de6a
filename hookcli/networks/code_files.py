"""Find and hash the source files of the user's own models, without running the files."""

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

_LIBRARIES = {"hookcli", "torch", "numpy", "PIL"}  # wherever they are installed
_INSTALLED = {"site-packages", "dist-packages"}
_MOST_SOURCE = 1 << 20  # bytes; larger files are not searched for functions to suggest
_STANDARD = Path(os.__file__).parent


def split_name(name: str) -> tuple[str, str]:
    file, _, function = name.rpartition(":")
    is_path = "/" in function or "\\" in function  # of C:\\FILE.py
    is_whole = file != "" and (is_path or os.path.isfile(name))  # noqa: PTH113  pathlib's may raise
    return (name, "") if is_whole else (file, function)


def hash_code(module: nn.Module, names: Iterable[str], libraries: Set[str]) -> dict[str, str]:
    # These are the files in ``names`` (``FILE.py:FUNCTION`` or ``package.module:NAME``), those of
    # all modules' classes, and what they import, without installed packages and ``libraries``. The
    # key of an imported file is ``package/module.py``, wherever the folder is.
    wanted = [split_name(name)[0] for name in names]
    seen = {Path(origin).stem for origin in wanted if origin.endswith(".py")}  # their import names
    wanted += {type(each).__module__ for each in module.modules()}
    hashes: dict[str, str] = {}
    while wanted:
        name = wanted.pop()
        found = None if name in seen else _find_file(name, libraries)
        seen.add(name)
        if found is not None:
            label, file, package = found
            source = b""
            with suppress(OSError):
                source = file.read_bytes()
            hashes[label] = hashlib.sha256(source).hexdigest()
            wanted += _list_imports(source, package)
    return dict(sorted(hashes.items()))


def list_definitions(file: Path) -> list[str]:
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
    # The module need not be imported yet, because a forward pass may import it later.
    if name.endswith(".py"):
        return name, Path(name), ""
    module = sys.modules.get(name)
    if module is None:
        file, is_package = _find_unloaded(name)
    else:
        file = Path(str(ask(module, "__file__", "")))
        is_package = ask(module, "__path__") is not None
    if file.suffix != ".py" or name.partition(".")[0] in _LIBRARIES | libraries:
        return None
    if file.is_relative_to(_STANDARD) or not _INSTALLED.isdisjoint(file.parts):
        return None
    path = name.replace(".", "/")
    if is_package:
        return f"{path}/__init__.py", file, name
    return f"{path}.py", file, name.rpartition(".")[0]


def _find_unloaded(name: str) -> tuple[Path, bool]:
    # The path is empty without a file, or if the module's parent package is not imported.
    parent = name.rpartition(".")[0]
    folders = ask(sys.modules.get(parent), "__path__") if parent else None
    if parent and folders is None:
        return Path(), False
    spec = None
    with suppress(ImportError, ValueError, TypeError, OSError):
        spec = PathFinder.find_spec(name, folders)
    if spec is None or spec.origin is None:
        return Path(), False
    return Path(spec.origin), spec.submodule_search_locations is not None


def _list_imports(source: bytes, package: str) -> Iterator[str]:
    nodes: Iterable[ast.AST] = ()
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # changed since its import
        nodes = ast.walk(ast.parse(source))
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # a relative import beyond the top level, in a ``try``
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
