"""Avro schemas and values by Hypothesis, writers' schemas with readers' that they can be read by, and bodies in memory for Kolumn."""

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import numpy as np
from hypothesis import strategies as st

from kit.avro_reader import DAYS, Schema, is_decimal, kind_of
from kit.bodies import bodies as guarded_bodies
from kolumn.values.decoder import Bodies
from kolumn.values.schemas.schema import Schema as Registered

_LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-nanos"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 7},
    {"type": "string", "logicalType": "uuid"},
    # Not valid, so they are ignored.
    {"type": "int", "logicalType": "timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
]
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


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """Values of a schema as fastavro writes them without logical types."""
    kind = kind_of(schema)
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if kind == "union":
        return st.one_of([values(one) for one in schema])
    if kind == "record":
        return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=3)
    if kind == "map":
        return st.dictionaries(st.text(max_size=3), values(schema["values"]), max_size=3)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if (kind, logical) in DAYS:
        return st.integers(0, DAYS[kind, logical] - 1)
    if is_decimal(schema):
        digits = 10 ** schema["precision"] - 1
        size = schema.get("size")
        return st.integers(-digits, digits).map(lambda n: n.to_bytes(size or n.bit_length() // 8 + 1, "big", signed=True))
    if logical == "duration":
        return st.tuples(*[st.integers(0, 2**31 - 1)] * 3).map(lambda parts: b"".join(one.to_bytes(4, "little") for one in parts))
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    return {
        "null": st.none(), "boolean": st.booleans(), "int": st.integers(-(2**31), 2**31 - 1), "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False), "double": st.floats(allow_nan=False), "bytes": st.binary(max_size=20),
        "string": st.text(max_size=20),
    }[kind]  # fmt: skip


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


def bodies(
    data: Sequence[bytes | None], schema: Sequence[int] | None = None, writers: Sequence[Registered] = (), prefix: int = 0,
    bare: bool = False,
) -> Bodies:  # fmt: skip
    """Values in memory that ends where they end; ``prefix`` bytes of each stand in front of its body, None is a row without a value."""
    return guarded_bodies(data, schema=-1 if schema is None else schema, schemas=writers, prefix=prefix, bare=bare)
