"""The types of JSON Schemas: every keyword of the drafts 4 to 2020-12 has one, and what a schema permits is not lost."""

import json
import logging
import re
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.json_fit import lost
from kit.outcome import raises
from kolumn.core.errors import ArgumentError
from kolumn.values.decoder import is_deep, only_fields
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.json_schema import MOST_TYPES, type_of
from kolumn.values.schemas.schema import Reference, Schema

INT, DOUBLE, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
OLD, NEW = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"


def found(schema: Any, references: dict[str, Any] | None = None, **options: Any) -> pa.DataType:
    """The type of a schema, with others by the names of its references."""
    named = references or {}
    refs = tuple(Reference(name, f"subject of {name}", 3) for name in named)
    texts = {f"subject of {name}": text if isinstance(text, Schema) else Schema("JSON", json.dumps(text)) for name, text in named.items()}
    return type_of(Schema("JSON", json.dumps(schema), refs), look_up=lambda subject, version: texts.get(subject), **options)


def of(member: Any, **others: Any) -> pa.DataType:
    """The type of a member with a schema."""
    return found({"type": "object", "properties": {"m": member}, **others}).field("m").type


def struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


def objects(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


S, N, I, B, Z = ({"type": name} for name in ("string", "number", "integer", "boolean", "null"))  # noqa: E741
A_OR_B = struct(a=INT, b=TEXT)
CASES: list[tuple[str, Any, pa.DataType]] = [
    ("plain types", objects(s=S, n=N, i=I, b=B), struct(s=TEXT, n=DOUBLE, i=INT, b=BOOL)),
    ("null alone", Z, TEXT),
    ("null beside one", {"type": ["null", "integer"]}, INT),
    ("integer and number", {"type": ["integer", "number", "null"]}, DOUBLE),
    ("several types", {"type": ["integer", "string"]}, JSON_TEXT),
    ("no type", {}, JSON_TEXT),
    ("true", True, JSON_TEXT),
    ("false", False, JSON_TEXT),
    ("a description alone", {"title": "t", "description": "d", "default": 1}, JSON_TEXT),
    ("an unknown type", {"type": "int"}, JSON_TEXT),
    ("properties imply an object", {"properties": {"a": I}}, struct(a=INT)),
    ("items imply an array", {"items": S}, pa.list_(TEXT)),
    ("a length implies text", {"minLength": 2}, TEXT),
    ("a bound implies nothing", {"minimum": 2}, JSON_TEXT),
    ("a bound and a length imply nothing", {"minimum": 2, "maxLength": 2}, JSON_TEXT),
    ("a count implies nothing", {"minItems": 2}, JSON_TEXT),
    ("an object without members", {"type": "object"}, JSON_TEXT),
    ("an object with any members", {"type": "object", "additionalProperties": True}, JSON_TEXT),
    ("an object without properties", {"type": "object", "properties": {}}, JSON_TEXT),
    ("an empty object", {"type": "object", "additionalProperties": False}, JSON_TEXT),
    ("a map", {"type": "object", "additionalProperties": I}, pa.map_(TEXT, INT)),
    ("a map of objects", {"type": "object", "additionalProperties": objects(a=I)}, pa.map_(TEXT, struct(a=INT))),
    ("a map of several types", {"type": "object", "additionalProperties": {"anyOf": [I, S]}}, pa.map_(TEXT, JSON_TEXT)),
    ("a map by patterns", {**objects(), "patternProperties": {"^a": I, "^b": N}, "additionalProperties": False}, pa.map_(TEXT, DOUBLE)),
    ("a map by other patterns", {"type": "object", "patternProperties": {"^a": I}, "additionalProperties": S}, pa.map_(TEXT, JSON_TEXT)),
    ("fields, and others", {"type": "object", "properties": {"a": I}, "additionalProperties": S}, struct(a=INT)),
    ("elements", {"type": "array", "items": {"type": "array", "items": N}}, pa.list_(pa.list_(DOUBLE))),
    ("any elements", {"type": "array"}, pa.list_(JSON_TEXT)),
    ("any elements, said", {"type": "array", "items": True, "contains": I}, pa.list_(JSON_TEXT)),
    ("a tuple of one type", {"type": "array", "prefixItems": [I, N], "items": False}, pa.list_(DOUBLE)),
    ("a tuple of several", {"type": "array", "items": [I, S]}, pa.list_(JSON_TEXT)),
    ("a tuple with others", {"type": "array", "items": [I], "additionalItems": I}, pa.list_(INT)),
    ("a tuple with any others", {"type": "array", "prefixItems": [I], "items": True}, pa.list_(JSON_TEXT)),
    ("const", {"const": "x"}, TEXT),
    ("const null", {"const": None}, TEXT),
    ("const of an object", {"const": {"a": 1}}, JSON_TEXT),
    ("const of a number", {"const": 1.5}, DOUBLE),
    ("enum", {"enum": ["a", None, "b"]}, TEXT),
    ("enum of booleans", {"enum": [True, False]}, BOOL),
    ("enum of several types", {"enum": [1, "b"]}, JSON_TEXT),
    ("enum of a type", {"type": "string", "enum": [1, "b"]}, TEXT),
    ("allOf", {"allOf": [objects(a=I), objects(b=S)]}, A_OR_B),
    ("allOf beside properties", {**objects(a=I), "allOf": [{"required": ["a"]}, {"properties": {"b": S}}]}, A_OR_B),
    ("allOf of one field", {"allOf": [objects(a=N), objects(a=I)]}, struct(a=INT)),
    ("allOf that nothing fits", {"allOf": [S, I]}, JSON_TEXT),
    ("allOf of one", {"allOf": [{"$ref": "#/$defs/s"}], "default": "x"}, TEXT),
    ("oneOf of objects", {"oneOf": [objects(a=I), objects(b=S)]}, A_OR_B),
    ("anyOf with null", {"anyOf": [objects(a=I), Z]}, struct(a=INT)),
    ("anyOf of numbers", {"anyOf": [I, N, Z]}, DOUBLE),
    ("anyOf of several types", {"anyOf": [N, S]}, JSON_TEXT),
    ("anyOf of an object and text", {"anyOf": [objects(a=I), S]}, JSON_TEXT),
    ("oneOf that contradicts", {"oneOf": [objects(a=I, b=S), objects(a=S, b=S)]}, struct(a=JSON_TEXT, b=TEXT)),
    ("oneOf of lists", {"oneOf": [{"type": "array", "items": I}, {"type": "array", "items": N}]}, pa.list_(DOUBLE)),
    ("oneOf of a list and an element", {"oneOf": [{"type": "array", "items": I}, I]}, JSON_TEXT),
    ("oneOf of fields and a map", {"oneOf": [objects(a=I), {"type": "object", "additionalProperties": I}]}, JSON_TEXT),
    ("oneOf of fields and any object", {"oneOf": [objects(a=I), {"type": "object"}]}, JSON_TEXT),
    ("oneOf with any", {"oneOf": [objects(a=I), {}]}, JSON_TEXT),
    ("oneOf of required", {**objects(a=I, b=S), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, A_OR_B),
    ("if, then, else", {**objects(a=I), "if": objects(x=I), "then": {"properties": {"b": S}}, "else": {"properties": {"c": B}}},
     struct(a=INT, b=TEXT, c=BOOL)),
    ("if and then", {**objects(a=I), "if": {"required": ["a"]}, "then": {"properties": {"b": S}}}, A_OR_B),
    ("dependentSchemas", {**objects(a=I), "dependentSchemas": {"a": {"properties": {"b": S}}}}, A_OR_B),
    ("dependencies", {**objects(a=I), "dependencies": {"a": {"properties": {"b": S}}, "b": ["a"]}}, A_OR_B),
    ("not", {**objects(a=I), "not": objects(z=S)}, struct(a=INT)),
    ("formats", objects(at={**S, "format": "date-time"}, u={**S, "format": "uuid"}), struct(at=TEXT, u=TEXT)),
    ("wide integers", {"type": "integer", "maximum": 2**80}, INT),
    ("bytes of Connect", {"type": "string", "connect.type": "bytes"}, pa.binary()),
    ("bytes of Connect or null", {"oneOf": [Z, {"type": "string", "connect.type": "bytes"}]}, pa.binary()),
    ("bytes or text", {"oneOf": [S, {"type": "string", "connect.type": "bytes"}]}, TEXT),
    ("numbers of Connect", objects(a={**I, "connect.type": "int8"}, b={**N, "connect.type": "float32"}), struct(a=INT, b=DOUBLE)),
    ("a decimal of Connect", {**N, "connect.type": "bytes", "title": "org.apache.kafka.connect.data.Decimal"}, DOUBLE),
    ("a ref", {"$ref": "#/$defs/s"}, TEXT),
    ("a ref in percents", {"$ref": "#/$defs/a%25%7E1%22"}, INT),
    ("an anchor", {"$ref": "#here"}, BOOL),
    ("a dynamic anchor", {"$dynamicRef": "#there"}, DOUBLE),
    ("a ref to an id", {"$ref": "other.json#/$defs/x"}, INT),
    ("a ref and what is beside it", {"$ref": "#/$defs/o", "properties": {"b": S}}, A_OR_B),
]  # fmt: skip
DEFS = {
    "s": S, 'a%/"': I, "b": {"$anchor": "here", **B}, "n": {"$dynamicAnchor": "there", **N}, "o": objects(a=I),
    "d": {"$id": "other.json", "$defs": {"x": I}},
}  # fmt: skip


@pytest.mark.parametrize(("schema", "type"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_types(schema: Any, type: pa.DataType) -> None:
    assert of(schema, **{"$defs": DEFS}) == type
    whole = found({**schema, "$defs": DEFS} if isinstance(schema, dict) else schema)
    assert whole == (type if pa.types.is_nested(type) else JSON_TEXT)


def test_before_2019_nothing_counts_beside_a_ref() -> None:
    member = {"$ref": "#/definitions/o", "properties": {"b": S}}
    for draft, type in ((OLD, struct(a=INT)), (NEW, A_OR_B)):
        assert of(member, definitions={"o": objects(a=I)}, **{"$schema": draft}) == type


def test_a_ref_without_its_base_is_found_in_the_whole_text() -> None:
    """As many generators write it: an id of an inner schema, and pointers from the root."""
    inner = {"$id": "http://example.com/inner", "type": "object", "properties": {"m": {"$ref": "#/definitions/n"}}}
    assert of(inner, definitions={"n": N}) == struct(m=DOUBLE)
    assert of({"$id": "#/properties/m", "type": "integer"}) == INT
    jackson = {"type": "object", "id": "urn:jsonschema:A", "properties": {"v": I, "next": {"$ref": "urn:jsonschema:A"}}}
    assert found(jackson) == struct(v=INT, next=JSON_TEXT)


def test_registered_references() -> None:
    address = {"$id": "http://example.com/address.json", **objects(street=S, at={"$ref": "place.json#/definitions/at"})}
    place = {"definitions": {"at": objects(x=N)}}
    held = Schema("JSON", json.dumps(address), (Reference("place.json", "subject of place.json", 3),))
    for root in ({}, {"$id": "http://example.com/order.json"}, {"$id": "urn:x:order"}):
        for name in ("address.json", "http://example.com/address.json"):
            schema = {**root, **objects(a={"$ref": name}, b={"$ref": f"{name}#/properties/street"})}
            # The reference of a reference is looked up too.
            texts = {"a": held, "subject of place.json": Schema("JSON", json.dumps(place))}
            made = Schema("JSON", json.dumps(schema), (Reference(name, "a", 1),))
            type = type_of(made, look_up=lambda subject, version, texts=texts: texts.get(subject))
            assert type == struct(a=struct(street=TEXT, at=struct(x=DOUBLE)), b=TEXT)


def test_what_is_not_there_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    schema = objects(a=I, b={"$ref": "no\x1b.json"}, c={"$ref": "no\x1b.json"}, d={"$ref": "#/$defs/x"}, e={"$ref": "broken.json"})
    broken = {"broken.json": Schema("JSON", "{"), "not asked for.json": Schema("AVRO", "{}")}
    with caplog.at_level(logging.WARNING, "kolumn.values"):
        assert found(schema, broken, where="key_schema") == struct(a=INT, b=JSON_TEXT, c=JSON_TEXT, d=JSON_TEXT, e=JSON_TEXT)
    words = [r"'broken.json' is not a JSON Schema", r"\$ref 'no\\x1b.json' leads nowhere", r"\$ref '#/\$defs/x'", r"\$ref 'broken.json'"]
    assert len(caplog.messages) == len(words)
    assert all(re.search(f"^key_schema: .*{word}", message) for word, message in zip(words, caplog.messages, strict=True))


def test_what_is_no_schema() -> None:
    raises(ArgumentError, "value_schema: not a JSON Schema: ", type_of, Schema("JSON", "{"))
    raises(ArgumentError, "key_schema: types are nested too deeply", type_of, Schema("JSON", "[" * 100_000 + "]" * 100_000), "key_schema")
    for text in ('"x"', "[]", "17", "null", '{"type": 5, "properties": [], "$ref": 5, "allOf": {}, "items": 5, "enum": 5, "$id": 5}'):
        assert type_of(Schema("JSON", text)) == JSON_TEXT


LIST = objects(v=I, next={"anyOf": [{"$ref": "#"}, Z]})
TREE = objects(v=I, kids={"type": "array", "items": {"$ref": "#"}}, by={"type": "object", "additionalProperties": {"$ref": "#"}})


def test_schemas_that_contain_themselves() -> None:
    nested: pa.DataType = JSON_TEXT
    for depth in range(1, 4):
        nested = struct(v=INT, next=nested)
        assert found(LIST, max_depth=depth) == nested
    assert found(LIST, max_depth=0) == found(LIST, max_depth=1)
    assert found(TREE, max_depth=0) == struct(v=INT, kids=pa.list_(JSON_TEXT), by=pa.map_(TEXT, JSON_TEXT))
    # That a schema holds where it holds says nothing.
    assert found({**objects(a=I), "allOf": [{"$ref": "#"}], "$dynamicRef": "#"}) == struct(a=INT)
    assert of({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}}) == JSON_TEXT


def doubling(levels: int, how: Any) -> dict[str, Any]:
    """A schema of which each part uses the next one twice."""
    parts = {f"p{k}": how({"$ref": f"#/$defs/p{k + 1}"}) for k in range(levels)}
    return {**objects(a=I, m={"$ref": "#/$defs/p0"}), "$defs": {**parts, f"p{levels}": S}}


MANY = {f"t{k}": objects(**{f"f{j}": {"$ref": f"#/$defs/t{j}"} for j in range(30)}) for k in range(30)}  # All use each other.


@pytest.mark.parametrize("schema", [doubling(60, lambda part: objects(x=part, y=part)), {**objects(a=I, m=MANY["t0"]), "$defs": MANY}])
def test_types_that_explode_end_as_json(schema: Any, caplog: pytest.LogCaptureFixture) -> None:
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, "kolumn.values"):
        type = found(schema)
    assert time.monotonic() - begun < 60
    assert (type.field("a").type, len(caplog.messages)) == (INT, 1)
    assert "the types are very many" in caplog.text
    assert str(type).count("arrow.json") <= MOST_TYPES


def test_parts_that_are_used_twice_are_read_once() -> None:
    lists: pa.DataType = TEXT
    for _ in range(60):
        lists = pa.list_(lists)
    for how, type in (
        (lambda part: {"allOf": [part, part]}, TEXT), (lambda part: {"type": "array", "items": [part, part]}, lists),
        (lambda part: {"anyOf": [part, objects(z=part)]}, JSON_TEXT), (lambda part: {"if": True, "then": part, "else": part}, TEXT),
    ):  # fmt: skip
        begun = time.monotonic()
        assert found(doubling(60, how)) == struct(a=INT, m=type)
        assert time.monotonic() - begun < 20


def test_types_nested_too_deeply_end_as_json() -> None:
    for levels in (99, 100, 150, 300):
        schema: Any = I
        for level in range(levels):
            schema = objects(a=schema) if level % 3 or levels < 101 else {"allOf": [{"type": "object", "additionalProperties": schema}]}
        type = found(objects(n=I, a=schema) if levels > 99 else schema)
        assert not is_deep(type, lambda type: [type.field(number).type for number in range(type.num_fields)])
        assert ("arrow.json" in str(type)) == (levels > 99)


def test_fields_are_chosen_beside_what_has_no_type() -> None:
    type = found(objects(id=I, any={}, tags={"type": "object", "additionalProperties": S}, list=objects(a=I, b={"$ref": "#/no"})))
    assert only_fields(type, ("id", "list.a"), "value_columns") == struct(id=INT, list=struct(a=INT))
    inner = {"type": "array", "items": {"type": "array", "items": {"type": "object", "additionalProperties": objects(a=I, b=S)}}}
    assert only_fields(found(objects(m=inner)), ("m.b",), "") == struct(m=pa.list_(pa.list_(pa.map_(TEXT, struct(b=TEXT)))))
    raises(
        ArgumentError,
        "value_columns: map<string, string.*> has no fields|string has no fields",
        only_fields,
        type,
        ("tags.k",),
        "value_columns",
    )
    assert only_fields(type, ("any", "tags"), "value_columns") == struct(any=JSON_TEXT, tags=pa.map_(TEXT, TEXT))
    # A member may be called as the path of another one.
    pointed = pa.struct([("a.b", INT), ("a", struct(b=TEXT, c=TEXT))])
    assert only_fields(pointed, ("a.b",), "") == pa.struct([("a.b", INT)])
    assert only_fields(pointed, ("a.c",), "") == struct(a=struct(c=TEXT))


@cache
def suite() -> dict[str, Any]:
    """The files of the JSON Schema Test Suite, by their names."""
    packed = Path(__file__).parents[1] / "data" / "json_schema_suite.tar.xz"
    with tarfile.open(packed) as files:
        named = [one for one in files.getmembers() if one.name.endswith(".json")]
        return {one.name.removeprefix("./"): json.load(files.extractfile(one)) for one in named}  # type: ignore[arg-type]


def suite_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, groups in suite().items():
        if name.startswith("tests/"):
            yield from ((name, group) for group in groups)


# Without $schema what is beside a $ref counts, as in the newest draft.
_AS_NEWEST = {"$ref prevents a sibling id from changing the base uri", "$ref prevents a sibling $id from changing the base uri"}


def narrower(group: dict[str, Any], part: Any, path: str) -> str:
    """Why a type may lose a part of a value that its schema permits, or "" if it may not."""
    schema, text = group["schema"], json.dumps(group["schema"])
    if isinstance(part, int | float) and not isinstance(part, bool) and part == int(part) and '"type": "string"' not in text:
        return "a number without fraction that is written as one with, or has more digits than the column"
    if re.fullmatch(r"\$\.v\[\d+]", path) and ('"items": [' in text or '"prefixItems": [' in text):
        return "an element after those of a tuple"
    if path in ("$.v", "$.v.foo") and isinstance(schema, dict) and "type" not in schema:
        return "a value of another kind than the keywords of a schema without a type are about"
    return "siblings of $ref" if group["description"] in _AS_NEWEST else ""


def _part(value: Any, path: str) -> Any:
    for name, number in re.findall(r"\.([^.\[]+)|\[(\d+)]", path):
        value = value[name or int(number)]
    return value


def test_the_test_suite_of_json_schema() -> None:
    """Every schema has a type, which holds every value that the suite calls valid. Schemas are members, by a registered reference."""
    remotes = {name.removeprefix("remotes/"): file for name, file in suite().items() if name.startswith("remotes/")}
    texts = {name: Schema("JSON", json.dumps(file)) for name, file in remotes.items()}
    refs = (Reference("it.json", "it", 1), *(Reference(f"http://localhost:1234/{name}", name, 1) for name in remotes))
    counts, wrong = Counter[str](), list[object]()
    whole = json.dumps(objects(v={"$ref": "it.json"}))
    for name, group in suite_cases():
        it = Schema("JSON", json.dumps(group["schema"]))
        given = Schema("JSON", whole, refs if "localhost" in it.text else refs[:1])
        type = type_of(given, look_up=lambda subject, version, it=it: it if subject == "it" else texts[subject])
        counts["typed" if "arrow.json" not in str(type) else "json"] += 1
        for case in group["tests"]:
            value = {"v": case["data"]}
            parts = lost(value, type) if case["valid"] else []
            whys = [narrower(group, _part(value, path), path) for path in parts]
            counts.update(dict.fromkeys(whys, 1) if whys else {"right": 1} if case["valid"] else {})
            wrong += [(name, group["description"], case, str(type), parts)] if "" in whys else []
    assert not wrong, wrong[:5]
    assert counts["right"] > 2950
    assert counts.total() - counts["right"] - counts["typed"] - counts["json"] < 250


_SCALARS = st.sampled_from([S, N, I, B, Z, {"enum": ["a", "b"]}, {"const": 5}, {"type": ["string", "null"]}])


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
    lists = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        fields.map(lambda named: objects(**named)), inner.map(lambda one: {"type": "array", "items": one}),
        inner.map(lambda one: {"type": "object", "additionalProperties": one}), st.builds(lambda how, some: {how: some},
        st.sampled_from(["allOf", "anyOf", "oneOf"]), lists), st.builds(lambda one, some: {**objects(**some), **one}, inner, fields),
    )  # fmt: skip


@given(st.recursive(_SCALARS, _wider, max_leaves=12))
def test_any_schema_has_a_type_of_few_kinds(schema: Any) -> None:
    type = of(schema)
    assert type == of(schema)
    assert of({"allOf": [schema]}) == of({"$ref": "#/$defs/x"}, **{"$defs": {"x": schema}}) == type
    # JSON text is also the type of what nothing fits, and that or null is always null.
    assert of({"anyOf": [schema, Z]}) in ((TEXT, type) if type == JSON_TEXT else (type,))
    assert of({"allOf": [schema, schema]}) == of({"oneOf": [schema, schema]}) == type
