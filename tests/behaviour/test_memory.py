"""Memory is bounded by decompressed bytes, for batches of any ratio; a decompression bomb is an error before memory is allocated."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import kolumn
from kit.bombs import BLOCK, CODECS, bomb, large_record, write
from kit.corpus import cases
from kolumn.arrow.recycle import KEPT
from kolumn.schema import RECORD_COLUMNS

ADDRESS_SPACE = 1 << 30
OF_SNAPPY = 2 << 30
"""The batch itself has 200 MB, because snappy stores 64 bytes in three at best. Compiled code and libraries take more than a GiB."""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, ({0}, {0}))\n"
PEAK = """
def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM:"))
"""
MIB = 1 << 20
QUICK = ("gzip",)
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
    error = run(begin + strict, path)
    assert f"{path}: position 0, base offset 5" in error
    assert f"found {CODECS[codec]}: more than " in error
    assert " times the " in error
    assert run(begin + lenient, path) == "[6]\n"
    assert run(begin + verify, path).startswith("[(0, 'compressed payload: ")


def test_the_ratio_of_a_batch_is_held_to_the_limits(tmp_path: Path) -> None:
    path = write(tmp_path / "0.log", large_record(4, 128 * MIB))
    with pytest.raises(kolumn.LimitError, match=r"zstd: more than 67108864 bytes, \d+ times"):
        kolumn.read(path, max_ratio=10)
    with pytest.raises(kolumn.LimitError, match=r"zstd: more than 100000000 bytes, \d+ times"):
        kolumn.read(path, max_batch_bytes=100_000_000)
    with pytest.raises(kolumn.ArgumentError, match="memory_bytes=0: expected a positive integer"):
        kolumn.read(path, memory_bytes=0)


@EACH_CODEC
def test_batches_that_inflate_much_are_decoded_few_at_a_time(codec: int, tmp_path: Path) -> None:
    count, each = 40, 24 * MIB
    # Compressed once: no checksum covers the base offset.
    record = large_record(codec, each)
    path = write(tmp_path / "0.log", *(struct.pack(">q", offset) + record[8:] for offset in range(count)))
    code = (
        PEAK
        + """
import sys, kolumn
path, small, given = sys.argv[1], sys.argv[2], eval(sys.argv[3])
kolumn.read(small, **given)
before, offsets = peak(), []
for batch in kolumn.scan(path, **given):
    offsets += batch["offset"].to_pylist()
print(offsets == list(range(40)), peak() - before)
"""
    )
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
    small = write(tmp_path / "small.log", large_record(1, 2 * BLOCK))
    code = (
        PEAK
        + """
import sys, kolumn
kolumn.read(sys.argv[2], threads=1)
before = peak()
table = kolumn.read(sys.argv[1], threads=1)
print(len(table["value"][0].as_buffer()), peak() - before)
"""
    )
    path = write(tmp_path / "0.log", large_record(codec, size))
    length, used = map(int, run(code.replace("threads=1", "threads=1, max_ratio=1e6"), path, small).split())
    assert size - 64 < length < size
    assert used < 3 * size, f"{CODECS[codec]}: {used // MIB} MiB"


@pytest.mark.parametrize(
    "case", [case for case in cases() if sum(Path(path).stat().st_size for path in case.segments) < 200_000][::3], ids=str
)
def test_little_memory_changes_nothing(case: object, tmp_path: Path) -> None:
    paths = case.segments  # type: ignore[attr-defined]
    for options in ({}, {"binary": "view"}, {"columns": ["offset", "key", "value", "headers"]}, {"isolation_level": "read_committed"}):
        whole = kolumn.read(paths, include_control=True, **options)
        for little in ({"threads": 1, "memory_bytes": 1}, {"threads": 3, "memory_bytes": 5000}, {"threads": 3, "memory_bytes": 1}):
            assert kolumn.read(paths, include_control=True, **options, **little).equals(whole), (options, little)


SCAN = (
    PEAK
    + """
import sys, json, kolumn
rows = sum(batch.num_rows for batch in kolumn.scan(sys.argv[1], threads=1, **json.loads(sys.argv[2])))
print(rows, peak())
"""
)
SHAPES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "plain": ({}, {}),
    "views": ({}, {"binary": "view"}),
    "batches of 1 MiB": ({"codec": "zstd", "batch_bytes": MIB}, {}),
    "messages": ({"magic": 1, "codec": "gzip"}, {}),
    "headers": ({"codec": "lz4"}, {"include_headers": True}),
    "typed values": ({"codec": "zstd"}, {"value_format": "json", "value_schema": {"id": "int64", "note": "string"}}),
    "many segments": ({"segment_bytes": 200_000}, {}),
}
COMMON = ("plain", "headers")


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
