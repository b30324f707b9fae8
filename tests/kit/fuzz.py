"""How many damaged segments the fuzz tests make, KOLUMN_FUZZ_MUTANTS, and how many examples Hypothesis does."""

import os

MUTANTS = int(os.environ.get("KOLUMN_FUZZ_MUTANTS", "600"))


def examples(most: int) -> int:
    """All of them in CI; a third in `make test`, which people wait for, and which draws other ones each time."""
    return most if os.environ.get("CI") else most // 3
