"""Only the user can read files that Spark's tasks and drivers stage, with any umask; files with final names have the umask's mode."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kolumn.spark_plugin.session import java

RECORDS = pa.RecordBatch.from_pydict({"value": pa.array([b"%d" % i for i in range(1000)], pa.binary())})


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_the_script_that_starts_java(tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is run, so only the user may write to it and to the folders that are made for it."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    home = java._wrap(Path("/bin/true"))
    made = [home / "bin" / "java", home / "bin", home, home.parent, home.parent.parent]
    assert not any(path.stat().st_mode & 0o022 for path in made)
    assert os.access(home / "bin" / "java", os.X_OK)
