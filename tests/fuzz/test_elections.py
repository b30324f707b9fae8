"""Copies of a partition whose leaders changed, with damage: `replicas="merge"` and `recover` keep the rule that DESIGN.md states.

An eighth of KOLUMN_FUZZ_MUTANTS is the number of cases, KOLUMN_FUZZ_SEED the first seed.
"""

from pathlib import Path

import pytest

from kit.broken_disks import DAMAGE
from kit.elections import compare, make
from kit.fuzz import MUTANTS, failing, none_fails
from kit.merge_reference import Merged, all_strands, merged

COUNT = MUTANTS // 8
"""Each case is read and recovered, from several folders."""


HARD = (
    367, 2595, 3098, 3182, 3294, 3309, 4873, 5517, 5889, 7011, 7331, 8594, 8795, 9260, 12317,
    17593, 18453, 20837, 26625, 27614, 43488, 45046,
)  # fmt: skip
"""Cases that were wrong once."""


def test_cases_that_were_wrong_once() -> None:
    assert not failing(compare, HARD)


@pytest.mark.timeout(4 * 3600)
def test_copies_become_the_log_that_the_rule_says() -> None:
    none_fails(compare, COUNT, "kit.elections")


def test_the_rule_finds_the_final_leaders_log(tmp_path: Path) -> None:
    """Where logs are as brokers wrote them, and damage leaves headers whole: no row of a leader that lost, and no other row left out."""
    superseded = 0
    for seed in range(100):
        case = make(seed, tmp_path / str(seed), calm=True)
        found = merged(case.copies)
        if any("topic id" in trait for trait in case.traits):
            continue
        assert isinstance(found, Merged), seed
        newest = max((entry.epoch for strand in all_strands(case.copies) for entry in strand.entries), default=0)
        truth = case.logs.get(newest, {})
        for at, rows in found.rows.items():
            assert {(row.key, row.value, row.timestampMs) for row in rows} == {truth[at]}, (seed, at)
        if "sent again" not in case.traits:
            assert not [row for _, row in found.superseded if truth.get(row.offset) == (row.key, row.value, row.timestampMs)], seed
        superseded += bool(found.superseded)
    assert superseded > 10


def test_the_cases_are_of_all_kinds(tmp_path: Path) -> None:
    text = "; ".join(trait for seed in range(250) for trait in make(seed, tmp_path / str(seed)).traits)
    kinds = ("unclean", "clean", "sent again", "compacted", "batched_anew", "written_twice", "not_truncated", "another broker", "topic id")
    assert not [kind for kind in (*kinds, *DAMAGE) if kind not in text]
