"""The command in a process of its own, which need not import torch: that takes three seconds."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

COMMAND = "from hookcli.__main__ import main; main()"


def forget(*packages: str) -> str:
    """Return code that makes a process forget that it has imported these packages."""
    return (
        "import sys\n"
        "for name in [*sys.modules]:\n"
        f"    if name.partition('.')[0] in {packages}:\n"
        "        del sys.modules[name]\n"
    )


def start(
    code: str, *words: object, out: str = os.devnull, err: str = os.devnull, **environment: str
) -> BaseProcess:
    """Start ``python -c code words`` in a process with stdout and stderr in files.

    The code must not compute gradients. The process is a fork of this one, and if torch has
    computed gradients here, it refuses to compute them in a fork.
    """
    words = tuple(map(str, words))
    way = "spawn" if sys.platform == "darwin" else "fork"  # whose frameworks do not survive a fork
    context: Any = multiprocessing.get_context(way)
    process: BaseProcess = context.Process(target=_run, args=(code, words, (out, err), environment))
    with warnings.catch_warnings():
        # Python 3.12 and later warn of forks of a process that has threads, as pytest's have
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def _run(
    code: str, words: tuple[str, ...], files: tuple[str, str], environment: dict[str, str]
) -> None:
    """Run the code with the signals, streams and exit handlers of a new process."""
    atexit._clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files, 1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["-c", *words]
    sys.path.insert(0, "")
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
