"""The million objects that importing torch makes, and that are never garbage.

Python usually collects garbage once for every 700 new objects: looking through all of them takes
0.2 s. Taking them apart when the process ends takes 0.4 s, and twice as long with torch's compiler.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from typing import NoReturn

_USUAL = gc.get_threshold()
_RARELY = 20_000


def collect_rarely() -> None:
    """Collect rarely from now on, while much is imported."""
    gc.set_threshold(_RARELY)


def collect_as_usual() -> None:
    """Collect as usual again, since cycles may hold large tensors; older objects are left out."""
    gc.freeze()
    gc.set_threshold(*_USUAL)


def end_process(code: int) -> NoReturn:
    """End the process with an exit code, and leave its memory to the system.

    Threads end and exit handlers run, as they always do. Libraries find no time to complain about
    objects that are still alive, as triton's do.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)
