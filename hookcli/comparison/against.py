"""The words of ``against``, which say what is different in variant B of ``hookcli compare``."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookcli.config import DTYPES, GRAPH_FILES, MODES, ExportRequest, ModelRequest, VariantRequest
from hookcli.errors import RequestError
from hookcli.outside.flags import list_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.config import RunRequest

_FORMS = (
    "model=M weights=B dtype=D mode=M device=D seed=N threads=N channels-last edit=E prune=P "
    f"image=FILE {' '.join(f'{way}[=FILE]' for way in GRAPH_FILES)} compile"
)
_NAMES = [re.split(r"[=\[]", form)[0] for form in _FORMS.split()]
_BARE = ("channels-last", "compile")  # settings without a value
# The ways of running a model; all but compile also run an existing file
_EXPORTS = (*GRAPH_FILES, "compile")
_MOST_THREADS = 1024


def read_against(words: Sequence[str], request: RunRequest) -> VariantRequest:
    """Return the request for variant B: ``request`` with the changes that ``words`` name."""
    # Only ``edit`` and ``prune`` may occur several times.
    for name, number in Counter(word.partition("=")[0] for word in words).items():
        if number > 1 and name not in ("edit", "prune"):
            raise RequestError(
                f"`against` {name}=… was given {number} times", "one run B at a time: compare twice"
            )
    other = VariantRequest(f"{request.model.name} with {', '.join(words)}", request)
    for word in words:
        name, _, value = word.partition("=")
        if (
            name not in _NAMES
            or (not value and name not in (*_BARE, *_EXPORTS))
            or ("=" in word and (not value or name in _BARE))
        ):
            close = difflib.get_close_matches(name, _NAMES, n=1)
            near = _guess_form(word) or (close[0] if close and name not in _NAMES else "")
            meant = f"did you mean {near}? " if near else ""
            raise RequestError(f"`against` cannot read {word!r}", f"{meant}one of: {_FORMS}")
        other = _change(other, name, value)
    return other


def _guess_form(word: str) -> str:
    """Return the form, such as ``dtype=bfloat16`` for ``bfloat16``; empty without a guess."""
    if word in DTYPES:
        return f"dtype={word}"
    if word in MODES:
        return f"mode={word}"
    if word.endswith((".ckpt", ".pt", ".pth", ".safetensors")):
        return f"weights={word}"
    return ""


def _change(other: VariantRequest, name: str, value: str) -> VariantRequest:
    run = other.run
    if name == "channels-last":
        return replace(other, channels_last=True)
    if name in _EXPORTS:
        if other.export is not None:
            raise RequestError(
                f"`against` {other.export.way} and `against` {name} are two ways to run B",
                "one run B at a time: compare twice",
            )
        return replace(other, export=ExportRequest(name, Path(value) if value else None))
    if name == "threads":
        if not value.isdecimal() or not 1 <= int(value) <= _MOST_THREADS:
            raise RequestError(
                f"`against` threads={value}: not a number from 1 to {_MOST_THREADS}", "threads=1"
            )
        return replace(other, threads=int(value))
    if name == "edit":
        run = replace(run, edits=(*run.edits, value))
    elif name == "prune":
        run = replace(run, prunes=(*run.prunes, value))
    elif name == "image":
        run = replace(run, images=replace(run.images, names=(value,)))
    else:
        run = replace(run, model=_change_model(run.model, name, value))
    return replace(other, run=run)


def _change_model(model: ModelRequest, name: str, value: str) -> ModelRequest:
    if name == "model":
        return replace(model, name=value)
    if name == "seed":
        if not value.isdecimal():
            raise RequestError(f"`against` seed={value}: not a whole number", "seed=1")
        return replace(model, seed=int(value))
    (choices,) = (field.choices for field in list_fields(ModelRequest) if field.name == name)
    if choices and value not in choices:
        raise RequestError(
            f"`against` {name}={value}: no such {name}", f"one of: {', '.join(choices)}"
        )
    changed: dict[str, Any] = {name: value}
    return replace(model, **changed)


def keep_export_in(file: Path, export: ExportRequest | None) -> ExportRequest:
    """Return the request for an export that is kept in a file."""
    if export is None or export.file is not None or export.way in _BARE:
        raise RequestError(
            "`keep_export` needs a model to export",
            "`against=['onnx']`, or `against=['torch-export']`",
        )
    return replace(export, keep=file)
