"""Is what is read of written values what was written, by Kolumn and by each format's own library, for any schema?"""

import io
import json
import random
import re
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kit.avro_reader import as_column, of_column
from kit.avro_values import plain, registered, schemas
from kit.avro_writer import Writer, random_value
from kit.fuzz import examples
from kit.guarded import bodies
from kit.json_values import random_type, values_of
from kit.protobuf_values import body, expected, in_edition, message_class, schema
from kit.protobuf_values import plain as as_row
from kolumn.core.errors import ArgumentError
from kolumn.values.avro import AvroDecoder
from kolumn.values.json import JsonDecoder
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.writers.payloads import encoders_of

SLOW = settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def written(column: pa.Array, **options: Any) -> list[bytes | None]:
    (encoder,) = encoders_of({f"value_{name}": value for name, value in options.items()})
    # A slice, so that what is before and after it is not taken for a part of it.
    around = pa.concat_arrays([pa.nulls(1, column.type), column, pa.nulls(1, column.type)]).slice(1, len(column))
    done: list[bytes | None] = encoder.encode(pa.table({"value": around}), 0)["value"].to_pylist()
    return done


@given(st.data())
@SLOW
def test_avro(data: st.DataObject) -> None:
    kind, rng = data.draw(schemas()), random.Random(data.draw(st.integers(0, 1 << 48)))
    lines = [Writer(rng, again=0).write(kind, random_value(rng, kind)) for _ in range(4)]
    decoder = AvroDecoder(registered(kind))
    column, _ = decoder.decode(bodies([*lines, None]))
    # The outermost type may be null.
    again = written(column, format="avro", schema=json.dumps(kind))
    there = column.is_valid().to_pylist()
    assert [one is not None for one in again] == there
    found, valid = decoder.decode(bodies(again))
    assert valid.tolist() == there
    assert of_column(found) == of_column(column)
    for line, one in zip(lines, again, strict=False):
        if one is not None:
            theirs = (fastavro.schemaless_reader(io.BytesIO(data), plain(kind), None) for data in (line, one))
            before, after = (as_column(kind, value) for value in theirs)
            assert before == after


@given(st.integers(0, 2**48))
@SLOW
def test_protobuf(seed: int) -> None:
    rng = random.Random(seed)
    made = schema(rng)
    kind = message_class(in_edition(made))
    lines = [body(rng, kind.DESCRIPTOR) for _ in range(6)]
    decoder = ProtobufDecoder(made, "M0")
    column, _ = decoder.decode(bodies(lines))
    for number in range(len(lines)):
        try:
            (again,) = written(column.slice(number, 1), format="protobuf", schema=made, message="M0")
        except ArgumentError as error:
            # Entries of maps may lack required fields.
            if re.search(r"expected a value.*, found null|all required fields", str(error)) is None:
                raise
            continue
        if again is not None:
            found, _ = decoder.decode(bodies([again]))
            assert as_row(found[0]) == as_row(column[number]), (seed, number)
            assert expected(kind, again) == as_row(column[number]), (seed, number)


@given(st.integers(0, 2**48))
@SLOW
def test_json(seed: int) -> None:
    rng = random.Random(seed)
    kind = random_type(rng)
    decoder = JsonDecoder(kind)
    column, _ = decoder.decode(bodies(list(values_of(rng, kind, 6, 0))))
    try:
        again = written(column, format="json", schema=pa.schema(list(kind)))
    except ArgumentError as error:
        # Texts of numbers that are too large are read as infinite.
        if "a number, which JSON has no other for" not in str(error):
            raise
        assume(False)
    found, valid = decoder.decode(bodies(again))
    assert valid.tolist() == column.is_valid().to_pylist()
    assert found.equals(column)
    for line in again:
        assert line is None or isinstance(json.loads(line), dict)
