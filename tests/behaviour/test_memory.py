"""Memory is bounded by decompressed bytes, for batches of any ratio; a decompression bomb is an error before memory is allocated."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import kolumn
from kit.bombs import BLOCK, CODECS, bomb, large_record, write
from kit.corpus import cases
from kit.encoder import Record, batch
from kit.streams import GZIP, NONE, ZSTD
from kolumn.cli import app
from kolumn.cli.ending import DAMAGE, LIMIT, OK
from kolumn.core.recycle import KEPT
from kolumn.core.schema import RECORD_COLUMNS

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


# A batch over a limit is no damage: what do `verify`, `read`, `recover` and the commands say of it?


SIZE = 80 << 20
"""Bytes of a value: more than what any ratio is allowed for."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits") / "big-0"
    folder.mkdir()
    parts = [
        batch([Record(0, None, b"first")]),
        batch([Record(1, None, bytes(SIZE))], codec=ZSTD),
        batch([Record(2, None, b"last")], codec=GZIP),
    ]
    (folder / f"{0:020d}.log").write_bytes(b"".join(parts))
    return folder


def test_verify(folder: Path) -> None:
    report = kolumn.verify(folder)
    assert not report.ok
    assert (report.damage.num_rows, report.batches, report.records) == (0, 2, 2)
    [row] = report.limits.to_pylist()
    assert (row["kind"], row["baseOffset"], row["lastOffset"], row["recordsLost"]) == ("limit", 1, 1, 1)
    assert kolumn.verify(folder, **report.suffices).ok
    assert kolumn.read(folder, **report.suffices).num_rows == 3
    [name] = report.suffices
    assert not kolumn.verify(folder, **{name: report.suffices[name] * 0.9}).ok


def test_verify_names_the_limit_on_bytes(folder: Path) -> None:
    report = kolumn.verify(folder, max_batch_bytes=4)
    assert report.damage.num_rows == 0
    assert report.suffices.keys() == {"max_batch_bytes", "max_ratio"}
    assert kolumn.verify(folder, **report.suffices).records == 3


def test_a_read_leaves_it_out_by_that_word(folder: Path) -> None:
    skipped = kolumn.Skipped()
    assert kolumn.read(folder, errors="skip", on_damage=skipped)["offset"].to_pylist() == [0, 2]
    assert (skipped.damage, [one.kind for one in skipped.limits]) == ([], ["limit"])
    assert (skipped.stretches, skipped.records, [type(one) for one in skipped.errors]) == (0, 0, [kolumn.LimitError])
    assert str(skipped).startswith("1 batch over a limit left out: ")
    with pytest.raises(kolumn.LimitError, match=r"max_ratio=\d+ suffices"):
        kolumn.read(folder)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["verify", "--text"], LIMIT),
        (["cat", "--text"], LIMIT),
        (["cat", "--text", "--errors", "skip"], LIMIT),
        (["stats", "--text", "--errors", "skip"], LIMIT),
        (["verify", "--text", "--max-ratio", "1e6"], OK),
    ],
    ids=str,
)
def test_commands(command: list[str], code: int, folder: Path) -> None:
    done = CliRunner().invoke(app, [*command, str(folder)])
    assert done.exit_code == code
    assert ("over a limit" in done.output or "--max-ratio" in done.output) is (code == LIMIT)


def test_damage_comes_before_a_limit(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "big-0").mkdir()
    log = bytearray((folder / f"{0:020d}.log").read_bytes())
    log[60] ^= 1
    (tmp_path / "big-0" / f"{0:020d}.log").write_bytes(log)
    done = CliRunner().invoke(app, ["verify", "--json", str(tmp_path / "big-0")])
    found = json.loads(done.stdout)
    assert (done.exit_code, len(found["damage"]), len(found["limits"])) == (DAMAGE, 1, 1)


def test_recover_keeps_it_and_says_so(folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["recover", str(folder), "--json", "-o", str(tmp_path / "out")])
    assert done.exit_code == LIMIT
    found = json.loads(done.stdout)
    assert [(one["kind"], one["firstOffset"], one["recordsLost"]) for one in found["lost"]] == [("limit", 1, 0)]
    assert (found["ok"], found["partitions"][0]["records"]) == (True, 3)
    name = f"{0:020d}.log"
    assert (tmp_path / "out" / "big-0" / name).read_bytes() == (folder / name).read_bytes()
    assert "kept, and its records not counted" in CliRunner().invoke(app, ["recover", str(folder), "-o", str(tmp_path / "again")]).stdout


def test_export_leaves_it_out_by_that_word(folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["to-parquet", "--errors", "skip", str(folder), str(tmp_path / "out")])
    assert done.exit_code == LIMIT
    assert "1 batch over a limit left out" in done.output


def test_what_is_within_the_limits_is_not_mentioned(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(batch([Record(0, None, bytes(1 << 20))], codec=ZSTD) + batch([Record(1)], codec=NONE))
    report = kolumn.verify(tmp_path)
    assert (report.ok, report.limits.num_rows, report.suffices) == (True, 0, {})
