"""Find a model's files in a folder or on the Hugging Face hub, and check its configuration."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from hookcli.config import LARGEST_SIDE
from hookcli.errors import ModelError, RequestError, WeightsError
from hookcli.networks.source import CONNECT_SECONDS, Source
from hookcli.outside.documents import refuse_deep
from hookcli.outside.files import read_regular
from hookcli.outside.foreign import ForeignCode, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.config import ModelRequest

_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_PATHS = ("/", "./", "../", "~")  # the beginnings of names that can only be paths
NAMED = "models on the hub are named ORGANIZATION/NAME"

_MOST_BYTES = 1 << 24  # of a configuration
_SIDES = r"((image|img|input|test_input|crop|pad)_)?size|size_divis\w+|height|width|\w+_edge"
_LARGEST = {  # whole number in a configuration, by key
    re.compile(_SIDES): LARGEST_SIDE,
    re.compile(r".*", re.DOTALL): 1 << 24,  # such as positions, words, and pixels of a picture
}
# Fields of a configuration that name a part of the model
_PARTS = ("backbone", "encoder_name", "hf_model_name", "timm_model_name")
_NAME = re.compile(r"(?!\.)[\w.-]+(/(?!\.)[\w.-]+)?")

ON_HUB = "hf-hub:"  # the beginning of names of repositories, as in timm and open_clip


class Files:
    is_remote: bool  # whether files may be downloaded
    label: str  # where the files come from, for people

    def find(self, name: str) -> Path | None:
        """Return the path of the file ``name``, or None if there is no such file.

        An OSError is raised if the file is not cached and the hub cannot be reached.
        """
        raise NotImplementedError

    def find_parts(self, name: str) -> list[Path]:
        """Return the paths of the files that together hold the weights ``name``.

        The weights are in one file, or in all files that the index ``NAME.index.json`` lists. The
        list is empty if there is neither this file nor an index.
        """
        if file := self.find(name):
            return [file]
        index = self.find(f"{name}.index.json")
        if index is None:
            return []
        names = read_config(index, self.label, self).get("weight_map")
        parts = sorted({*map(str, names.values())}) if isinstance(names, dict) else []
        for part in parts or [""]:
            if part in ("", ".", "..") or {*part} & {*"/\\\0"}:
                raise WeightsError(f"{self.label}: {index.name} is damaged: it names {part!r}")
        found = {part: self.find(part) for part in parts}
        if absent := [part for part, file in found.items() if file is None]:
            raise WeightsError(f"{self.label} lacks a part of its weights: {absent[0]}")
        return [file for file in found.values() if file is not None]


class FolderFiles(Files):
    is_remote = False

    def __init__(self, folder: Path) -> None:
        self._folder, self.label = folder, str(folder)

    def find(self, name: str) -> Path | None:
        file = self._folder / name
        return file if file.is_file() else None


class Repository(Files):
    is_remote = True

    def __init__(self, name: str) -> None:
        fail_fast_offline()
        self._name, _, self._revision = name.partition("@")
        self.label = name

    def find(self, name: str) -> Path | None:
        file = _find_file(self._name, name, self._revision or None)
        if file is not None:
            self._revision = file.parent.name  # the cache has a folder for each commit
            self.label = f"{self._name}@{self._revision[:12]}"
        return file


@dataclass(frozen=True, slots=True)
class FileSource(Source):
    files: Files | None = None  # None if the library itself knows the model
    weight_names: ClassVar[tuple[str, ...]] = ()  # of files of weights, the preferred one first

    def guard(self) -> contextlib.AbstractContextManager[None]:
        return guard_library(self.name, self.files)

    guard_output = guard

    @property
    def most_values(self) -> int | None:
        return None if self.files is None else _count_values_in_memory()

    def find_weights(self) -> list[Path]:
        if self.files is None:
            return []
        return next(([file] for file in map(self.files.find, self.weight_names) if file), [])

    def require_weights(self) -> Path:
        for file in self.find_weights():
            return file
        hint = "`weights='random'`, or `weights=FILE`"
        raise WeightsError(f"{self.name} has no weights ({', '.join(self.weight_names)})", hint)

    def explain_untrained(self, request: ModelRequest) -> str:
        if self.files is None:
            return self.explain_named(request)
        return "" if self.files.is_remote or self.find_weights() else f"{self.name} has no weights"

    def explain_named(self, request: ModelRequest) -> str:
        """Return why the library has no trained weights for this model; "" if it may have some."""
        return ""

    def pin(self, loaded: str) -> str:
        return "pretrained"  # the model's name already chooses one set of weights


def _count_values_in_memory() -> int:
    try:
        bytes_in_all = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this system
        return 1 << 32
    return bytes_in_all // 2  # values of float16


@contextlib.contextmanager
def guard_library(name: str, files: Files | None) -> Iterator[None]:
    """Turn exceptions in a ``with`` block into a ModelError that begins with ``name``.

    If ``files`` is a folder on this machine, code in the block cannot download from the hub.
    """
    from huggingface_hub import constants

    before, is_local = constants.HF_HUB_OFFLINE, isinstance(files, FolderFiles)
    hint = "try it in Python first" if files is None else "its configuration may be damaged"
    constants.HF_HUB_OFFLINE = before or is_local
    try:
        with ForeignCode(name, hint=hint):
            yield
    finally:
        if is_local:
            constants.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def is_folder_or_repository(location: str) -> bool:
    return location.startswith((ON_HUB, *_PATHS)) or _is_folder(location)


def find_files(location: str) -> Files:
    if _is_folder(location):
        return FolderFiles(Path(location).expanduser())
    if location.startswith(_PATHS) or location.count("/") > 1:
        raise RequestError(f"there is no folder {location!r}", NAMED)
    return Repository(location.removeprefix(ON_HUB))


def _is_folder(location: str) -> bool:
    return os.path.isdir(os.path.expanduser(location))  # noqa: PTH111, PTH112  pathlib's may raise


def find_config(files: Files, model: str, name: str = "config.json", hint: str = "") -> Path | None:
    try:
        return files.find(name)
    except OSError as error:
        raise ModelError(
            f"the configuration of {model} is neither cached nor reachable: {first_line(error)}",
            f"on a machine with a network, the first run downloads the model{hint}",
        ) from error


def require_config(
    files: Files, model: str, hint: str, name: str = "config.json"
) -> tuple[Path, dict[str, Any]]:
    file = find_config(files, model, name)
    if file is None:
        raise ModelError(f"{model} has no {name}", hint)
    return file, read_config(file, model, files)


def read_config(file: Path, model: str, files: Files) -> dict[str, Any]:
    # hookcli refuses a number that no model has and, in a folder, a part from outside it.
    what, names = f"{model}: {file.name}", () if files.is_remote else _PARTS
    with ForeignCode(what, verb="cannot be read", hint=""):
        content = json.loads(read_regular(file, _MOST_BYTES))
        refuse_deep(content)
    parts = [("", content)]
    while parts:
        key, value = parts.pop()
        if isinstance(value, dict):
            is_limit = "shortest_edge" in value  # then the longest edge only makes pictures smaller
            parts += ((k, v) for k, v in value.items() if k != "longest_edge" or not is_limit)
        elif isinstance(value, list):
            parts += ((key, each) for each in value)
        elif isinstance(value, int):
            most = next(most for form, most in _LARGEST.items() if form.fullmatch(key))
            if value > most:
                raise ModelError(f"{what}: {key} is {value!s:.20}, but may be at most {most}")
        elif key in names and value and (_is_folder(str(value)) or not _NAME.fullmatch(str(value))):
            raise ModelError(f"{what}: {key} is {value!r}, which is not in the folder")
    return content if isinstance(content, dict) else {}


def is_cached(repository: str, *names: str) -> bool:
    from huggingface_hub import constants, try_to_load_from_cache

    found = (try_to_load_from_cache(repository, name, constants.HF_HUB_CACHE) for name in names)
    return any(isinstance(file, str) for file in found)


def list_cached() -> Iterator[tuple[str, Path]]:
    from huggingface_hub import constants, errors, scan_cache_dir

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except errors.CacheNotFound:
        return
    for repository in sorted(repositories, key=lambda each: str(each.repo_id)):
        revisions = sorted(repository.revisions, key=lambda each: float(each.last_modified))
        if repository.repo_type == "model" and revisions:
            yield repository.repo_id, revisions[-1].snapshot_path


def join_hashes(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _find_file(repository: str, name: str, revision: str | None = None) -> Path | None:
    from huggingface_hub import constants, errors, hf_hub_download

    page = f"{constants.ENDPOINT}/{repository}"
    try:
        with connection_errors():
            return Path(hf_hub_download(repository, name, revision=revision))
    except errors.GatedRepoError as error:
        what = f"{repository} is gated: the hub gives it only to people who have asked for access"
        raise ModelError(what, f"ask on {page}, then log in: hf auth login") from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        what = f"the hub has no model {repository!r} that you may read"
        raise RequestError(what, f"{NAMED}; for a private one, log in: hf auth login") from error
    except errors.RevisionNotFoundError as error:
        hint = f"its branches and tags: {page}/tree/main"
        raise RequestError(f"{repository} has no revision {revision!r}", hint) from error
    except errors.EntryNotFoundError:
        return None


@contextlib.contextmanager
def connection_errors() -> Iterator[None]:
    from huggingface_hub import constants, errors

    http_error = errors.HfHubHTTPError.__bases__[0]  # of the HTTP library that huggingface_hub uses
    try:
        yield
    except errors.LocalEntryNotFoundError as error:
        raise OSError(f"{constants.ENDPOINT} cannot be reached") from error
    except OSError:
        raise
    except http_error as error:
        raise OSError(first_line(error)) from error


def fail_fast_offline() -> None:
    # huggingface_hub retries for most of a minute. Behind a proxy, this function does nothing.
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or any(os.environ.get(name) for name in _PROXIES):
        return
    hub = urlsplit(constants.ENDPOINT)
    address = (hub.hostname or "", hub.port or (80 if hub.scheme == "http" else 443))
    try:
        socket.create_connection(address, CONNECT_SECONDS).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True
