"""Damaged segments: the same columns as Java's record classes give, or an error where they give one; bounded time and memory.

KOLUMN_FUZZ_MUTANTS sets how many, KOLUMN_FUZZ_SEED the first seed.
"""

import os

import pytest

from kit.differential import run_all


@pytest.mark.timeout(4 * 3600)
def test_mutants() -> None:
    count = int(os.environ.get("KOLUMN_FUZZ_MUTANTS", "5000"))
    processes = min(len(os.sched_getaffinity(0)), 16)
    failures = list(run_all(count, processes, int(os.environ.get("KOLUMN_FUZZ_SEED", "0"))))
    listing = "\n".join(f"seed {seed}: {text}" for seed, text in failures)
    replay = " ".join(str(seed) for seed, _ in failures)
    assert not failures, f"{len(failures)} mutants differ:\n{listing}\nreplay in tests/: python -m kit.differential {replay}"
