"""Segments of the drafts, whole and damaged: reads return every row of an intact entry, and no row that was never written."""

import random
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.draft_segments import FORMATS, Entry, Maker, Row, damage
from kit.fuzz import FIRST, MUTANTS

COUNT = max(100, MUTANTS // 60)
"""Segments of each format: one for each 60 segments of the shipped formats."""
JUDGED_OTHERWISE = 100
"""In one of so many mutants, uncompressed messages inside a damaged wrapper may be read as entries: they have right checksums, and relative
offsets before those of other entries. Entries after them are lost if such an offset is larger than theirs. See `test_mutants`."""
COLUMNS = list(Row._fields)


def _read(path: Path, **options: Any) -> list[Row]:
    rows = kolumn.read(path, columns=COLUMNS, include_control=True, **options).to_pylist()
    return [Row(**{**row, "headers": tuple((h["key"], h["value"]) for h in row["headers"])}) for row in rows]


def _segment(format: str, seed: int) -> list[Entry]:
    rng = random.Random(f"{format} {seed}")
    return Maker(format, rng).segment(rng.randint(1, 12))


@pytest.mark.parametrize("format", FORMATS)
def test_whole_segments(format: str, tmp_path: Path) -> None:
    for seed in range(FIRST, FIRST + COUNT // 4):
        entries = _segment(format, seed)
        path = tmp_path / "a.log"
        path.write_bytes(b"".join(entry.data for entry in entries))
        expected = [row for entry in entries for row in entry.rows]
        for options in ({"threads": 1}, {"threads": 2, "chunk_bytes": 64}, {"binary": "view", "errors": "skip"}):
            assert _read(path, format=format, **options) == expected, seed
        assert kolumn.verify(path, format=format).ok, seed
        data = [row for row in expected if not row.isControl]
        assert kolumn.read(path, format=format, columns=["offset"])["offset"].to_pylist() == [row.offset for row in data], seed


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_segments(format: str, tmp_path: Path) -> None:
    judged = []
    for seed in range(FIRST, FIRST + COUNT):
        entries = _segment(format, seed)
        bounds = list(pairwise(accumulate((len(entry.data) for entry in entries), initial=0)))
        data, hit = damage(b"".join(entry.data for entry in entries), bounds, random.Random(seed))
        path = tmp_path / "a.log"
        path.write_bytes(data)
        known, of_hit = {row for entry in entries for row in entry.rows}, set(map(_contents, entries[hit].rows))
        found = _read(path, format=format, threads=1, errors="skip")
        unknown = set(found) - known
        assert set(map(_contents, unknown)) <= of_hit, seed
        assert found == _read(path, format=format, threads=2, chunk_bytes=64, errors="skip"), seed
        assert unknown or set(found) >= {row for i, entry in enumerate(entries) if i != hit for row in entry.rows}, seed
        if unknown:
            judged.append(seed)
        report = kolumn.verify(path, format=format)
        if report.ok:
            assert unknown or len(found) == len(known) or report.segments["tail"].to_pylist() != [None], seed
        else:
            with pytest.raises(kolumn.CorruptBatchError):
                _read(path, format=format, threads=1)
        _read_anything(path, format)
    assert len(judged) <= max(3, COUNT / JUDGED_OTHERWISE), f"seeds {judged}"


def _contents(row: Row) -> Row:
    """A row without the fields that depend on its entry."""
    return row._replace(offset=0, magic=0, tombstone=False)


def _read_anything(path: Path, format: str) -> None:
    """Without checksums every result is allowed except a crash."""
    try:
        _read(path, format=format, check_crcs=False)
        kolumn.batches(path, format=format, check_crcs=False)
    except kolumn.KolumnError:
        pass
