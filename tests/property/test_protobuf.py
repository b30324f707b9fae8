"""Does the decoder of Protobuf return what the package protobuf reads, for any schema and any bytes? Does its plain reader?"""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.fuzz import examples
from kit.guarded import bodies
from kit.protobuf_values import body, expected, in_edition, message_class, mutants, plain, schema
from kolumn.values.protobuf import ProtobufDecoder

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def compare(seed: int, broken: float, values: int) -> None:
    rng = random.Random(seed)
    made = schema(rng)
    # The package protobuf takes any bytes for strings of proto2, and Arrow does not: nor does JSON, but for those that others replace.
    kind = message_class(in_edition(made))
    if rng.random() < 0.3 or "arrow.json" in str(ProtobufDecoder(made, "M0").type):
        made = in_edition(made)
    good = [body(rng, kind.DESCRIPTOR, broken) for _ in range(values)]
    rows: list[bytes | None] = list(good)
    for one in good if broken else []:
        rows += mutants(rng, one, rng.choice(good), 6)
    rows.insert(rng.randint(0, len(rows)), None)
    unit = rng.choice(list(PER_SECOND))
    decoder = ProtobufDecoder(made, "M0", null_fields=rng.random() < 0.5, time_unit=unit)
    array, valid = decoder.decode(bodies(rows))
    array.validate(full=True)
    assert valid.tolist() == array.is_valid().to_pylist()
    there = [number for number, value in enumerate(rows) if value is not None]
    read, lost = decoder.salvage(bodies([rows[number] for number in there]))
    read.validate(full=True)
    assert read.type == array.type
    for one, paths, number in zip(read, lost, there, strict=True):
        wanted = expected(kind, rows[number], PER_SECOND[unit])
        assert (wanted is not None) == (not paths), (seed, number, rows[number], paths)
        if not paths:
            assert plain(one) == wanted, (seed, number, rows[number])
        # What is rare is left to the plain reader.
        assert plain(array[number]) in (wanted, None), (seed, number, rows[number])


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**48), st.sampled_from([(0.0, 12), (0.3, 8)]))
def test_values_of_any_schema(seed: int, how: tuple[float, int]) -> None:
    """Those that are malformed too: bits are flipped, bytes are cut off, inserted and spliced; rows around them keep their values."""
    compare(seed, *how)
