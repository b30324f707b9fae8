"""A case that somebody met: a folder with its README, its input and a test that says the right value."""

import shutil
import tarfile
from pathlib import Path

import pytest


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the case's input: of its folder ``input``, or unpacked from ``input.tar.xz``."""
    case, target = request.path.parent, tmp_path / "disk"
    if (case / "input").is_dir():
        shutil.copytree(case / "input", target)
    else:
        with tarfile.open(case / "input.tar.xz") as packed:
            packed.extractall(target, filter="data")
    return target
