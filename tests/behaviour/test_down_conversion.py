"""Batches become messages directly or through columns: the same bytes, the same losses, the same damage."""

import random
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.encoder import Record, batch
from kit.paths import without
from kit.random_logs import KINDS, TIME, Log, source_of
from kolumn.core.paths import DOWN_CONVERSION
from kolumn.writers.conversion import convert, down_conversion

DATA = Path(__file__).parent.parent / "data" / "corpus"


def outcome(source: Path, out: Path, **options: Any) -> Any:
    """All that a conversion tells and writes."""
    told: list[int] = []
    try:
        done = kolumn.convert(source, out, on_progress=told.append, **options)
    except kolumn.KolumnError as error:
        return str(error)
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    return files, done.batches, done.records, done.copied, dict(done.lost), [str(one) for one in done.damage], sum(told)


def same(source: Path, folder: Path, **options: Any) -> Any:
    with without(DOWN_CONVERSION):
        expected = outcome(source, folder / "columns", **options)
    found = outcome(source, folder / "direct", **options)
    assert found == expected
    return found


@pytest.mark.parametrize("kind", [*((kind,) for kind in KINDS), KINDS], ids="-".join)
@pytest.mark.parametrize("magic", [0, 1])
def test_the_same_messages(tmp_path: Path, kind: tuple[str, ...], magic: int) -> None:
    log = Log(magic, kind, 100)
    source = source_of(tmp_path, [log.segment(15), log.segment(1), log.segment(20)])
    for number, options in enumerate([{}, {"codec": "none"}, {"codec": "none", "memory_bytes": 1 << 16, "timestamp": 5}, {"codec": "lz4"}]):
        same(source, tmp_path / str(number), magic=magic, drop_transactions="transactions" in kind, **options)
    same(source, tmp_path / "refused", magic=magic, codec="none")


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_damaged_logs(tmp_path: Path, errors: str) -> None:
    log, rng = Log(5, KINDS[:1], 300), random.Random(2)
    segment = log.segment(30)
    for number in range(15):
        damaged = bytearray(segment)
        damaged[rng.randrange(8, len(damaged))] ^= 1 << rng.randrange(8)
        source = source_of(tmp_path / f"source-{number}", [bytes(damaged)])
        # Without checksums, loops see what is in the records.
        for check_crcs in (True, False):
            same(source, tmp_path / f"{number}-{check_crcs}", magic=1, codec="none", errors=errors, check_crcs=check_crcs)


def test_logs_of_brokers(tmp_path: Path) -> None:
    for number, folder in enumerate(sorted({path.parent for path in DATA.rglob("*.log")})):
        for magic in (0, 1):
            same(folder, tmp_path / f"{number}-{magic}", magic=magic, codec="none", errors="skip")


def test_some_batches_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many messages their table has room for; a batch may have more, or none."""
    monkeypatch.setattr(down_conversion, "_MESSAGES", 5)
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
