"""Do the compiled loop and Arrow's reader return the same rows of damaged JSON, whatever its bytes are?

The loop decides what it is sure of, so each row of `JsonDecoder` has to be what Arrow's reader makes of it. Memory ends where values end.
"""

import random

import pyarrow as pa
import pytest

from kit import json_values
from kit.bodies import bodies
from kit.fuzz import FIRST, MUTANTS
from kolumn.values.json.decoder import JsonDecoder
from kolumn.values.json.lines import LinesDecoder
from kolumn.values.types import nested_type

ROWS, MANY = 40, 150
"""Values of one type; values of one type and producer."""


def decided_by_both(kind: pa.StructType, values: list[bytes]) -> int:
    """Compare all values of a type with those of Arrow's reader; returns how many are valid."""
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


def compare(mutants: int) -> int:
    """Compare values of random types; returns how many are valid."""
    valid = 0
    for seed in range(FIRST, FIRST - -mutants // ROWS):
        rng = random.Random(seed)
        kind = json_values.random_type(rng)
        valid += decided_by_both(kind, json_values.values_of(rng, kind, ROWS, rng.choice((0.1, 0.5, 0.9))))
    return valid


def few_of_many(mutants: int) -> int:
    """Compare objects of which few members are wanted; returns how many are valid."""
    valid = 0
    for seed in range(FIRST, FIRST - -mutants // MANY):
        rng = random.Random(seed)
        whole = json_values.flat_type(rng)
        wanted = pa.struct(rng.sample([one for one in whole if not pa.types.is_nested(one.type)], rng.choice((1, 1, 2, 3))))
        valid += decided_by_both(wanted, json_values.alike(rng, whole, MANY, rng.choice((0, 0.05, 0.3))))
    return valid


def test_mutants_of_which_few_members_are_wanted() -> None:
    assert few_of_many(MUTANTS) > MUTANTS // 2


OBJECT = b'{"id":10,"name":"ab","x":-0.5,"none":null,"items":[{"a":"b","n":1},{"n":20}],"no":[],"more":[true],"last":7}'
SPACED = OBJECT.replace(b":", b": ").replace(b",", b", ")
FEW = nested_type({"id": "int64", "x": "float64", "last": "int16"})


def any_sign_at_any_place(written: bytes, sign: bytes) -> None:
    """Every byte is replaced by a sign, and a sign is inserted in front of it; without a sign, the byte is removed, and the rest."""
    values = [written]
    for at in range(len(written)):
        values += [written[:at] + sign + written[at + 1 :], written[:at] + (sign + written[at:] if sign else b"")]
    assert decided_by_both(FEW, values)


@pytest.mark.parametrize(("written", "sign"), [(OBJECT, b","), (SPACED, b"")])
def test_a_sign_at_any_place_of_an_object_of_which_few_members_are_wanted(written: bytes, sign: bytes) -> None:
    any_sign_at_any_place(written, sign)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [b"", *(bytes([one]) for one in b'"{}[],:0.e- n\\\x7f\xc3\x00')])
def test_any_sign_at_any_place_of_an_object_of_which_few_members_are_wanted(sign: bytes) -> None:
    any_sign_at_any_place(OBJECT, sign)
    any_sign_at_any_place(SPACED, sign)


def test_mutants() -> None:
    assert compare(MUTANTS) > MUTANTS // 5
