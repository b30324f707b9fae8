"""How much is tried, and from which seed on: seeds differ from commit to commit, and a run says how it is repeated."""

import multiprocessing
import os
import subprocess
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

_EACH = 100
Failures = Callable[[range], Iterable[tuple[int, str]]]
"""Seeds of which something is wrong, and what."""


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


def failing(compare: Callable[[int], object], seeds: Iterable[int]) -> list[tuple[int, str]]:
    """Seeds for which a comparison raises, and what: an AssertionError is a finding, another error has its trace."""
    wrong = []
    for seed in seeds:
        try:
            compare(seed)
        except AssertionError as error:
            wrong.append((seed, str(error)))
        except Exception:
            wrong.append((seed, traceback.format_exc()))
    return wrong


def over_seeds(failures: Failures, count: int, alone: int = 500) -> list[tuple[int, str]]:
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


def none_fails(failures: Failures, count: int, module: str, alone: int = 500) -> None:
    """Assert that nothing is wrong of ``count`` seeds; the message says how each is replayed."""
    wrong = over_seeds(failures, count, alone)
    listing = "\n".join(f"seed {seed}: {text}" for seed, text in wrong)
    replay = " ".join(str(seed) for seed, _ in wrong)
    assert not wrong, f"{len(wrong)} of {count}:\n{listing}\nreplay in tests/: python -m {module} {replay}"


def examples(most: int) -> int:
    """All of them in CI; a third in `make test`, which people wait for, and which draws other ones each time."""
    return most if os.environ.get("CI") else most // 3
