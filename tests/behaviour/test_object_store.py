"""Segments in a server of S3: the same rows as on this machine, whatever happens to requests."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from fsspec.implementations import memory
from pyarrow import fs

import kolumn
from kit.command_line import run
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kit.outcome import raises
from kit.s3 import CREDENTIALS, Proxy, java_server, server
from kit.tiers import aiven_of, tier_of
from kolumn.source import storage
from kolumn.source.read_ahead import ReadAhead
from kolumn.source.segments import find_segments

COLUMNS = ["topic", "partition", "offset", "key", "value"]
LOG = CORPUS / "transactional" / "txn-zstd-0"


@pytest.fixture(scope="module", params=["moto", pytest.param("s3proxy", marks=pytest.mark.slow)])
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server with a bucket that has logs, and credentials in the environment."""
    started = server() if request.param == "moto" else java_server(tmp_path_factory.mktemp("s3proxy"))
    with pytest.MonkeyPatch.context() as patch, started as address:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        if request.param == "s3proxy":
            patch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
            patch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
        store = fs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True)
        store.create_dir("bucket")
        for case in ("transactional", "upgraded"):
            fs.copy_files(str(CORPUS / case), f"bucket/{case}", destination_filesystem=store)
        yield address


def url(path: str, address: str) -> str:
    return f"s3://bucket/{path}?endpoint_override={address}&scheme=http"


@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"start_offset": 100, "end_offset": 300}])
def test_the_same_rows(s3: str, options: dict[str, Any]) -> None:
    expected = kolumn.read(CORPUS / "transactional", columns=COLUMNS, **options)
    assert kolumn.read(url("transactional", s3), columns=COLUMNS, **options).equals(expected)


def test_the_environment_names_the_server(s3: str) -> None:
    script = "import kolumn; print(kolumn.read('s3://bucket/transactional/txn-zstd-*', columns=['offset']).num_rows)"
    environment = os.environ | {"AWS_ENDPOINT_URL": f"http://{s3}"}
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=environment).stdout
    assert int(printed) == kolumn.read(LOG, columns=["offset"]).num_rows


def test_an_endpoint_with_its_scheme_in_the_url(s3: str) -> None:
    source = f"s3://bucket/transactional?endpoint_override=http://{s3}/"
    assert kolumn.read(source, columns=["offset"]).num_rows == kolumn.read(CORPUS / "transactional", columns=["offset"]).num_rows
    _, _, steps = run("overview", source).stdout.partition("Next ")
    (cat,) = (line.partition("#")[0].strip() for line in steps.splitlines() if "kolumn cat" in line)
    assert cat.endswith(f"?endpoint_override=http://{s3}/'")
    assert run(*shlex.split(cat)[1:]).returncode == 0


def test_a_host_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = Mock(**{"FileSystem.from_uri.side_effect": OSError("could not resolve host")})
    monkeypatch.setattr(storage, "_arrow", lambda: arrow)
    raises(kolumn.KolumnError, r"could not resolve host; for another store than Amazon's, set AWS_ENDPOINT_URL$", kolumn.read, "s3://far/x")


def test_a_store_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Once for a request, and not if it fails only once."""
    monkeypatch.setattr(storage, "_PAUSES", (0, 0, 0))

    def failing(times: int) -> None:
        answers = iter([OSError("s3://me:secret@host: no route")] * times)
        storage.repeated(lambda: (_ for _ in ()).throw(error) if (error := next(answers, None)) else None)

    failing(1)
    assert caplog.messages == []
    failing(3)
    assert caplog.messages == ["still no answer, trying again: s3://***@host: no route"]


def test_errors_have_words_and_no_secrets(s3: str, caplog: pytest.LogCaptureFixture) -> None:
    raises(kolumn.ArgumentError, "no such file or directory", kolumn.read, url("nothing", s3))
    for path in ("", "x", "x/t-*"):
        raises(kolumn.ArgumentError, r"^s3://no-bucket\?\S*: no such bucket$", kolumn.read, url(path, s3).replace("bucket", "no-bucket"))
    user, password = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    secret = url("transactional", s3).replace("s3://", f"s3://{user}:{password}@")
    table = kolumn.read(secret, columns=["segment", "value"])
    assert table.num_rows
    assert {name.split("?")[0] for name in table["segment"].unique().to_pylist()} == {"s3://***@bucket"}
    found = raises(kolumn.ArgumentError, r"s3://\*\*\*@bucket.*no such file", kolumn.read, secret.replace("transactional", "nothing"))
    assert password not in f"{found} {table['segment'].unique()} {kolumn.verify(secret).segments} {caplog.text}"


def test_tiers_in_a_bucket(s3: str, tmp_path: Path) -> None:
    tier = tier_of(LOG, tmp_path / "kafka")
    _, keys = aiven_of(LOG, tmp_path / "aiven", 4000, zstd=True, key="k")
    fs.copy_files(str(tmp_path), "bucket/tiers", destination_filesystem=fs.S3FileSystem(endpoint_override=s3, scheme="http"))
    for level in ("read_uncommitted", "read_committed"):
        how: dict[str, Any] = {"columns": COLUMNS, "isolation_level": level}
        for name in ("kafka", "aiven"):
            assert kolumn.read([url(f"tiers/{name}", s3), LOG], private_keys=keys, **how).equals(kolumn.read(LOG, **how))
    assert tier.name in find_segments(url("tiers/kafka", s3))[0].path


def test_requests_that_fail_are_repeated(s3: str) -> None:
    """Every tenth answer is an error or ends too early."""
    with Proxy(s3, fails=10) as proxy:
        for case in ("transactional", "upgraded"):
            assert kolumn.read(url(case, proxy.address), columns=COLUMNS).equals(kolumn.read(CORPUS / case, columns=COLUMNS))
        assert proxy.failed > 5


@pytest.mark.slow
def test_a_server_that_is_killed_or_fails_while_it_is_read_and_written(s3: str) -> None:
    with Proxy(s3, fails=10) as proxy:
        reader, offsets = kolumn.scan(url("transactional", proxy.address), columns=["topic", "offset"], threads=1, chunk_bytes=4096), []
        for number, found in enumerate(reader):
            if number == 2:
                proxy.kill(4)
            offsets += found.to_pylist()
        assert proxy.failed > 3
    assert offsets == kolumn.read(CORPUS / "transactional", columns=["topic", "offset"]).to_pylist()
    table = pa.table({"value": pa.array([os.urandom(1 << 16) for _ in range(400)], pa.binary())})
    with Proxy(s3, fails=10) as proxy:
        kolumn.write(table, url("made/t-0", proxy.address), segment_bytes=16 << 20)
        assert [path for command, path in proxy.requests if command == "POST" and "uploads" in path]
        assert kolumn.read(url("made/t-0", proxy.address), columns=["value"])["value"].combine_chunks() == table["value"].combine_chunks()


_WRITER = """
import os, sys, pyarrow as pa, kolumn
table = pa.table({"value": pa.array([b"%07d" % i + bytes(1 << 15) for i in range(800)], pa.binary())})
print("begins", flush=True)
kolumn.write(table, sys.argv[1], segment_bytes=4 << 20)
"""


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_nothing(s3: str) -> None:
    """Whatever it had sent is removed or completed by the next run, and the rows are there once."""
    target = url("killed/t-0", s3)
    with Proxy(s3, delay=0.02) as proxy:
        slow = url("killed/t-0", proxy.address)
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, slow], stdout=subprocess.PIPE, text=True)
        while sum(command == "PUT" for command, _ in proxy.requests) < 3 and writer.poll() is None:
            time.sleep(0.02)
        assert writer.poll() is None
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    subprocess.run([sys.executable, "-c", _WRITER, target], check=True, capture_output=True)
    values = kolumn.read(target, columns=["value"])["value"]
    assert [value.as_py()[:7] for value in values] == [b"%07d" % i for i in range(800)]
    kolumn.tidy(target, older_than_hours=0)
    store = fs.S3FileSystem(endpoint_override=s3, scheme="http")
    left = [info.path for info in store.get_file_info(fs.FileSelector("bucket/killed", recursive=True)) if info.type == fs.FileType.File]
    assert [path for path in left if "/t-0/0000000" not in path] == []


class Slow:
    """A file of numbered bytes; notes what is requested."""

    def __init__(self, size: int, wait: float = 0, fails: int = 0) -> None:
        self.data, self.wait, self.fails = os.urandom(size), wait, fails
        self.calls: list[tuple[int, int]] = []
        self.under_way = self.most = 0

    def read_at(self, size: int, start: int, /) -> bytes:
        self.calls.append((start, size))
        if self.fails and len(self.calls) % self.fails == 0:
            raise OSError("the connection was reset")
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        time.sleep(self.wait)
        self.under_way -= 1
        return self.data[start : start + size]

    def close(self) -> None:
        self.calls.append((-1, 0))


@pytest.mark.parametrize("aligned", [False, True])
def test_a_read_in_order_is_fetched_ahead_within_bounds(aligned: bool) -> None:
    slow = Slow(100_000, 0.002)
    file = ReadAhead(slow, 100_000, 8000, block=1000, aligned=aligned)
    found, held = [], 0
    for at in range(0, 100_000, 700):
        found.append(file.read_at(min(700, 100_000 - at), at))
        held = max(held, sum(one.end - one.start for one in file._windows))
    assert b"".join(found) == slow.data
    # The request that is being read, and one that goes beyond what may be fetched ahead.
    assert held <= 8000 + 2 * (8000 // 6)
    assert slow.most >= 4
    assert len({start for start, _ in slow.calls}) == len(slow.calls) <= 102
    file.close()
    assert slow.calls[-1] == (-1, 0)


def test_what_was_announced_is_requested_at_once_and_nothing_after_it() -> None:
    slow, done = Slow(100_000, 0.01), threading.Event()
    near: list[tuple[int, int]] = []
    file = ReadAhead(slow, 100_000, 16_000, block=1000)
    file.request(5000, 40_500)
    # Half of what may be fetched ahead, in requests of which the first one is small, and the others divide what is left equally.
    assert [one.end for one in file._windows] == [6000, *range(6000 + 1327, 13_000 + 1327, 1327)]
    file.when_near(lambda room: near.append((room, file.begun)))
    file.when_fetched(done.set)
    assert b"".join(file.read_at(500, at) for at in range(5000, 40_500, 500)) == slow.data[5000:40_500]
    assert done.wait(5)
    # A reader that waits makes requests larger and more of them; none begins after the announced end.
    assert file._bound == 16_000
    assert min(size for start, size in slow.calls if start > 5000) >= 1327
    assert max(size for _, size in slow.calls) > 1327
    assert max(start for start, _ in slow.calls) < 40_500
    # What is read after it may use the rest of what may be fetched ahead, when all of its own requests are begun.
    assert {requests for _, requests in near} == {len(slow.calls)}
    assert [room for room, _ in near] == list(range(near[0][0], 16_001, 500))


@pytest.mark.parametrize(("seconds", "bound"), [(0.1, 16_000), (1.0, 8000)])
def test_a_fast_reader_has_more_fetched_ahead_before_it_waits(seconds: float, bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers take 2 seconds here. The reader would read what is ahead of it within two answers, or needs longer."""
    now = 1.0
    monkeypatch.setattr("kolumn.source.read_ahead.perf_counter", lambda: now)
    file = ReadAhead(Slow(100_000), 100_000, 16_000, block=1000)
    file.request(0, 100_000)
    for at in range(0, 8000, 500):
        for one in file._windows:
            one.data.result()
        file._latency = 2.0
        file.read_at(500, at)
        now += seconds / 2
    assert file._bound == bound


def test_reads_here_and_there_fetch_nothing_ahead() -> None:
    slow = Slow(100_000)
    file = ReadAhead(slow, 100_000, 8000, block=1000)
    for start in (50_000, 10_000, 90_000, 10_500, 99_990):
        size = min(800, 100_000 - start)
        assert file.read_at(size, start) == slow.data[start : start + size]
    assert sum(size for _, size in slow.calls) < 9000
    # Nor is anything without room for it.
    slow = Slow(10_000)
    file = ReadAhead(slow, 10_000, 999, block=1000)
    assert b"".join(file.read_at(500, start) for start in range(0, 10_000, 500)) == slow.data
    assert slow.calls == [(start, 1000) for start in range(0, 10_000, 1000)]


@pytest.mark.parametrize(("step", "at_a_time", "most"), [(130, 4, 110_000), (2500, 1, 40_000)])
def test_a_walk_of_headers_is_fetched_ahead_if_it_leaves_out_little(step: int, at_a_time: int, most: int) -> None:
    slow = Slow(100_000, 0.002)
    file = ReadAhead(slow, 100_000, 8000, block=1000)
    for at in range(0, 100_000, step):
        assert file.read_at(20, at) == slow.data[at : at + 20]
    assert slow.most >= at_a_time
    assert sum(size for _, size in slow.calls) <= most


def test_a_request_that_fails_is_repeated_and_then_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("kolumn.source.storage.time.sleep", pauses.append)
    slow = Slow(10_000, fails=3)
    file = ReadAhead(slow, 10_000, 0, block=1000)
    assert b"".join(file.read_at(1000, at) for at in range(0, 10_000, 1000)) == slow.data
    assert 0.1 in pauses
    never = ReadAhead(Slow(100, fails=1), 100, 0)
    raises(OSError, "was reset", never.read_at, 10, 0)
    assert pauses[-4:] == sorted(pauses[-4:])


@pytest.mark.parametrize(("error", "calls"), [("the connection was reset", 5), ("AWS Error ACCESS_DENIED", 1)])
def test_a_small_file_that_cannot_be_read_is_not_taken_for_missing(monkeypatch: pytest.MonkeyPatch, error: str, calls: int) -> None:
    """Without its leader epochs another copy of a tier's segment would be read."""
    pauses: list[float] = []
    monkeypatch.setattr("kolumn.source.storage.time.sleep", pauses.append)
    monkeypatch.setattr(memory.MemoryFileSystem, "cat_file", Mock(side_effect=OSError(error)))
    name = "memory://x/00000000000000000000.leader_epoch_checkpoint"
    if calls == 1:
        assert storage.read_bytes(name) is None
    else:
        raises(kolumn.KolumnError, "leader_epoch_checkpoint: cannot be read: the connection was reset", storage.read_bytes, name)
    assert len(pauses) == calls - 1


@pytest.mark.slow
def test_listings_of_100_000_objects() -> None:
    store = memory.MemoryFileSystem()
    one = batch([Record(0, value=b"x")])
    store.store |= {name: memory.MemoryFile(store, name, one) for number in range(100_000) if (name := f"/many/t-0/{number:020d}.log")}
    try:
        found = find_segments("memory://many")
        assert len(found) == 100_000
        assert sum(segment.size for segment in found) == 100_000 * len(one)
    finally:
        for number in range(100_000):
            del store.store[f"/many/t-0/{number:020d}.log"]
