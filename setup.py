"""Compiles the loops for this processor while a wheel is built; everything else is in pyproject.toml.

A wheel without them works too: its loops are compiled on first use. Installers hide what a build prints, so how far it is goes to the
terminal itself, if there is one.
"""

import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TextIO

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
LOOPS = ROOT / "src" / "kolumn" / "cpu_fallback" / "compiled"  # in a checkout a link leads there, in an sdist there is none


def terminal() -> AbstractContextManager[TextIO | None]:
    try:
        return open("/dev/tty", "w")
    except OSError:
        return nullcontext()


class BuildWithLoops(build_py):
    """Build the package, with what `make loops` makes."""

    def run(self) -> None:
        if os.environ.get("KOLUMN_BUILD_LOOPS", "1") != "0":
            # By the versions that pyproject.toml asks for, and not by an older installation of Kolumn.
            paths = [str(ROOT / "src"), *filter(None, sys.path)]
            command = [sys.executable, "-P", "-m", "kolumn.cpu_fallback.build", str(LOOPS), "host"]
            with terminal() as out:
                done = subprocess.run(command, stdout=out, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False)
            if done.returncode:
                self.warn("loops were not compiled ahead; they will be compiled on first use")
        super().run()


setup(cmdclass={"build_py": BuildWithLoops})
