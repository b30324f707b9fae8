"""Avro schemas by Hypothesis, with readers' schemas for them, and what fastavro writes and reads."""

import io
import json
from typing import Any

import fastavro
import numpy as np
from hypothesis import strategies as st

from kit.avro_reader import Schema, kind_of
from kolumn.values.decoder import Bodies
from kolumn.values.schemas.schema import Schema as Registered

_LOGICAL: list[dict[str, Any]] = [
    *({"type": kind, "logicalType": name} for kind, name in (
        ("int", "date"), ("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-millis"), ("long", "timestamp-micros"),
        ("long", "local-timestamp-nanos"), ("string", "uuid"), ("int", "timestamp-millis"),
    )),
    *({"type": "bytes", "logicalType": "decimal", "precision": most, "scale": scale} for most, scale in ((9, 2), (60, 7), (2, 3))),
]  # fmt: skip
"""The last of both are not valid, so they are ignored."""
_FIXED_LOGICAL: list[dict[str, Any]] = [
    {"logicalType": "decimal", "precision": 18, "scale": 4, "size": 8},
    {"logicalType": "duration", "size": 12},
]
_PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_PYTHON = {
    "null": 0, "boolean": 1, "int": 2, "long": 2, "float": 3, "double": 3, "bytes": 4, "fixed": 4, "string": 5, "enum": 5, "record": 6,
    "map": 6, "array": 7,
}  # fmt: skip
"""Types of a union that Python's types do not tell apart have the same number."""


class _Names:
    def __init__(self) -> None:
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"N{self.count}"


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, names: _Names | None = None) -> Schema:
    names = names or _Names()
    kinds = ["primitive", "primitive", "logical", "enum", "fixed"]
    if depth > 0:
        kinds += ["record", "record", "record", "array", "map", "union", "union"]
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(_PRIMITIVES))
    if kind == "logical":
        return dict(draw(st.sampled_from(_LOGICAL)))
    if kind == "enum":
        return {"type": "enum", "name": names.next(), "symbols": [f"S{k}" for k in range(draw(st.integers(1, 4)))]}
    if kind == "fixed":
        extra: dict[str, Any] = draw(st.sampled_from([{"size": 0}, {"size": 3}, {"size": 16}, *_FIXED_LOGICAL]))
        return {"type": "fixed", "name": names.next(), **extra}
    if kind == "record":
        fields = [{"name": f"f{k}", "type": draw(schemas(depth - 1, names))} for k in range(draw(st.integers(0, 4)))]
        return {"type": "record", "name": names.next(), "fields": fields}
    if kind == "array":
        return {"type": "array", "items": draw(schemas(depth - 1, names))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(depth - 1, names))}
    return draw(_unions(depth, names))


@st.composite
def _unions(draw: st.DrawFn, depth: int, names: _Names) -> Schema:
    special = draw(st.integers(0, 9))
    if special < 2:
        numbers = [["int", "long"], ["double", "float"]][special]
        return draw(st.permutations([*numbers, "null"] if draw(st.booleans()) else numbers))
    found: dict[int, Schema] = {0: "null"} if draw(st.booleans()) else {}
    for _ in range(draw(st.integers(1, 3))):
        one = draw(schemas(depth - 1, names))
        if not isinstance(one, list):
            found.setdefault(_PYTHON[kind_of(one)], one)
    return draw(st.permutations(list(found.values()))) if found else ["null"]


def plain(schema: Schema) -> Schema:
    """The schema without logical types, for fastavro: it then returns what is in the bytes."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: [{**field, "type": plain(field["type"])} for field in value]
        if key == "fields"
        else (plain(value) if key in ("items", "values") else value)
        for key, value in schema.items()
        if key not in ("logicalType", "precision", "scale")
    }


def encoded(schema: Any, value: Any) -> bytes:
    """Bytes of a value of a schema that fastavro takes, parsed or not."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def written(schema: Schema, value: Any) -> bytes:
    return encoded(fastavro.parse_schema(plain(schema)), value)


def registered(schema: Schema, id: int | None = None) -> Registered:
    """The schema as a collection has it."""
    return Registered("AVRO", json.dumps(schema), id=id)


def side_by_side(values: list[bytes], schema: list[int] | None = None, schemas: Any = ()) -> Bodies:
    """Bodies that lie one after the other, as in a segment; the last one ends where its memory ends."""
    data = np.frombuffer(b"".join(values), np.uint8)
    length = np.array([len(one) for one in values], np.int64)
    none, at = np.zeros(len(values), np.int64), data.ctypes.data + np.cumsum([0, *length[:-1]])
    return Bodies(at, length, none, none, none - 1 if schema is None else np.array(schema, np.int64), schemas, held=data)


# Long to float is not among them: fastavro returns a float64 for it, which is rounded twice.
_PROMOTIONS = {"int": ["long", "float", "double"], "long": ["double"], "float": ["double"], "string": ["bytes"], "bytes": ["string"]}
_WIDER = {"int": ("float", "double"), "long": ("float", "double"), "string": ("bytes",), "bytes": ("string",)}
_DEFAULTS: list[tuple[Schema, Any]] = [
    ("int", -7), ("long", 2**40), ("float", 0.5), ("double", 0.1), ("boolean", True), ("string", "défaut"), ("bytes", "\u00ff\u0000a"),
    ("null", None), (["null", "long"], None), (["long", "null"], 5), (["null", "string", "long"], None),
    ({"type": "enum", "name": "DE", "symbols": ["A", "B"]}, "B"), ({"type": "fixed", "name": "DF", "size": 2}, "\u0001\u00fe"),
    ({"type": "fixed", "name": "DD", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 1}, "\u00ff\u00ff\u00ff\u00fe"),
    ({"type": "array", "items": "string"}, ["a", "", "bcd"]),
    ({"type": "array", "items": {"type": "array", "items": "int"}}, [[1], [], [2, 3]]),
    ({"type": "map", "values": "long"}, {"k": 1, "l": -2}),
    ({"type": "record", "name": "DR", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": {"type": "array", "items": "long"}}]},
     {"a": 3, "b": [4]}),
]  # fmt: skip


@st.composite
def readers(draw: st.DrawFn, schema: Schema, added: list[int] | None = None) -> Schema:
    """A reader's schema: fields dropped, added with a default, renamed by an alias, promoted, in another order; values that may be null."""
    added = [] if added is None else added
    kind = kind_of(schema)
    if kind == "record":
        made = draw(_reading(schema, added))
    elif kind == "array":
        made = {**schema, "items": draw(readers(schema["items"], added))}
    elif kind == "map":
        made = {**schema, "values": draw(readers(schema["values"], added))}
    elif kind == "enum" and draw(st.booleans()):
        symbols = draw(st.permutations([*schema["symbols"], "OTHER"]))
        kept = [one for one in symbols if one == "OTHER" or draw(st.integers(0, 3))]
        made = {**schema, "symbols": kept, "default": "OTHER"}
    elif isinstance(schema, str) and schema in _PROMOTIONS and draw(st.booleans()):
        made = draw(st.sampled_from(_PROMOTIONS[schema]))
    else:
        made = schema
    if kind not in ("union", "null") and draw(st.integers(0, 3)) == 0:
        return draw(st.permutations(["null", made]))
    return made


@st.composite
def _reading(draw: st.DrawFn, schema: Schema, added: list[int]) -> Schema:
    fields = []
    for field in schema["fields"]:
        if draw(st.integers(0, 4)) == 0:
            continue
        made = {**field, "type": draw(readers(field["type"], added))}
        if draw(st.integers(0, 3)) == 0:
            made = {**made, "name": f"new_{field['name']}", "aliases": ["unused", field["name"]]}
        fields.append(made)
    for _ in range(draw(st.integers(0, 2))):
        number = draw(st.integers(0, len(_DEFAULTS) - 1))
        # Names of types are defined once.
        if number not in added:
            added.append(number)
            kind, default = _DEFAULTS[number]
            fields.append({"name": f"d{number}", "type": kind, "default": default})
    return {**schema, "fields": draw(st.permutations(fields))}


def is_ambiguous(schema: Schema) -> bool:
    """Whether a union has a type that could be promoted to one before it: Java and Kolumn take the same type, fastavro the first match."""
    if isinstance(schema, list):
        kinds = [kind_of(one) for one in schema]
        found = any(kinds[k] in _WIDER.get(kind, ()) for number, kind in enumerate(kinds) for k in range(number))
        return found or any(map(is_ambiguous, schema))
    if not isinstance(schema, dict):
        return False
    inner = [field["type"] for field in schema.get("fields", ())]
    return any(map(is_ambiguous, [*inner, *(schema[key] for key in ("items", "values") if key in schema)]))


def theirs(data: bytes, writer: Schema, reader: Schema) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), plain(writer), plain(reader))
