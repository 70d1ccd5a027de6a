"""`tools/gpu.py` is also started where no package of hookcli is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "gpu.py"


def test_it_starts_without_any_package():
    command = [sys.executable, "-S", "-E", str(SCRIPT), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--wheels" in done.stdout
