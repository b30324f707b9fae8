"""Memory is bounded by decompressed bytes, and bombs are errors. A segment in memory gives what the same bytes in a file give."""

import ctypes
import io
import json
import mmap
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.asked import invoked, skipping
from kit.bombs import BLOCK, CODECS, bomb, large_record, write
from kit.encoder import Record, batch
from kit.mutate import make_segment, mutate
from kit.outcome import COLUMNS, outcome, raises
from kit.replicas import copy, flip, write_log
from kit.streams import GZIP, LZ4, NONE, ZSTD
from kolumn.cli.ending import DAMAGE, LIMIT, OK
from kolumn.core.recycle import KEPT
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.cpu_fallback.machine.address import PAD

ADDRESS_SPACE = 1 << 30
OF_SNAPPY = 2 << 30
"""The batch itself has 200 MB, because snappy stores 64 bytes in three at best. Compiled code and libraries take more than a GiB."""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, ({0}, {0}))\n"
PEAK = """
import sys, json, kolumn
def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM:"))
"""
MIB = 1 << 20
QUICK = ("zstd",)
"""The other codecs take the same way in ten seconds each, so CI alone runs them."""
EACH_CODEC = pytest.mark.parametrize(
    "codec", [pytest.param(codec, marks=[] if name in QUICK else pytest.mark.slow) for codec, name in CODECS.items()]
)


def run(code: str, *arguments: object) -> str:
    """Run code in a process of its own and return its output; the machine code that it needs is compiled first, in this process."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@EACH_CODEC
def test_a_bomb_of_4_gib_is_an_error_where_there_is_1_gib(codec: int, tmp_path: Path) -> None:
    path = write(tmp_path / "00000000000000000005.log", bomb(codec, 4 << 30, 5), large_record(codec, 2 * BLOCK, 6))
    small = write(tmp_path / "small.log", large_record(codec, 5 * BLOCK), bomb(codec, 2 * BLOCK, 1))
    limited = LIMITED.format(OF_SNAPPY if CODECS[codec] == "snappy" else ADDRESS_SPACE)
    begin = limited + "import sys, kolumn\npath, given = sys.argv[1], dict(columns=['offset', 'value'], threads=2)\n"
    strict = "try:\n    kolumn.read(path, **given)\nexcept kolumn.LimitError as error:\n    print(error)\n"
    lenient = "print(kolumn.read(path, errors='skip', **given)['offset'].to_pylist())\n"
    verify = "print([(row['position'], row['reason']) for row in kolumn.verify(path).limits.to_pylist()])\n"
    for options in ({"threads": 1}, {"threads": 2}, {"columns": ["offset", "headers"]}):
        kolumn.read(small, errors="skip", **options)
    kolumn.verify(small)
    error, offsets, limits = run(begin + strict + lenient + verify, path).splitlines()
    for words in (f"{path}: position 0, base offset 5", f"found {CODECS[codec]}: more than ", " times the "):
        assert words in error
    assert offsets == "[6]"
    assert limits.startswith("[(0, 'compressed payload: ")


def test_the_ratio_of_a_batch_is_held_to_the_limits(tmp_path: Path) -> None:
    path = write(tmp_path / "0.log", large_record(4, 128 * MIB))
    raises(kolumn.LimitError, r"zstd: more than 67108864 bytes, \d+ times", kolumn.read, path, max_ratio=10)
    raises(kolumn.LimitError, r"zstd: more than 100000000 bytes, \d+ times", kolumn.read, path, max_batch_bytes=100_000_000)
    raises(kolumn.ArgumentError, "memory_bytes=0: expected a positive integer", kolumn.read, path, memory_bytes=0)


@EACH_CODEC
def test_batches_that_inflate_much_are_decoded_few_at_a_time(codec: int, tmp_path: Path) -> None:
    count, each = 40, 24 * MIB
    # Compressed once: no checksum covers the base offset.
    record = large_record(codec, each)
    path = write(tmp_path / "0.log", *(struct.pack(">q", offset) + record[8:] for offset in range(count)))
    code = f"""{PEAK}
path, small, given = sys.argv[1], sys.argv[2], eval(sys.argv[3])
kolumn.read(small, **given)
before = peak()
offsets = [offset for batch in kolumn.scan(path, **given) for offset in batch["offset"].to_pylist()]
print(offsets == list(range(40)), peak() - before)
"""
    small = write(tmp_path / "small.log", large_record(codec, 2 * BLOCK))
    for given, most in (
        ({"threads": 1, "memory_bytes": 64 * MIB}, 400 * MIB),
        ({"threads": 3, "memory_bytes": 96 * MIB}, 400 * MIB),
        ({"threads": 3, "memory_bytes": 96 * MIB, "columns": ["offset"]}, 320 * MIB),
    ):
        right, used = run(code, path, small, given).split()
        assert right == "True"
        assert int(used) < most < count * each // 2, f"{given}: {int(used) // MIB} MiB"


@EACH_CODEC
def test_a_large_record_costs_less_than_twice_its_size_beyond_itself(codec: int, tmp_path: Path) -> None:
    size = 384 * MIB
    code = f"""{PEAK}
kolumn.read(sys.argv[2], threads=1)
before = peak()
table = kolumn.read(sys.argv[1], threads=1, max_ratio=1e6)
print(len(table["value"][0].as_buffer()), peak() - before)
"""
    paths = write(tmp_path / "0.log", large_record(codec, size)), write(tmp_path / "small.log", large_record(1, 2 * BLOCK))
    length, used = map(int, run(code, *paths).split())
    assert size - 64 < length < size
    assert used < 3 * size, f"{CODECS[codec]}: {used // MIB} MiB"


SCAN = f"""{PEAK}
rows = sum(batch.num_rows for batch in kolumn.scan(sys.argv[1], threads=1, **json.loads(sys.argv[2])))
print(rows, peak())
"""
SHAPES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "plain": ({}, {}),
    "views": ({}, {"binary": "view"}),
    "batches of 1 MiB": ({"codec": "zstd", "batch_bytes": MIB}, {}),
    "messages": ({"magic": 1, "codec": "gzip"}, {}),
    "headers": ({"codec": "lz4"}, {"include_headers": True}),
    "typed values": ({"codec": "zstd"}, {"value_format": "json", "value_schema": {"id": "int64", "note": "string"}}),
    "many segments": ({"segment_bytes": 200_000}, {}),
}


@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=[] if shape in ("plain", "headers") else pytest.mark.slow) for shape in SHAPES]
)
def test_a_longer_log_takes_no_more_memory(shape: str, tmp_path: Path) -> None:
    """Four times as many partitions, which are links to the same segments; the first ones teach how large columns have to be."""
    written, asked = SHAPES[shape]
    value = pa.array([b'{"id": %d, "note": "%s"}' % (i, b"note " * 15) for i in range(20_000)])
    headers = pa.array([[{"key": "trace", "value": b"0123456789"}]] * 20_000, RECORD_COLUMNS["headers"])
    table = pa.table({"value": value} | ({"headers": headers} if "include_headers" in asked else {}))
    kolumn.write(table, tmp_path / "one-0", **written)  # type: ignore[arg-type]
    peaks = []
    for partitions in (160, 640):
        place = tmp_path / str(partitions)
        for partition in range(partitions):
            (place / f"some-{partition}").mkdir(parents=True)
            for segment in (tmp_path / "one-0").glob("*.log"):
                os.link(segment, place / f"some-{partition}" / segment.name)
        rows, peak = map(int, run(SCAN, place, json.dumps(asked)).split())
        assert rows == partitions * 20_000
        peaks.append(peak)
    # As much as is kept for reuse.
    assert peaks[1] < peaks[0] + KEPT
    assert peaks[1] < 768 * MIB


SIZE = 80 << 20
"""Bytes of a value: more than what any ratio is allowed for."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    large = batch([Record(1, None, bytes(SIZE))], codec=ZSTD)
    entries = [batch([Record(0, None, b"first")]), large, batch([Record(2, None, b"last")], codec=GZIP)]
    return write_log(tmp_path_factory.mktemp("limits"), (0, entries))


def test_verify_tells_a_limit_from_damage(folder: Path) -> None:
    report = kolumn.verify(folder)
    assert (report.ok, report.damage.num_rows, report.batches, report.records) == (False, 0, 2, 2)
    [row] = report.limits.to_pylist()
    assert (row["kind"], row["baseOffset"], row["lastOffset"], row["recordsLost"]) == ("limit", 1, 1, 1)
    assert kolumn.verify(folder, **report.suffices).ok
    assert kolumn.read(folder, **report.suffices).num_rows == 3
    [name] = report.suffices
    assert not kolumn.verify(folder, **{name: report.suffices[name] * 0.9}).ok
    report = kolumn.verify(folder, max_batch_bytes=4)
    assert (report.damage.num_rows, set(report.suffices)) == (0, {"max_batch_bytes", "max_ratio"})
    assert kolumn.verify(folder, **report.suffices).records == 3


def test_a_read_leaves_it_out_by_that_word(folder: Path) -> None:
    found, skipped = skipping(folder)
    assert found["offset"].to_pylist() == [0, 2]
    assert (skipped.damage, [limit.kind for limit in skipped.limits]) == ([], ["limit"])
    assert (skipped.stretches, skipped.records, list(map(type, skipped.errors))) == (0, 0, [kolumn.LimitError])
    assert str(skipped).startswith("1 batch over a limit left out: ")
    raises(kolumn.LimitError, r"max_ratio=\d+ suffices", kolumn.read, folder)


@pytest.mark.parametrize("command", ["verify", "cat", "cat --errors skip", "stats --errors skip", "verify --max-ratio 1e6"])
def test_commands(command: str, folder: Path) -> None:
    code = OK if "1e6" in command else LIMIT
    done = invoked(*command.split(), "--text", folder)
    assert (done.exit_code, "over a limit" in done.output or "--max-ratio" in done.output) == (code, code == LIMIT)


def test_limits_beside_damage_and_none(folder: Path, tmp_path: Path) -> None:
    damaged = copy(folder, tmp_path)
    flip(damaged / f"{0:020d}.log", 60)
    done = invoked("verify", "--json", damaged)
    found = json.loads(done.stdout)
    assert (done.exit_code, len(found["damage"]), len(found["limits"])) == (DAMAGE, 1, 1)
    write_log(tmp_path / "2", (0, [batch([Record(0, None, bytes(1 << 20))], codec=ZSTD), batch([Record(1)], codec=NONE)]))
    report = kolumn.verify(tmp_path / "2")
    assert (report.ok, report.limits.num_rows, report.suffices) == (True, 0, {})


def test_recover_keeps_it_and_export_leaves_it_out(folder: Path, tmp_path: Path) -> None:
    done = invoked("recover", folder, "--json", "-o", tmp_path / "out")
    found = json.loads(done.stdout)
    assert done.exit_code == LIMIT
    assert [(lost["kind"], lost["firstOffset"], lost["recordsLost"]) for lost in found["lost"]] == [("limit", 1, 0)]
    assert (found["ok"], found["partitions"][0]["records"]) == (True, 3)
    name = f"{0:020d}.log"
    assert (tmp_path / "out" / folder.name / name).read_bytes() == (folder / name).read_bytes()
    assert "kept, and its records not counted" in invoked("recover", folder, "-o", tmp_path / "again").stdout
    done = invoked("to-parquet", "--errors", "skip", folder, tmp_path / "parquet")
    assert (done.exit_code, "1 batch over a limit left out" in done.output) == (LIMIT, True)


KINDS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "array": lambda data: np.frombuffer(data, np.uint8),
    "pyarrow": pa.py_buffer,
    "BytesIO": io.BytesIO,
    "BufferReader": lambda data: pa.BufferReader(pa.py_buffer(data)),
}


@pytest.fixture(scope="module")
def data() -> bytes:
    return b"".join(batch([Record(10 * i + k, b"key", b"value" * 20, i) for k in range(10)]) for i in range(3))


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_memory(kind: str, data: bytes) -> None:
    made = KINDS[kind]
    assert kolumn.read(made(data))["offset"].to_pylist() == list(range(30))
    assert sum(found.num_rows for found in kolumn.scan(made(data), threads=1)) == 30
    for check_crcs in (True, False):
        assert kolumn.batches(made(data), check_crcs=check_crcs)["baseOffset"].to_pylist() == [0, 10, 20]
    assert kolumn.verify(made(data)).damage.num_rows == 0
    assert kolumn.read(made(data), isolation_level="read_committed").num_rows == 30
    assert kolumn.read(made(b"")).num_rows == kolumn.batches(made(b"")).num_rows == 0


def test_mapped_and_open_files_and_names_for_what_is_written(data: bytes, path: Path, tmp_path: Path) -> None:
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert kolumn.read(mapped).num_rows == 30
        assert set(kolumn.read(file, columns="segment")["segment"].to_pylist()) == {str(path)}
        file.seek(len(data) // 3)
        assert kolumn.read(file)["offset"].to_pylist() == list(range(10, 30))
    assert kolumn.convert(data, tmp_path / "a.log").records == 30
    raises(kolumn.ArgumentError, r"name a file that ends with \.log", kolumn.convert, data, tmp_path / "t-0")


def test_what_is_known_of_memory_and_what_is_not_looked_for(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ["topic", "partition", "segment"]
    assert kolumn.read(data, columns=columns).to_pylist()[0] == {"topic": None, "partition": None, "segment": "<memory>"}
    found = kolumn.read(data, columns=columns, topic="t", partition=3)
    assert found.to_pylist()[0] == {"topic": "t", "partition": 3, "segment": "<memory>"}
    broken = data[:200] + b"!" + data[201:]
    raises(kolumn.CorruptBatchError, "<memory>", kolumn.read, broken)
    assert kolumn.read(broken, errors="skip", on_damage=kolumn.Skipped()).num_rows == 20
    # Files of the working directory are not taken for its side files.
    monkeypatch.chdir(tmp_path)
    for name in (".txnindex", f"{0:020}.snapshot", "<memory>.txnindex"):
        (tmp_path / name).write_bytes(b"\0" * 34)
    assert kolumn.read(data, isolation_level="read_committed").num_rows == 30
    raises(kolumn.ArgumentError, "no schemas: no source is given", kolumn.read, data, value_format="registry")


@pytest.mark.parametrize("codec", [NONE, LZ4, ZSTD])
def test_views_point_into_the_buffer(codec: int) -> None:
    """If payloads are not compressed. Of the last batch they point to a copy: loops read some bytes after a payload."""
    held = pa.py_buffer(b"".join(batch([Record(i, b"a key of some bytes", b"v" * 500)], codec=codec) for i in range(40)))
    found = kolumn.read(held, threads=1, columns=["key", "value"], binary="view")
    assert found["value"].to_pylist() == kolumn.read(held, threads=1, columns="value")["value"].to_pylist()
    buffers = [buffer for chunk in found["value"].chunks for buffer in chunk.buffers()[2:] if buffer.size > PAD]
    assert any(held.address <= buffer.address < held.address + held.size for buffer in buffers) == (codec == NONE)


def test_no_byte_after_the_buffer_is_read(data: bytes) -> None:
    """The last page of the memory is followed by one that nobody may read; a read of it would end the process."""
    page, protect = mmap.PAGESIZE, ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for cut in (len(data), len(data) - 1, len(data) - 200):
        with mmap.mmap(-1, 8 * page) as room:
            guard = np.frombuffer(room, np.uint8)
            at = 7 * page - cut
            guard[at : 7 * page] = np.frombuffer(data, np.uint8)[:cut]
            assert protect(guard.ctypes.data + 7 * page, page, 0) == 0
            try:
                for options in ({}, {"binary": "view"}, {"columns": "headers"}):
                    rows = kolumn.read(guard[at : 7 * page], threads=1, **options).num_rows  # type: ignore[arg-type]
                    assert rows == (30 if cut == len(data) else 20)
                kolumn.verify(guard[at : 7 * page])
                kolumn.batches(guard[at : 7 * page], check_crcs=False)
            finally:
                assert protect(guard.ctypes.data + 7 * page, page, mmap.PROT_READ | mmap.PROT_WRITE) == 0
                del guard


FROM_MEMORY = [name for name in COLUMNS if name != "segment"]


def test_mutants_fare_as_in_files(tmp_path: Path) -> None:
    rng, path = random.Random(5), tmp_path / "segment"
    for _ in range(150):
        broken = mutate(rng, make_segment(rng)).data
        path.write_bytes(broken)
        for way in ({"threads": 1}, {"threads": 1, "binary": "view"}, {"threads": 2, "chunk_bytes": 1}):
            how: dict[str, Any] = {"errors": "skip", "columns": FROM_MEMORY, "include_control": True, **way}
            assert kolumn.read(path, **how).to_pylist() == kolumn.read(pa.py_buffer(broken), **how).to_pylist()
        here, there = (one if isinstance(one := outcome(source, threads=1), str) else "" for source in (path, pa.py_buffer(broken)))
        assert here.replace(str(path), "<memory>") == there


@pytest.mark.parametrize("source", [b"/var/lib/kafka/t-0", bytearray(b"t-0"), np.zeros((8, 8), np.uint8)[:, 1], io.StringIO("x")])
def test_what_is_no_segment(source: Any) -> None:
    raises(kolumn.ArgumentError, "source: expected", kolumn.read, source)
