"""Check the archive of an exported program (``.pt2``) before torch reads it.

``torch.export.load`` unpickles whatever the archive asks it to. hookcli refuses archives with
pickled objects. That is no complete protection: torch also evaluates expressions of the archive.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import torch

from hookcli.errors import ModelError
from hookcli.models.file_kind import DAMAGED
from hookcli.outside.files import open_regular
from hookcli.outside.foreign import first_line

if TYPE_CHECKING:
    from pathlib import Path

_LIBRARIES = "data/aotinductor/"
_CONFIGS = ("weights_config.json", "constants_config.json")
_OBJECTS = ("custom_obj", "opaque_obj")


def check_archive(file: Path) -> None:
    """Check that torch can read an archive without unpickling objects or loading libraries.

    Tensors that are saved by ``torch.save`` are allowed, if ``weights_only=True`` can load them.

    Raises:
        OSError: the file cannot be read.
        ModelError: the archive holds more than tensors, or it is damaged.
    """
    try:
        with open_regular(file) as stream, zipfile.ZipFile(stream) as archive:
            reason = _find_reason(archive)
    except DAMAGED as error:
        raise ModelError(
            f"{str(file)!r} is damaged, or no exported program: {first_line(error)}",
            "make it with torch.export.save",
        ) from error
    if reason:
        raise ModelError(
            f"{str(file)!r} {reason}, and loading it would run its code",
            "export the model with tensors alone",
        )


def _find_reason(archive: zipfile.ZipFile) -> str:
    """Return why torch would run code of an archive; empty if nothing says so."""
    # A ``ValueError`` refuses members with the same name, and compressed ones, which torch never
    # writes.
    # Before torch 2.8, the members were in no folder. Torch ignores the case of their names.
    members = {(name.partition("/")[2] or name).lower(): name for name in archive.namelist()}
    if len(members) < len(archive.namelist()):
        raise ValueError("several members have the same name")
    if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
        raise ValueError("its members are compressed")
    for member, name in members.items():
        if member.startswith(_LIBRARIES):
            return "holds a compiled library"
        if member.endswith(".pt") and not _is_loadable(archive.read(name)):
            return f"holds a pickled object, in {name}"
        if member.endswith(_CONFIGS) and _asks_for_pickle(json.loads(archive.read(name))):
            return f"holds a pickled object, according to {name}"
    return ""


def _is_loadable(content: bytes) -> bool:
    """Return whether torch can load a file of ``torch.save`` without running code."""
    if not content:
        return True
    try:
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        return False
    return True


def _asks_for_pickle(document: Any) -> bool:
    """Return whether an index names pickled tensors or objects; ValueError if it is damaged."""
    entries = document.get("config") if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        raise ValueError("the index of its tensors has another form")
    return any(
        each.get("use_pickle") or str(each.get("path_name")).startswith(_OBJECTS)
        for each in entries.values()
    )
