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
    """A worker; it runs its calls in their order.

    Attributes:
        ray: the stand-in.
        worker: the object whose methods are called.
        calls: the calls that it has received and not done.
        is_dead: it was killed; its calls are lost.
    """

    ray: FakeRay
    worker: Any
    calls: list[Ref] = field(default_factory=list)
    is_dead: bool = False

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
    """The part of the module ``ray`` that hookcli uses.

    Attributes:
        before: called with the name of a method and its arguments before a worker runs it; the
            worker is killed if it raises ``LostError``.
        room: the resources of each node.
        idle: how many times nothing is done within the time that is waited.
        initialized: the words of ``init``.
        options: the words of ``options``, for each worker.
    """

    def __init__(self, seed: int = 0) -> None:
        self.exceptions = SimpleNamespace(
            RayActorError=LostError, ObjectLostError=LostError, OutOfMemoryError=LostError
        )
        self.before: Any = lambda name, *args: None
        self.idle = 0
        self.initialized: dict[str, Any] = {}
        self.options: list[dict[str, Any]] = []
        self.room: list[dict[str, float]] = []
        self._dice = random.Random(seed)

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
    monkeypatch.setattr(check, "find_spec", lambda name: True)
    monkeypatch.setattr(ray_cluster, "_import_ray", lambda: ray)
    return ray
