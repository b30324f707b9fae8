"""Cases that somebody met: each folder has a README and its input; the tests say the right values."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def disk(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a copy of a case's input, which the test may change: of its folder ``input``, or unpacked from ``input.tar.xz``."""

    def unpack(case: str) -> Path:
        folder, target = Path(__file__).with_name(case), tmp_path / case
        if (folder / "input").is_dir():
            shutil.copytree(folder / "input", target)
        else:
            with tarfile.open(folder / "input.tar.xz") as packed:
                packed.extractall(target, filter="data")
        return target

    return unpack
