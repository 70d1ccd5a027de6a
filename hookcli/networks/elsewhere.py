"""What to type in hookcli to inspect a model of another library, or a model in a file."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.errors import RequestError
from hookcli.networks.code_files import list_definitions, split_name
from hookcli.networks.file_kind import UNKNOWN, WEIGHTS, find_kind, save_line, weights_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.networks.source import Source

_FILES = (".bin", ".ckpt", ".h5", ".onnx", ".pb", ".pkl", ".pt", ".pt2", ".pth", ".safetensors")
_NAMES = "models are named like resnet18, timm:NAME, hf:NAME or FILE.py:FUNCTION"
_LIBRARIES = {  # by the form of their names: the library, and the code that makes a model
    r"(yolo\w*?\d\w*)(?:\.pt)?": (
        "ultralytics",
        'from ultralytics import YOLO; make = lambda: YOLO("{}.pt").model',
    ),
    r"([\w.-]+/[\w.-]+):(\w+)": (
        "torch.hub",
        'import torch; make = lambda: torch.hub.load("{}", "{}")',
    ),
}
_ON_HUB = re.compile(r"(?:(?:hf[-_]hub|huggingface|transformers):)?([\w.-]+/[\w.-]+)")


def find_elsewhere(name: str, sources: Sequence[type[Source]]) -> RequestError | None:
    """Return an error that says what to type instead of ``name``, unless hookcli may know it."""
    place, function = split_name(name) if ":" in name else (name, "")
    if name == place and name.endswith(".py"):
        names = ", ".join(f"{name}:{each}" for each in list_definitions(Path(name))[:3])
        return RequestError(
            f"{name!r} is a file, not a model in it", names or "write FILE.py:FUNCTION"
        )
    if place.endswith(".py") or any(name in source.list_names() for source in sources):
        return None
    if _is_file(name):
        return _explain_file(name)
    if "/" in place and _is_file(f"{place}.py"):
        return RequestError(
            f"no model is called {name!r}", f"is it {place}.py:{function or 'FUNCTION'}?"
        )
    corrections = (source.correct(name) for source in sources)
    if error := next(filter(None, corrections), None):
        return error
    for form, (library, code) in _LIBRARIES.items():
        if found := re.fullmatch(form, name):
            return _explain_code(f"{name!r} is a model of {library}", code.format(*found.groups()))
    if _may_be_file(name):
        return RequestError(f"there is no file {name!r}", _NAMES)
    if on_hub := _ON_HUB.fullmatch(name):
        return RequestError(f"{name!r} is the name of a model on the hub", f"hf:{on_hub[1]}")
    return None


def _is_file(name: str) -> bool:
    return "." in name and os.path.isfile(name)  # noqa: PTH113  pathlib's may raise


def _may_be_file(name: str) -> bool:
    folder = os.path.dirname(name)  # noqa: PTH120
    is_in_folder = folder != "" and os.path.isdir(folder)  # noqa: PTH112  pathlib's may raise
    return name.lower().endswith(_FILES) or is_in_folder


def _explain_file(name: str) -> RequestError:
    file = Path(name)
    kind = find_kind(file)
    if kind == UNKNOWN:
        return RequestError(f"{name!r} is a file without a model", _NAMES)
    if kind == WEIGHTS:
        return RequestError(
            f"{name!r} holds weights, and no module to put hooks into",
            f"name the model, and load the file with `weights={name!r}`",
        )
    if kind.model:
        return _explain_code(
            f"{name!r} holds {kind.what}, and loading it would run its code",
            f"import torch; make = lambda: {kind.model}",
        )
    if kind.state:
        return RequestError(
            f"{name!r} holds {kind.what}, and no module to put hooks into",
            f"{save_line(file, kind.state)}; then `weights={weights_name(file)!r}`",
        )
    return RequestError(
        f"{name!r} holds {kind.what}, and a PyTorch model is needed here",
        "name the code that it was made from: FILE.py:FUNCTION",
    )


def _explain_code(message: str, code: str) -> RequestError:
    line = f"echo {shlex.quote(code)} > net.py; the model is then net.py:make"
    return RequestError(message, line)
