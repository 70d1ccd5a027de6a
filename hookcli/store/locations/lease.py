"""Lock a run folder in cloud storage by a small file, which expires unless its owner renews it.

The lock files are numbered: ``lock/000001.json``. The owner of the file with the highest number
holds the lock until the owner deletes the file, or fails to renew it for 60 s. Then another process
may create the file with the next number; the storage lets only one process create it. The clocks of
the machines must agree within some seconds.

``--resume`` does not break a lock: a cluster restarts a job with the same command, including
``--resume``, even while the first process lives, and two runs could then write at once.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.outside.documents import DamagedError, decode_escaped, encode_escaped
from hookcli.outside.files import cannot_write
from hookcli.store.locations import storage
from hookcli.store.locations.folder import Lock
from hookcli.store.locations.names import LOCKS, lock_file

if TYPE_CHECKING:
    from hookcli.outside.urls import Url

LASTS = 60.0  # seconds without a renewal after which the lock expires
_RENEWAL = 20.0  # seconds between renewals


@dataclass(frozen=True, slots=True)
class Holder:
    owner: str  # the machine and process that hold the lock, for messages
    id: str  # unique to the owner
    expires: float  # in seconds since 1970


class Lease(Lock):
    def __init__(self, path: Url) -> None:
        self._path = path
        owner = f"process {os.getpid()} on {platform.node()}"
        self._holder = Holder(owner, secrets.token_hex(16), 0.0)
        self._loss = ""
        self._mutex = threading.Lock()
        try:
            self._number = self._take()
        except OSError as error:
            raise cannot_write(self._path / LOCKS, error) from error
        self._closed = threading.Event()
        threading.Thread(target=self._keep, daemon=True).start()

    def check(self) -> None:
        if self._loss or time.time() > self._holder.expires:
            loss = self._loss or "it was not renewed in time"
            what = f"the lock of {str(self._path)!r} was lost: {loss}"
            raise OutputError(what, "continue with `resume=True` when no other run writes there")

    def close(self) -> None:
        self._closed.set()
        with self._mutex, contextlib.suppress(OSError):
            if not self._find_loss():
                storage.remove_file(self._path / lock_file(self._number))

    def _take(self) -> int:
        if storage.has_conditional_writes(self._path):
            while True:
                newest = refuse_locked(self._path)
                file = self._path / lock_file(newest + 1)
                self._holder = _extend(self._holder)
                try:
                    storage.create_file(file, encode_escaped(self._holder))
                except FileExistsError:
                    if _read(self._path, newest + 1) != self._holder:
                        continue  # another run was faster
                    # else only the answer was lost: the first try wrote the file
                try:
                    storage.create_file(file, encode_escaped(self._holder))
                except FileExistsError:
                    if newest:
                        storage.remove_file(self._path / lock_file(newest))
                    return newest + 1
                except OSError:
                    storage.remove_file(file)
                    raise
                storage.remove_file(file)
                break
        raise OutputError(
            f"two runs could write into {str(self._path)!r} at once: its storage has no "
            "conditional writes (it writes a file even if another process has just done so)",
            "choose a folder on S3, Google Cloud Storage, Azure, or that all nodes share "
            "with `out`",
        )

    def _keep(self) -> None:
        while not self._closed.wait(_RENEWAL) and not self._loss:
            self._renew()

    def _renew(self) -> None:
        with self._mutex:
            if self._closed.is_set():
                return
            with contextlib.suppress(OSError):  # hookcli tries again before the lock expires
                self._loss = self._find_loss()
                if not self._loss:
                    renewed = _extend(self._holder)
                    file = self._path / lock_file(self._number)
                    storage.write_file(file, encode_escaped(renewed))
                    # If writing took long, another run may have seen the lock expire.
                    self._loss = self._find_loss()
                    self._holder = renewed

    def _find_loss(self) -> str:
        if time.time() > self._holder.expires:
            return "it was not renewed in time"
        newest, holder = _find_newest(self._path)
        if holder is None:
            return "its file was deleted"
        is_ours = newest == self._number and holder.id == self._holder.id
        return "" if is_ours else f"{holder.owner} holds it"


def refuse_locked(path: Url) -> int:
    """Raise an OutputError if a run holds the lock. Return the highest lock file's number, or 0."""
    newest, holder = _find_newest(path)
    if newest and holder is None:  # it was deleted meanwhile
        return refuse_locked(path)
    left = holder.expires - time.time() if holder else 0.0
    if holder and left > 0:
        raise OutputError(
            f"another run is writing into {str(path)!r}: {holder.owner}",
            "wait for it, or choose another `out`; "
            f"if it was killed, its lock expires in {left:.0f} s",
        )
    return newest


def _find_newest(path: Url) -> tuple[int, Holder | None]:
    names = (name.partition(".")[0] for name in storage.list_files(path / LOCKS))
    newest = max((int(name) for name in names if name.isdecimal()), default=0)
    return newest, _read(path, newest) if newest else None


def _read(path: Url, number: int) -> Holder | None:
    # A damaged file counts as a lock that has expired.
    try:
        return decode_escaped(storage.read_file(path / lock_file(number)), Holder)
    except FileNotFoundError:
        return None
    except DamagedError:
        return Holder("", "", 0.0)


def _extend(holder: Holder) -> Holder:
    return replace(holder, expires=time.time() + LASTS)
