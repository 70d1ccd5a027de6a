"""What a file holds that is no state dict, told without running anything in it."""

from __future__ import annotations

import io
import json
import pickletools
import shlex
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.files import open_regular

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

_WRAPPERS = ("state_dict", "model_state_dict", "model")
_OURS = ("torch.", "collections.", "__builtin__.", "builtins.")  # what state dicts are made of
_MODULES = "torch.nn.modules."
_MOST = 1 << 24  # bytes of a pickle that are looked at


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a file holds.

    Attributes:
        what: the content in words, after "holds"; empty if it is a state dict, or unknown.
        model: the Python expression that makes an ``nn.Module`` of it; empty if nothing does.
        state: the Python expression that makes a state dict of it; empty if nothing does.
    """

    what: str = ""
    model: str = ""
    state: str = ""

    def save_weights(self, file: Path) -> str:
        """Return the command that saves the weights in a file alone, which runs what is in it."""
        code = f"import torch; torch.save({self.state}, {json.dumps(weights_name(file))})"
        return f"python -c {shlex.quote(code)}"


def weights_name(file: Path) -> str:
    """Return the name under which ``FileKind.save_weights`` saves what is in a file."""
    return str(file.with_name(f"{file.stem}-weights.pt"))


def find_kind(file: Path) -> FileKind:
    """Return what a file holds, as far as its suffix, its members and the classes in it tell."""
    if file.suffix == ".onnx":
        return FileKind("an ONNX graph")
    with (
        suppress(OSError, ValueError, zipfile.BadZipFile),
        open_regular(file) as stream,
        zipfile.ZipFile(stream) as archive,
    ):
        return _find_archive(json.dumps(str(file)), archive)
    return FileKind()


def _find_archive(name: str, archive: zipfile.ZipFile) -> FileKind:
    """Return what an archive of torch holds.

    Args:
        name: the file's name as a Python string in double quotes.
        archive: the archive; its members are in one folder, except those of old programs.
    """
    members = {member.partition("/")[2] or member: member for member in archive.namelist()}
    if "constants.pkl" in members:
        return FileKind("a TorchScript program", state=f"torch.jit.load({name}).state_dict()")
    if any(member.startswith(("models/", "serialized_exported")) for member in members):
        return FileKind("an exported program", state=f"torch.export.load({name}).state_dict")
    if "data.pkl" not in members:
        return FileKind()
    with archive.open(members["data.pkl"]) as data:
        return _find_pickle(f"torch.load({name}, weights_only=False)", data)


def _find_pickle(load: str, data: IO[bytes]) -> FileKind:
    """Return what a pickle holds, by the first class in it that a state dict does not have.

    Args:
        load: the Python expression that loads the pickle.
        data: the pickle.
    """
    classes, keys = _list_names(data)
    foreign = next((each for each in classes if not each.startswith(_OURS)), "")
    wrapper = next((key for key in _WRAPPERS if key in keys), "")
    modules = [each for each in classes if each.startswith(_MODULES)]
    if modules and wrapper in ("", "model"):
        model = f'{load}["model"]' if wrapper else load
        return FileKind(f"a whole model ({foreign or modules[0]})", model, f"{model}.state_dict()")
    if not foreign and not modules:
        return FileKind()
    state = f'{load}["{wrapper}"]' if wrapper else ""
    return FileKind(f"more than tensors ({foreign or modules[0]})", state=state)


def _list_names(data: IO[bytes]) -> tuple[list[str], set[str]]:
    """Return the classes and functions that a pickle names, in order, and the texts in it."""
    classes: list[str] = []
    texts: set[str] = set()
    with suppress(ValueError, IndexError):  # damaged, or cut short
        for code, argument, _ in pickletools.genops(io.BytesIO(data.read(_MOST))):
            if code.name == "GLOBAL":
                classes.append(str(argument).replace(" ", "."))
            elif isinstance(argument, str):
                texts.add(argument)
    return classes, texts
