"""Damaged segments: the same columns as from Java's record classes, or an error if they raise one; in bounded time and memory.

KOLUMN_FUZZ_MUTANTS is their number, KOLUMN_FUZZ_SEED the first seed.
"""

import os
from pathlib import Path

import pytest

from kit.differential import compare, make, run_all
from kit.fuzz import MUTANTS

JUDGED_OTHERWISE = 2000
"""One of so many mutants may lose an intact entry: if several pieces of damage meet, or stale bytes overlap intact ones, there are two
possible readings, and only the mutation's own record tells which one is right. Wrong rows are never allowed."""

HARD = (9511, 29894, 30445, 705596, 712813, 730456)
"""Mutants that once lost intact entries, because messages of a damaged wrapper or claims of a damaged header hid the ones after them."""


def test_mutants_that_lost_entries(tmp_path: Path) -> None:
    for seed in HARD:
        assert make(seed)[1].untouched
        compare(seed, tmp_path / "0.log")


@pytest.mark.timeout(4 * 3600)
def test_mutants() -> None:
    processes = min(len(os.sched_getaffinity(0)), 16)
    failures = list(run_all(MUTANTS, processes, int(os.environ.get("KOLUMN_FUZZ_SEED", "0"))))
    wrong = [one for one in failures if not _is_judgement(one[1])]
    listing = "\n".join(f"seed {seed}: {text}" for seed, text in failures)
    replay = " ".join(str(seed) for seed, _ in failures)
    report = f"{len(failures)} mutants differ:\n{listing}\nreplay in tests/: python -m kit.differential {replay}"
    print(report)
    assert not wrong, report
    assert len(failures) <= MUTANTS // JUDGED_OTHERWISE, report


def _is_judgement(text: str) -> bool:
    """Whether a difference is an entry that was lost after damage, for which there may be two readings, and not a wrong row."""
    return "is lost or differs" in text or "are lost in silence" in text
