"""The kernels as they stand, warps and shared memory included, in Numba's simulator. It needs a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_simulated() -> None:
    script = Path(__file__).resolve().parents[1] / "kit" / "simulate.py"
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hop_staged" in done.stdout
