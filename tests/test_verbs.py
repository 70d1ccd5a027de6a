"""All verbs: what importing them costs, and their names."""

from __future__ import annotations

import random
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import hookcli
from hookcli.verbs.subjects import COMMANDS

HOME = Path(hookcli.__file__).parent
HEAVY = ("numpy", "torch", "typer", "rich", "matplotlib")


def test_importing_a_verb_imports_neither_numpy_nor_torch_nor_the_terminal():
    modules = [f"hookcli.verbs.{file.stem}" for file in (HOME / "verbs").glob("[a-z]*.py")]
    code = f"import {', '.join(modules)}, sys; print(*({{*{HEAVY}}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("seed", range(2))
def test_every_verb_is_there_whatever_was_imported_before(seed):
    """``import hookcli.comparison.diff`` would make ``hookcli.compare`` a package."""
    files = [file.relative_to(HOME.parent).with_suffix("") for file in HOME.rglob("*.py")]
    names = [".".join(file.parts).removesuffix(".__init__") for file in files]
    names = [name for name in names if not name.startswith(("hookcli.cluster", "hookcli.__main__"))]
    random.Random(seed).shuffle(names)
    code = (
        "import hookcli\nfrom importlib import import_module\n"
        f"for name in {names}: import_module(name)\n"
        f"print([name for name in {[*COMMANDS]} if not callable(getattr(hookcli, name))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_stub_is_what_the_code_says():
    """If it is not: make docs-reference."""
    stub = runpy.run_path(str(HOME.parent / "tools" / "stub.py"))
    assert stub["render"]() == (HOME / "__init__.pyi").read_text()
