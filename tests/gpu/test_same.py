"""``backend="gpu"`` gives what the CPU gives: the same rows of every column, the same errors in the same words."""

import gzip
import random
import struct
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import lz4.frame
import pyarrow as pa
import pytest
import zstandard

import kolumn
from kit import device_columns, redpanda, wrong_records
from kit.corpus import cases
from kit.draft_segments import FORMATS, Maker
from kit.emulated import Emulated, HiddenError
from kit.encoder import Record, batch, raw_batch, with_crc
from kit.outcome import COLUMNS, outcome
from kolumn.decode.device import chunk as on_device
from kolumn.source.segment_file import SegmentFile

READABLE = [case for case in cases() if case.segments]
ON_BOTH = pytest.mark.parametrize(
    "where", ["emulated", pytest.param("past the host", marks=pytest.mark.slow), pytest.param("device", marks=pytest.mark.gpu)]
)


def same(path: Any, **options: Any) -> Any:
    one, other = (outcome(path, backend=backend, **options) for backend in ("cpu", "gpu"))
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
    else:
        assert other.schema == one.schema
        for name in one.column_names:
            assert other[name].equals(one[name]), name
    return one


def some(device: Emulated | None) -> list[Any]:
    """The corpus; on stand-ins, which run the loops of the emulated device, a third of it."""
    return READABLE if device is not None or import_module("kit.standins").real() else READABLE[::3]


def left_out(path: Path, **options: Any) -> list[kolumn.Damage]:
    """Damage that both leave out."""
    one, other = list[kolumn.Damage](), list[kolumn.Damage]()
    for backend, damage in (("cpu", one), ("gpu", other)):
        kolumn.read(path, errors="skip", backend=backend, on_damage=damage.append, **options)
    assert one == other
    return one


@pytest.mark.parametrize("where", ["emulated", pytest.param("device", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("case", READABLE, ids=str)
def test_corpus(where: str, case: Any, device: Emulated | None) -> None:
    same(case.segments, columns=COLUMNS, include_control=True, errors="raise")
    if device is not None:
        device_columns.same(case.directory, columns=COLUMNS, include_control=True)
        device.reads_files = True
    same(case.segments, columns=COLUMNS, errors="skip")


@ON_BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"binary": "view", "include_headers": True}, {"columns": ["offset"]}, {"columns": ["tombstone", "timestamp"]},
        {"columns": ["controlType"], "include_control": True}, {"start_offset": 5, "end_offset": 40},
        {"isolation_level": "read_committed", "columns": ["offset", "transaction", "value"]}, {"check_crcs": False}, {"trusted": False},
        {"chunk_bytes": 50_000, "threads": 3},
    ],
    ids=str,
)  # fmt: skip
def test_options(where: str, options: dict[str, Any], device: Emulated | None) -> None:
    for case in some(device):
        same(case.directory, **options)


@ON_BOTH
@pytest.mark.parametrize("case", [case for case in cases() if case.directory.name.endswith("-none-0")], ids=str)
def test_wrong_checksums_where_nothing_is_compressed(where: str, case: Any, tmp_path: Path, device: Emulated | None) -> None:
    """They are looked at together with the first records, and without any if none is asked for."""
    largest = max((case.directory / name for name in case.segments), key=lambda one: one.stat().st_size)
    data = bytearray(largest.read_bytes())
    for place in (len(data) // 2, len(data) - 1):
        data[place] ^= 1
    path = tmp_path / largest.name
    path.write_bytes(data)
    for options in ({}, {"start_offset": 1 << 40}, {"chunk_bytes": 20_000, "threads": 2}):
        same(path, columns=COLUMNS, errors="raise", **options)
        same(path, columns=COLUMNS, errors="skip", **options)
        assert left_out(path, **options) or "start_offset" in options


@ON_BOTH
@pytest.mark.parametrize("format", FORMATS)
def test_drafts(where: str, format: str, tmp_path: Path, device: Emulated | None) -> None:
    path = tmp_path / "a.log"
    for seed in range(40):
        entries = Maker(format, random.Random(seed)).segment(20)
        path.write_bytes(b"".join(entry.data for entry in entries))
        same(path, columns=COLUMNS, format=format, include_control=True, errors="skip")
        if where == "emulated" and seed < 20:
            later = [row.offset for entry in entries for row in entry.rows][3]
            for rows in ({"include_control": True}, {"include_control": False}, {"include_control": True, "start_offset": later}):
                device_columns.same(path, columns=COLUMNS, format=format, **rows)


@ON_BOTH
def test_redpanda(where: str, tmp_path: Path, device: Emulated | None) -> None:
    """The corpus with its headers swapped, whole and damaged."""
    for case in some(device):
        for path in map(Path, case.segments):
            data = redpanda.swapped(path.read_bytes())
            if not data:
                continue
            (tmp_path / path.name).write_bytes(data)
            for options in ({"include_control": True}, {"binary": "view", "chunk_bytes": 20_000}, {"check_crcs": False}):
                same(tmp_path / path.name, columns=COLUMNS, format="redpanda", **options)
            starts = [at for at, *_ in redpanda.headers(data)]
            for place in (len(data) - 1, starts[len(starts) // 2] + 30):
                (tmp_path / path.name).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
                same(tmp_path / path.name, columns=COLUMNS, format="redpanda")
                same(tmp_path / path.name, columns=COLUMNS, format="redpanda", errors="skip")
            assert left_out(tmp_path / path.name, format="redpanda")


@ON_BOTH
def test_checksums_of_redpanda(where: str, tmp_path: Path, device: Emulated | None) -> None:
    """What the swapped header adds to the register, before no bytes, a few, a row of a warp and more, and slices of a large batch."""
    rng, path = random.Random(7), tmp_path / "a.log"
    for sizes in (range(201), (300_000, 0, 1, 1 << 20)):
        entries = []
        for number, size in enumerate(sizes):
            kafka = batch([], base_offset=number, producer_id=rng.randrange(1 << 60)) + rng.randbytes(size)
            kafka = kafka[:8] + struct.pack(">i", len(kafka) - 12) + kafka[12:]
            # Nobody decodes these, but everybody compares their checksums.
            entries.append(redpanda.of_kafka(with_crc(kafka), kind=redpanda.ELSEWHERE))
        path.write_bytes(b"".join(entries))
        assert kolumn.verify(path, format="redpanda", backend="gpu").ok
        wrong = [entry[:-1] + bytes([entry[-1] ^ 1]) if len(entry) > 61 and rng.random() < 0.3 else entry for entry in entries]
        path.write_bytes(b"".join(wrong))
        same(path, columns=COLUMNS, format="redpanda", include_control=True)
        damage = left_out(path, format="redpanda", include_control=True)
        assert [one.base_offset for one in damage] == [i for i, pair in enumerate(zip(entries, wrong, strict=True)) if pair[0] != pair[1]]


@ON_BOTH
def test_single_wrong_records(where: str, tmp_path: Path, device: Emulated | None) -> None:
    """The device decodes what the CPU leaves of their entries."""
    path = tmp_path / "a.log"
    for case in wrong_records.cases():
        path.write_bytes(case.data)
        found = same(path, columns=COLUMNS, format=case.format, errors="skip")
        assert found["offset"].to_pylist() == case.offsets, case.name
        same(path, columns=COLUMNS, format=case.format)
        left_out(path, format=case.format)
        if where == "emulated":
            device_columns.same(path, columns=COLUMNS, format=case.format, errors="skip")


@ON_BOTH
@pytest.mark.parametrize("kind", ["gzip checksum", "gzip count", "two gzip members", "zstd checksum", "zstd size"])
def test_streams_that_only_the_library_can_judge(where: str, kind: str, tmp_path: Path, device: Emulated | None) -> None:
    """nvCOMP looks at no checksum of gzip and zstd, and at one member only: what it gives is compared with what the stream says."""
    plain = b"".join(bytes([38, 0, 0, 2 * i, 1, 26]) + b"thirteen byte" + bytes([0]) for i in range(50))
    member, frame = gzip.compress(plain), zstandard.ZstdCompressor().compress(plain)
    # A frame of one segment, with two bytes of content size.
    assert frame[4] >> 5 == 0b011
    stream = {
        "gzip checksum": member[:-8] + b"oops" + member[-4:],
        "gzip count": member[:-4] + struct.pack("<I", len(plain) - 1),
        "two gzip members": gzip.compress(plain[:500]) + gzip.compress(plain[500:]),
        "zstd checksum": zstandard.ZstdCompressor(write_checksum=True).compress(plain)[:-1] + b"?",
        "zstd size": frame[:5] + struct.pack("<H", len(plain) - 256 + 1) + frame[7:],
    }[kind]
    path = tmp_path / "a.log"
    path.write_bytes(raw_batch(stream, 50, attributes=1 if "gzip" in kind else 4, last_delta=49))
    found = same(path, columns=["offset", "value"])
    assert len(found) == 50 if kind == "two gzip members" else "CorruptBatchError" in found


@ON_BOTH
def test_parts_are_small(where: str, monkeypatch: pytest.MonkeyPatch, device: Emulated | None) -> None:
    monkeypatch.setattr(on_device.ChunkOnDevice, "most_bytes", 200_000)
    monkeypatch.setattr(on_device, "MOST_ROOM", 1_000_000)
    for case in some(device):
        same(case.directory, columns=COLUMNS)


def test_bytes_past_the_host(device: Emulated, tmp_path: Path) -> None:
    """Plain batches go to the device straight from the file; the host reads what it has to look at, or what it has to speak of."""
    device.reads_files = True
    path = tmp_path / "a.log"
    batches = [raw_batch(bytes([14, 0, 0, 0, 1, 2, 65, 0]), 1, base_offset=i) for i in range(2000)]
    path.write_bytes(b"".join(batches))
    assert len(same(path, chunk_bytes=50_000)) == 2000
    loads = device.launched["load"]
    assert loads > 1
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    damaged[30 * len(batches[0]) - 2] ^= 1
    path.write_bytes(damaged)
    assert "CorruptBatchError" in same(path)
    assert len(same(path, errors="skip")) == 1998
    assert device.launched["load"] > loads


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_workers_read_before_their_turn(
    codec: Literal["none", "zstd"], device: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that plans reads headers. The threads that decode chunks read their bytes, while others have the device."""
    table = pa.table({"value": pa.array([random.Random(i).randbytes(200) for i in range(3000)], pa.binary())})
    kolumn.write(table, tmp_path / "t-0", codec=codec, batch_bytes=1000)
    (path,) = (tmp_path / "t-0").glob("*.log")
    holders: set[int] = set()
    readers: list[tuple[bool, bool]] = []

    class Turns(threading.BoundedSemaphore):
        def __enter__(self, blocking: bool = True, timeout: float | None = None) -> bool:
            taken = self.acquire(blocking, timeout)
            holders.add(threading.get_ident())
            return taken

        def __exit__(self, *error: object) -> None:
            holders.discard(threading.get_ident())
            self.release()

    def read(file: SegmentFile, start: int, end: int, locked: bool = False) -> Any:
        if end - start > 10_000:
            readers.append((threading.current_thread() is threading.main_thread(), threading.get_ident() in holders))
        return whole(file, start, end, locked)

    whole = SegmentFile.read
    monkeypatch.setattr(SegmentFile, "read", read)
    monkeypatch.setattr(on_device, "_turns", Turns(2))
    with kolumn.scan(path, backend="gpu", threads=3, chunk_bytes=70_000) as reader:
        assert reader.read_all().num_rows == 3000
    assert len(readers) > 3
    assert set(readers) == {(False, False)}


def test_what_the_cpu_inflates_is_counted(device: Emulated, tmp_path: Path) -> None:
    plain = bytes([14, 0, 0, 0, 1, 2, 65, 0])
    path = tmp_path / "a.log"
    streams = [gzip.compress(plain[:4]) + gzip.compress(plain[4:]), gzip.compress(plain), gzip.compress(plain)]
    path.write_bytes(b"".join(raw_batch(stream, 1, attributes=1, base_offset=i) for i, stream in enumerate(streams)))
    assert (kolumn.verify(path, backend="gpu").inflated_by_cpu, kolumn.verify(path, backend="gpu", trusted=False).inflated_by_cpu) == (1, 3)
    assert kolumn.verify(path, backend="cpu").inflated_by_cpu == 0


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip"])
def test_less_than_a_block_says_is_wrong(codec: Any, device: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever nvCOMP says of it: the CPU is asked before any kernel reads it."""
    kolumn.write(pa.table({"value": pa.array([b"some words " * 20] * 9, pa.binary())}), tmp_path / "t-0", codec=codec)
    real = device.inflate

    def inflate(*given: Any) -> Any:
        sizes, fine = real(*given)
        return sizes - 1, fine

    monkeypatch.setattr(device, "inflate", inflate)
    monkeypatch.setattr(on_device.DeviceChunk, "_judge", None)
    with pytest.raises(HiddenError, match="the CPU finds nothing wrong"):
        kolumn.verify(tmp_path / "t-0", backend="gpu")


def test_what_came_out_is_decoded_in_parts(device: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the CPU has found in a payload, and that it was there, is said once, of the part that the payload is in."""
    monkeypatch.setattr(on_device.ChunkOnDevice, "most_bytes", 1)
    path = tmp_path / "a.log"
    stream = gzip.compress(bytes([14, 0, 0, 0, 1, 2, 65, 0]))
    broken = stream[:-8] + b"none" + stream[-4:]
    streams = [stream, stream, broken, stream, broken]
    path.write_bytes(b"".join(raw_batch(stream, 1, attributes=1, base_offset=i) for i, stream in enumerate(streams)))
    for trusted, by_cpu in ((True, 2), (False, 5)):
        report = kolumn.verify(path, backend="gpu", trusted=trusted)
        assert (report.inflated_by_cpu, report.damage) == (by_cpu, kolumn.verify(path, backend="cpu").damage)
        assert (report.damage["baseOffset"].to_pylist(), len(same(path, errors="skip", trusted=trusted))) == ([2, 4], 3)


@ON_BOTH
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("value_bytes", [10, 2500])
def test_the_device_decompresses_every_codec(
    where: str, codec: Literal["none", "gzip", "snappy", "lz4", "zstd"], value_bytes: int, tmp_path: Path, device: Emulated | None
) -> None:
    """Payloads of one block and of several, of which the last is not full: none of them goes to the CPU."""
    values = [(b"%06d " % i * 400)[:value_bytes] for i in range(200)]
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "t-0", codec=codec, batch_bytes=150_000)
    assert kolumn.verify(tmp_path / "t-0", backend="gpu").inflated_by_cpu == 0
    assert len(same(tmp_path / "t-0", columns=["offset", "value"])) == 200
    if device is not None and codec != "none":
        assert device.launched["inflate"] > 0


@ON_BOTH
def test_blocks_with_room_between_them(where: str, tmp_path: Path, device: Emulated | None) -> None:
    """They are moved together: a client that flushes cuts a block before it is full."""
    payload = batch([Record(k, value=random.Random(k).randbytes(5500).hex().encode()) for k in range(9)])[61:]
    compressor = lz4.frame.LZ4FrameCompressor(block_linked=False, auto_flush=True)
    stream = compressor.begin()
    for at in range(0, len(payload), 5000):
        stream += compressor.compress(payload[at : at + 5000])
    stream += compressor.flush()
    (tmp_path / "a.log").write_bytes(b"".join(raw_batch(stream, 9, attributes=3, base_offset=base, last_delta=8) for base in (0, 9)))
    assert (kolumn.verify(tmp_path / "a.log", backend="gpu").inflated_by_cpu, len(same(tmp_path / "a.log", columns=COLUMNS))) == (0, 18)
    if device is not None:
        assert device.launched["copy"] > 0


def test_verify_and_scan(device: Emulated) -> None:
    for case in READABLE:
        one, other = (kolumn.verify(case.directory, backend=backend) for backend in ("cpu", "gpu"))
        assert (one.damage, one.segments) == (other.damage, other.segments)
        with kolumn.scan(case.directory, backend="gpu", errors="skip") as reader:
            assert reader.read_all() == kolumn.read(case.directory, errors="skip", backend="cpu")


@ON_BOTH
def test_offsets_that_would_wrap(where: str, tmp_path: Path, device: Emulated | None) -> None:
    """Base offset 2^63 - 10 with 20 records."""
    good, path = batch([Record(i, b"k", b"v", 0) for i in range(20)]), tmp_path / "a.log"
    path.write_bytes(good + struct.pack(">q", (1 << 63) - 10) + good[8:])
    assert "CorruptBatchError" in same(path)
    assert len(same(path, errors="skip")) == 20


def test_the_open_file_goes_past_the_host(device: Emulated, tmp_path: Path) -> None:
    """Another library opens it, once for each chunk: what stands under its name by then does not matter."""
    device.reads_files = True
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(batch([Record(i, b"k", b"%06d" % i, 0)]) for i in range(2000)))
    expected = kolumn.read(path, columns=["value"], backend="cpu")
    with kolumn.scan(path, columns=["value"], backend="gpu", threads=1, chunk_bytes=20_000) as reader:
        found = [reader.read_next_batch()]
        other = tmp_path / "b.log"
        other.write_bytes(b"".join(batch([Record(i, b"k", b"x%05d" % i, 0)]) for i in range(3000)))
        other.replace(path)
        launched = device.launched["load"]
        found += list(reader)
    assert device.launched["load"] > launched
    assert pa.Table.from_batches(found) == expected
