"""Damaged segments: the same columns as from Java's record classes, or an error if they raise one; in bounded time and memory.

KOLUMN_FUZZ_MUTANTS is their number, KOLUMN_FUZZ_SEED the first seed."""

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit import redpanda_mutants
from kit.differential import compare, compare_bounded, make
from kit.draft_segments import FORMATS, Entry, Maker, Row, damage
from kit.encoder import Record, batch, raw_batch, record_body, varint
from kit.fuzz import FIRST, MUTANTS, listed, none_fails, over_seeds
from kolumn.damage.intact import SMALLEST_MESSAGE

JUDGED_OTHERWISE = 2000
"""One of so many mutants may lose an intact entry: if several pieces of damage meet, or stale bytes overlap intact ones, there are two
possible readings, and only the mutation's own record tells which one is right. Wrong rows are never allowed."""

HARD = (9511, 29894, 30445, 705596, 712813, 730456, 880068)
"""Mutants that once lost intact entries, because messages of a damaged wrapper or claims of a damaged header hid the ones after them;
and one in which records are read after a length of zero that takes several bytes."""


def test_mutants_that_lost_entries(tmp_path: Path) -> None:
    for seed in HARD:
        assert make(seed)[1].untouched
        compare(seed, tmp_path / "0.log")


GUARDED = """
import os, sys, kolumn
from kit.guarded import guard_columns
from kolumn.core.paths import turned_off
guard_columns()
ways = [{}, {"columns": ["offset"]}, {"chunk_bytes": 100}, {"binary": "view"}]
for options, os.environ["KOLUMN_PATHS"] in [(way, path) for way in ways for path in ("", "general", "-short")]:
    turned_off.cache_clear()
    try:
        kolumn.read(sys.argv[1], threads=1, **options)
    except kolumn.CorruptBatchError as error:
        assert error.code.name == "HEADER_COUNT", error
"""


def test_a_record_with_room_for_half_of_its_headers(tmp_path: Path) -> None:
    """Nothing is written for headers that the record claims and has no bytes for."""
    body = record_body(Record(1, None, None, 0), 0, 0)
    assert body[-1:] == varint(0)
    body = body[:-1] + varint(63) + bytes(62)
    whole = batch([Record(0, b"key", b"value", 0)])
    (tmp_path / "0.log").write_bytes(whole + raw_batch(varint(len(body)) + body, 1, base_offset=1))
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, str(tmp_path / "0.log")], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(4 * 3600)
def test_mutants() -> None:
    failures = over_seeds(compare_bounded, MUTANTS, alone=0)
    # An entry that was lost after damage, for which there may be two readings, is no wrong row.
    wrong = [one for one in failures if "is lost or differs" not in one[1] and "are lost in silence" not in one[1]]
    report = f"{len(failures)} mutants differ:\n{listed(failures, 'kit.differential')}"
    print(report)
    assert not wrong, report
    assert len(failures) <= max(1, MUTANTS // JUDGED_OTHERWISE), report


HARD_OF_REDPANDA = (152,)
"""A batch inside of a value was read instead of the one after it, because the log began at a large offset."""


def test_mutants_of_redpanda_that_lost_entries(tmp_path: Path) -> None:
    for seed in HARD_OF_REDPANDA:
        assert redpanda_mutants.make(seed)[1].untouched
        redpanda_mutants.compare(seed, tmp_path / "0.log")


@pytest.mark.timeout(4 * 3600)
def test_mutants_of_redpanda() -> None:
    """A batch has two checksums, of which one says where it ends: nothing that is intact may be lost."""
    none_fails(redpanda_mutants.compare_bounded, max(150, MUTANTS // 3), "kit.redpanda_mutants")


COUNT = max(100, MUTANTS // 60)
"""Segments of each format: one for each 60 segments of the shipped formats."""
DRAFTS_JUDGED_OTHERWISE = 100
"""In one of so many mutants, uncompressed messages inside a damaged wrapper may be read as entries: they have right checksums, and relative
offsets before those of other entries. Entries after them are lost if such an offset is larger than theirs. A single message after damage
may be taken for such a message. See `test_mutants`."""
HARD_DRAFTS = {
    # Bytes left of a damaged wrapper and the checksum of the entry after it make an entry with a longer length.
    "v3-compact": (965004,),
    # A message after damage was taken for one of a wrapper (1101054, 1101351), and a damaged length leads to a message in the next wrapper.
    "kip98-draft": (1101054, 1101351, 3029757),
    "kip87": (2001707,),
    # The same length (2000490, 3031784); and bytes that look like a wrapper's header, though the message is after that wrapper's end.
    "enriched": (2000490, 3017019, 3031784),
}
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
    for seed in (*HARD_DRAFTS.get(format, ()), *range(FIRST, FIRST + COUNT)):
        entries = _segment(format, seed)
        data, hit = damage([entry.data for entry in entries], random.Random(seed))
        path = tmp_path / "a.log"
        path.write_bytes(data)
        known, of_hit = {row for entry in entries for row in entry.rows}, set(map(_contents, entries[hit].rows))
        found = _read(path, format=format, threads=1, errors="skip")
        unknown = set(found) - known
        assert set(map(_contents, unknown)) <= of_hit, seed
        assert found == _read(path, format=format, threads=2, chunk_bytes=64, errors="skip"), seed
        lost = [i for i, entry in enumerate(entries) if i != hit and not set(entry.rows) <= set(found)]
        assert unknown or not lost or (lost == [hit + 1] and _may_be_inner(entries[hit + 1], entries[hit])), seed
        if unknown or lost:
            judged.append(seed)
        report = kolumn.verify(path, format=format)
        if report.ok:
            assert unknown or len(found) == len(known) or report.segments["tail"].to_pylist() != [None], seed
        else:
            with pytest.raises(kolumn.CorruptBatchError):
                _read(path, format=format, threads=1)
        # Without checksums every result is allowed except a crash.
        with suppress(kolumn.KolumnError):
            _read(path, format=format, check_crcs=False)
            kolumn.batches(path, format=format, check_crcs=False)
    assert len(judged) <= max(3, COUNT / DRAFTS_JUDGED_OTHERWISE), f"seeds {judged}"


def _may_be_inner(entry: Entry, damaged: Entry) -> bool:
    """Whether a message may as well be one of a wrapper whose header is lost: as many messages as its offset says fit before it."""
    return len(entry.rows) == 1 and entry.data[16:18] == b"\1\0" and entry.rows[0].offset < len(damaged.data) // SMALLEST_MESSAGE


def _contents(row: Row) -> Row:
    """A row without the fields that depend on its entry."""
    return row._replace(offset=0, magic=0, tombstone=False)
