"""The structure of the package: which module may import which, and what starting it costs.

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
from hookcli.cli.output import wording
from hookcli.outside.flags import REFERENCE
from hookcli.store.locations import names

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(hookcli.__file__).parent
TESTS = Path(__file__).parent

# The storeys, the lowest first. A module imports what stands on a line below its own, or in its own
# folder.
STOREYS = """
config errors outside
records
distance
summary
networks
hooks
store
images
activations
render
reading
edits
passes
products
plan
analysis
comparison
run
cluster
verbs
cli
integrations
__main__
"""
LEVEL = {room: line for line, rooms in enumerate(STOREYS.split("\n")) for room in rooms.split()}

# Where a third-party package may be imported.
THIRD_PARTY = {
    "torch": {
        "activations",
        "cluster",
        "comparison",
        "edits",
        "hooks",
        "images",
        "integrations",
        "networks",
        "passes",
        "plan",
        "products",
        "run",
        "store",
    },
    "torchvision": {"networks"},
    "timm": {"networks"},
    "open_clip": {"networks"},
    "onnx": {"networks", "passes"},
    "onnxruntime": {"passes"},
    "ray": {"cluster"},
    "filelock": {"outside"},
    "fsspec": {"store"},
    "huggingface_hub": {"networks"},
    "safetensors": {"analysis", "images", "networks", "store"},
    "scipy": {"analysis"},  # comes with scikit-learn
    "sklearn": {"analysis"},
    "threadpoolctl": {"analysis"},
    "pillow_heif": {"images"},
    "pydicom": {"images"},
    "tifffile": {"images"},
    "numpy": {
        "analysis",
        "comparison",
        "distance",
        "images",
        "integrations",
        "networks",
        "passes",
        "reading",
        "render",
        "summary",
        "verbs",
    },
    "PIL": {"analysis", "images", "networks", "outside", "passes", "reading", "render"},
    "pyarrow": {"analysis", "reading", "store"},
    "matplotlib": {"render"},
    "jinja2": {"render"},
    "markupsafe": {"render"},
    "msgspec": {"outside"},
    "pytest": {"integrations"},
    "rich": {"cli"},
    "typer": {"__main__", "cli"},
    "_typeshed": {"outside", "verbs"},
}
# What messages may have: commands of other programs, the name of the module, and CSS.
OF_OTHERS = re.compile(
    r"pip install( --upgrade)?( '?hookcli)?|python -c|ray start --head|ffmpeg -i|pdftoppm -png"
    r"|module 'hookcli'|; --columns: "
)
HEAVY = {"torch", "torchvision", "matplotlib", "rich", "numpy", "PIL", "pyarrow", "jinja2"}

# The files of a run folder whose name is always the same, and those that are folders to us.
FILES = {
    name
    for name in vars(names).values()
    if isinstance(name, str) and "." in name and names.is_run_file(name)
} | {names.RECORDS}


class Module(NamedTuple):
    name: str  # without "hookcli."; empty for the package itself
    room: str
    is_package: bool
    source: str
    tree: ast.Module


# Storeys


def test_every_room_has_a_level_and_every_level_has_a_room():
    assert {module.room for module in modules()} - {""} == LEVEL.keys()


def test_a_module_imports_only_from_rooms_below_its_own():
    assert [
        f"hookcli.{module.name} imports hookcli.{target}"
        for module in modules()
        for target in imports_of_ours(module)
        if module.room and room_of(target) != module.room and not is_below(target, module.name)
    ] == []


def test_a_package_holds_one_sentence_and_exports_nothing():
    """So that ``hooks/observe.py`` is not hidden by a function of that name, and importing a
    folder costs nothing."""
    assert [
        module.name
        for module in modules()
        if module.is_package and module.name and len(module.tree.body) != 1
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
    assert rooms == {"hooks.placed"}


def test_a_model_is_called_in_one_place():
    """A second place would also have to tell the model's errors from hookcli's own."""
    assert {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and name_of(node.func) in ("model", "module", "backward")
        if ast.unparse(node.func) != "program.module"  # returns the module of an exported program
    } == {"passes.call"}


def test_a_file_of_the_run_folder_is_named_in_one_place():
    """Messages may name the file too: "see skipped.csv"."""
    folders = tuple(f"{folder}/" for folder in names.FOLDERS)
    assert [
        f"hookcli.{module.name}:{node.lineno}: {node.value!r}"
        for module in modules()
        for node in texts_of(module.tree)
        if module.name != "store.locations.names"
        and (node.value in FILES or (" " not in node.value and str(node.value).startswith(folders)))
    ] == []


def test_the_version_of_the_schema_is_written_down_in_one_place():
    assert [
        f"hookcli.{module.name}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and isinstance(node.value, ast.Constant)
        and "SCHEMA_VERSION" in ast.unparse(node)
    ] == ["hookcli.outside.documents"]


def test_nothing_below_the_command_line_prints():
    assert [
        f"hookcli.{module.name}:{node.lineno}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ] == []


def test_only_main_ends_the_process():
    """A command returns its exit code; ``memory.end_process`` is called by ``__main__`` alone."""
    ends = {"Exit", "exit", "_exit", "end_process"}
    assert {
        (module.name, name_of(node))
        for module in modules()
        for node in ast.walk(module.tree)
        if name_of(node) in ends
    } == {("__main__", "Exit"), ("__main__", "end_process"), ("cli.memory", "_exit")}


def test_sentences_of_the_core_have_no_words_of_the_command_line():
    """Somebody who called a function types no options; ``cli/output/wording`` makes them."""
    assert [
        f"hookcli.{module.name}: {text!r}"
        for module, text in sentences_of_the_core()
        if has_words_of_the_command_line(text)
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "--seed must be",
        "choose another -o",
        "leave '--seed' out",
        "see hookcli layers MODEL",
        "a later hookcli wrote it",
        "pip install timm; or leave --weights out",
    ],
)
def test_words_of_the_command_line_in_a_sentence_would_be_found(text):
    assert has_words_of_the_command_line(text)


def test_what_a_sentence_of_the_core_names_in_backticks_exists():
    """A field with an option, or a function with a command; others could not be translated."""
    assert [
        f"hookcli.{module.name}: {reference[0]}"
        for module in modules()
        if module.room not in ("cli", "__main__", "integrations")
        for text in whole_texts_of(module.tree)
        if text != REFERENCE.pattern
        for reference in re.finditer(r"`[^`(\\][^`]*`", text)
        if not is_known(reference[0])
    ] == []


@pytest.mark.parametrize("text", ["`sead`", "`sead=3`", "`save.seed`", "`list_layers(MODEL)`"])
def test_a_name_of_nothing_in_backticks_would_be_found(text):
    assert not is_known(text)


def test_a_test_in_the_folder_of_a_room_has_the_path_of_its_module():
    """Tests of several rooms are in ``tests/world``."""
    known = {module.name.replace(".", "/") for module in modules()}
    paths = [file.relative_to(TESTS) for file in TESTS.rglob("test_*.py")]
    tested = [
        (path.parent / path.stem.removeprefix("test_")).as_posix()
        for path in paths
        if (PACKAGE / path.parts[0]).is_dir()
    ]
    assert len(tested) > 80
    assert [name for name in tested if name not in known] == []


def test_the_name_of_a_test_is_shorter_than_80_characters():
    texts = (file.read_text() for file in TESTS.rglob("test_*.py"))
    names = [name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)]
    assert len(names) > 2_000
    assert [name for name in names if len(name) >= 80] == []


def test_nothing_catches_every_exception():
    assert [
        f"hookcli.{module.name}:{node.lineno}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and catches_everything(node)
    ] == []


# What starting it costs


@pytest.mark.parametrize(
    "module", ["hookcli", "hookcli.__main__", "hookcli.integrations.pytest_plugin"]
)
def test_importing_imports_nothing_heavy(module):
    assert heavy_after(f"import {module}") == ""


def test_help_of_a_command_imports_nothing_heavy():
    code = (
        "from hookcli import __main__ as entry\n"
        "sys.argv = ['hookcli', 'inspect', '--help']\n"
        "sys.stdout, out = sys.stderr, sys.stdout\n"
        "assert entry._run() == 0\n"
        "sys.stdout = out"
    )
    assert heavy_after(code) == ""


def test_what_runs_before_the_images_are_read_imports_no_torch():
    """hookcli reports a wrong file name at once, not after the three seconds of importing torch."""
    assert "torch" not in heavy_after("import hookcli.plan.prepare").split()


# Reading the source


@functools.cache
def modules() -> tuple[Module, ...]:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts).removesuffix("__init__").removesuffix(".")
        source = file.read_text(encoding="utf-8")
        is_package = file.name == "__init__.py"
        found.append(Module(name, room_of(name), is_package, source, ast.parse(source)))
    return tuple(found)


def room_of(name: str) -> str:
    """The folder directly below ``hookcli`` that a module is in, or the module itself."""
    return name.partition(".")[0]


def is_below(target: str, name: str) -> bool:
    """Whether one module stands below another; in the lowest storey the files stand side by
    side.
    """
    low, high = LEVEL.get(room_of(target), 99), LEVEL[room_of(name)]
    return low < high or low == high == LEVEL["config"]


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Return absolute names of everything that is imported; ``from a import b`` becomes ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages_imported_by(module: Module) -> set[str]:
    """Return the imported top-level packages that are neither hookcli's nor Python's."""
    names = {name.partition(".")[0] for name in imported_names(module.tree)}
    return names - sys.stdlib_module_names - {"hookcli"}


def imports_of_ours(module: Module) -> Iterator[str]:
    """Return which modules of hookcli ``module`` imports, also for types or inside functions.

    ``from hookcli import __version__`` does not count: it imports a constant and no module.
    """
    known = {other.name for other in modules()}
    for name in imported_names(module.tree):
        if name.partition(".")[0] == "hookcli" and name != "hookcli.__version__":
            target = name.partition(".")[2]
            yield target if target in known else target.rpartition(".")[0]


def texts_of(tree: ast.AST) -> Iterator[ast.Constant]:
    """Return the strings in the code, including parts of f-strings, without docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node


def sentences_of_the_core() -> Iterator[tuple[Module, str]]:
    """The texts that may be messages: all with several words, except what options are made of.

    A word that stands alone, such as the name of an option, is data. The schema describes what
    commands print.
    """
    for module in modules():
        if module.room not in ("cli", "__main__", "integrations") and module.name != "verbs.schema":
            of_options = set(texts_of_options(module.tree))
            for text in whole_texts_of(module.tree):
                if " " in text.strip() and text not in of_options:
                    yield module, text


def texts_of_options(tree: ast.Module) -> Iterator[str]:
    """Return the texts with which options are declared, including texts that options share."""
    flags = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node.func) == "Flag"
    ]
    shared = {name_of(argument) for flag in flags for argument in flag.args}
    constants = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and name_of(node.targets[0]) in shared
    ]
    for part in (*flags, *constants):
        yield from whole_texts_of(part)


def has_words_of_the_command_line(text: str) -> bool:
    text = re.sub(r"`hookcli\.[^`]+`", "", OF_OTHERS.sub("", text))  # a verb
    return re.search(r"(^|[^\w-])--?[a-z]|\bhookcli\b", text) is not None


def whole_texts_of(tree: ast.AST) -> Iterator[str]:
    """The strings in the code, those in parts as one: a reference may have a value inside it.

    A name that is only known when the program runs is that of a field which is known to exist.
    """
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "VALUE"
                for part in node.values
            )
    yield from (str(text.value) for text in texts_of(tree) if id(text) not in inside)


def is_known(reference: str) -> bool:
    named = reference.replace("`VALUE", "`seed").replace("hookcli.VALUE", "hookcli.diff")
    return wording.to_words(named) != reference


def name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def catches_everything(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or name_of(kind) in ("Exception", "BaseException") for kind in kinds)


def heavy_after(code: str) -> str:
    """Return which of the heavy packages ``code`` imports in a new interpreter."""
    probe = f"import sys\n{code}\nsys.stdout.write(' '.join(sorted({HEAVY!r} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout


ONLY_POSIX = re.compile(
    r"fcntl|resource|pwd|grp|termios|pty|fork|get(e?[ug]id|rlimit)|dir_fd|statvfs|killpg|mkfifo"
    r"|O_(NOFOLLOW|NONBLOCK|NOCTTY|CLOEXEC|DIRECTORY)|RLIMIT_\w+|SIG(HUP|CHLD|KILL|ALRM|XFSZ)"
    r"|/(dev/(fd|shm)|tmp|proc)\b.*"
)
GUARDED = {  # each with another way on Windows
    "cluster.ray_cluster: /tmp",  # on macOS
    "images.prepare: /dev/shm",
    "images.prepare: SIGCHLD",
    "images.prepare: fork",  # the name of a way to start processes
    *("outside.files: O_NONBLOCK", "outside.files: O_NOCTTY"),
}


def _list_names(node: ast.AST) -> list[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [getattr(node, "module", None) or "", *(each.name for each in node.names)]
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    names = [getattr(node, part, None) for part in ("attr", "arg")]
    return [name for name in names if isinstance(name, str)]


def test_nothing_needs_what_only_posix_has():
    found = {
        f"{module}: {name}"
        for file in PACKAGE.rglob("*.py")
        for module in [".".join(file.relative_to(PACKAGE).with_suffix("").parts)]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in _list_names(node)
        if ONLY_POSIX.fullmatch(name)
    }
    assert found <= GUARDED
