"""Join or start a Ray cluster, and start workers on it. Only this module imports Ray."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hookcli.cluster.code import copy_code
from hookcli.cluster.worker import Worker
from hookcli.errors import ModelError, RequestError
from hookcli.outside.foreign import first_line, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hookcli.cluster.work import WorkerSetup
    from hookcli.config import ClusterRequest


class LostWorkerError(Exception):
    """A worker process was killed, or its machine left the cluster."""


class RayCluster:
    def __init__(self, ray: Any, request: ClusterRequest, setup: WorkerSetup) -> None:
        self._ray, self._request = ray, request
        has_cuda = setup.settings.config.run.model.device.startswith("cuda")
        self._gpus = float(has_cuda) if request.gpus is None else request.gpus
        self._actors: list[Any] = []
        self._shared = ray.put(setup)
        lost = ray.exceptions
        self._lost = (lost.RayActorError, lost.ObjectLostError, lost.OutOfMemoryError)

    def count_workers(self) -> int:
        if self._request.workers is not None:  # even if fewer fit now: nodes may still join
            return self._request.workers
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if (room := sum(map(self._count_room, nodes))) < 1:
            gpus = f" and {self._gpus:g} GPUs" if self._gpus else ""
            raise RequestError(
                f"the cluster has no room for a worker of {self._request.cpus} cores{gpus}",
                "request less per worker with `cluster.cpus` and `cluster.gpus`, "
                "or set `cluster.workers` to wait for nodes to join",
            )
        return room

    def start_worker(self) -> Any:
        kind = self._ray.remote(Worker).options(num_cpus=self._request.cpus, num_gpus=self._gpus)
        actor = kind.remote(self._shared)
        self._actors.append(actor)
        return actor

    def stop_worker(self, actor: Any) -> None:
        self._actors.remove(actor)
        self._ray.kill(actor)

    def wait(self, calls: Iterable[Any], seconds: float) -> Any | None:
        ended, _ = self._ray.wait(list(calls), num_returns=1, timeout=seconds)
        return ended[0] if ended else None

    def get(self, call: Any) -> Any:
        try:
            return self._ray.get(call)
        except self._lost as error:
            if getattr(error, "actor_init_failed", False):
                what = f"a worker could not be started: {text_of(error).splitlines()[-1].strip()}"
                hint = "every node needs the same versions of torch, Python and this package"
                raise ModelError(what, hint) from error
            raise LostWorkerError from error

    def stop_workers(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)

    def _count_room(self, resources: dict[str, float]) -> int:
        room = int(resources.get("CPU", 0) // self._request.cpus)
        return min(room, int(resources.get("GPU", 0) / self._gpus)) if self._gpus else room


@contextmanager
def join_cluster(request: ClusterRequest, setup: WorkerSetup) -> Iterator[RayCluster]:
    ray = _import_ray()
    with ExitStack() as stack:
        if not ray.is_initialized():
            _connect(ray, request, setup, stack)
        cluster = RayCluster(ray, request, setup)
        stack.callback(cluster.stop_workers)
        yield cluster


def _connect(ray: Any, request: ClusterRequest, setup: WorkerSetup, stack: ExitStack) -> None:
    is_auto = request.address == "auto"
    code = stack.enter_context(TemporaryDirectory())
    has_code = copy_code(setup.settings.config, Path(code))
    try:
        session = stack.enter_context(_make_session_folder()) if is_auto else None
        stack.callback(ray.shutdown)  # runs before the stack deletes the two folders
        ray.init(
            address="local" if is_auto else request.address,
            include_dashboard=False if is_auto else None,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=session,
            runtime_env={"working_dir": code} if has_code else None,
        )
    except (OSError, RuntimeError, ValueError) as error:
        what = f"no Ray cluster can be used at {request.address!r}: {first_line(error)}"
        hint = "start one with: ray start --head; or use `cluster=ClusterRequest('auto')`"
        raise RequestError(what, hint) from error


def _make_session_folder() -> TemporaryDirectory[str]:
    # the paths of sockets must be short, and the path of macOS's temporary folder is long
    parent = os.environ.get("RAY_TMPDIR") or ("/tmp" if sys.platform == "darwin" else None)  # noqa: S108
    return TemporaryDirectory(prefix="ray-", dir=parent, ignore_cleanup_errors=True)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports usage to its makers
    # Ray prints colours even without a terminal, and counts repeated lines in green.
    os.environ.setdefault("RAY_COLOR_PREFIX", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    import ray

    return ray
