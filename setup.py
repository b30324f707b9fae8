"""Compiles the loops for this processor while a wheel is built; everything else is in pyproject.toml.

A wheel without them works too: its loops are compiled on first use.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
LOOPS = ROOT / "cpu_fallback" / "compiled"


class BuildWithLoops(build_py):
    """Build the package, with what `make loops` makes."""

    def run(self) -> None:
        if os.environ.get("KOLUMN_BUILD_LOOPS", "1") != "0":
            # By the versions that pyproject.toml asks for, and not by an older installation of Kolumn.
            paths = [str(ROOT / "src"), *filter(None, sys.path)]
            command = [sys.executable, "-P", "-m", "kolumn.cpu_fallback.build", str(LOOPS), "host"]
            done = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False)
            if done.returncode:
                self.warn("loops were not compiled ahead; they will be compiled on first use")
        super().run()


setup(cmdclass={"build_py": BuildWithLoops})
