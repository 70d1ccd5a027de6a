"""Check the archive of an exported program (``.pt2``) before torch reads it.

``torch.export.load`` unpickles whatever the archive asks it to. hookcli refuses archives with
pickled objects. That is no complete protection: torch also evaluates expressions of the archive.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

from hookcli.errors import ModelError
from hookcli.networks.torch_archive import list_members, load_archive
from hookcli.outside.foreign import Forgiveness

if TYPE_CHECKING:
    from typing import BinaryIO

_LIBRARIES = "data/aotinductor/"
_CONFIGS = ("weights_config.json", "constants_config.json")
_OBJECTS = ("custom_obj", "opaque_obj")
# Files of torch.save in archives from before torch 2.8
_PICKLED = ("serialized_state_dict", "serialized_constants", "serialized_example_inputs")


def check_archive(file: str, stream: BinaryIO) -> None:
    """Check that torch can read an archive without unpickling objects or loading libraries.

    Tensors that are saved by ``torch.save`` are allowed, if ``weights_only=True`` can load them.
    Damaged archives raise other exceptions than ``ModelError``.
    """
    reason = _find_reason(stream)
    stream.seek(0)
    if reason:
        raise ModelError(
            f"{file!r} {reason}, and loading it would run its code",
            "export the model with tensors alone",
        )


def _find_reason(stream: BinaryIO) -> str:
    """Return why torch would run code of an archive; empty if nothing says so."""
    members = list_members(stream)
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("its members are compressed, which torch never does")
    archive = zipfile.ZipFile(stream)
    for name in archive.namelist():
        # Before torch 2.8, the members were in no folder. Torch ignores the case of their names.
        member = (name.partition("/")[2] or name).lower()
        if member.startswith(_LIBRARIES):
            return "holds a compiled library"
        if member.endswith(".pt") or member.startswith(_PICKLED):
            content = archive.read(name)
            if content and not _is_loadable(content):
                return f"holds a pickled object, in {name}"
        if member.endswith(_CONFIGS) and _asks_for_pickle(json.loads(archive.read(name))):
            return f"holds a pickled object, according to {name}"
    return ""


def _is_loadable(content: bytes) -> bool:
    with Forgiveness():  # whatever fails here, torch tries again and unpickles objects
        load_archive(io.BytesIO(content))
        return True
    return False


def _asks_for_pickle(document: Any) -> bool:
    """Return whether an index names pickled tensors or objects; ValueError if it is damaged."""
    entries = document.get("config") if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        raise ValueError("the index of its tensors has another form")
    return any(
        each.get("use_pickle") or str(each.get("path_name")).startswith(_OBJECTS)
        for each in entries.values()
    )
