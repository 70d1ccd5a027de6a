"""hookcli without what only POSIX has, with processes that are spawned, as on Windows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

PROGRAM = """
import builtins, multiprocessing, os, signal, sys

GONE = {"fcntl", "resource", "pwd", "grp", "termios"}
plain = builtins.__import__

def refuse(name, globals=None, locals=None, fromlist=(), level=0):
    if name in GONE and (globals or {}).get("__name__", "").startswith("hookcli"):
        raise ModuleNotFoundError(name)
    return plain(name, globals, locals, fromlist, level)

builtins.__import__ = refuse
del signal.SIGHUP, os.getuid, os.mkfifo
if __name__ == "__mp_main__":
    open("spawned", "w").close()
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    import hookcli

    asked = {"layers": "features.0", "device": "cpu"}
    run = hookcli.inspect("tests.toy_models:Squeezed", "rows", out="out", workers=1, **asked)
    assert len(run.rows) == 1
    again = {**asked, "workers": 1, "resume": True}
    try:
        hookcli.inspect("tests.toy_models:Squeezed", "rows", out="out", **again)
    except hookcli.errors.CompleteError:
        pass
    hookcli.inspect("tests.toy_models:Squeezed", "rows", out="kept", save="tensors", **asked)
    assert hookcli.map("kept", layers="features.0").rows
    assert hookcli.diff("out", "kept").exit_code == 0
    print("done")
"""


def test_a_run_its_analysis_and_a_comparison_need_nothing_of_posix():
    Path("rows").mkdir()
    for number in range(40):
        image = np.random.default_rng(number).random((3, 32, 32), dtype=np.float32)
        np.save(f"rows/{number}.npy", image)
    Path("program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, check=False
    )
    assert Path("spawned").exists()
    assert ended.stdout == "done\n", ended.stderr[-2000:]
