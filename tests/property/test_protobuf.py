"""Does the decoder of Protobuf return what the package protobuf reads, for any schema and any bytes?"""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.bodies import bodies
from kit.fuzz import examples
from kit.protobuf_values import body, expected, in_edition, message_class, mutants, plain, schema
from kolumn.values.protobuf.decoder import ProtobufDecoder

SEEDS = st.integers(0, 2**48)


def compare(seed: int, broken: float, values: int) -> None:
    rng = random.Random(seed)
    made = schema(rng)
    # The package protobuf takes any bytes for strings of proto2, and Arrow does not.
    kind = message_class(in_edition(made))
    if rng.random() < 0.3:
        made = in_edition(made)
    good = [body(rng, kind.DESCRIPTOR, broken) for _ in range(values)]
    rows: list[bytes | None] = list(good)
    for value in good if broken else []:
        rows += mutants(rng, value, rng.choice(good), 6)
    rows.insert(rng.randint(0, len(rows)), None)
    array, valid = ProtobufDecoder(made, "M0").decode(bodies(rows))
    array.validate(full=True)
    assert valid.tolist() == array.is_valid().to_pylist()
    for number, value in enumerate(rows):
        wanted = None if value is None else expected(kind, value)
        found = plain(array[number])
        assert found == wanted, (seed, number, value)


@settings(max_examples=examples(150), deadline=None)
@given(SEEDS)
def test_any_message_of_any_schema(seed: int) -> None:
    compare(seed, 0.0, 12)


@settings(max_examples=examples(150), deadline=None)
@given(SEEDS)
def test_malformed_values_of_any_schema(seed: int) -> None:
    """Bits are flipped, bytes are cut off, inserted and spliced; rows around them keep their values."""
    compare(seed, 0.3, 8)
