"""Send the user's own code to the nodes of a cluster, as the working directory of Ray's workers."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.config import GradientsConfig
from hookcli.networks.code_files import split_name

if TYPE_CHECKING:
    from hookcli.config import RunConfig


def copy_code(config: RunConfig, target: Path) -> bool:
    """Copy the .py files of ``config``, and those beside them; return whether there are any."""
    folders = {Path(origin).parent for origin in _list_origins(config)}
    for folder in folders:
        copies = target / _name_folder(folder)
        copies.mkdir(parents=True)
        for file in _list_files(folder):
            (copies / file.name).write_bytes(file.read_bytes())
    return bool(folders)


def hash_own_code(config: RunConfig) -> str:
    digest = hashlib.sha256()
    origins = _list_origins(config)
    for origin in origins:
        for file in _list_files(Path(origin).parent):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest() if origins else ""


def find_code(config: RunConfig, sent: Path) -> RunConfig:
    """Return ``config``, with copies in ``sent`` in place of the .py files that this node lacks."""
    model = replace(config.run.model, name=_find(config.run.model.name, sent))
    config = replace(config, run=replace(config.run, model=model))
    if not isinstance(config, GradientsConfig):
        return config
    backward = replace(config.backward, score=_find(config.backward.score, sent))
    return replace(config, backward=backward)


def _list_origins(config: RunConfig) -> list[str]:
    names = [config.run.model.name, "" if config.backward is None else config.backward.score]
    origins = [split_name(name)[0] for name in names]
    return [origin for origin in origins if origin.endswith(".py")]


def _list_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.py") if file.is_file())


def _find(name: str, sent: Path) -> str:
    origin, attribute = split_name(name)
    if not origin.endswith(".py") or Path(origin).is_file():
        return name
    return f"{sent / _name_folder(Path(origin).parent) / Path(origin).name}:{attribute}"


def _name_folder(folder: Path) -> str:
    return f"code-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
