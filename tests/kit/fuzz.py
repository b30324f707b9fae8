"""How much is tried, and from which seed on: seeds differ from commit to commit, and a run says how it is repeated."""

import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import combinations, product
from pathlib import Path
from typing import Any

_EACH = 100
Compare = Callable[[int, Path], object]
"""Compares what a seed makes in an empty folder, and raises what is wrong."""


def commits() -> int:
    """The number of commits up to this one; 0 where the tree is no clone."""
    try:
        done = subprocess.run(
            ["git", "rev-list", "--count", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return 0
    return int(done.stdout or 0)


# Set for the processes that tests start too. Each commit has as many seeds of its own as `.ci/run` makes mutants.
FIRST = int(os.environ.setdefault("KOLUMN_FUZZ_SEED", str(1000 * commits())))
TURN = FIRST // 1000
"""What commits take turns by."""
MUTANTS = int(os.environ.setdefault("KOLUMN_FUZZ_MUTANTS", "600"))
SECONDS = float(os.environ.get("KOLUMN_CONNECTOR_SECONDS", "15"))
"""How long random queries and kills of Spark's processes go on."""
STEPS = os.environ.setdefault("KOLUMN_STEPS", "few")
AGAIN = " ".join(f"{name}={os.environ[name]}" for name in ("KOLUMN_FUZZ_SEED", "KOLUMN_FUZZ_MUTANTS", "KOLUMN_STEPS"))
"""What repeats a run."""


def tried(steps: Sequence[Any], few: int) -> list[Any]:
    """Of many steps ``few``, a quarter that turns from commit to commit, or all, as KOLUMN_STEPS says."""
    if STEPS == "all":
        return list(steps)
    if STEPS == "quarter":
        return list(steps[TURN % 4 :: 4])
    every = max(1, len(steps) // few)
    return list(steps[TURN % every :: every])


def failing(compare: Compare, seeds: Iterable[int]) -> list[tuple[int, str]]:
    """Seeds for which a comparison raises, and what: an AssertionError is a finding, another error has its trace."""
    wrong = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None, prefix="kolumn-fuzz-") as scratch:
        for seed in seeds:
            folder = Path(scratch, str(seed))
            folder.mkdir()
            try:
                compare(seed, folder)
            except AssertionError as error:
                wrong.append((seed, str(error)))
            except Exception:
                wrong.append((seed, traceback.format_exc()))
            shutil.rmtree(folder)
    return wrong


def over_seeds(compare: Compare, count: int, alone: int = 500) -> list[tuple[int, str]]:
    """The failures of ``count`` seeds from `FIRST` on; of more than ``alone`` in several processes."""
    seeds = range(FIRST, FIRST + count)
    if count <= alone:
        return failing(compare, seeds)
    jobs = [seeds[start : start + _EACH] for start in range(0, count, _EACH)]
    wrong: list[tuple[int, str]] = []
    with ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), 16), mp_context=multiprocessing.get_context("spawn")) as pool:
        for job, done in [(job, pool.submit(failing, compare, job)) for job in jobs]:
            try:
                wrong += done.result()
            except BrokenProcessPool:
                wrong.append((job.start, f"a process died; this is the first of {len(job)} seeds that were not done"))
    return wrong


def none_fails(compare: Compare, count: int, module: str, alone: int = 500) -> None:
    """Assert that nothing is wrong of ``count`` seeds; the message says how each is replayed."""
    wrong = over_seeds(compare, count, alone)
    assert not wrong, f"{len(wrong)} of {count}:\n{listed(wrong, module)}"


def listed(wrong: list[tuple[int, str]], module: str) -> str:
    listing = "\n".join(f"seed {seed}: {text}" for seed, text in wrong)
    return f"{listing}\nreplay in tests/: python -m {module} {' '.join(str(seed) for seed, _ in wrong)}"


def replay(compare: Compare) -> None:
    """Print what is wrong of the seeds that the command line names."""
    for seed in map(int, sys.argv[1:]):
        print(seed, *([text for _, text in failing(compare, [seed])] or ["no difference"]))


def examples(most: int) -> int:
    """All of them in CI; a third in `make test`, which people wait for, and which draws other ones each time."""
    return most if os.environ.get("CI") else most // 3


def pairs(*values: Sequence[Any], more: int = 0) -> list[tuple[Any, ...]]:
    """Cases of these parameters in which every two values of two of them meet, and ``more`` cases that differ from commit to commit.

    Greedily, each is the one of some that has the most pairs which no case before it has.
    """
    whole, rng = list(product(*(range(len(one)) for one in values))), random.Random(0)
    missing = {pair for case in whole for pair in _pairs(case)}
    chosen: list[tuple[int, ...]] = []
    while missing:
        best = max(rng.sample(whole, min(len(whole), 100)), key=lambda case: len(missing & _pairs(case)))
        if missing & _pairs(best):
            chosen.append(best)
            missing -= _pairs(best)
    left = [case for case in whole if case not in chosen]
    chosen += random.Random(FIRST).sample(left, min(more, len(left)))
    return [tuple(one[at] for one, at in zip(values, case, strict=True)) for case in sorted(chosen)]


def _pairs(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return set(combinations(enumerate(case), 2))
