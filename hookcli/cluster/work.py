"""Define what the driver and its workers send each other, and what must be equal on all nodes."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli import errors
from hookcli.cluster.code import hash_own_code
from hookcli.images.read import file_state
from hookcli.networks.fingerprint import hash_weights
from hookcli.networks.load import LoadedModel
from hookcli.networks.source import find_versions
from hookcli.passes.environment import list_packages
from hookcli.store.locations.folders import open_folder
from hookcli.store.locations.names import REQUEST

if TYPE_CHECKING:
    from hookcli.cluster.weights import SentWeights
    from hookcli.config import RunConfig
    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageSource
    from hookcli.outside.urls import Location
    from hookcli.plan.prepared import PreparedModel, RunSettings
    from hookcli.run.chunk_runner import ChunkStart
    from hookcli.summary.chunks import Chunk
    from hookcli.summary.top_images import TopTally


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    settings: RunSettings
    fitter: Fitter
    first: ImageSource  # the first image of the run that can be used
    folder: Location  # the run folder, as a full path or a URL
    home: Path  # the working directory of the driver, to which file names are relative
    threads: int
    weights: SentWeights | None = None  # for nodes that lack them; None if no file is needed


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The versions and hashes of a worker's node, by name; each must equal the driver's."""

    node: str
    facts: dict[str, str]


@dataclass(frozen=True, slots=True)
class Work:
    """A chunk of images that a worker runs."""

    number: int  # of the chunk in the run, counted from 0
    sources: tuple[ImageSource, ...]
    first_image: int  # the position of the chunk's first image in the run, from 0
    start: ChunkStart  # facts from earlier chunks, such as the shape of the input


@dataclass(frozen=True, slots=True)
class ChunkResult:
    chunk: Chunk
    tops: list[TopTally]
    node: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """An error that a worker sends to the driver, with the errno that pickling would lose."""

    raised: errors.HookcliError
    part: Chunk | None  # what was observed before the model failed; None after any other error
    errno: int | None  # of the system error that was the cause, such as ENOSPC

    @classmethod
    def from_error(cls, error: errors.HookcliError, part: Chunk | None = None) -> WorkerFailure:
        return cls(error, part, getattr(error.__cause__, "errno", None))

    def error(self) -> errors.HookcliError:
        if self.errno is not None:
            self.raised.__cause__ = OSError(self.errno, self.raised.message)
        return self.raised


def list_facts(model: PreparedModel, setup: WorkerSetup, config: RunConfig) -> WorkerFacts:
    loaded = model.loaded
    weights = hash_weights(loaded.module) if isinstance(loaded, LoadedModel) else loaded.info.sha256
    package, code = Path(__file__).parent.parent, hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        code.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    return WorkerFacts(
        platform.node(),
        {
            **find_versions([config.run.model.name.partition(":")[0]]),  # the user's own package
            **model.runner.libraries(),
            **loaded.prepare.versions,
            "Python": platform.python_version(),
            **list_packages(),
            "code of this package": code.hexdigest(),
            "code of your own": hash_own_code(config),
            "weights": weights,
            "device": loaded.info.device.partition(":")[0],
            "first image": str(file_state(setup.first.file).size),
            "run folder": _hash_request(setup.folder),
        },
    )


def _hash_request(folder: Location) -> str:
    try:
        data = open_folder(folder).read(REQUEST)
    except (OSError, errors.HookcliError):
        data = None
    return "missing" if data is None else hashlib.sha256(data).hexdigest()
