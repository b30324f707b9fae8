"""Segments at URLs have the same rows as local files, with each kind of file system."""

import gc
import itertools
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pyarrow as pa
import pytest

import kolumn
from kit.asked import offsets, put, watched
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kit.fuzz import pairs
from kit.outcome import raises
from kolumn.source import segment_file, storage
from kolumn.source.read_ahead import open_ranges
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment, find_segments

fsspec = pytest.importorskip("fsspec")
STORE = fsspec.filesystem("memory")
CASES = ["upgraded", "transactional", "compacted", "v2-java", "unclean"]


@pytest.fixture(scope="module")
def memory() -> str:
    """URL of a bucket with all cases."""
    for case in CASES:
        STORE.put(str(CORPUS / case), f"/bucket/{case}", recursive=True)
    return "memory://bucket"


def put_batches(folder: str, bases: Iterable[int], count: int = 20, size: int = 5000) -> None:
    """Segments of batches with a record each."""
    for base in bases:
        data = b"".join(batch([Record(base + i, value=bytes([base % 251]) * size)]) for i in range(count))
        STORE.pipe(f"{folder}/{base:020d}.log", data)


def before_each(monkeypatch: pytest.MonkeyPatch, method: str, act: Callable[[str], object]) -> None:
    """Do something with the path before each request of a kind."""
    real = getattr(type(STORE), method)

    def asked(self: Any, path: str, *args: Any, **options: Any) -> Any:
        act(path)
        return real(self, path, *args, **options)

    monkeypatch.setattr(type(STORE), method, asked)


@pytest.mark.sample
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", [{}, {"threads": 1, "binary": "view"}, {"start_offset": 100, "end_offset": 400}, {"errors": "skip"}])
def test_the_same_rows(memory: str, case: str, options: dict[str, Any]) -> None:
    columns = ["offset", "key", "value", "topic", "partition", "timestamp"]
    expected = kolumn.read(CORPUS / case, columns=columns, **options)
    for url in (f"{memory}/{case}", f"local://{CORPUS / case}", f"file://{CORPUS / case}"):
        assert kolumn.read(url, columns=columns, **options).equals(expected), url
        assert kolumn.batches(url).drop("segment").equals(kolumn.batches(CORPUS / case).drop("segment")), url


def test_markers_of_small_segments_are_not_sought_one_by_one(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"columns": ["offset", "transaction"], "isolation_level": "read_committed"}
    assert kolumn.read(f"{memory}/transactional", **how).equals(kolumn.read(CORPUS / "transactional", **how))
    asked: list[str] = []
    before_each(monkeypatch, "cat_file", asked.append)
    offsets(f"{memory}/transactional/txn-zstd-0", isolation_level="read_committed")
    logs = len(list((CORPUS / "transactional" / "txn-zstd-0").glob("*.log")))
    assert logs <= sum(path.endswith(".log") for path in asked) <= 3 * logs


def test_names(memory: str) -> None:
    def facts(segments: list[Segment]) -> list[Any]:
        return [(s.path.rpartition("/")[2], s.topic, s.partition, s.base_offset, s.size) for s in segments]

    segments = find_segments(f"{memory}/upgraded/*/*.log")
    assert facts(segments) == facts(find_segments(CORPUS / "upgraded"))
    assert segments[0].path.startswith(f"{memory}/upgraded/")
    assert find_segments(segments[0].path) == segments[:1]
    assert len(find_segments([f"{memory}/upg*", f"{memory}/upgraded"])) == len(segments)
    here = CORPUS / segments[0].path.removeprefix(f"{memory}/")
    assert kolumn.read(segments[0].path).num_rows == kolumn.read(here).num_rows


def _files(url: str) -> dict[str, bytes]:
    system, path = fsspec.core.url_to_fs(url)
    return {name.rpartition(path)[2]: system.cat_file(name) for name in system.find(path)}


@pytest.mark.parametrize("target", ["a path", "memory://made"])
def test_conversion_and_compaction(memory: str, tmp_path: Path, target: str) -> None:
    made = str(tmp_path / "remote") if target == "a path" else target
    source = CORPUS / "compacted"
    for url, name in ((f"{memory}/compacted", made), (str(source), str(tmp_path / "local"))):
        compacted = kolumn.compact(url, f"{name}/compact", now=1_795_203_600_000)
        converted = kolumn.convert(url, f"{name}/convert", format="v3-compact")
        cleaned = kolumn.apply_retention(url, f"{name}/clean", retention_ms=1, now=0, format="kafka")
        written = kolumn.write(
            kolumn.read(next(source.glob("*/*.log")), columns=["offset", "timestamp", "key", "value"]),
            f"{name}/write/t-7",
            segment_bytes=1000,
            batch_bytes=500,
        )
        assert len(written) > 1
        for path in (*compacted.segments, *converted.segments, *cleaned.segments, *written):
            assert path.startswith(f"{name}/")
            assert storage.look(path) is not None
    assert _files(made) == _files(str(tmp_path / "local"))


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_what_could_not_be_sent_whole_is_not_there(memory: str, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    real, calls = storage.send, []

    def send(path: str, url: str) -> None:
        calls.append(url)
        real(path, url)
        if len(calls) == fails_at:
            raise kolumn.KolumnError("the network is gone")

    monkeypatch.setattr(storage, "send", send)
    raises(kolumn.KolumnError, "the network is gone", kolumn.write, pa.table({"value": ["x"]}), f"{memory}/half/t-0")
    assert _files(f"{memory}/half") == {}
    assert [url.endswith(".log") for url in calls] == [False, False, True][:fails_at]


def test_damage_is_found_at_the_same_positions(memory: str, tmp_path: Path) -> None:
    data = bytearray(next((CORPUS / "upgraded").glob("*/*.log")).read_bytes())
    for position in range(5000, len(data), 30_000):
        data[position] ^= 1
    STORE.pipe("/bucket/damaged/t-0/00000000000000000000.log", bytes(data))
    put(tmp_path / "t-0", data)
    here, there = kolumn.verify(tmp_path), kolumn.verify(f"{memory}/damaged")
    assert not here.ok
    assert there.damage.drop("segment").equals(here.damage.drop("segment"))


def test_large_files_come_in_blocks(monkeypatch: pytest.MonkeyPatch, memory: str) -> None:
    """Headers of many batches are read by few requests."""
    opened: list[Any] = []
    monkeypatch.setattr(segment_file, "open_ranges", lambda url: opened.append(Mock(wraps=open_ranges(url))) or opened[-1])
    segments = find_segments(f"{memory}/v2-java")
    kolumn.batches(segments[0].path, check_crcs=False)
    assert [file.read_at.mock_calls for file in opened] == [[call(segments[0].size, 0)]]


@pytest.fixture
def large_segments() -> str:
    """URL of a folder with three segments that are decoded chunk by chunk."""
    put_batches("/large/t-0", range(0, 3000, 1000))
    return "memory://large"


def test_the_next_large_segments_are_opened_early(large_segments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, closed = (watched(monkeypatch, SegmentFile, name) for name in ("__init__", "close"))
    reader = kolumn.scan(large_segments, columns=["offset"], threads=2, chunk_bytes=20_000)
    assert reader.read_next_batch()["offset"][0].as_py() == 0
    while 2000 not in {segment.base_offset for _, segment, *_ in opened}:
        time.sleep(0.01)
    assert reader.read_all()["offset"].to_pylist()[-20:] == list(range(2000, 2020))
    assert {id(file) for file, *_ in opened} == {id(file) for file, _ in closed}
    # What was opened for nothing is closed.
    reader = kolumn.scan(large_segments, columns=["offset"], threads=2, chunk_bytes=20_000)
    reader.read_next_batch()
    del reader
    gc.collect()
    assert {id(file) for file, *_ in opened} == {id(file) for file, _ in closed}


@pytest.mark.parametrize("is_overwritten", [False, True])
@pytest.mark.parametrize(("method", "earlier"), [("info", 1), ("ls", 2)])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_last_look_at_a_segment_delays_no_rows(
    threads: int, method: str, earlier: int, is_overwritten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered here when the rows of the next segment are there; what it finds is an error before the scan ends."""
    first, looked, later, was_later = f"/looked/t-0/{0:020d}.log", itertools.count(), threading.Event(), []
    looked_at = first if method == "info" else "/looked/t-0"
    if method == "info":
        monkeypatch.setattr(segment_file, "_SMALL", 0)
    put_batches("/looked/t-0", (0, 20, 40))

    def look(path: str) -> None:
        if path == looked_at and next(looked) >= earlier:
            was_later.append(later.wait(20))
            if is_overwritten:
                STORE.pipe(first, bytes(1))

    before_each(monkeypatch, method, look)
    read: list[int] = []
    with pytest.raises(kolumn.KolumnError, match=f"memory:/{first}: ") if is_overwritten else nullcontext():
        for some in kolumn.scan("memory://looked", columns=["offset"], threads=threads, chunk_bytes=20_000):
            read.extend(some["offset"].to_pylist())
            if read[-1] >= 20:
                later.set()
    assert is_overwritten or read == list(range(60))
    assert was_later
    assert all(was_later)


@pytest.mark.parametrize("threads", [1, 2])
def test_segments_share_what_is_fetched_ahead(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of several segments are under way, as many as one large segment may have, each once, and at most 16 requests at a time."""
    size, most = 1 << 20, 12 << 20
    put_batches("/shared/t-0", range(40), 1, size)
    asked: list[str] = []
    under_way, at_a_time, lock, real = 0, 0, threading.Lock(), type(STORE).cat_file

    def cat_file(self: Any, path: str, **options: Any) -> Any:
        nonlocal under_way, at_a_time
        with lock:
            asked.append(path)
            under_way += 1
            at_a_time = max(at_a_time, under_way)
        time.sleep(0.01)
        with lock:
            under_way -= 1
        return real(self, path, **options)

    monkeypatch.setattr(type(STORE), "cat_file", cat_file)
    read, ahead = 0, []
    for one in kolumn.scan("memory://shared", columns=["offset"], threads=threads, chunk_bytes=size // 2, memory_bytes=most):
        read += one.num_rows
        ahead.append(len(asked) - read)
    assert len(asked) == len(set(asked)) == read == 40
    assert 4 < at_a_time <= 16
    assert 4 <= max(ahead) <= most // size + 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests, by kind."""
    found: list[str] = []
    for name in ("info", "ls", "cat_file"):
        before_each(monkeypatch, name, lambda path, name=name: found.append(name))
    return found


@pytest.fixture
def small_segments() -> str:
    """URL of a folder with twenty segments that are decoded chunk by chunk."""
    put_batches("/asked/t-0", range(0, 400, 20))
    return "memory://asked/t-0"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_scan_asks_for_little_besides_bytes(threads: int, small_segments: str, asked: list[str]) -> None:
    """One look at the source, one listing, a request for each segment, and for all looks at sixteen segments two listings."""
    how: dict[str, Any] = {"threads": threads, "chunk_bytes": 20_000}
    assert offsets(small_segments, **how) == list(range(400))
    assert asked.count("cat_file") == 20
    assert asked.count("info") + asked.count("ls") <= 2 + 2 * 2
    # A single segment of a folder is looked at alone.
    asked.clear()
    assert offsets(small_segments, start_offset=100, end_offset=120, **how) == list(range(100, 120))
    assert asked.count("ls") == 1


@pytest.mark.parametrize(("constant", "value"), [("_SMALL", 1000), ("_LISTED", 19)])
def test_segments_are_looked_at_one_by_one(
    constant: str, value: int, small_segments: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they are large, or a listing of their folder would take several answers."""
    monkeypatch.setattr(segment_file, constant, value)
    assert len(offsets(small_segments, chunk_bytes=20_000)) == 400
    assert (asked.count("ls"), asked.count("info")) == (1, 1 + 2 * 20)


@pytest.mark.parametrize(("number", "change", "nth"), pairs([0, 7, 19], ["replaced by another file", "deleted"], [2, 3]))
def test_a_listing_tells_which_segment_changed(
    number: int, change: str, nth: int, small_segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes when the first listing after the plan is asked for, or the next one."""
    name, listings = f"/asked/t-0/{20 * number:020d}.log", itertools.count(1)

    def listed(_: str) -> None:
        if next(listings) == nth:
            whole = STORE.cat_file(name)
            STORE.rm(name)
            if change != "deleted":
                STORE.pipe(name, whole)

    before_each(monkeypatch, "ls", listed)
    words = f"{name}: was {change} after the source was listed"
    raises(kolumn.KolumnError, words, offsets, small_segments, threads=1, chunk_bytes=20_000)


def test_a_listing_that_fails_leaves_looks_at_each_segment(small_segments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_file, "_identities", Mock(side_effect=kolumn.KolumnError("cannot be listed")))
    assert len(offsets(small_segments, chunk_bytes=20_000)) == 400
    scan = kolumn.scan(small_segments, columns=["offset"], chunk_bytes=20_000)
    STORE.rm(f"/asked/t-0/{100:020d}.log")
    raises(kolumn.KolumnError, "was deleted", scan.read_all)


def test_a_file_whose_bytes_come_while_the_interpreter_ends_tells_nobody(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that would look at it are not there any more; a callback that raises would print a traceback."""
    with SegmentFile(find_segments(f"{memory}/v2-java/java-zstd-0")[0]) as file:
        ended = ThreadPoolExecutor(1)
        ended.shutdown()
        with monkeypatch.context() as patched:
            patched.setattr(segment_file, "shared", lambda _: ended)
            file._on_fetched()
        assert file.read(0, 10).size > 10


def test_the_next_large_segment_is_missing(large_segments: str) -> None:
    """The error comes after the records before it."""
    reader = kolumn.scan(large_segments, columns=["offset"], threads=2, chunk_bytes=20_000)
    STORE.rm("/large/t-0/00000000000000001000.log")
    read: list[int] = []
    with pytest.raises(kolumn.KolumnError, match=r"00000000000000001000.log: was deleted after the source was listed"):
        read.extend(offset for some in reader for offset in some["offset"].to_pylist())
    assert read == list(range(20))


def test_what_is_not_there(memory: str, tmp_path: Path) -> None:
    for url, words in ((f"{memory}/nothing", "no such file or directory"), ("nosuchscheme://bucket/x", "nosuchscheme")):
        raises(kolumn.ArgumentError, words, kolumn.read, url)
    shutil.copytree(CORPUS / "upgraded", tmp_path / "gone")
    [segment, *_] = find_segments(f"local://{tmp_path / 'gone'}")
    reader = kolumn.scan(segment.path, threads=1, chunk_bytes=1000)
    shutil.rmtree(tmp_path / "gone")
    raises(kolumn.KolumnError, "cannot be opened", reader.read_all)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("dropbox://AKIAME:wJalr%2FsecRET@bucket/t-0", "dropbox://***@bucket"),
        # A slash that should have been quoted.
        ("dropbox://AKIAME:wJalr/secRET@bucket/t-0", "dropbox://***"),
        ("dropbox://bucket/t-0?secret_key=wJalrsecRET&region=x", "secret_key=***&region=x"),
    ],
)
def test_errors_do_not_tell_secrets(url: str, shown: str) -> None:
    caught = raises(kolumn.KolumnError, "", kolumn.read, url)
    assert shown in str(caught)
    for secret in ("AKIAME", "wJalr", "secRET"):
        assert secret not in str(caught)
        assert secret not in "".join(traceback.format_exception(caught)).replace(url, "")


def test_what_looks_like_a_secret_stays(tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "upgraded", tmp_path / "token=5" / "t-0")
    shown = kolumn.read(tmp_path / "token=5", columns=["segment"])["segment"].unique().to_pylist()
    assert shown == [segment.path for segment in find_segments(tmp_path / "token=5")]
    for text in (
        "s3://bucket/a-0: cannot be listed: no", "hdfs://namenode:8020/data: no", "s3://bucket?endpoint_override=127.0.0.1:9000&scheme=http/a",
        "s3://bucket: no", "position=7, token count = 3", "http://host:80: no",
    ):  # fmt: skip
        assert str(kolumn.KolumnError(text)) == text
