"""Assign chunks to workers, refuse nodes that differ from the driver, and replace lost workers."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hookcli.cluster.ray_cluster import LostWorkerError
from hookcli.cluster.work import ChunkResult, WorkerFacts, WorkerFailure
from hookcli.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.cluster.ray_cluster import RayCluster
    from hookcli.cluster.work import Work

_QUEUED = 2  # chunks that a worker holds at once, so that no worker waits for the driver
_MOST_DEATHS = 3  # tolerated deaths of workers per chunk, and per slot before a worker is ready
_PATIENCE = 30.0  # seconds without any worker before hookcli warns


@dataclass(slots=True, eq=False)
class _Member:
    actor: Any  # the worker's Ray handle
    is_ready: bool = False  # whether it has loaded the driver's model
    work: list[Work] = field(default_factory=list)  # unfinished; the first is running
    deaths: int = 0  # how many predecessors in a row died before they had loaded the model


class WorkerPool:
    def __init__(
        self, cluster: RayCluster, facts: WorkerFacts, warn: Callable[[str], None]
    ) -> None:
        self._cluster, self._facts, self._warn = cluster, facts, warn
        self._queue: deque[Work] = deque()
        self._running: dict[Any, tuple[_Member, Work | None]] = {}
        self._deaths: Counter[int] = Counter()  # by the number of the chunk
        self._members = [self._start() for _ in range(cluster.count_workers())]

    @property
    def capacity(self) -> int:
        return len(self._members) * _QUEUED * 2

    def submit(self, work: Work) -> None:
        self._queue.append(work)
        self._assign_work()

    def wait(self) -> tuple[Work, ChunkResult | WorkerFailure]:
        while True:
            call = self._cluster.wait(self._running, _PATIENCE)
            if call is None:
                if not any(member.is_ready for member in self._members):
                    self._warn(
                        "no worker is ready yet: the cluster may have no room, "
                        "or the model is still being loaded"
                    )
                continue
            member, work = self._running.pop(call)
            try:
                result = self._cluster.get(call)
            except LostWorkerError:
                self._replace(member, work)
                continue
            if work is not None:
                member.work.remove(work)
                self._assign_work()
                return work, result
            self._admit(member, result)

    def _start(self, deaths: int = 0) -> _Member:
        member = _Member(self._cluster.start_worker(), deaths=deaths)
        self._running[member.actor.prepare.remote()] = (member, None)
        return member

    def _admit(self, member: _Member, result: WorkerFacts | WorkerFailure) -> None:
        if isinstance(result, WorkerFailure):
            raise result.error()
        for name, here in self._facts.facts.items():
            there = result.facts.get(name, "none")
            if there != here:
                what = f"the node {result.node!r} differs in {name}: {there[:20]}, not {here[:20]}"
                raise ModelError(what, "all nodes must have the same versions, code and weights")
        member.is_ready = True
        self._assign_work()

    def _assign_work(self) -> None:
        ready = [member for member in self._members if member.is_ready]
        while self._queue and ready:
            member = min(ready, key=lambda each: len(each.work))
            if len(member.work) >= _QUEUED:
                return
            work = self._queue.popleft()
            member.work.append(work)
            self._running[member.actor.run.remote(work)] = (member, work)

    def _replace(self, member: _Member, work: Work | None) -> None:
        if member in self._members:
            self._members.remove(member)
            self._count_death(member)
            self._warn("a worker was killed or its node was lost; such workers are replaced")
            self._cluster.stop_worker(member.actor)  # may be alive, if only its result was lost
            self._members.append(self._start(0 if member.is_ready else member.deaths + 1))
        if work is not None:
            self._queue.appendleft(work)
        self._assign_work()

    def _count_death(self, member: _Member) -> None:
        deaths = member.deaths + 1
        if member.work:
            number = member.work[0].number
            self._deaths[number] += 1
            deaths = self._deaths[number]
        if deaths > _MOST_DEATHS:
            raise ModelError(
                "workers are killed repeatedly",
                "memory may be short: try fewer workers with `cluster.workers`, and `resume=True`",
            )
