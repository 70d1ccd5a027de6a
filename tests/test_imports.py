"""The structure of the package, held to: who may import whom, and what it costs to start.

Everything is read from the source with ``ast``; only the last tests start Python.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import hookcli

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(hookcli.__file__).parent

# Rooms by floor, the lowest first: a module imports only what stands on a line above its own, or in
# its own room. Floors 0, 2 and 5 have steps, because a few of their rooms stand on one another:
# records know the errors' exit codes, a run folder writes its JSON with the table, commands share
# their options. Two rooms on one line never import each other, not even for a type.
FLOORS = (
    (
        "0",
        (
            "errors",
            "config",
            "escape",
            "feed",
            "without_compiler",
            "clock",
            "rows",
            "tolerances",
            "thresholds",
            "levels",
            "uncalled",
        ),
    ),
    ("0, a step up", ("records", "files", "command", "differences", "foreign")),
    ("0, two steps up", ("layouts", "results", "directory", "documents")),
    ("0, three steps up", ("ownership",)),
    (
        "1",
        (
            "models",
            "layers",
            "images",
            "hooks",
            "stats",
            "feature_maps",
            "failures",
            "top_images",
            "call_tally",
            "edits",
            "gradient_flow",
            "sketches",
            "measuring",
            "contrasts",
            "versions",
            "operations",
        ),
    ),
    (
        "1, a step up",
        ("observed", "overwriting", "calling", "tally", "pooling", "judging", "sketching"),
    ),
    ("1, two steps up", ("parts", "findings")),
    (
        "2",
        (
            "sinks",
            "sinks.canvas",
            "sinks.table",
            "sinks.report",
            "sinks.overview",
            "sinks.flow",
            "sinks.parquet",
            "sinks.tensors",
        ),
    ),
    ("2, a step up", ("sinks.run_folder", "sinks.grids", "sinks.contrasts")),
    ("2, two steps up", ("sinks.part_files",)),
    (
        "3",
        (
            "collecting",
            "workers",
            "editing",
            "survey",
            "zeroing",
            "fitting",
            "producer",
            "runs",
            "checking",
            "estimating",
        ),
    ),
    (
        "3, a step up",
        ("forward", "capturing", "planning", "preparing", "heating", "diffing", "picturing"),
    ),
    ("3, two steps up", ("backward", "running", "focusing", "firing", "ablating", "ways")),
    ("3, three steps up", ("comparing",)),
    ("4", ("closing", "writing")),
    ("4, a step up", ("pipeline",)),
    ("5", ("cli", "cli.console", "cli.memory", "cli.options", "cli.reading")),
    ("5, a step up", ("cli.completion", "cli.listing", "cli.progress")),
    ("5, two steps up", ("cli.outcome",)),
    ("5, three steps up", ("cli.running", "cli.verdict")),
    (
        "5, four steps up",
        (
            "cli.inspect",
            "cli.layers",
            "cli.models",
            "cli.report",
            "cli.export",
            "cli.schema",
            "cli.diff",
        ),
    ),
    ("5, five steps up", ("cli.gradients", "cli.golden", "cli.ablate", "cli.compare")),
    ("5, six steps up", ("cli.entry",)),
    ("the doors", ("", "__main__")),  # `import hookcli` and `python -m hookcli`
)
LEVEL = {room: level for level, (_, rooms) in enumerate(FLOORS) for room in rooms}

# Where a third-party package may be imported at all.
THIRD_PARTY = {
    "torch": {
        *("failures", "calling", "observed", "overwriting", "feed", "producer"),
        *("models", "layers", "hooks", "stats", "feature_maps"),
        *("forward", "backward", "collecting", "editing", "edits"),
        *("survey", "capturing", "closing", "zeroing", "ablating", "comparing", "ways"),
        *("preparing", "estimating", "running", "pooling", "focusing", "pipeline", "sinks.tensors"),
        *("sketching", "versions", "operations"),
    },
    "torchvision": {"models"},
    "safetensors": {"models", "images", "sinks.tensors", "runs"},
    "timm": {"models"},
    "huggingface_hub": {"models"},
    "numpy": {
        *("sinks.canvas", "sinks.grids", "sinks.contrasts", "images", "call_tally", "runs"),
        *("cli.export", "top_images", "sketches", "measuring", "contrasts", "comparing"),
        "picturing",
    },
    "pyarrow": {"sinks.parquet", "runs"},
    "msgspec": {"documents", "sinks.report"},
    "matplotlib": {"sinks.canvas", "sinks.overview", "sinks.flow"},
    "PIL": {"images", "models", "fitting", "sinks.canvas", "sinks.grids", "sinks.overview"},
    "rich": {"cli.listing", "cli.progress"},
    "jinja2": {"sinks.report"},
    "markupsafe": {"sinks.report"},
    "typer": {
        "cli.export",
        "cli.console",
        "cli.options",
        "cli.gradients",
        "cli.ablate",
        "cli.golden",
        "cli.compare",
        "cli.diff",
        "cli.running",
        "cli.models",
        "cli.report",
        "cli.schema",
        "cli.entry",
    },
    "_typeshed": {"sinks.table"},
}
HEAVY = {"torch", "torchvision", "matplotlib", "rich", "numpy", "PIL", "pyarrow", "jinja2"}


class Module(NamedTuple):
    name: str  # without "hookcli."; empty for the package itself
    room: str
    source: str
    tree: ast.Module


# Floors


def test_every_module_has_a_floor():
    assert [module.name for module in modules() if module.room not in LEVEL] == []


def test_every_room_of_the_table_exists():
    assert sorted(LEVEL.keys() - {module.room for module in modules()}) == []


def test_imports_go_down():
    assert [
        f"hookcli.{module.name} imports hookcli.{target}"
        for module in modules()
        for target in imports_of_ours(module)
        if room_of(target) != module.room and level(target) >= level(module.name)
    ] == []


def test_no_two_modules_import_each_other_even_around_a_corner():
    graph = {module.name: set(imports_of_ours(module)) - {module.name} for module in modules()}
    assert tuple(graphlib.TopologicalSorter(graph).static_order())


def test_third_party_packages_stay_in_their_rooms():
    assert [
        f"hookcli.{module.name} imports {package}"
        for module in modules()
        for package in sorted(packages_imported_by(module))
        if module.room not in THIRD_PARTY.get(package, set())
    ] == []


def test_no_room_is_granted_a_package_that_it_does_not_import():
    used = {(package, m.room) for m in modules() for package in packages_imported_by(m)}
    granted = {(package, room) for package, rooms in THIRD_PARTY.items() for room in rooms}
    assert sorted(granted - used) == []


def test_hooks_are_registered_only_in_the_room_of_hooks():
    rooms = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if re.fullmatch(r"register_(.*_)?hook", name_of(node))
    }
    assert rooms == {"hooks.changing", "hooks.gradients", "hooks.watching"}


def test_a_model_is_called_in_one_place():
    """Elsewhere it would have to be told again whose error an error is."""
    assert {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and name_of(node.func) in ("model", "module", "backward")
    } == {"calling"}


def test_nothing_below_the_command_line_prints():
    assert [
        f"hookcli.{module.name}:{node.lineno}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ] == []


def test_nothing_catches_every_exception():
    assert [
        f"hookcli.{module.name}:{node.lineno}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and catches_everything(node)
    ] == []


# What starting it costs


@pytest.mark.parametrize("module", ["hookcli", "hookcli.cli.entry"])
def test_importing_imports_nothing_heavy(module):
    assert heavy_after(f"import {module}") == ""


def test_help_of_a_command_imports_nothing_heavy():
    code = (
        "from hookcli.cli import entry, console\n"
        "sys.argv = ['hookcli', 'inspect', '--help']\n"
        "sys.stdout, out = sys.stderr, sys.stdout\n"
        "assert entry._run() == 0\n"
        "sys.stdout = out"
    )
    assert heavy_after(code) == ""


def test_what_runs_before_the_images_are_read_imports_no_torch():
    """A wrong file name is reported at once, not after the three seconds that torch takes."""
    assert "torch" not in heavy_after("import hookcli.planning").split()


# Reading the source


@functools.cache
def modules() -> tuple[Module, ...]:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts).removesuffix("__init__").removesuffix(".")
        source = file.read_text(encoding="utf-8")
        found.append(Module(name, room_of(name), source, ast.parse(source)))
    return tuple(found)


def room_of(name: str) -> str:
    """The longest room of the table that a module is in; ``models`` for ``models.catalog``."""
    if name in LEVEL:
        return name
    parent = name.rpartition(".")[0]
    if parent in ("", "cli", "sinks"):  # these two hold rooms, not modules
        return name
    return room_of(parent)


def level(name: str) -> int:
    return LEVEL.get(room_of(name), -1)


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Absolute names of everything imported anywhere, ``from a import b`` as ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages_imported_by(module: Module) -> set[str]:
    """Top-level packages that are neither ours nor Python's own."""
    names = {name.partition(".")[0] for name in imported_names(module.tree)}
    return names - sys.stdlib_module_names - {"hookcli"}


def imports_of_ours(module: Module) -> Iterator[str]:
    """Which of our modules ``module`` imports, also for types alone and inside functions.

    ``from hookcli import __version__`` is a name of the package itself, not the door to its rooms.
    """
    known = {other.name for other in modules()}
    for name in imported_names(module.tree):
        if name.partition(".")[0] == "hookcli" and name != "hookcli.__version__":
            target = name.partition(".")[2]
            yield target if target in known else target.rpartition(".")[0]


def name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def catches_everything(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or name_of(kind) in ("Exception", "BaseException") for kind in kinds)


def heavy_after(code: str) -> str:
    """Which of the heavy packages are imported when ``code`` has run in a new interpreter."""
    probe = f"import sys\n{code}\nsys.stdout.write(' '.join(sorted({HEAVY!r} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout
