"""Collections of schemas: ids, GUIDs, fingerprints, subjects and contexts; from dicts, functions and files."""

import hashlib
import json
import pickle
import random
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
from hypothesis import given, settings
from hypothesis import strategies as st

import kolumn
from kit.avro_values import plain, schemas
from kit.fuzz import examples
from kit.outcome import raises
from kolumn.readers.schemas import schemas_of
from kolumn.values.schemas.collections import AskedSchemas, ListedSchemas, given_schemas, kind_of
from kolumn.values.schemas.schema import Reference, Registered, Schema, canonical_form, fingerprint_of, guid_of, rabin
from kolumn.values.schemas.subjects import context_of, qualified, record_name

RECORD = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}'


def test_the_guid_is_the_md5_of_text_and_references() -> None:
    assert guid_of(RECORD) == UUID(bytes=hashlib.md5(RECORD.encode()).digest())
    told = RECORD.encode() + b"a.A" + b"a-value" + b"\0\0\0\2" + b"\xc3\xa9" + b"b" + b"\xff\xff\xff\xff"
    references = (Reference("a.A", "a-value", 2), Reference("é", "b", -1))
    assert guid_of(RECORD, references) == UUID(bytes=hashlib.md5(told).digest())
    metadata = {"sensitive": ["z", "a"], "properties": {"owner": "me", "area": "x"}, "tags": {"f": ["PII", "A"]}}
    told = RECORD.encode() + b"\1" + b"f" + b"A" + b"PII" + b"area" + b"x" + b"owner" + b"me" + b"a" + b"z"
    assert guid_of(RECORD, (), metadata) == UUID(bytes=hashlib.md5(told).digest())


# The first three are from the Avro specification's test file share/test/data/schema-tests.txt.
KNOWN = {
    '"null"': 7195948357588979594,
    '{"type":"boolean"}': -6970731678124411036,
    '{"type":"fixed","name":"foo","size":15}': 1756455273707447556,
    '{"type":"int"}': 8247732601305521295,
}


def test_fingerprints_of_the_specification() -> None:
    assert {text: fingerprint_of(Schema("AVRO", text)) for text in KNOWN} == {text: known % 2**64 for text, known in KNOWN.items()}


AVRO = [
    RECORD,
    '["null", "string", {"type": "array", "items": {"type": "map", "values": "bytes"}}]',
    '{"type":"record","namespace":"a.b","name":"R","doc":"d","aliases":["Q"],"fields":[{"name":"x","type":["null","R"],"default":null},'
    '{"name":"e","type":{"type":"enum","name":"c.E","symbols":["A","B"],"default":"A"}},{"name":"f","type":"c.E","order":"ignore"},'
    '{"name":"i","type":{"type":"record","name":"In","fields":[{"name":"k","type":{"type":"fixed","size":4,"name":"F"}},'
    '{"name":"l","type":"F"}]}}]}',
    '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}',
    '{"type":"record","name":"x.y.Z","namespace":"ignored","fields":[{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}}]}',
    '{"type":"record","name":"T","namespace":"","fields":[]}',
]


@pytest.mark.parametrize("text", AVRO)
def test_canonical_forms_are_those_of_fastavro(text: str) -> None:
    parsed = json.loads(text)
    assert canonical_form(text) == to_parsing_canonical_form(parsed)
    crc = fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO")
    assert rabin(canonical_form(text).encode()).to_bytes(8, "little").hex() == crc


def decorated(schema: Any, rng: random.Random) -> Any:
    """The same type, with namespaces, and with attributes that don't count."""
    if isinstance(schema, list):
        return [decorated(one, rng) for one in schema]
    if isinstance(schema, str):
        return rng.choice([schema, {"type": schema, "x": 1}])
    inner = {key: decorated(schema[key], rng) for key in ("items", "values") if key in schema}
    if "fields" in schema:
        inner["fields"] = [{**one, "type": decorated(one["type"], rng), "doc": "d"} for one in schema["fields"]]
    names = [{}, {"namespace": "p"}, {"namespace": "p.q"}, {"name": f"r.s.{schema.get('name')}"}]
    return {**schema, **inner, **(rng.choice(names) if "name" in schema else {}), "doc": "text", "aliases": ["Z"]}


@settings(max_examples=examples(150), deadline=None)
@given(schemas(), st.randoms(use_true_random=False))
def test_canonical_forms_of_any_schemas_are_those_of_fastavro(made: Any, rng: random.Random) -> None:
    schema = decorated(plain(made), rng)
    assert canonical_form(json.dumps(schema)) == to_parsing_canonical_form(parse_schema(schema, _write_hint=False))


def test_an_empty_namespace_is_none() -> None:
    """As in the specification and in Java; fastavro takes the namespace around it."""
    inner = '{"type":"fixed","name":"F","namespace":"","size":1}'
    assert '"name":"F"' in canonical_form(f'{{"type":"record","name":"a.R","fields":[{{"name":"f","type":{inner}}}]}}')


def test_types_of_references_are_in_the_canonical_form() -> None:
    inner = '{"type":"record","name":"a.In","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["X"]}}]}'
    middle = '{"type":"record","name":"a.Mid","fields":[{"name":"i","type":"In"}]}'
    outer = '{"type":"record","name":"b.Out","fields":[{"name":"e","type":"a.E"},{"name":"m","type":"a.Mid"},{"name":"i","type":"a.In"}]}'
    together = (
        '{"type":"record","name":"b.Out","fields":[{"name":"e","type":{"type":"enum","name":"a.E","symbols":["X"]}},'
        '{"name":"m","type":{"type":"record","name":"a.Mid","fields":[{"name":"i","type":{"type":"record","name":"a.In",'
        '"fields":[{"name":"e","type":"a.E"}]}}]}},{"name":"i","type":"a.In"}]}'
    )
    whole = Schema("AVRO", outer, (Reference("a.Mid", "mid", 1),))
    parts = [Registered("in", 1, Schema("AVRO", inner)), Registered("mid", 1, Schema("AVRO", middle, (Reference("a.In", "in", 1),)))]
    schemas = ListedSchemas([*parts, Registered("out", 1, whole)])
    assert fingerprint_of(whole, schemas) == fingerprint_of(Schema("AVRO", together))
    assert schemas.by_fingerprint(fingerprint_of(Schema("AVRO", together))) == whole
    assert schemas.by_fingerprint(0) is None
    raises(kolumn.ArgumentError, "'mid'", fingerprint_of, whole)


@pytest.mark.parametrize("text", ["{", "3", "null", '{"type":"record","name":"x"}', '{"name":"x"}', '{"type":"array"}', "[" * 100_000])
def test_what_is_no_avro_schema(text: str) -> None:
    raises(kolumn.ArgumentError, "not an Avro schema", canonical_form, text)
    assert ListedSchemas([Registered("x", 1, Schema("AVRO", text))]).by_fingerprint(1) is None


def schema(id: int | None, text: str = RECORD) -> Schema:
    return Schema("AVRO", text, id=id)


def test_ids_count_within_a_context() -> None:
    texts = [
        (":.a:x", 1, "int"), ("x", 1, "long"), (":.a:y", 2, "string"), (":.b:y", 2, "bytes"), (":.a:z", 3, "float"), (":.b:z", 3, "float"),
    ]  # fmt: skip
    registered = [Registered(subject, 1, schema(id, f'"{text}"')) for subject, id, text in texts]
    found = ListedSchemas([*registered, Registered(":.a:alone", 4, schema(5, '"double"'))])
    assert [None if (one := found.by_id(id)) is None else one.text for id in range(5)] == [None, '"long"', None, '"float"', None]
    assert [None if one is None else one.id for one in (found.newest("alone"), found.newest("y"), found.newest(":.b:y"))] == [5, None, 2]
    assert found.version("alone", 4) is found.version(":.a:alone", 4) is found.version("alone", -1) is not None
    assert found.by_guid(guid_of('"double"')) == schema(5, '"double"')


def test_names_of_records() -> None:
    titled, named = '{"title":"T","type":"object"}', '{"type":"record","name":"R","namespace":"a.b","fields":[]}'
    for kind, text, name in (
        ("AVRO", named, "a.b.R"), ("AVRO", '{"type":"record","name":"c.R","namespace":"a.b","fields":[]}', "c.R"), ("AVRO", RECORD, "O"),
        ("AVRO", '{"type":"enum","name":"E","symbols":[]}', None), ("AVRO", '"int"', None), ("AVRO", f"[{named}]", None),
        ("AVRO", '{"type":"record","name":3}', None), ("AVRO", '{"type":"record"}', None), ("AVRO", "[" * 100_000, None),
        ("JSON", "true", None),
        ("AVRO", "{", None), ("JSON", titled, "T"), ("JSON", '{"title":""}', None), ("JSON", '{"title":["T"]}', None),
    ):  # fmt: skip
        assert record_name(Schema(kind, text)) == name  # type: ignore[arg-type]
    assert (context_of(":.a:b:c"), context_of(":.:b"), context_of("b"), context_of(None)) == (("a", "b:c"), ("", "b"), ("", "b"), ("", ""))
    assert (qualified("a", "b"), qualified("", "b")) == (":.a:b", "b")


def test_the_newest_version_is_not_deleted() -> None:
    found = ListedSchemas([Registered("x", number, schema(number), is_deleted=number == 10) for number in (9, 10, 2)])
    assert (found.newest("x").id, found.version("x", 10)) == (9, schema(10))
    assert found.newest("y") is found.version("x", 3) is found.only() is None
    assert [one.version for one in found.registered()] == [2, 9, 10]


def test_schemas_of_a_dict() -> None:
    guid = uuid4()
    one = Schema("PROTOBUF", "message M {}", (Reference("a", "b", 1),))
    found = given_schemas({7: RECORD, "8": json.loads(RECORD), guid: '"int"', guid.hex[::-1]: b'"long"', 9: one})
    assert (found.by_id(7), kind_of(found.by_id(8).text), json.loads(found.by_id(8).text)) == (schema(7), "AVRO", json.loads(RECORD))
    assert (found.by_guid(guid), found.by_guid(UUID(guid.hex[::-1])).text) == (Schema("AVRO", '"int"', guid=guid), '"long"')
    assert (found.by_id(9), found.only().id) == (Schema("PROTOBUF", one.text, one.references, 9), 9)
    subjects = schemas_of({"orders-value": RECORD, 4: RECORD})
    assert subjects.newest("orders-value") == schema(None)
    assert subjects.only() is None
    assert schemas_of({1: '"int"'}, kind="JSON").by_id(1).kind == "JSON"
    for wrong in ({1.5: RECORD}, {None: RECORD}, {True: RECORD}, {1: 2}, {1: b"\xff"}, {1: {"a": {1, 2}}}):
        raises(kolumn.ArgumentError, "", schemas_of, wrong)


def test_types_of_texts() -> None:
    texts = {
        "AVRO": [RECORD, '"int"', '["null","int"]', '{"type":"array","items":"int"}', '{"type":"string"}'],
        "JSON": ['{"$schema":"x"}', '{"type":"object"}', "true", '{"properties":{}}', '{"oneOf":[]}'],
        "PROTOBUF": ['syntax = "proto3"; message M {}', ""],
    }
    assert all(kind_of(text) == kind for kind, own in texts.items() for text in own)


def test_a_function_is_asked_once() -> None:
    asked = []

    def ask(key: int | UUID) -> str | None:
        asked.append(key)
        if key == 3:
            raise KeyError(key)
        return RECORD if key == 7 else None

    found = schemas_of(ask)
    assert isinstance(found, AskedSchemas)
    guid = uuid4()
    for _ in range(2):
        assert [found.by_id(7), found.by_id(8), found.by_id(3), found.by_guid(guid)] == [schema(7), None, None, None]
    assert asked == [7, 8, 3, guid]
    assert found.by_fingerprint(1) is found.version("a", 1) is found.newest("a") is found.only() is None
    assert [one.schema for one in found.registered()] == [schema(7)]
    assert schemas_of(found) is found


def test_schemas_of_a_folder(tmp_path: Path) -> None:
    guid = uuid4()
    (tmp_path / "7.avsc").write_text(RECORD)
    (tmp_path / f"{guid}.avsc").write_text('"int"')
    (tmp_path / "orders-value.avsc").write_text('"long"')
    (tmp_path / "m.proto").write_text('syntax = "proto3";\nimport public "inner.proto";\nimport "google/protobuf/any.proto";\nmessage M {}')
    (tmp_path / "inner.proto").write_text('syntax = "proto3"; message I {}')
    (tmp_path / "9.json").write_text('{"title": "x"}')
    (tmp_path / "README.md").write_text("no schema")
    found = schemas_of(tmp_path)
    assert (found.by_id(7), found.by_id(9).kind, found.by_guid(guid).text) == (schema(7), "JSON", '"int"')
    assert found.newest("orders-value").text == '"long"'
    (reference,) = found.newest("m").references
    assert reference == Reference("inner.proto", "inner", 1)
    assert found.version(reference.subject, reference.version).text.endswith("message I {}")
    assert (len(list(found.registered())), schemas_of(str(tmp_path / "orders-value.avsc")).newest("orders-value").text) == (6, '"long"')
    assert (schemas_of(tmp_path / "7.avsc").only(), pickle.loads(pickle.dumps(found)).by_id(7)) == (schema(7), schema(7))


def test_json_files_that_are_no_schemas(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, text in (("b", '{"a": 1}'), ("c", '{"type": "module"}'), ("d", "[1]"), ("e", "{")):
        (tmp_path / f"{name}.json").write_text(text)
    raises(
        kolumn.ArgumentError,
        "no schemas: no JSON Schema, without any of its keywords: b.json, c.json, d.json, e.json",
        schemas_of,
        tmp_path,
    )
    raises(kolumn.ArgumentError, "no schemas: .*: b.json", schemas_of, tmp_path / "b.json")
    for name, text in (("f", "{}"), ("g", "true"), ("h", '{"type": ["string", "null"]}'), ("i", '{"items": {}}')):
        (tmp_path / f"{name}.json").write_text(text)
    assert [one.subject for one in schemas_of(tmp_path).registered()] == ["f", "g", "h", "i"]
    assert "left out, no JSON Schema, without any of its keywords: b.json, c.json, d.json, e.json" in caplog.text


def test_where_nothing_is(tmp_path: Path) -> None:
    for sources, said in (
        ((tmp_path / "no",), f"{tmp_path}/no: no such file"), ((tmp_path,), f"there is no {tmp_path}/_schemas-0.*avsc"),
        ((None, tmp_path), f"there is no {tmp_path}/_schemas-0, no {tmp_path.parent}/_schemas-0"),
        ((None, tmp_path / "no-*"), "nothing is at"), ((None,), "no source"), ((3,), "expected a path"),
    ):  # fmt: skip
        raises(kolumn.ArgumentError, said, schemas_of, *sources)
