"""Segments with the damage of disks, copies and crashes: reads return all that is intact and nothing else; `verify` reports the rest.

An eighth of KOLUMN_FUZZ_MUTANTS is their number, KOLUMN_FUZZ_SEED the first seed; KOLUMN_CORPUS adds segments.
"""

import pytest

from kit.disk_damage import KINDS, make
from kit.fuzz import MUTANTS, none_fails
from kit.truth import compare

COUNT = MUTANTS // 8
"""Each mutant is read in many ways, which takes longer than a mutant of `test_mutants`."""


@pytest.mark.timeout(4 * 3600)
def test_what_is_intact_comes_back() -> None:
    none_fails(compare, COUNT, "kit.truth")


def test_the_mutants_are_of_all_kinds_and_hold_intact_entries() -> None:
    mutants = [make(seed) for seed in range(300)]
    assert {mutant.kind.split(",")[0] for mutant in mutants} == set(KINDS)
    swallowed = [mutant for mutant in mutants if mutant.kind.startswith("cut to a border")]
    assert swallowed
    for mutant in mutants:
        for position, index in mutant.places.items():
            assert mutant.data[position : position + len(mutant.entries[index])] == mutant.entries[index]
