"""Avro: any schema and its values, written by fastavro, become the columns that a second reader of the format sees."""

import base64
import io
import json
import random
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kit.avro_reader import as_column, of_column, read
from kit.avro_values import is_ambiguous, plain, readers, registered, schemas, theirs
from kit.avro_writer import Writer, random_value
from kit.fuzz import examples
from kit.guarded import bodies
from kolumn.values import avro as module
from kolumn.values.avro import AvroDecoder
from kolumn.values.avro_types import AvroShape
from kolumn.values.decoder import Bodies

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
    same_by_the_plain_reader(decoder, bodies(lines), expected)
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
    fine = [row for row, (_, is_valid) in zip(rows, expected, strict=True) if is_valid]
    given = bodies([row[0] for row in fine], [row[1] for row in fine], (registered(reader), registered(writer)))
    same_by_the_plain_reader(decoder, given, [row for row, is_valid in expected if is_valid])


def same_by_the_plain_reader(decoder: AvroDecoder, given: Bodies, expected: list[Any]) -> None:
    """It loses nothing of what the loop reads."""
    column, lost = decoder.salvage(given)
    column.validate(full=True)
    assert (column.type, of_column(column), lost) == (decoder.type, expected, [()] * len(expected))


@given(st.data())
@SLOW
def test_both_readers_lose_the_same(data: st.DataObject) -> None:
    """Of schemas in which fields are missing, or of types that do not fit; a unit of time for all."""
    writer = data.draw(schemas())
    reader = spoilt(random.Random(data.draw(st.integers(0, 1 << 48))), data.draw(readers(writer)))
    lines = data.draw(values(writer, 1, 4))
    given = bodies([*lines, *(line[:-1] for line in lines)], [0] * (2 * len(lines)), (registered(writer),))
    shape = AvroShape(time_unit=data.draw(st.sampled_from([None, "s", "ms", "us", "ns"])))
    decoder, by_plain = (AvroDecoder(registered(reader), shape=shape) for _ in range(2))
    (column, lost), (valid_column, valid) = decoder.salvage(given), decoder.decode(given)
    column.validate(full=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "program", lambda plan, root: None)
        expected, paths = by_plain.salvage(given)
    assert ([sorted(one) for one in lost], of_column(column)) == ([sorted(one) for one in paths], of_column(expected))
    for row, is_valid in enumerate(valid.tolist()):
        assert not is_valid or (lost[row], of_column(column)[row]) == ((), of_column(valid_column)[row])


@given(st.data())
@SLOW
def test_what_is_nested_deeper_is_json(data: st.DataObject) -> None:
    inner = plain(data.draw(schemas()))
    schema = {"type": "record", "name": "Itself", "fields": [{"name": "me", "type": ["null", "Itself"]}, {"name": "v", "type": inner}]}
    ((line,), (other,)) = data.draw(values(inner, 1, 1)), data.draw(values(inner, 1, 1))
    decoder = AvroDecoder(registered(schema), ("me",))
    column, lost = decoder.salvage(bodies([b"\2\0" + line + other]))
    (row,) = of_column(column)
    theirs = fastavro.schemaless_reader(io.BytesIO(line), fastavro.parse_schema(inner), None)
    assert (json.loads(row["me"]), lost) == ({"me": None, "v": as_json(theirs)}, [()])


def as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(map(as_json, value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    # A float has as few digits as tell it from others.
    return pytest.approx(value, rel=1e-6, abs=1e-45) if isinstance(value, float) else value


def spoilt(rng: random.Random, schema: Any) -> Any:
    """A reader's schema with fields that the writer's does not have, or has of another type."""
    if isinstance(schema, list):
        return [spoilt(rng, one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: spoilt(rng, one) if key in ("items", "values") else one for key, one in schema.items()}
    if "fields" not in made:
        return made
    fields = []
    for field in made["fields"]:
        other = {"type": "array", "items": {"type": "array", "items": "null"}}
        # The default that it may have is of the other type.
        fields.append({**field, "type": spoilt(rng, field["type"]) if rng.random() < 0.7 or "default" in field else other})
    missing = {"name": "missing", "type": rng.choice(["int", ["null", "string"]])}
    return {**made, "fields": [*fields, missing] if rng.random() < 0.3 else fields}


def outcome(line: bytes, writer: Any, reader: Any) -> tuple[Any, bool]:
    """The row and whether it is valid: bytes that are no text do not become a string."""
    try:
        return as_column(reader, theirs(line, writer, reader)), True
    except UnicodeDecodeError:
        return None, False
