"""Files that sources find, and files that they pass over."""

import os
import socket
import threading
from pathlib import Path

import pytest

import kolumn
from kolumn.core.errors import ArgumentError, MissingError
from kolumn.source.segments import find_segments
from kolumn.source.storage import _file_system


def test_links_to_nothing_are_passed_over(tmp_path: Path) -> None:
    """A half-restored backup may have such links next to segments; existing folders and links are followed."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"")
    (folder / f"{1:020}.log").symlink_to(folder / "gone")
    (tmp_path / "u-0").symlink_to(folder)
    assert [(segment.topic, segment.base_offset) for segment in find_segments(tmp_path)] == [("t", 0), ("u", 0)]


def segment_in(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{0:020}.log"
    path.write_bytes(b"")
    return path


def test_a_link_to_where_it_is(tmp_path: Path) -> None:
    """With any name: a folder is not entered again from below itself, and its other contents are read."""
    segment_in(tmp_path / "t-0")
    (tmp_path / "loop-0").symlink_to(".")
    (tmp_path / "loop-1").symlink_to(tmp_path)
    (tmp_path / "t-0" / "up-0").symlink_to("..")
    (tmp_path / "u-0").symlink_to("t-0")
    assert [(segment.topic, segment.base_offset) for segment in find_segments(tmp_path)] == [("t", 0), ("u", 0)]
    assert len(find_segments(tmp_path / "*-0")) > 1
    assert kolumn.read(tmp_path).num_rows == 0


def test_links_around(tmp_path: Path) -> None:
    """Two folders have links to each other: each is read at its own place, and through the other one's link."""
    for name, other in (("a-0", "b-0"), ("b-0", "a-0")):
        segment_in(tmp_path / name)
        (tmp_path / name / f"x{other}").symlink_to(tmp_path / other)
    assert [segment.topic for segment in find_segments(tmp_path)] == ["a", "xb", "b", "xa"]


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom", "/proc/self/mem", "/proc/self/status"])
def test_what_is_no_regular_file(name: str) -> None:
    if not Path(name).exists():
        pytest.skip("not on this system")
    for call in (kolumn.read, kolumn.scan, kolumn.verify, kolumn.batches):
        with pytest.raises(ArgumentError, match=f"{name}: not a regular file"):
            call(name)


def test_pipes_and_sockets(tmp_path: Path) -> None:
    """If they are named they are refused, without waiting for a writer; in a folder or matched by a glob they are passed over."""
    folder = tmp_path / "t-0"
    path = segment_in(folder)
    os.mkfifo(folder / f"{5:020}.log")
    listening = socket.socket(socket.AF_UNIX)
    here = os.open(".", os.O_RDONLY)
    try:
        # Names of sockets must be short.
        os.chdir(folder)
        listening.bind(f"{6:020}.log")
    finally:
        os.fchdir(here)
        os.close(here)
    with listening:
        for one in (5, 6):
            done = threading.Thread(target=_refused, args=(folder / f"{one:020}.log",), daemon=True)
            done.start()
            done.join(30)
            assert not done.is_alive()
        for source in (folder, tmp_path, folder / "*.log"):
            assert [segment.path for segment in find_segments(source)] == [str(path)]


def _refused(path: Path) -> None:
    with pytest.raises(ArgumentError, match="not a regular file"):
        kolumn.read(path)


def test_an_empty_file_is_a_segment(tmp_path: Path) -> None:
    assert kolumn.read(segment_in(tmp_path / "t-0")).num_rows == 0


def test_a_topic_with_a_line_feed(tmp_path: Path) -> None:
    segment_in(tmp_path / "new\nline-3")
    (found,) = find_segments(tmp_path)
    assert (found.topic, found.partition) == ("new\nline", 3)


def test_below_a_file_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"")
    with pytest.raises(ArgumentError, match="no such file or directory"):
        kolumn.read(path / "b.log")


def test_why_a_url_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the reasons of both libraries: one of them may know the scheme and have failed."""
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    _file_system.cache_clear()
    with pytest.raises(MissingError, match=r"nosuch://bucket: pyarrow: .*nosuch.*; fsspec: .*kolumn\[remote\]"):
        kolumn.read("nosuch://bucket/x")
