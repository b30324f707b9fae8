"""Is a payload decompressed once, whatever its size is and whatever the columns were expected to need? No clock: decoders count bytes."""

import random
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kolumn
from kit.encoder import Record, batch, message, wrapper
from kolumn.cpu_fallback.inflate.arena import inflate
from kolumn.cpu_fallback.stream import UNPACKED
from kolumn.decode.host import streamed

KIB, TIME = 1 << 10, 1_700_000_000_000
COLUMNS = ["offset", "timestamp", "key", "value"]


class Count:
    """Bytes that decoders wrote, and calls of packages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = self.packages = 0
        for name in ("stream", "stream_messages"):
            monkeypatch.setattr(streamed, name, partial(self._counted, getattr(streamed, name)))
        monkeypatch.setattr(streamed, "inflate", self._by_package)

    def _counted(self, real: Any, *arguments: Any) -> Any:
        before = int(arguments[-2][UNPACKED])
        result = real(*arguments)
        self.bytes += int(arguments[-2][UNPACKED]) - before
        return result

    def _by_package(self, *arguments: Any) -> Any:
        self.packages += 1
        return inflate(*arguments)


@cache
def segment(codec: int, sizes: tuple[int, ...], value: int) -> tuple[bytes, int]:
    rng, data, first, plain = random.Random(codec), [], 0, 0
    for size in sizes:
        offsets = range(first, first + max(1, size // (value + 20)))
        values = (rng.randbytes(value // 2) + bytes(value - value // 2) for _ in offsets)
        records = [Record(i, b"key%08d" % i, half_random, TIME + i) for i, half_random in zip(offsets, values, strict=True)]
        data.append(batch(records, codec=codec))
        plain += len(batch(records)) - 61
        first = offsets.stop
    return b"".join(data), plain


SHAPES = {
    "300 KiB": ((300 * KIB,) * 5, 1000),
    "one value of 100 KiB each": ((1,) * 10, 100 * KIB),
    "growing": (tuple(KIB * 3**k for k in range(6)) * 2, 4000),
    "16 KiB": ((16 * KIB,) * 10, 0),
}


@pytest.mark.sample
@pytest.mark.parametrize("binary", ["contiguous", "view"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_format_2(codec: int, shape: str, binary: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, value = SHAPES[shape]
    data, plain = segment(codec, sizes, value)
    path.write_bytes(data)
    count = Count(monkeypatch)
    table = kolumn.read(path, columns=COLUMNS, threads=1, binary=binary, chunk_bytes=600_000)
    assert (count.bytes, count.packages) == (plain, 0)
    np.testing.assert_array_equal(table["offset"].to_numpy(), np.arange(table.num_rows))
    assert table["key"].to_pylist() == [b"key%08d" % i for i in range(table.num_rows)]
    assert sum(map(len, table["value"].to_pylist())) == value * table.num_rows


def test_a_batch_that_does_not_fit_waits_in_the_arena(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are smaller than a batch, so columns are always full: what is decompressed is used for the next ones."""
    data, plain = segment(3, (40 * KIB, 300 * KIB, 90 * KIB, 700 * KIB), 1000)
    path.write_bytes(data)
    expected = kolumn.read(path, columns=[*COLUMNS, "headers"], threads=1).select(COLUMNS)
    for binary in ("contiguous", "view"):
        for way in ({"chunk_bytes": 1}, {"memory_bytes": 1000}, {"chunk_bytes": 100_000}):
            with monkeypatch.context() as patched:
                count = Count(patched)
                found = kolumn.read(path, columns=COLUMNS, threads=1, binary=binary, **way)
            assert found.cast(expected.schema).equals(expected)
            assert (count.bytes, count.packages) == (plain, 0), (binary, way)


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_messages(codec: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are full, windows that end, an arena that grows: nothing is decompressed for them again."""
    rng, data, plain = random.Random(codec), [], 0
    for number, size in enumerate((100, 40 * KIB, 300 * KIB, KIB, 90 * KIB, 300 * KIB)):
        records = [Record(4 * number + i, b"key", rng.randbytes(size // 8) + bytes(size // 8), TIME) for i in range(4)]
        data.append(wrapper(1, records, codec))
        plain += sum(len(message(1, record)) for record in records)
    path.write_bytes(b"".join(data))
    for options in ({}, {"binary": "view"}, {"chunk_bytes": 50_000}, {"memory_bytes": 1000}):
        with monkeypatch.context() as patched:
            count = Count(patched)
            assert kolumn.read(path, columns=COLUMNS, threads=1, **options).num_rows == 24
        assert count.bytes == plain, options
