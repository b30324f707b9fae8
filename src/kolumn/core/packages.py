"""What to install where a package is missing. Kolumn is on no package index, so hints name the packages that its extras bring."""

import shlex

from kolumn.core.errors import MissingPackageError

RANGES = {
    "pandas": ">=2.2,<3",
    "pyspark": ">=4.0,<4.4",
    "ziglang": ">=0.17.1,<0.17.2",
    "cuda-toolkit[cudart,nvrtc]": ">=13.0,<13.1",
    "cupy-cuda13x": ">=14.0,!=14.1.0,<15",
    "pylibcudf-cu13": ">=26.10,<27",
    "nvidia-libnvcomp-cu13": ">=5.3,<7",
}
"""Versions of packages of which the newest may not do, as in pyproject.toml."""
GPU = "cuda-toolkit[cudart,nvrtc]", "cupy-cuda13x", "pylibcudf-cu13", "nvidia-libnvcomp-cu13"


def install(*packages: str) -> str:
    """The command that installs packages."""
    return shlex.join(["pip", "install", *(f"{name}{RANGES.get(name, '')}" for name in packages)])


def missing_package(needs: str, *packages: str) -> MissingPackageError:
    """The error of a call that ``needs`` packages, with the command that installs them."""
    return MissingPackageError(f"{needs}: {install(*packages)}")
