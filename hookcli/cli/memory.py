"""How often Python looks for objects that only refer to each other: rarely while modules are imported.

Importing torch makes a million objects that stay. At Python's usual 700 new objects a collection, looking
through them takes 0.2 s, and once more 0.4 s when the process ends.
"""

from __future__ import annotations

import gc

_USUAL = gc.get_threshold()
_RARELY = 20_000


def collect_rarely() -> None:
    """Begin a time in which much is imported."""
    gc.set_threshold(_RARELY)


def collect_as_usual() -> None:
    """End it, before a model runs: its own cycles may hold large tensors. What stands by now is left alone."""
    gc.freeze()
    gc.set_threshold(*_USUAL)


def leave_to_the_system() -> None:
    """Nothing is collected when the process ends: the system takes all memory back at once."""
    gc.freeze()
