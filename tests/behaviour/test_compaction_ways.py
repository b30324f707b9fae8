"""Compaction and conversion write the same bytes with and without columns, with the same losses and the same damage."""

import os
import random
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import kolumn
from kit.corpus import HERE as DATA
from kit.encoder import Record, batch
from kit.fuzz import TURN
from kit.paths import counted, without
from kit.random_logs import KINDS, TIME, Log, source_of
from kolumn.core.paths import DOWN_CONVERSION, FILTER
from kolumn.log.pieces import pieces_of
from kolumn.writers import regroup
from kolumn.writers.rewriting import cleaner, convert


def outcome(call: Callable[..., Any], source: Path, out: Path, **options: Any) -> Any:
    told: list[int] = []
    try:
        done = call(source, out, on_progress=told.append, **options)
    except kolumn.KolumnError as error:
        return str(error)
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    facts = ("records", "retained", "bytes", "retained_bytes") if call is kolumn.compact else ("batches", "records", "copied", "lost")
    return files, *(getattr(done, name) for name in facts), list(map(str, done.damage)), sum(told)


def compacted(source: Path, out: Path, **options: Any) -> Any:
    return outcome(kolumn.compact, source, out, **{"include_active": True, "now": TIME, **options})


def same(source: Path, folder: Path, **options: Any) -> Any:
    with without(DOWN_CONVERSION), counted() as calls:
        expected = outcome(kolumn.convert, source, folder / "columns", **options)
    assert not calls[DOWN_CONVERSION]
    assert outcome(kolumn.convert, source, folder / "direct", **options) == expected
    return expected


def same_in_both_ways(source: Path, folder: Path, **options: Any) -> Any:
    filtered = compacted(source, folder / "filtered", **options)
    with without(FILTER):
        assert compacted(source, folder / "decoded", **options) == filtered
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


def test_offsets_that_do_not_grow_or_are_outside_of_their_batch(tmp_path: Path) -> None:
    """Then how many records of a batch are the last of their keys does not tell which ones."""
    one, two = (batch([Record(5, key, b"1", TIME), Record(6, b"b", b"2", TIME)]) for key in (b"a", b"c"))
    same_in_both_ways(source_of(tmp_path / "1", [one + two + batch([Record(7, b"b", b"", TIME)])]), tmp_path / "out-1")
    far = batch([Record(5, b"a", b"1", TIME), Record(90, b"b", b"2", TIME), Record(91, b"a", b"2", TIME)], last_offset=6)
    same_in_both_ways(source_of(tmp_path / "2", [far]), tmp_path / "out-2")


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
    monkeypatch.setattr(cleaner, "pieces_of", asked := Mock(wraps=pieces_of))
    done = kolumn.compact(source, tmp_path / "out", include_active=True, now=TIME, delete_retention_ms=10)
    [folder] = (tmp_path / "out").iterdir()
    found = kolumn.batches(folder).select(["baseOffset", "count", "deleteHorizonMs"]).to_pylist()
    assert [tuple(one.values()) for one in found] == [(0, 9, None), (20, 10, None), (30, 10, TIME + 10), (40, 1, None)]
    assert (done.records, done.retained) == (41, 30)
    later = kolumn.compact(folder, tmp_path / "later", include_active=True, now=TIME + 10)
    assert later.records - later.retained == 2
    assert [call.args[2].base_offset.tolist() for call in asked.mock_calls if len(call.args[2])] == []


def test_a_copy_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another file system, by an old kernel, of a file in a pipe: bytes of an active segment are then read and written."""
    records = [Record(i, b"key-%d" % i, b"value" * 200, TIME) for i in range(1000)]
    source = source_of(tmp_path, [b"".join(batch(records[i : i + 10]) for i in range(0, 1000, 10))])
    expected = compacted(source, tmp_path / "out", include_active=False)
    assert expected[0] == {f"{source.name}/{path.name}": path.read_bytes() for path in source.iterdir()}

    real: Callable[..., int] = os.copy_file_range

    def refuses(code: int, after: int, *arguments: Any) -> int:
        if arguments[3] > after:
            raise OSError(code, "refused")
        return real(*arguments[:2], min(arguments[2], 300_000), *arguments[3:])

    wrongs = {"other file system": partial(refuses, 18, -1), "part of it": partial(refuses, 5, 400_000), "nothing": lambda *_: 0}
    for name, wrong in wrongs.items():
        monkeypatch.setattr(os, "copy_file_range", wrong)
        assert compacted(source, tmp_path / name, include_active=False) == expected
    monkeypatch.delattr(os, "copy_file_range")
    assert compacted(source, tmp_path / "absent", include_active=False) == expected
    monkeypatch.setattr(os, "copy_file_range", partial(refuses, 28, -1), raising=False)
    assert "cannot be written" in compacted(source, tmp_path / "full", include_active=False)


@pytest.mark.parametrize("kind", [*((kind,) for kind in KINDS), KINDS], ids="-".join)
@pytest.mark.parametrize("magic", [0, 1])
def test_the_same_messages(tmp_path: Path, kind: tuple[str, ...], magic: int) -> None:
    log = Log(magic, kind, 100)
    source = source_of(tmp_path, [log.segment(15), log.segment(1), log.segment(20)])
    for number, options in enumerate([{}, {"codec": "none"}, {"codec": "none", "memory_bytes": 1 << 16, "timestamp": 5}, {"codec": "lz4"}]):
        same(source, tmp_path / str(number), magic=magic, drop_transactions="transactions" in kind, **options)
    same(source, tmp_path / "refused", magic=magic, codec="none")


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_conversion_of_damaged_logs(tmp_path: Path, errors: str) -> None:
    log, rng = Log(5, KINDS[:1], 300), random.Random(2)
    segment = log.segment(30)
    for number in range(15):
        damaged = bytearray(segment)
        damaged[rng.randrange(8, len(damaged))] ^= 1 << rng.randrange(8)
        source = source_of(tmp_path / f"source-{number}", [bytes(damaged)])
        # Without checksums, loops see what is in the records.
        for check_crcs in (True, False):
            same(source, tmp_path / f"{number}-{check_crcs}", magic=1, codec="none", errors=errors, check_crcs=check_crcs)


def test_conversion_of_logs_of_brokers(tmp_path: Path) -> None:
    for number, folder in enumerate(sorted({path.parent for path in DATA.rglob("*.log")})):
        # Commits take turns.
        same(folder, tmp_path / str(number), magic=(number + TURN) % 2, codec="none", errors="skip")


def test_some_batches_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many messages their table has room for; a batch may have more, or none."""
    monkeypatch.setattr(regroup, "_MESSAGES", 5)
    sizes, batches, offset = [3, 2, 1, 5, 0, 7, 4, 0, 2], [], 0
    for size in sizes:
        records = [Record(offset + i, b"k", None if i % 3 == 0 else b"v" * i, -1 if i % 2 else TIME) for i in range(size)]
        batches.append(batch(records, base_offset=offset, last_offset=offset + max(size - 1, 0)))
        offset += max(size, 1)
    files, count, records_, _, lost, *_ = same(source_of(tmp_path, [b"".join(batches)]), tmp_path / "out", magic=0)
    assert (count, records_) == (sum(sizes), sum(sizes))
    assert lost == {"timestamps": 14, "empty batches": 2, "leader epochs": sum(sizes)}
    assert len(files) == 3


def test_no_column_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(tmp_path, [Log(1, ("plain", "idempotent", "dead"), 10).segment(50)])
    monkeypatch.setattr(convert, "pieces_of", lambda *arguments, **_: iter([None] * len(arguments[2])))
    assert kolumn.convert(source, tmp_path / "out", magic=1, codec="none").records > 100
