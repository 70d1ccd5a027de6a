"""``pip install 'hookcli[NAME]'``, which hints and documents say, installs what it should."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent.parent
EXTRAS = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_extra_is_named_as_the_metadata_of_packages_name_it():
    files = [*HOME.glob("*.*"), *HOME.glob("docs/**/*.md"), *HOME.glob("hookcli/**/*.py")]
    texts = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    named = re.findall(r"(?:hookcli|\.)\[([\w.,-]+)\]['\"]", texts)
    required = re.findall(r'require_package\([^)]*"([\w.-]+)"\)', texts)
    assert {*",".join(named).split(","), *required} == {*EXTRAS}
    assert [name for name in EXTRAS if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name)] == []


@pytest.mark.integrations
def test_the_pip_of_python_3_11_finds_the_packages_of_every_extra(tmp_path):
    """Until version 23.3, pip knows an extra only by the very name that the metadata have."""
    python = tmp_path / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "pip==23.2", HOME], check=True)
    (metadata,) = tmp_path.glob("**/hookcli-*.dist-info/METADATA")
    kept = re.sub(r"Requires-Dist: (?!.*extra ==).*\n", "", metadata.read_text(encoding="utf-8"))
    metadata.write_text(kept, encoding="utf-8")  # without what every user has, such as torch
    for name in EXTRAS:
        words = [*pip, "--dry-run", "--no-index", f"hookcli[{name}]"]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
        assert f"""extra == '{name}'""" in said.replace('"', "'"), said
