"""Avro: any schema and its values, written by fastavro, become the columns that a second reader of the format sees."""

import io

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.avro_reader import as_column, of_column, read
from kit.avro_values import bodies, plain, registered, schemas, values, written
from kolumn.values.avro.decoder import AvroDecoder

SLOW = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@given(st.data())
@SLOW
def test_values_become_columns(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    given = data.draw(st.lists(values(schema), max_size=5))
    lines = [written(schema, one) for one in given]
    decoder = AvroDecoder(registered(schema))
    column, valid = decoder.decode(bodies([*lines, None]))
    column.validate(full=True)
    assert column.type == decoder.type
    assert valid.tolist() == [True] * len(lines) + [False]
    expected = [as_column(schema, read(schema, one)) for one in lines]
    assert of_column(column) == [*expected, None]
    for line in lines:
        theirs = fastavro.schemaless_reader(io.BytesIO(line), plain(schema), None)
        assert as_column(schema, theirs) == as_column(schema, read(schema, line))
