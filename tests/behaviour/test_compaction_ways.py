"""Compaction writes the same bytes with and without columns."""

import os
import random
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.encoder import Record, batch
from kit.paths import without
from kit.random_logs import KINDS, TIME, Log, source_of
from kolumn.core.paths import FILTER
from kolumn.writers.compaction import rewrite

DATA = Path(__file__).parent.parent / "data" / "corpus"


def outcome(source: Path, out: Path, **options: Any) -> Any:
    """All that a compaction tells and writes."""
    told: list[int] = []
    try:
        done = kolumn.compact(source, out, on_progress=told.append, **{"include_active": True, "now": TIME, **options})
    except kolumn.KolumnError as error:
        return str(error)
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    return files, done.records, done.retained, done.bytes, done.retained_bytes, [str(one) for one in done.damage], sum(told)


def same_in_both_ways(source: Path, folder: Path, **options: Any) -> Any:
    filtered = outcome(source, folder / "filtered", **options)
    with without(FILTER):
        assert outcome(source, folder / "decoded", **options) == filtered
    return filtered


OPTIONS: list[dict[str, Any]] = [
    {}, {"first_dirty_offset": 150}, {"now": TIME + 2 * 86_400_000, "delete_retention_ms": 0}, {"chunk_bytes": 1 << 16},
    {"check_crcs": False, "memory_bytes": 1 << 20}, {"merge_bytes": 4096, "index_interval_bytes": 1},
]  # fmt: skip


@pytest.mark.parametrize("kind", [*((kind,) for kind in KINDS), KINDS, KINDS[:-2]], ids="-".join)
@pytest.mark.parametrize("keys", [8, pytest.param(10**6, marks=pytest.mark.slow)])
def test_the_same_bytes(tmp_path: Path, kind: tuple[str, ...], keys: int) -> None:
    log = Log(keys, kind, keys)
    source = source_of(tmp_path, [log.segment(15), log.segment(1), log.segment(20)])
    for number, options in enumerate(OPTIONS):
        files, records, retained, *_ = same_in_both_ways(source, tmp_path / str(number), **options)
        assert files
        assert 0 <= retained <= records


@pytest.mark.parametrize("errors", [pytest.param("raise", marks=pytest.mark.slow), "skip"])
def test_damaged_logs(tmp_path: Path, errors: str) -> None:
    log = Log(5, KINDS[:3], 300)
    segments, rng = [log.segment(30) for _ in range(3)], random.Random(2)
    for number in range(15):
        damaged = [bytearray(one) for one in segments]
        if number:
            one = rng.choice(damaged)
            one[rng.randrange(8, len(one))] ^= 1 << rng.randrange(8)
        if number % 5 == 4:
            del damaged[-1][-rng.randrange(1, 200) :]
        source = source_of(tmp_path / f"source-{number}", [bytes(one) for one in damaged])
        same_in_both_ways(source, tmp_path / str(number), errors=errors)


def test_offsets_that_do_not_grow(tmp_path: Path) -> None:
    """Then how many records of a batch are the last of their keys does not tell which ones."""
    one, two = (batch([Record(5, key, b"1", TIME), Record(6, b"b", b"2", TIME)]) for key in (b"a", b"c"))
    source = source_of(tmp_path, [one + two + batch([Record(7, b"b", b"", TIME)])])
    same_in_both_ways(source, tmp_path / "out")


def test_offsets_outside_of_their_batch(tmp_path: Path) -> None:
    far = batch([Record(5, b"a", b"1", TIME), Record(90, b"b", b"2", TIME), Record(91, b"a", b"2", TIME)], last_offset=6)
    same_in_both_ways(source_of(tmp_path, [far]), tmp_path / "out")


@pytest.mark.slow
def test_logs_of_brokers(tmp_path: Path) -> None:
    folders = sorted({path.parent for path in DATA.rglob("*.log")})
    for number, folder in zip(count(), folders, strict=False):
        for name, options in enumerate([{}, {"now": 2 * TIME, "delete_retention_ms": 0, "errors": "skip"}]):
            same_in_both_ways(folder, tmp_path / f"{number}-{name}", **options)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_plain_batches_do_not_become_columns(tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do those with tombstones, which get a delete horizon, and lose them after it."""
    records = [[Record(10 * b + i, b"key-%d" % (10 * b + i), b"value", TIME) for i in range(10)] for b in range(4)]
    records[1] = [Record(10 + i, b"key-%d" % (20 + i), b"value", TIME) for i in range(10)]
    records[3][8:] = [Record(38, b"key-38", None, TIME), Record(39, b"key-5", None, TIME)]
    number = {"none": 0, "lz4": 3, "zstd": 4}[codec]
    source = source_of(tmp_path, [b"".join(batch(some, codec=number) for some in records) + batch([Record(40, b"last", b"", TIME)])])
    asked = list[int]()
    pieces_of = rewrite.pieces_of

    def counted(source: Any, origin: int, entries: Any, *arguments: Any, **named: Any) -> Any:
        asked.extend(entries.base_offset.tolist())
        return pieces_of(source, origin, entries, *arguments, **named)

    monkeypatch.setattr(rewrite, "pieces_of", counted)
    done = kolumn.compact(source, tmp_path / "out", include_active=True, now=TIME, delete_retention_ms=10)
    [folder] = (tmp_path / "out").iterdir()
    found = kolumn.batches(folder).select(["baseOffset", "count", "deleteHorizonMs"]).to_pylist()
    assert [tuple(one.values()) for one in found] == [(0, 9, None), (20, 10, None), (30, 10, TIME + 10), (40, 1, None)]
    assert (done.records, done.retained) == (41, 30)
    later = kolumn.compact(folder, tmp_path / "later", include_active=True, now=TIME + 10)
    assert later.records - later.retained == 2
    assert asked == []


def test_a_copy_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another file system, by an old kernel, of a file in a pipe: bytes of an active segment are then read and written."""
    records = [Record(i, b"key-%d" % i, b"value" * 200, TIME) for i in range(1000)]
    source = source_of(tmp_path, [b"".join(batch(records[i : i + 10]) for i in range(0, 1000, 10))])
    expected = outcome(source, tmp_path / "out", include_active=False)
    assert expected[0] == {f"{source.name}/{path.name}": path.read_bytes() for path in source.iterdir()}

    def refuses(code: int, after: int, real: Any, *arguments: Any) -> int:
        if arguments[3] > after:
            raise OSError(code, "refused")
        return int(real(*arguments[:2], min(arguments[2], 300_000), *arguments[3:]))

    real = os.copy_file_range
    for name, wrong in [
        ("other file system", partial(refuses, 18, -1, real)), ("part of it", partial(refuses, 5, 400_000, real)),
        ("nothing", lambda *_: 0),
    ]:  # fmt: skip
        monkeypatch.setattr(os, "copy_file_range", wrong)
        assert outcome(source, tmp_path / name, include_active=False) == expected
    monkeypatch.delattr(os, "copy_file_range")
    assert outcome(source, tmp_path / "absent", include_active=False) == expected
    monkeypatch.setattr(os, "copy_file_range", partial(refuses, 28, -1, real), raising=False)
    assert "cannot be written" in outcome(source, tmp_path / "full", include_active=False)
