"""What a driver and its workers send each other: a setup, chunks to run, and their results."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli import errors
from hookcli.cluster.code import hash_own_code
from hookcli.images.read import file_state
from hookcli.models.fingerprint import hash_weights
from hookcli.models.source import find_versions
from hookcli.passes.environment import list_packages
from hookcli.store.places.folders import open_folder
from hookcli.store.places.names import REQUEST

if TYPE_CHECKING:
    from hookcli.cluster.weights import SentWeights
    from hookcli.config import RunConfig
    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageSource
    from hookcli.models.load import LoadedModel
    from hookcli.outside.urls import Place
    from hookcli.plan.prepared import RunSettings
    from hookcli.run.chunk_runner import ChunkStart
    from hookcli.summary.chunks import Chunk
    from hookcli.summary.top_images import TopTally


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What every worker of a run receives once.

    Attributes:
        first: the first image of the run that can be used.
        folder: the run folder, by its full path or its URL.
        home: the working directory of the driver, to which file names are relative.
        threads: how many threads torch uses.
    """

    settings: RunSettings
    fitter: Fitter
    first: ImageSource
    folder: Place
    home: Path
    threads: int
    weights: SentWeights | None = None


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What must be the same in all workers, by the words that report a difference."""

    node: str
    facts: dict[str, str]


@dataclass(frozen=True, slots=True)
class Work:
    """A chunk to run.

    Attributes:
        number: the number of the chunk, counted from 0.
        place: the position of the first of its images in the run.
        start: what the earlier chunks have shown.
    """

    number: int
    sources: tuple[ImageSource, ...]
    place: int
    start: ChunkStart


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """A chunk that is complete in the run folder, and the name of the machine that ran it.

    Attributes:
        tops: its images that fire each channel most, for each number of channels.
    """

    chunk: Chunk
    tops: list[TopTally]
    node: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """An error of a worker.

    Attributes:
        raised: the error, which is sent without its cause.
        part: what was observed of the chunk until the model failed; None after other errors.
        number: the errno of the system error behind it, such as a full disk.
    """

    raised: errors.HookcliError
    part: Chunk | None
    number: int | None

    @classmethod
    def from_error(cls, error: errors.HookcliError, part: Chunk | None = None) -> WorkerFailure:
        """Return the error with the facts about its cause that the driver needs."""
        return cls(error, part, getattr(error.__cause__, "errno", None))

    def error(self) -> errors.HookcliError:
        """Rebuild the error."""
        if self.number is not None:
            self.raised.__cause__ = OSError(self.number, self.raised.message)
        return self.raised


def list_facts(loaded: LoadedModel, setup: WorkerSetup, config: RunConfig) -> WorkerFacts:
    """Return the facts about this process that must be the same in all workers of a run.

    The config names the files of the user's own code by their names on this node.
    """
    return WorkerFacts(
        platform.node(),
        {
            **find_versions([config.run.model.name.partition(":")[0]]),  # a package of the user
            **loaded.source.list_versions(loaded.module),
            "Python": platform.python_version(),
            **list_packages(),
            "code of this package": _hash_code(),
            "code of your own": hash_own_code(config),
            "weights": hash_weights(loaded.module),
            "device": loaded.info.device.partition(":")[0],
            "first image": str(file_state(setup.first.file).size),
            "run folder": _hash_request(setup.folder),
        },
    )


def _hash_request(folder: Place) -> str:
    try:
        with open_folder(folder) as inside:
            data = inside.read(REQUEST)
    except (OSError, errors.HookcliError):
        data = None
    return "missing" if data is None else hashlib.sha256(data).hexdigest()


def _hash_code() -> str:
    """Return the sha256 of the source of this package."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
