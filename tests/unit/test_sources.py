"""Arguments of `kolumn.read` and similar functions: sources and the files they find, times, payloads, progress."""

import io
import os
import pickle
import shutil
import socket
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.asked import invoked
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kit.outcome import raises
from kit.replicas import write_log
from kolumn.core.errors import ArgumentError, MissingError, PayloadError
from kolumn.options import Options, duration, milliseconds
from kolumn.source.segments import find_segments
from kolumn.source.storage import _file_system, as_typed, plain


def segment_in(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{0:020}.log"
    path.write_bytes(b"")
    return path


def found(source: Path) -> list[tuple[str | None, int | None]]:
    return [(segment.topic, segment.base_offset) for segment in find_segments(source)]


def test_links(tmp_path: Path) -> None:
    """A half-restored backup may have links to nothing next to segments; existing folders and links are followed.

    With any name, a folder is not entered again from below itself, and its other contents are read.
    """
    folder = tmp_path / "t-0"
    segment_in(folder)
    (folder / f"{1:020}.log").symlink_to(folder / "gone")
    (tmp_path / "u-0").symlink_to(folder)
    assert found(tmp_path) == [("t", 0), ("u", 0)]
    (tmp_path / "loop-0").symlink_to(".")
    (tmp_path / "loop-1").symlink_to(tmp_path)
    (folder / "up-0").symlink_to("..")
    assert found(tmp_path) == [("t", 0), ("u", 0)]
    assert len(find_segments(tmp_path / "*-0")) > 1
    assert kolumn.read(tmp_path).num_rows == 0


def test_links_around(tmp_path: Path) -> None:
    """Two folders have links to each other: each is read at its own place, and through the other one's link."""
    for name, other in (("a-0", "b-0"), ("b-0", "a-0")):
        segment_in(tmp_path / name)
        (tmp_path / name / f"x{other}").symlink_to(tmp_path / other)
    assert found(tmp_path) == [("a", 0), ("xb", 0), ("b", 0), ("xa", 0)]


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom", "/proc/self/mem", "/proc/self/status"])
def test_what_is_no_regular_file(name: str) -> None:
    if not Path(name).exists():
        pytest.skip("not on this system")
    for call in (kolumn.read, kolumn.scan, kolumn.verify, kolumn.batches):
        raises(ArgumentError, f"{name}: not a regular file", call, name)


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
            asked = (ArgumentError, "not a regular file", kolumn.read, folder / f"{one:020}.log")
            done = threading.Thread(target=raises, args=asked, daemon=True)
            done.start()
            done.join(30)
            assert not done.is_alive()
        for source in (folder, tmp_path, folder / "*.log"):
            assert [segment.path for segment in find_segments(source)] == [str(path)]


def test_a_topic_with_a_line_feed_and_a_path_below_a_file(tmp_path: Path) -> None:
    path = segment_in(tmp_path / "new\nline-3")
    (segment,) = find_segments(tmp_path)
    assert (segment.topic, segment.partition) == ("new\nline", 3)
    raises(ArgumentError, "no such file or directory", kolumn.read, path / "b.log")
    raises(FileNotFoundError, r"\*\.seg: no file matches this pattern", kolumn.read, path / "*.seg")


def test_why_a_url_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the reasons of both libraries: one of them may know the scheme and have failed."""
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    _file_system.cache_clear()
    raises(MissingError, r"nosuch://bucket: pyarrow: .*nosuch.*; fsspec may know it: pip install fsspec$", kolumn.read, "nosuch://bucket/x")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("s3://b/x?a=1&b=2", "s3://b?a=1&b=2/x"),
        ("s3://b/x?endpoint_override=http://h:1/&region=r", "s3://b?endpoint_override=http:%2F%2Fh:1%2F&region=r/x"),
        ("s3://b/day?1/x", "s3://b/day?1/x"),
        ("s3://b/?ay=1/x", "s3://b/?ay=1/x"),
        ("dir/a?b=1", "dir/a?b=1"),
    ],
)
def test_a_query_goes_after_the_host_and_back(typed: str, name: str) -> None:
    assert (plain(typed), as_typed(name)) == (name, typed)


TOPIC = CORPUS / "v2-java" / "java-zstd-0"
DAY = datetime(2025, 10, 9, tzinfo=UTC)


class Odd(os.PathLike):
    def __fspath__(self) -> bytes:
        return b"dir"


@pytest.mark.parametrize(
    "source", [b"dir", bytearray(b"dir"), None, 5, 1.5, True, [None], [TOPIC, 5], [b"dir"], Odd(), io.StringIO(""), {5: "a"}]
)
def test_what_is_no_source(source: Any) -> None:
    for function in (kolumn.read, kolumn.scan, kolumn.batches, kolumn.verify):
        raises(ArgumentError, r"expected a path as str or os.PathLike, or a list of paths, found ", function, source)


def test_what_is_a_source_and_a_file_open_for_text_is_none() -> None:
    """It is iterable, but its lines are not names of files."""
    with open(__file__) as file:
        raises(ArgumentError, r"expected a path .*: open a file with mode 'rb'", kolumn.read, file)
    rows = kolumn.read(TOPIC).num_rows
    assert rows
    for source in (str(TOPIC), [TOPIC], (str(TOPIC),), {TOPIC}, iter([TOPIC]), (path for path in [TOPIC])):
        assert kolumn.read(source).num_rows == rows
    raises(ArgumentError, "no source given", kolumn.read, [])


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_segments_further_down(tmp_path: Path, levels: int) -> None:
    folder = tmp_path.joinpath("x", *"abcd"[:levels], "orders-0")
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(batch([Record(0, b"key", b"value", 0)]))
    pattern = os.path.join(tmp_path, "x", *"*" * levels)
    said = "nor in topic-partition directories one level below it; there are segments in "
    assert str(raises(ArgumentError, said, kolumn.read, tmp_path / "x")).endswith(repr(str(folder.parent)))
    assert kolumn.read(folder.parent).num_rows == kolumn.read(pattern).num_rows == 1
    segment_in(folder.parent.with_name("z") / "orders-1")
    assert str(raises(ArgumentError, said, kolumn.read, tmp_path / "x")).endswith(f", and in others that {pattern!r} names")
    shutil.rmtree(folder.parent.parent)
    (tmp_path / "x").mkdir(exist_ok=True)
    raises(ArgumentError, r"one level below it$", kolumn.read, tmp_path / "x")


def test_no_more_than_some_folders_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment_in(tmp_path / "b" / "orders-0")
    for number in range(100):
        (tmp_path / f"a{number}").mkdir()
    raises(ArgumentError, r"one level below it$", kolumn.read, tmp_path)
    (tmp_path / "a0").rmdir()
    raises(ArgumentError, rf"; there are segments in '{tmp_path}/b'$", kolumn.read, tmp_path)
    monkeypatch.setattr("kolumn.source.names._MOST_ENTRIES", 0)
    raises(ArgumentError, r"one level below it$", kolumn.read, tmp_path)


@pytest.mark.parametrize(
    "text", ["2025-10-09", "2025-10-09T00:00", "2025-10-09T00:00:00.000Z", "2025-10-09T02:00+02:00", str(int(DAY.timestamp() * 1000))]
)
def test_times_as_text(tmp_path: Path, text: str) -> None:
    path, ms = tmp_path / "a.log", int(DAY.timestamp() * 1000)
    path.write_bytes(batch([Record(k, b"key", b"value", ms + k - 2) for k in range(5)]))
    for moment in (text, DAY, ms):
        assert kolumn.read(path, start_timestamp=moment)["offset"].to_pylist() == [2, 3, 4]
        assert kolumn.read(path, end_timestamp=moment)["offset"].to_pylist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("now", 0), ("90s", 0.025), ("30m", 0.5), ("2h", 2), ("7d", 168), ("2w", 336), (" 7D ", 168),  # before 15:00 of a Thursday
        ("today", 15), ("yesterday", 39), ("wednesday", 39), ("last-wednesday", 39), ("Last Friday", 15 + 6 * 24),
        ("last_thursday", 15 + 7 * 24), ("thursday", 15 + 7 * 24),
    ],
)  # fmt: skip
def test_times_before_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, hours: float) -> None:
    now, path = DAY + timedelta(hours=15), tmp_path / "a.log"
    then = int((now - timedelta(hours=hours)).timestamp() * 1000)
    monkeypatch.setattr("kolumn.options.now_ms", lambda: int(now.timestamp() * 1000))
    path.write_bytes(batch([Record(k, b"key", b"value", then + k - 2) for k in range(5)]))
    assert kolumn.read(path, start_timestamp=text)["offset"].to_pylist() == [2, 3, 4]
    made = Options.of(end_timestamp=text, value_format="json", value_schemas="x", value_as_of=text)
    assert (made.end_timestamp, made.typed[0].as_of, milliseconds("now", text)) == (then, then, then)


@pytest.mark.parametrize("moment", ["noon", "last", "last-week", "1y", "-7d", "", "2025-13-01", 1.5, True, b"2025"])
def test_what_is_no_time(moment: Any) -> None:
    said = r"start_timestamp=.*: expected a time such as 2026-01-31T12:00 .*, 7d or 30m \(ago\), .*, last-tuesday, or ms since 1970"
    raises(ArgumentError, said, kolumn.read, TOPIC, start_timestamp=moment)


def test_durations() -> None:
    for value in (604_800_000, "604800000", "7d", "1w", "168h", timedelta(days=7)):
        assert duration("retention_ms", value) == 604_800_000
    refused: tuple[Any, ...] = (-1, "-1", "7y", "d", "", timedelta(-1), 1.5, True, None)
    for value in refused:
        raises(ArgumentError, "retention_ms=.*: expected 0 or more ms, or a duration such as", duration, "retention_ms", value)


def test_numbers_of_more_than_64_bits(tmp_path: Path) -> None:
    source, big = write_log(tmp_path, (0, [batch([Record(0, b"k", b"v", 0)])])), 2**63
    wrong: tuple[tuple[Callable[..., Any], dict[str, Any]], ...] = (
        *((kolumn.read, {name: big}) for name in ("limit", "start_offset", "start_timestamp", "chunk_bytes")),
        (kolumn.read, {"end_timestamp": str(big)}), (kolumn.read, {"end_offset": -big - 1}), (kolumn.scan, {"limit": big}),
        (kolumn.open_transactions, {"now": big}), (partial(kolumn.compact, target=tmp_path / "new"), {"now": big}),
        (partial(kolumn.compact, target=tmp_path / "new"), {"delete_retention_ms": big}),
    )  # fmt: skip
    for function, options in wrong:
        ((name, number),) = options.items()
        raises(ArgumentError, f"^{name}={int(number)}: expected a number of 64 bits, at most {big - 1}$", function, source, **options)
    for name in ("--limit", "--since", "--start-offset"):
        said = f"kolumn: {name} {big}: expected a number of 64 bits, at most {big - 1}\n"
        result = invoked("cat", name, big, source)
        assert (result.exit_code, result.stderr) == (2, said)
    most: dict[str, int] = dict.fromkeys(("limit", "end_offset", "end_timestamp", "chunk_bytes", "memory_bytes"), big - 1)
    assert kolumn.read(source, start_offset=-big, start_timestamp=-big, **most).num_rows == 1


@pytest.mark.parametrize(("binary", "text"), [("contiguous", pa.string()), ("view", pa.string_view())])
def test_payload_as_strings(tmp_path: Path, binary: str, text: pa.DataType) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(batch([Record(0, "schlüssel".encode(), b"value", 0, ((b"h", b"1"), (b"n", None))), Record(1, None, b"", 0)]))
    plain = kolumn.read(path, include_headers=True, binary=binary)
    found = kolumn.read(path, include_headers=True, binary=binary, payload="string")
    assert (found.schema.field("key").type, found.schema.field("value").type, found["key"].to_pylist()) == (text, text, ["schlüssel", None])
    assert found["headers"].to_pylist()[0] == [{"key": "h", "value": "1"}, {"key": "n", "value": None}]
    assert [column.view(plain.schema.field("value").type) for column in found["value"].chunks] == plain["value"].chunks
    assert found.drop(["key", "value", "headers"]).equals(plain.drop(["key", "value", "headers"]))
    assert kolumn.scan(path, payload="string").schema.field("value").type == pa.string()
    raises(ArgumentError, "payload='text': expected binary or string", kolumn.read, path, payload="text")


OTHER = {
    "key": Record(2, b"\xbc", b"v", 0), "value": Record(2, None, b"caf\xe9", 0),
    "headers": Record(2, b"k", b"v", 0, ((b"h", b"1"), (b"n", b"\xed\xa0\x80"))),
}  # fmt: skip


@pytest.mark.parametrize("column", OTHER)
@pytest.mark.parametrize("options", [{}, {"binary": "view"}, {"threads": 2, "columns": ["key", "value", "headers"]}])
def test_payloads_that_are_no_strings(tmp_path: Path, column: str, options: dict[str, Any]) -> None:
    """Arrow's strings are UTF-8: the rows before the record come, and an error names it."""
    path = tmp_path / "a.log"
    good = [Record(number, b"k", "\u00fc".encode(), 0, ((b"h", None),)) for number in range(2)]
    path.write_bytes(batch([*good, OTHER[column], Record(3, b"k", b"v", 0)]))
    how: dict[str, Any] = {"include_headers": True, "payload": "string", **options}
    reader = kolumn.scan(path, **how)
    found = reader.read_next_batch()
    found.validate(full=True)
    assert (found.schema, found.num_rows) == (reader.schema, 2)
    error = raises(PayloadError, rf"a\.log: offset 2: {column}: not UTF-8\. Read with payload='binary'", reader.read_next_batch)
    assert (error.offset, error.column, str(pickle.loads(pickle.dumps(error)))) == (2, column, str(error))
    # Columns that nobody asked for are not looked at.
    assert kolumn.read(path, payload="string", columns=["topic"]).num_rows == 4


def test_progress_is_told_as_bytes_are_read(tmp_path: Path) -> None:
    size = sum(path.stat().st_size for path in TOPIC.glob("*.log"))
    ways: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (kolumn.read, {}), (kolumn.read, {"threads": 1}), (kolumn.read, {"chunk_bytes": 4096, "threads": 2}),
        (kolumn.batches, {}), (kolumn.verify, {}), (kolumn.space, {}),
    ]  # fmt: skip
    for function, options in ways:
        told: list[int] = []
        function(TOPIC, on_progress=told.append, **options)
        assert sum(told) == size, (function, options)
        assert len(told) > 4 or options.get("chunk_bytes") is None
    for function, times in ((kolumn.convert, 1), (kolumn.compact, 2)):
        told = []
        options = {"include_active": True} if function is kolumn.compact else {}
        function(TOPIC, tmp_path / function.__name__, on_progress=told.append, **options)
        assert sum(told) == times * size
