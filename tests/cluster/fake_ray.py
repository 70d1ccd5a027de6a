"""A stand-in for Ray: workers live in this process, and end their calls in a random order."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hookcli.cluster import ray_cluster
from hookcli.plan import check


class LostError(Exception):
    """A worker was killed."""


@dataclass(eq=False)
class Actor:
    """A worker; it runs its calls in their order."""

    ray: FakeRay
    worker: Any
    calls: list[Ref] = field(default_factory=list)  # that it has received and not done
    is_dead: bool = False  # its calls are lost

    def __getattr__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(remote=partial(self._ask, name))

    def _ask(self, name: str, *args: Any) -> Ref:
        self.calls.append(Ref(self, name, copy(args)))
        return self.calls[-1]


@dataclass(eq=False)
class Ref:
    """A call of a worker."""

    actor: Actor
    name: str
    args: tuple[Any, ...]


class FakeRay:
    """The part of the module ``ray`` that hookcli uses."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(
            RayActorError=LostError, ObjectLostError=LostError, OutOfMemoryError=LostError
        )
        # called with a method and its arguments before a worker runs it; LostError kills the worker
        self.before: Any = lambda name, *args: None
        self.idle = 0  # how many times nothing is done within the time that is waited
        self.initialized: dict[str, Any] = {}  # the words of ``init``
        self.options: list[dict[str, Any]] = []  # the words of ``options``, for each worker
        self.room: list[dict[str, float]] = []  # the resources of each node
        self._dice = random.Random(0)

    def is_initialized(self):
        return False

    def init(self, **words):
        self.initialized = words
        if words["_temp_dir"]:
            Path(words["_temp_dir"], "session").mkdir()

    def shutdown(self):
        pass

    def nodes(self):
        return [{"Resources": resources, "Alive": True} for resources in self.room]

    def put(self, value):
        return copy(value)

    def remote(self, kind):
        def options(**words):
            self.options.append(words)
            return SimpleNamespace(remote=lambda shared: Actor(self, kind(copy(shared))))

        return SimpleNamespace(options=options)

    def kill(self, actor):
        actor.is_dead = True

    def wait(self, refs, num_returns, timeout):
        if self.idle:
            self.idle -= 1
            return [], refs
        ready = [ref for ref in refs if ref.actor.is_dead or ref is ref.actor.calls[0]]
        return [self._dice.choice(ready)], []

    def get(self, ref):
        ref.actor.calls.remove(ref)
        try:
            if ref.actor.is_dead:
                raise LostError
            self.before(ref.name, *ref.args)
            return copy(getattr(ref.actor.worker, ref.name)(*ref.args))
        except LostError:
            ref.actor.is_dead = True
            raise


def copy(value: Any) -> Any:
    """Return a copy of the value, as another process would receive it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301


def put_in_place(monkeypatch: Any, ray: FakeRay) -> FakeRay:
    """Let hookcli use the stand-in, whether Ray is installed or not."""
    monkeypatch.setattr(check, "require_package", lambda *names: None)
    monkeypatch.setattr(ray_cluster, "_import_ray", lambda: ray)
    return ray
