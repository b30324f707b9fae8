"""Segments with the damage of disks, copies and crashes: reads return all that is intact and nothing else; `verify` reports the rest.

An eighth of KOLUMN_FUZZ_MUTANTS is their number, KOLUMN_FUZZ_SEED the first seed; KOLUMN_CORPUS adds segments.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from kit.disk_damage import KINDS, make
from kit.fuzz import MUTANTS
from kit.truth import failures

COUNT = MUTANTS // 8
"""Each mutant is read in many ways, which takes longer than a mutant of `test_mutants`."""
FIRST = int(os.environ.get("KOLUMN_FUZZ_SEED", "0"))
EACH = 100


@pytest.mark.timeout(4 * 3600)
def test_what_is_intact_comes_back() -> None:
    wrong = _many() if COUNT > 500 else _failures(range(FIRST, FIRST + COUNT))
    replay = " ".join(str(seed) for seed, _ in wrong)
    listing = "\n".join(f"seed {seed}: {text}" for seed, text in wrong)
    assert not wrong, f"{len(wrong)} of {COUNT} mutants:\n{listing}\nreplay in tests/: python -m kit.truth {replay}"


def _failures(seeds: range) -> list[tuple[int, str]]:
    return list(failures(seeds))


def _many() -> list[tuple[int, str]]:
    jobs = [range(start, min(start + EACH, FIRST + COUNT)) for start in range(FIRST, FIRST + COUNT, EACH)]
    processes = min(len(os.sched_getaffinity(0)), 16)
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        return [one for found in pool.map(_failures, jobs) for one in found]


def test_the_mutants_are_of_all_kinds_and_hold_intact_entries() -> None:
    mutants = [make(seed) for seed in range(300)]
    assert {mutant.kind.split(",")[0] for mutant in mutants} == set(KINDS)
    swallowed = [mutant for mutant in mutants if mutant.kind.startswith("cut to a border")]
    assert swallowed
    for mutant in mutants:
        for position, index in mutant.places.items():
            assert mutant.data[position : position + len(mutant.entries[index])] == mutant.entries[index]
