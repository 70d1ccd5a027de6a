"""Lock files, so that the processes of a machine do not do the same work at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from filelock import BaseFileLock


def take_lock(file: Path, wait: float = 0.0) -> BaseFileLock | None:
    """Lock a file, creating it if necessary; return None if it stays locked for ``wait`` seconds.

    The lock ends with the process. A file system without locks raises an OSError.
    """
    from filelock import FileLock, Timeout  # takes 30 ms

    lock = FileLock(
        file,
        wait,
        thread_local=False,  # any thread may release the lock
        poll_interval=0.02,
        fallback_to_soft=False,  # a soft lock outlives a killed process
        preserve_lock_file=True,
    )
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock
