"""All verbs: what importing them costs, and their names."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import hookcli
from hookcli.verbs.subjects import COMMANDS

HOME = Path(hookcli.__file__).parent
HEAVY = ("numpy", "torch", "typer", "rich", "matplotlib")


def test_importing_a_verb_imports_neither_numpy_nor_torch_nor_the_terminal():
    modules = [f"hookcli.verbs.{file.stem}" for file in (HOME / "verbs").glob("[a-z]*.py")]
    code = f"import {', '.join(modules)}, sys; print(*({{*{HEAVY}}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_verb_is_there_whatever_is_imported():
    """To import ``hookcli.compare.diff`` would make ``hookcli.compare`` a package."""
    assert {file.stem for file in HOME.iterdir()} & {*COMMANDS} == set()
    assert [name for name in COMMANDS if not callable(getattr(hookcli, name))] == []


def test_the_package_says_that_it_has_types():
    assert (HOME / "py.typed").is_file()


def test_the_stub_is_what_the_code_says():
    """If it is not: make docs-reference."""
    stub = runpy.run_path(str(HOME.parent / "tools" / "stub.py"))
    assert stub["render"]() == (HOME / "__init__.pyi").read_text()
