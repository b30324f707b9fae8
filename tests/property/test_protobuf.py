"""Does the decoder of Protobuf return what the package protobuf reads, for any schema and any bytes?"""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.fuzz import examples
from kit.guarded import bodies
from kit.protobuf_values import body, expected, in_edition, message_class, mutants, plain, schema
from kolumn.values.protobuf import ProtobufDecoder


def compare(seed: int, broken: float, values: int) -> None:
    rng = random.Random(seed)
    made = schema(rng)
    # The package protobuf takes any bytes for strings of proto2, and Arrow does not.
    kind = message_class(in_edition(made))
    if rng.random() < 0.3:
        made = in_edition(made)
    good = [body(rng, kind.DESCRIPTOR, broken) for _ in range(values)]
    rows: list[bytes | None] = list(good)
    for one in good if broken else []:
        rows += mutants(rng, one, rng.choice(good), 6)
    rows.insert(rng.randint(0, len(rows)), None)
    array, valid = ProtobufDecoder(made, "M0").decode(bodies(rows))
    array.validate(full=True)
    assert valid.tolist() == array.is_valid().to_pylist()
    for number, value in enumerate(rows):
        wanted = None if value is None else expected(kind, value)
        assert plain(array[number]) == wanted, (seed, number, value)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**48), st.sampled_from([(0.0, 12), (0.3, 8)]))
def test_values_of_any_schema(seed: int, how: tuple[float, int]) -> None:
    """Those that are malformed too: bits are flipped, bytes are cut off, inserted and spliced; rows around them keep their values."""
    compare(seed, *how)
