"""Avro: any schema and its values, written by fastavro, become the columns that a second reader of the format sees."""

import io
import random
from typing import Any

import fastavro
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kit.avro_reader import as_column, of_column, read
from kit.avro_values import is_ambiguous, plain, readers, registered, schemas, theirs
from kit.avro_writer import Writer, random_value
from kit.fuzz import examples
from kit.guarded import bodies
from kolumn.values.avro import AvroDecoder

SLOW = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def values(draw: st.DrawFn, schema: Any, least: int, most: int) -> list[bytes]:
    """No key of a map comes twice: fastavro would return one of them."""
    rng = random.Random(draw(st.integers(0, 1 << 48)))
    return [Writer(rng, again=0).write(schema, random_value(rng, schema)) for _ in range(draw(st.integers(least, most)))]


@given(st.data())
@SLOW
def test_values_become_columns(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    lines = data.draw(values(schema, 0, 5))
    decoder = AvroDecoder(registered(schema))
    column, valid = decoder.decode(bodies([*lines, None]))
    column.validate(full=True)
    assert column.type == decoder.type
    assert valid.tolist() == [True] * len(lines) + [False]
    expected = [as_column(schema, read(schema, one)) for one in lines]
    assert of_column(column) == [*expected, None]
    for line in lines:
        assert as_column(schema, fastavro.schemaless_reader(io.BytesIO(line), plain(schema), None)) == as_column(schema, read(schema, line))


@given(st.data())
@SLOW
def test_values_are_read_by_other_schemas(data: st.DataObject) -> None:
    """Several writers' schemas fill one column in one call; rows keep their order."""
    writer = data.draw(schemas())
    assume(not is_ambiguous(writer))
    reader = data.draw(readers(writer))
    decoder = AvroDecoder(registered(reader))
    by_writer, by_reader = data.draw(values(writer, 1, 3)), data.draw(values(reader, 0, 3))
    rows = [*((line, 1) for line in by_writer), *((line, 0) for line in by_reader), *((line, -1) for line in by_reader)]
    rows = data.draw(st.permutations(rows))
    column, valid = decoder.decode(bodies([row[0] for row in rows], [row[1] for row in rows], (registered(reader), registered(writer))))
    column.validate(full=True)
    expected = [outcome(line, writer if number == 1 else reader, reader) for line, number in rows]
    assert list(zip(of_column(column), valid.tolist(), strict=True)) == expected


def outcome(line: bytes, writer: Any, reader: Any) -> tuple[Any, bool]:
    """The row and whether it is valid: bytes that are no text do not become a string."""
    try:
        return as_column(reader, theirs(line, writer, reader)), True
    except UnicodeDecodeError:
        return None, False
