"""Damaged segments: the same columns as from Java's record classes, or an error if they raise one; in bounded time and memory.

KOLUMN_FUZZ_MUTANTS is their number, KOLUMN_FUZZ_SEED the first seed.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.differential import compare, make, run_all
from kit.encoder import Record, batch, raw_batch, record_body, varint
from kit.fuzz import FIRST, MUTANTS

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
    processes = min(len(os.sched_getaffinity(0)), 16)
    failures = list(run_all(MUTANTS, processes, FIRST))
    wrong = [one for one in failures if not _is_judgement(one[1])]
    listing = "\n".join(f"seed {seed}: {text}" for seed, text in failures)
    replay = " ".join(str(seed) for seed, _ in failures)
    report = f"{len(failures)} mutants differ:\n{listing}\nreplay in tests/: python -m kit.differential {replay}"
    print(report)
    assert not wrong, report
    assert len(failures) <= max(1, MUTANTS // JUDGED_OTHERWISE), report


def _is_judgement(text: str) -> bool:
    """Whether a difference is an entry that was lost after damage, for which there may be two readings, and not a wrong row."""
    return "is lost or differs" in text or "are lost in silence" in text
