"""Weights as a state dict: from torchvision's servers, torch's cache, or a file of the user's."""

from __future__ import annotations

import http.client
import pickle
import re
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from hookcli.errors import WeightsError, first_line
from hookcli.files import NotRegularError, open_regular
from hookcli.models.catalog import cache_file
from hookcli.records import shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import BufferedReader
    from pathlib import Path

CONNECT_SECONDS = 10
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")
UNREACHABLE = (OSError, http.client.HTTPException)
UNREADABLE = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    SafetensorError,
)
_WRAPPERS = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "_orig_mod.", "model.")
_HASH = re.compile(
    r"-([a-f0-9]*)\."
)  # torchvision puts the start of the sha256 into the file's name


def cache_weights(member: Any, *, progress: bool) -> Path:
    """The file of a torchvision weights member in torch's cache, downloaded if it is not there.

    Raises:
        WeightsError: the file that came has another hash.
        OSError: the network, or the cache folder, is out of reach (``UNREACHABLE``).
    """
    file = cache_file(member.url)
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    digest = _HASH.search(member.url)
    try:
        with _connection_timeout():
            torch.hub.download_url_to_file(
                member.url, str(file), digest[1] if digest else None, progress=progress
            )
    except UNREACHABLE as error:
        if isinstance(error, HTTPError):
            error.close()
        raise
    except RuntimeError as error:
        raise WeightsError(
            f"the download of {member} is not what torchvision published: {first_line(error)}",
            "try again, or pass a file you trust: --weights FILE",
        ) from error
    return file


def read_weights_file(file: Path) -> dict[str, Tensor]:
    """The state dict in a ``.pth``, ``.pt`` or ``.safetensors`` file, unwrapped and without prefixes.

    Raises:
        WeightsError: it cannot be read, holds no tensors, or would have to be unpickled.
    """
    try:
        with open_regular(file) as stream:
            content = _load(file, stream)
    except NotRegularError as error:
        raise WeightsError(f"cannot read the weights {file}: it is not a regular file") from error
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{file} holds more than tensors, and loading it would run its code",
            "save only the weights: torch.save(model.state_dict(), FILE)",
        ) from error
    except (OSError, *UNREADABLE) as error:
        raise WeightsError(
            f"cannot read the weights {file}: damaged or cut short ({first_line(error)})"
        ) from error
    return _unwrap(file, content)


def check_fit(file: str, state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """See that ``state`` has exactly the keys and shapes of ``expected``.

    Raises:
        WeightsError: it has not; names the first few differences and counts the rest.
    """
    missing = [key for key in expected if key not in state]
    unexpected = [key for key in state if key not in expected]
    misshaped = [
        f"{key} is {shape_text(state[key].shape)} and not {shape_text(expected[key].shape)}"
        for key in expected
        if key in state and state[key].shape != expected[key].shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": misshaped}
    problems = [f"{len(keys)} {kind} ({_some(keys)})" for kind, keys in kinds.items() if keys]
    if problems:
        raise WeightsError(
            f"{file} does not fit the model: {'; '.join(problems)}",
            "is it for another model? see the names with: hookcli layers MODEL",
        )


def _load(file: Path, stream: BufferedReader) -> Any:
    """What is in a file, read from its open stream alone: the name may stand for something else by now."""
    if file.suffix == ".safetensors":
        return load_file(f"/dev/fd/{stream.fileno()}")
    if not _is_torch_file(stream):
        raise WeightsError(f"cannot read the weights {file}: not a file that torch has saved")
    return torch.load(stream, map_location="cpu", weights_only=True)


def _is_torch_file(stream: BufferedReader) -> bool:
    """Whether a file begins like a zip archive or, from before torch 1.6, like a pickle."""
    start = stream.read(4)
    stream.seek(0)
    return start.startswith((b"PK\x03\x04", b"\x80"))


def _unwrap(file: Path, content: object) -> dict[str, Tensor]:
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict):
        raise WeightsError(f"{file} holds a {type(content).__name__}, not a state dict")
    state = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if not state:
        raise WeightsError(f"{file} holds no tensors")
    if any(value.is_meta for value in state.values()):
        raise WeightsError(f"{file} holds tensors of the meta device, which have no values")
    state = {_OLD_DENSENET.sub(r"\1\2.", key): value for key, value in state.items()}
    while prefix := next((p for p in _PREFIXES if all(key.startswith(p) for key in state)), ""):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state


@contextmanager
def _connection_timeout() -> Iterator[None]:
    """Let no connection of torch.hub hang: it sets no timeout of its own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(CONNECT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _some(keys: list[str], most: int = 3) -> str:
    rest = len(keys) - most
    return ", ".join(keys[:most]) + (f" and {rest} more" if rest > 0 else "")
