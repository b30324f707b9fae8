"""What chunks and tools may cost: fresh memory, system calls, bytes that are read, and no Python for a record. No time is measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.counted import IO, counted
from kolumn.cli import main
from kolumn.core import recycle
from kolumn.writers import batches, messages

MIB = 1 << 20
KEYS = 500
FEW, MANY = 20_000, 60_000

pytestmark = pytest.mark.skipif(not IO.exists(), reason="this system does not count what a process reads")


def log(folder: Path, records: int, **options: Any) -> Path:
    """Records of some 100 bytes in batches of 16 KiB; of each of `KEYS` keys all but the last are superseded."""
    rows = range(records)
    table = pa.table({"key": [b"key-%d" % (row % KEYS) for row in rows], "value": [b"%d" % row * 15 for row in rows]})
    kolumn.write(table, folder, **options)
    return folder


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("logs")
    return log(folder / "few-0", FEW), log(folder / "many-0", MANY)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_chunks_use_memory_again(tmp_path: Path, codec: str, request: pytest.FixtureRequest) -> None:
    """A scan of 10 chunks takes no fresh memory, reads each byte about once, and a block at a time."""
    noise, fresh = np.random.default_rng(1).bytes(20 * MIB), list[int]()
    table = pa.table({"key": [b"k"] * 100_000, "value": [noise[200 * row : 200 * row + 200] for row in range(100_000)]})
    kolumn.write(table, tmp_path / "t-0", codec=codec)
    size = size_of(tmp_path / "t-0")

    def new(size: int) -> Any:
        fresh.append(size)
        return np.empty(size, np.uint8)

    request.addfinalizer(lambda: recycle.allocate_by(None))
    recycle.allocate_by(new)

    def scan() -> int:
        return sum(batch.num_rows for batch in kolumn.scan(tmp_path / "t-0", threads=1, chunk_bytes=2 * MIB))

    assert scan() == 100_000
    fresh.clear()
    _, read, reads, _ = counted(scan)
    # `counted` scans twice.
    assert sum(fresh) <= 4 * MIB
    assert read <= 1.3 * size + MIB
    assert reads <= size // (MIB // 4) + 100


def test_a_small_file_goes_through_few_files_and_calls(tmp_path: Path) -> None:
    """The numbers only fall: whoever lowers one lowers the limit too."""
    kolumn.write(pa.table({"value": [b"v" * 30] * 500}), tmp_path / "t-0", batch_bytes=400)
    calls = counted(lambda: kolumn.read(tmp_path / "t-0", threads=1))[3]
    own = {name: count for name, count in calls.items() if name.startswith(f"{Path(kolumn.__file__).parent}/")}
    assert 20 < len(own) <= 46
    assert 100 < sum(own.values()) <= 310


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_threads_use_the_memory_of_one_again(tmp_path: Path, codec: str, request: pytest.FixtureRequest) -> None:
    """Pieces of a segment take columns of the size of one thread's chunks; what is new is what a second thread needs beside them."""
    noise, fresh = np.random.default_rng(1).bytes(20 * MIB), list[int]()
    table = pa.table({"key": [b"k"] * 100_000, "value": [noise[200 * row : 200 * row + 200] for row in range(100_000)]})
    kolumn.write(table, tmp_path / "t-0", codec=codec)

    def new(size: int) -> Any:
        fresh.append(size)
        return np.empty(size, np.uint8)

    request.addfinalizer(lambda: recycle.allocate_by(None))
    recycle.allocate_by(new)
    for threads in (1, 1, 2):
        fresh.clear()
        found = kolumn.read(tmp_path / "t-0", threads=threads, chunk_bytes=2 * MIB, columns=["key", "value"])
        assert found.num_rows == 100_000
        del found
    assert sum(fresh) <= 16 * MIB


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("format 0", {"magic": 0}),
        ("format 1", {"magic": 1}),
        ("lz4", {"magic": 1, "codec": "lz4"}),
        ("v3-compact", {"format": "v3-compact"}),
    ],
)
def test_conversion_costs_no_python_for_a_record(tmp_path: Path, logs: tuple[Path, Path], name: str, options: dict[str, Any]) -> None:
    costs = [counted(lambda out, source=source: kolumn.convert(source, out, **options), places(tmp_path))[3].total() for source in logs]
    assert costs[1] - costs[0] < 0.05 * (MANY - FEW)


def test_compaction_reads_twice_and_costs_no_python_for_a_record(tmp_path: Path, logs: tuple[Path, Path]) -> None:
    told = [
        counted(lambda out, source=source: kolumn.compact(source, out / "t-0", include_active=True), places(tmp_path)) for source in logs
    ]
    assert told[1][1] <= 2.2 * size_of(logs[1]) + MIB
    assert told[1][3].total() - told[0][3].total() < 0.05 * (MANY - FEW)
    assert told[1][0].retained == KEYS


@pytest.mark.parametrize("command", [kolumn.convert, kolumn.compact])
def test_whole_batches_are_not_encoded(tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches whose records all stay are copied in one piece, compressed as they are."""
    table = pa.table({"key": [b"%d" % row for row in range(5000)], "value": [b"v" * 100] * 5000})
    kolumn.write(table, tmp_path / "t-0", codec="gzip")
    for module in (batches, messages):
        monkeypatch.setattr(module, "put", None)
    more = {"include_active": True} if command is kolumn.compact else {}
    command(tmp_path / "t-0", tmp_path / "out" / "t-0", **more)
    (path,) = (tmp_path / "out").rglob("*.log")
    assert path.read_bytes() == (tmp_path / "t-0" / path.name).read_bytes()


@pytest.mark.parametrize("command", [[], ["inspect", "--no-check-crcs"]])
def test_headers_are_enough(logs: tuple[Path, Path], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        monkeypatch.setattr("sys.argv", ["kolumn", *command, str(logs[1])])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code

    # Without a command: the overview.
    _, size, _, _ = counted(run)
    assert size < 0.05 * size_of(logs[1])


def places(folder: Path) -> Callable[[], Path]:
    """Paths that do not exist."""
    return lambda: folder / f"{len(list(folder.iterdir()))}"
