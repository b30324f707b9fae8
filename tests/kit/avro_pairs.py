"""Readers' schemas that values of a writer's schema can be read by, and what is then read, by fastavro."""

import io
from typing import Any

import fastavro
from hypothesis import strategies as st

from kit.avro_reader import Schema, kind_of
from kit.avro_values import plain

# Long to float is not among them: fastavro returns a float64 for it, which is rounded twice.
_PROMOTIONS = {"int": ["long", "float", "double"], "long": ["double"], "float": ["double"], "string": ["bytes"], "bytes": ["string"]}
_WIDER = {"int": ("float", "double"), "long": ("float", "double"), "string": ("bytes",), "bytes": ("string",)}
_LONGS = {"type": "array", "items": "long"}
_DEFAULTS: list[tuple[Schema, Any]] = [
    ("int", -7), ("long", 2**40), ("float", 0.5), ("double", 0.1), ("boolean", True), ("string", "défaut"), ("bytes", "\u00ff\u0000a"),
    ("null", None), (["null", "long"], None), (["long", "null"], 5), (["null", "string", "long"], None),
    ({"type": "enum", "name": "DE", "symbols": ["A", "B"]}, "B"), ({"type": "fixed", "name": "DF", "size": 2}, "\u0001\u00fe"),
    ({"type": "fixed", "name": "DD", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 1}, "\u00ff\u00ff\u00ff\u00fe"),
    ({"type": "array", "items": "string"}, ["a", "", "bcd"]),
    ({"type": "array", "items": {"type": "array", "items": "int"}}, [[1], [], [2, 3]]),
    ({"type": "map", "values": "long"}, {"k": 1, "l": -2}),
    (
        {
            "type": "record",
            "name": "DR",
            "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": {"type": "array", "items": "long"}}],
        },
        {"a": 3, "b": [4]},
    ),
]  # fmt: skip


@st.composite
def readers(draw: st.DrawFn, schema: Schema, added: list[int] | None = None) -> Schema:
    """A reader's schema: fields dropped, added with a default, renamed by an alias, promoted, in another order; values that may be null."""
    added = [] if added is None else added
    kind = kind_of(schema)
    if kind == "record":
        made = draw(_records(schema, added))
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
def _records(draw: st.DrawFn, schema: Schema, added: list[int]) -> Schema:
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
