"""Names and files of models that are made elsewhere: what to type to inspect them here."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from hookcli.errors import RequestError
from hookcli.models.zoo.catalog import list_names
from hookcli.models.zoo.file_kind import find_kind, weights_name
from hookcli.models.zoo.timm_models import is_timm_name

_FILES = (".bin", ".ckpt", ".h5", ".onnx", ".pb", ".pkl", ".pt", ".pt2", ".pth", ".safetensors")
_NAMES = "models are named like resnet18, timm:NAME or FILE.py:FUNCTION"
_TIMM = re.compile(r"(?:hf[-_]hub:|hf:)?timm/([\w.-]+)")
_NAME = r"([\w.-]+/[\w.-]+)"
_TRANSFORMERS = (
    "is the name of a model on a hub, which hookcli does not load",
    (
        "from transformers import AutoModelForImageClassification as Auto; "
        'make = lambda: Auto.from_pretrained("{}")'
    ),
)
# A form of names, what it is, and the Python that makes the model it names.
_LIBRARIES = (
    (
        r"(yolo\w*?\d\w*)(?:\.pt)?",
        "is a model of ultralytics",
        'from ultralytics import YOLO; make = lambda: YOLO("{}.pt").model',
    ),
    (r"(?:hf|hf[-_]hub|huggingface|transformers):([\w./-]+)", *_TRANSFORMERS),
    (_NAME, *_TRANSFORMERS),
    (
        rf"{_NAME}:(\w+)",
        "is a model of torch.hub",
        'import torch; make = lambda: torch.hub.load("{}", "{}")',
    ),
)


def find_elsewhere(name: str) -> RequestError | None:
    """Return what to say of a name that hookcli does not know, but its file or others do.

    Args:
        name: the name of a model; None is returned for those that hookcli may know.
    """
    if name.endswith(".py") or ".py:" in name or name in list_names():
        return None
    is_file = name.lower().endswith(_FILES)
    if is_file and os.path.isfile(name):  # noqa: PTH113  pathlib's may raise
        return _explain_file(name)
    if timm := _TIMM.fullmatch(name):
        return RequestError(f"no model is called {name!r}", f"timm:{timm[1]}")
    for form, what, code in _LIBRARIES:
        if found := re.fullmatch(form, name):
            return _explain_code(f"{name!r} {what}", code.format(*found.groups()))
    if is_file:
        return RequestError(f"there is no file {name!r}", _NAMES)
    if ":" not in name and is_timm_name(name):
        return RequestError(f"torchvision has no {name!r}, but timm has", f"timm:{name}")
    return None


def _explain_file(name: str) -> RequestError:
    """Return why a file is not the name of a model, and what to type."""
    file = Path(name)
    kind = find_kind(file)
    if kind.model:
        return _explain_code(
            f"{name!r} holds {kind.what}, and loading it would run its code",
            f"import torch; make = lambda: {kind.model}",
        )
    if kind.what and not kind.state:
        return RequestError(
            f"{name!r} holds {kind.what}, and hookcli inspects PyTorch modules",
            "name the code that it was made from: hookcli inspect FILE.py:FUNCTION IMAGE",
        )
    words = f"{name!r} holds {kind.what or 'weights'}, and no module to put hooks into"
    command = "hookcli inspect MODEL IMAGE --weights"
    if kind.state:
        return RequestError(
            words, f"{kind.save_weights(file)}; {command} {shlex.quote(weights_name(file))}"
        )
    return RequestError(words, f"name the model, too: {command} {shlex.quote(name)}")


def _explain_code(message: str, code: str) -> RequestError:
    """Return an error that says which line of Python makes the model."""
    line = f"echo {shlex.quote(code)} > net.py; hookcli inspect net.py:make IMAGE"
    return RequestError(message, line)
