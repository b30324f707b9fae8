"""What is found where, and what is passed over."""

from pathlib import Path

import pytest

import kolumn
from kolumn.errors import ArgumentError, MissingError
from kolumn.source import find_segments
from kolumn.storage import _file_system


def test_links_to_nothing_are_passed_over(tmp_path: Path) -> None:
    """Next to segments, as a half-restored backup may have them; a folder or link that is there counts."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"")
    (folder / f"{1:020}.log").symlink_to(folder / "gone")
    (tmp_path / "u-0").symlink_to(folder)
    assert [(segment.topic, segment.base_offset) for segment in find_segments(tmp_path)] == [("t", 0), ("u", 0)]


def test_below_a_file_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"")
    with pytest.raises(ArgumentError, match="no such file or directory"):
        kolumn.read(path / "b.log")


def test_why_a_url_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both libraries say why: one of them may know the scheme and have failed."""
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    _file_system.cache_clear()
    with pytest.raises(MissingError, match=r"nosuch://bucket: pyarrow: .*nosuch.*; fsspec: .*kolumn\[remote\]"):
        kolumn.read("nosuch://bucket/x")
