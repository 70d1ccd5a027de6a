"""Workers on a Ray cluster: started, given chunks, replaced when they are killed, and stopped.

This is the only file that imports Ray.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hookcli.cluster.code import copy_code
from hookcli.cluster.work import Done, Failed, WorkerFacts
from hookcli.cluster.worker import Worker
from hookcli.errors import ModelError, RequestError, first_line, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.cluster.work import Work, WorkerSetup
    from hookcli.config import ClusterRequest

AUTO = "auto"
_QUEUED = 2  # chunks that a worker has at once, so that it never waits for the driver
_MOST_DEATHS = 3  # workers that may be killed while they run one chunk, or get ready in one place
_PATIENCE = 30.0  # seconds without a worker until the user is told


@dataclass(slots=True, eq=False)
class _Member:
    """A worker of the pool.

    Attributes:
        actor: Ray's handle of it.
        is_ready: it has loaded the model, which is that of the driver.
        work: the chunks that it has been given and not yet returned; it runs the first of them.
        deaths: how many workers in its place were killed while they got ready.
    """

    actor: Any
    is_ready: bool = False
    work: list[Work] = field(default_factory=list)
    deaths: int = 0


class RayPool:
    """A ``with`` block in which workers on a cluster run chunks."""

    def __init__(
        self,
        request: ClusterRequest,
        setup: WorkerSetup,
        facts: WorkerFacts,
        warn: Callable[[str], None],
    ) -> None:
        """Describe the pool; nothing is started before the ``with`` block.

        Args:
            request: the cluster, and what each worker gets of it.
            setup: what every worker is given.
            facts: what must be the same in all workers, as it is here.
            warn: shows the user a warning.
        """
        self._request, self._setup, self._facts, self._warn = request, setup, facts, warn
        self._members: list[_Member] = []
        self._queue: deque[Work] = deque()
        self._running: dict[Any, tuple[_Member, Work | None]] = {}
        self._deaths: Counter[int] = Counter()  # by the number of the chunk
        self._told: set[str] = set()
        self._is_ours = False
        self._stack = ExitStack()

    def __enter__(self) -> RayPool:
        self._ray = _import_ray()
        lost = self._ray.exceptions
        self._lost = (lost.RayActorError, lost.ObjectLostError, lost.OutOfMemoryError)
        is_done = False
        try:
            self._connect()
            self._shared = self._ray.put(self._setup)
            self._members = [self._start() for _ in range(self._count_workers())]
            is_done = True
        finally:
            if not is_done:
                self._stop()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop()

    @property
    def capacity(self) -> int:
        """How many chunks may be in the pool at once."""
        return len(self._members) * _QUEUED * 2

    def submit(self, work: Work) -> None:
        """Queue a chunk."""
        self._queue.append(work)
        self._feed()

    def wait(self) -> Done | Failed:
        """Wait until any chunk has been run.

        Raises:
            ModelError: a worker has another environment or other weights, or workers are killed
                again and again.
            HookcliError: a worker could not load the model.
        """
        while True:
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_PATIENCE)
            if not ready:
                if not any(member.is_ready for member in self._members):
                    self._tell(
                        "no worker is ready yet: the cluster may have no room, "
                        "or the model is still being loaded"
                    )
                continue
            member, work = self._running.pop(ready[0])
            try:
                result = self._ray.get(ready[0])
            except self._lost as error:
                self._replace(member, work, error)
                continue
            if work is not None:
                member.work.remove(work)
                self._feed()
                return result  # type: ignore[no-any-return]
            self._admit(member, result)

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        is_auto = self._request.address == AUTO
        code = self._stack.enter_context(TemporaryDirectory())
        has_code = copy_code(self._setup.settings.config, Path(code))
        try:
            session = self._stack.enter_context(_make_session_folder()) if is_auto else None
            self._ray.init(
                address="local" if is_auto else self._request.address,
                include_dashboard=False if is_auto else None,
                log_to_driver=False,
                logging_level="ERROR",
                _temp_dir=session,
                runtime_env={"working_dir": code} if has_code else None,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise RequestError(
                f"no Ray cluster can be used at {self._request.address!r}: {first_line(error)}",
                "start one with: ray start --head; or use --cluster auto",
            ) from error
        self._is_ours = True

    def _count_workers(self) -> int:
        """Return how many workers the cluster has room for.

        Raises:
            RequestError: there is no room for one.
        """
        if self._request.workers is not None:  # nodes may still join
            return self._request.workers
        room = sum(
            self._count_room(node["Resources"]) for node in self._ray.nodes() if node["Alive"]
        )
        if room < 1:
            raise RequestError(
                f"the cluster has no room for a worker of {self._request.cpus} cores"
                + f" and {self._gpus:g} GPUs" * bool(self._gpus),
                "give less with --cpus-per-worker and --gpus-per-worker; "
                "with --cluster-workers nodes are waited for",
            )
        return room

    def _count_room(self, resources: dict[str, float]) -> int:
        room = int(resources.get("CPU", 0) // self._request.cpus)
        return min(room, int(resources.get("GPU", 0) / self._gpus)) if self._gpus else room

    @property
    def _gpus(self) -> float:
        if self._request.gpus is not None:
            return self._request.gpus
        return float(self._setup.settings.config.run.model.device.startswith("cuda"))

    def _start(self, deaths: int = 0) -> _Member:
        kind = self._ray.remote(Worker).options(num_cpus=self._request.cpus, num_gpus=self._gpus)
        member = _Member(kind.remote(self._shared), deaths=deaths)
        self._running[member.actor.prepare.remote()] = (member, None)
        return member

    def _admit(self, member: _Member, result: WorkerFacts | Failed) -> None:
        """Let a worker take part that has loaded the model, if it is like this process."""
        if isinstance(result, Failed):
            raise result.error()
        for name, here in self._facts.facts.items():
            there = result.facts.get(name, "none")
            if there != here:
                raise ModelError(
                    f"the node {result.node!r} has other {name}: {there[:20]}, not {here[:20]}",
                    "all nodes must have the same versions, code and weights",
                )
        member.is_ready = True
        self._feed()

    def _feed(self) -> None:
        """Give queued chunks to the workers that have least to do."""
        ready = [member for member in self._members if member.is_ready]
        while self._queue and ready:
            member = min(ready, key=lambda each: len(each.work))
            if len(member.work) >= _QUEUED:
                return
            work = self._queue.popleft()
            member.work.append(work)
            self._running[member.actor.run.remote(work)] = (member, work)

    def _replace(self, member: _Member, work: Work | None, error: Exception) -> None:
        """Start another worker for one that was killed, and queue its chunks again.

        Raises:
            ModelError: workers are killed again and again by one chunk, or cannot be started.
        """
        if member in self._members:
            self._members.remove(member)
            self._count_death(member, error)
            self._tell("a worker was killed or its node was lost; such workers are replaced")
            self._ray.kill(member.actor)  # it may live, and only its result be lost
            self._members.append(self._start(0 if member.is_ready else member.deaths + 1))
        if work is not None:
            self._queue.appendleft(work)
        self._feed()

    def _count_death(self, member: _Member, error: Exception) -> None:
        """Raise if it was one too many.

        Raises:
            ModelError: it was, or the worker could not be started at all.
        """
        if getattr(error, "actor_init_failed", False):
            reason = text_of(error).splitlines()[-1].strip()
            raise ModelError(
                f"a worker could not be started: {reason}",
                "every node needs the same hookcli, torch and Python",
            )
        deaths = member.deaths + 1
        if member.work:
            number = member.work[0].number
            self._deaths[number] += 1
            deaths = self._deaths[number]
        if deaths > _MOST_DEATHS:
            raise ModelError(
                "workers are killed repeatedly",
                "memory may be short: try fewer workers with --cluster-workers, and --resume",
            )

    def _tell(self, text: str) -> None:
        """Warn the user once."""
        if text not in self._told:
            self._told.add(text)
            self._warn(text)

    def _stop(self) -> None:
        with self._stack:  # what was written for Ray is deleted last
            for member in self._members:
                self._ray.kill(member.actor)
            self._members = []
            if self._is_ours:
                self._ray.shutdown()


def _make_session_folder() -> TemporaryDirectory[str]:
    """Return the folder for the logs and sockets of a cluster that ends with the run."""
    # the names of sockets must be short, which macOS's folder for temporary files is not
    place = os.environ.get("RAY_TMPDIR") or ("/tmp" if sys.platform == "darwin" else None)  # noqa: S108
    return TemporaryDirectory(prefix="ray-", dir=place, ignore_cleanup_errors=True)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report every run to its makers
    import ray

    return ray
