"""The structure of the package: which module may import which, and what starting it costs.

Everything is read from the source with ``ast``; only the last tests start Python.
"""

from __future__ import annotations

import ast
import functools
import gc
import graphlib
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hookcli
from hookcli.cli.output import wording
from hookcli.outside.flags import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    "torch": "activations cluster comparison edits hooks images integrations networks passes plan "
    "products run store",
    "torchvision": "networks",
    "timm": "networks",
    "open_clip": "networks",
    "onnx": "networks passes",
    "onnxruntime": "passes",
    "ray": "cluster",
    "filelock": "outside",
    "fsspec": "store",
    "huggingface_hub": "networks",
    "safetensors": "analysis images networks store",
    "scipy": "analysis",  # comes with scikit-learn
    "sklearn": "analysis",
    "threadpoolctl": "analysis",
    "pillow_heif": "images",
    "pydicom": "images",
    "cv2": "networks",
    "tifffile": "images",
    "numpy": "analysis comparison distance images integrations networks passes reading render "
    "summary verbs",
    "PIL": "analysis images networks outside passes reading render",
    "pyarrow": "analysis reading store",
    "matplotlib": "render",
    "jinja2": "render",
    "markupsafe": "render",
    "msgspec": "outside",
    "pytest": "integrations",
    "rich": "cli",
    "typer": "__main__ cli",
    "_typeshed": "outside verbs",
}
# What messages may have: commands of other programs, the name of the module, and CSS.
OF_OTHERS = re.compile(
    r"pip install( --upgrade)?( '?hookcli)?|python -c|ray start --head|ffmpeg -i|pdftoppm -png"
    r"|module 'hookcli'|; --columns: "
)
HEAVY = {"torch", "torchvision", "matplotlib", "rich", "numpy", "PIL", "pyarrow", "jinja2"}
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


@dataclass(frozen=True, eq=False)
class Module:
    name: str  # without "hookcli."; empty for the package itself
    is_package: bool
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @property
    def room(self) -> str:
        return room_of(self.name)


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
    """So that ``hooks/observe.py`` is not hidden by a function of that name."""
    assert [
        module.name
        for module in modules()
        if module.is_package and module.name and len(module.tree.body) != 1
    ] == []


def test_no_two_modules_import_each_other_even_around_a_corner():
    graph = {module.name: set(imports_of_ours(module)) - {module.name} for module in modules()}
    assert tuple(graphlib.TopologicalSorter(graph).static_order())


def test_third_party_packages_are_imported_in_their_rooms_and_in_no_others():
    granted = {(package, room) for package, rooms in THIRD_PARTY.items() for room in rooms.split()}
    assert {
        (package, module.room) for module in modules() for package in packages_imported_by(module)
    } == granted


def test_hooks_are_registered_only_in_the_room_of_hooks():
    names = ((module.name, name_of(node)) for module in modules() for node in module.nodes)
    assert {m for m, name in names if re.fullmatch(r"register_(.*_)?hook", name)} == {
        "hooks.register"
    }


def test_a_model_is_called_in_one_place():
    """A second place would also have to tell the model's errors from hookcli's own."""
    assert {
        module.name
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.Call) and name_of(node.func) in ("model", "module", "backward")
        if ast.unparse(node.func) != "program.module"  # returns the module of an exported program
    } == {"passes.call"}


def test_only_main_ends_the_process():
    """A command returns its exit code; ``memory.end_process`` is called by ``__main__`` alone."""
    ends = {"Exit", "exit", "_exit", "end_process"}
    assert {
        (module.name, name_of(node))
        for module in modules()
        for node in module.nodes
        if name_of(node) in ends
    } == {("__main__", "Exit"), ("__main__", "end_process"), ("cli.memory", "_exit")}


def test_sentences_of_the_core_have_no_words_of_the_command_line():
    """Somebody who called a function types no options; ``cli/output/wording`` makes them."""
    assert [
        f"hookcli.{module.name}: {text!r}"
        for module in core()
        if module.name != "verbs.schema"  # which describes what commands print
        for text in texts_of(module.nodes) - texts_of_options(module)
        if " " in text.strip() and has_words_of_the_command_line(text)
    ] == []
    for text in ("--seed must be", "choose another -o", "leave '--seed' out", "see hookcli layers"):
        assert has_words_of_the_command_line(text)


def test_what_a_sentence_of_the_core_names_in_backticks_exists():
    """A field with an option, or a function with a command; others could not be translated."""
    assert [
        f"hookcli.{module.name}: {reference}"
        for module in core()
        for text in texts_of(module.nodes) - {REFERENCE.pattern}
        for reference in re.findall(r"`[^`(\\][^`]*`", text)
        if not is_known(reference)
    ] == []
    for reference in ("`sead`", "`sead=3`", "`save.seed`", "`list_layers(MODEL)`"):
        assert not is_known(reference)


def test_nothing_needs_what_only_posix_has():
    assert {
        f"{module.name}: {name}"
        for module in modules()
        for node in module.nodes
        for name in list_names(node)
        if ONLY_POSIX.fullmatch(name)
    } <= GUARDED


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


# What starting it costs


def test_importing_imports_nothing_heavy():
    started = "import hookcli, hookcli.__main__, hookcli.integrations.pytest_plugin"
    assert heavy_after(started) == ""


def test_what_runs_before_the_images_are_read_imports_no_torch():
    """hookcli reports a wrong file name at once, not after the three seconds of importing torch."""
    assert "torch" not in heavy_after("import hookcli.plan.prepare").split()


def heavy_after(code: str) -> str:
    probe = f"import sys\n{code}\nsys.stdout.write(' '.join(sorted({HEAVY!r} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout


# Reading the source


@functools.cache
def modules() -> tuple[Module, ...]:
    gc.disable()  # a million nodes that stay: looking for garbage among them takes a second
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts).removesuffix("__init__").removesuffix(".")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found.append(Module(name, file.name == "__init__.py", tree, tuple(ast.walk(tree))))
    gc.freeze()
    gc.enable()
    return tuple(found)


def core() -> Iterator[Module]:
    return (each for each in modules() if each.room not in ("cli", "__main__", "integrations"))


def room_of(name: str) -> str:
    return name.partition(".")[0]


def is_below(target: str, name: str) -> bool:
    low, high = LEVEL.get(room_of(target), 99), LEVEL[room_of(name)]
    return low < high or low == high == LEVEL["config"]


@functools.cache
def imported_names(module: Module) -> tuple[str, ...]:
    names: list[str] = []
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names += (f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(names)


def packages_imported_by(module: Module) -> set[str]:
    names = {name.partition(".")[0] for name in imported_names(module)}
    return names - sys.stdlib_module_names - {"hookcli"}


def imports_of_ours(module: Module) -> Iterator[str]:
    """Return which modules of hookcli ``module`` imports, also for types or inside functions.

    ``from hookcli import __version__`` does not count: it imports a constant and no module.
    """
    known = {other.name for other in modules()}
    for name in imported_names(module):
        if name.partition(".")[0] == "hookcli" and name != "hookcli.__version__":
            target = name.partition(".")[2]
            yield target if target in known else target.rpartition(".")[0]


def texts_of(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the texts without docstrings; of a text in parts, VALUE stands for what is filled in.

    A name that is only known when the program runs is that of a field which is known to exist.
    """
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    left_out = {id(part) for node in joined for part in node.values}
    left_out |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    whole = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in left_out
    }
    return whole | {
        "".join(str(p.value) if isinstance(p, ast.Constant) else "VALUE" for p in node.values)
        for node in joined
    }


def texts_of_options(module: Module) -> set[str]:
    calls = [node for node in module.nodes if isinstance(node, ast.Call)]
    flags = [call for call in calls if name_of(call.func) == "Flag"]
    shared = {name_of(argument) for flag in flags for argument in flag.args}
    constants = [
        node.value
        for node in module.tree.body
        if isinstance(node, ast.Assign) and name_of(node.targets[0]) in shared
    ]
    return {text for part in (*flags, *constants) for text in texts_of([*ast.walk(part)])}


def has_words_of_the_command_line(text: str) -> bool:
    text = re.sub(r"`hookcli\.[^`]+`", "", OF_OTHERS.sub("", text))  # a verb
    return re.search(r"(^|[^\w-])--?[a-z]|\bhookcli\b", text) is not None


@functools.cache
def is_known(reference: str) -> bool:
    named = reference.replace("`VALUE", "`seed").replace("hookcli.VALUE", "hookcli.diff")
    return wording.to_words(named) != reference


def name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def list_names(node: ast.AST) -> list[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [getattr(node, "module", None) or "", *(each.name for each in node.names)]
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    names = [getattr(node, part, None) for part in ("attr", "arg")]
    return [name for name in names if isinstance(name, str)]
