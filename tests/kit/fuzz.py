"""How many damaged segments the fuzz tests make, KOLUMN_FUZZ_MUTANTS, from which seed on, and how many examples Hypothesis does."""

import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

MUTANTS = int(os.environ.get("KOLUMN_FUZZ_MUTANTS", "600"))
FIRST = int(os.environ.get("KOLUMN_FUZZ_SEED", "0"))
_EACH = 100
Failures = Callable[[range], Iterable[tuple[int, str]]]
"""Seeds of which something is wrong, and what."""


def over_seeds(failures: Failures, count: int, alone: int) -> list[tuple[int, str]]:
    """The failures of ``count`` seeds from `FIRST` on; of more than ``alone`` in several processes."""
    seeds = range(FIRST, FIRST + count)
    if count <= alone:
        return list(failures(seeds))
    jobs = [seeds[start : start + _EACH] for start in range(0, count, _EACH)]
    processes = min(len(os.sched_getaffinity(0)), 16)
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        return [one for found in pool.map(partial(_listed, failures), jobs) for one in found]


def _listed(failures: Failures, seeds: range) -> list[tuple[int, str]]:
    return list(failures(seeds))


def examples(most: int) -> int:
    """All of them in CI; a third in `make test`, which people wait for, and which draws other ones each time."""
    return most if os.environ.get("CI") else most // 3
