"""Headers that lie with right checksums: a read of a range of offsets or times returns what a read of all does, filtered, in every way.

KOLUMN_FUZZ_MUTANTS is the number of logs, of which `make test` reads half; KOLUMN_FUZZ_SEED is the first seed.
"""

from collections import Counter

import pytest

from kit.fuzz import MUTANTS, none_fails
from kit.lying_headers import compare, make

FEW = 600
"""Up to so many, half of them are read, in this process."""


@pytest.mark.timeout(4 * 3600)
def test_a_range_is_the_whole_filtered() -> None:
    none_fails(compare, MUTANTS if MUTANTS > FEW else MUTANTS // 2, "kit.lying_headers", alone=FEW // 2)


def test_the_logs_have_lies_of_all_kinds() -> None:
    lies = Counter(lie.split(": ")[-1].rstrip("-0123456789 ") for seed in range(600) for lie in make(seed).lies)
    assert set(lies) >= {
        "another base", "attributes", "base offset", "base timestamp", "count", "largest timestamp", "last offset delta", "offset",
        "producer", "sequence", "shuffled", "the same", "timestamp",
    }  # fmt: skip
