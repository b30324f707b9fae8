"""Do the compiled loop and Arrow's reader return the same rows of damaged JSON, whatever its bytes are?

The loop decides what it is sure of, so each row of `JsonDecoder` has to be what Arrow's reader makes of it. Memory ends where values end.
"""

import random

import pyarrow as pa
import pytest

from kit import json_values
from kit.bodies import bodies
from kit.fuzz import MUTANTS
from kolumn.values.text.json import JsonDecoder
from kolumn.values.text.json_lines import LinesDecoder

ROWS = 40
"""Values of one type."""


def decided_by_both(kind: pa.StructType, values: list[bytes]) -> int:
    """Compare all values of a type; returns how many are valid."""
    given = bodies(values)
    found, valid = JsonDecoder(kind).decode(given)
    expected, fine = LinesDecoder(kind).decode(given)
    found.validate(full=True)
    assert found.type == expected.type == kind
    assert found.is_valid().to_pylist() == valid.tolist()
    # By their text: NaN equals NaN there, and -0.0 does not equal 0.0.
    rows = zip(values, valid.tolist(), found.to_pylist(), fine.tolist(), expected.to_pylist(), strict=True)
    wrong = [row for row in rows if repr(row[1:3]) != repr(row[3:])]
    assert not wrong, wrong[0]
    return int(valid.sum())


def compare(first: int, mutants: int) -> int:
    """Compare values of random types; returns how many are valid."""
    valid = 0
    for seed in range(first, first + -(-mutants // ROWS)):
        rng = random.Random(seed)
        kind = json_values.random_type(rng)
        valid += decided_by_both(kind, json_values.values_of(rng, kind, ROWS, rng.choice((0.1, 0.5, 0.9))))
    return valid


def test_mutants() -> None:
    assert compare(0, MUTANTS) > MUTANTS // 5


@pytest.mark.slow
def test_many_mutants() -> None:
    assert compare(1_000_000, 40_000) > 8_000
