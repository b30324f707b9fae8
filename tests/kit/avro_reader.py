"""Avro's binary encoding a second time, slowly and readably: what a value is by the specification, or why it is none.

Values are as fastavro returns them without logical types, but a map is `Pairs`, since its keys can repeat. `as_column` makes of
them what Kolumn's columns hold, `of_column` reads that from an Arrow array: dates, times and decimals as integers, floats as their bytes.
"""

import struct
from decimal import Context
from itertools import pairwise
from typing import Any

import pyarrow as pa

Schema = Any
ALLOWED_EMPTY = 65536
DAYS: dict[tuple[str, str | None], int] = {("int", "time-millis"): 86_400_000, ("long", "time-micros"): 86_400_000_000}
_EXACT = Context(prec=80)


class Pairs(list[Any]):
    """Keys and values of a map."""


class NotAvroError(Exception):
    """Why bytes are no value; the first word of the text is the rule that they break."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.free = data, 0, len(data) + ALLOWED_EMPTY
        self.named: dict[str, Schema] = {}

    def take(self, size: int) -> bytes:
        if size < 0:
            raise NotAvroError("negative length")
        if size > len(self.data) - self.at:
            raise NotAvroError("end of data")
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self) -> int:
        raw = 0
        for k in range(10):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << 7 * k
            if byte < 0x80:
                raw &= (1 << 64) - 1
                return (raw >> 1) ^ -(raw & 1)
        raise NotAvroError("varint of more than ten bytes")

    def index(self, choices: int) -> int:
        found = self.long()
        if not 0 <= found < choices:
            raise NotAvroError("index out of range")
        return found

    def blocks(self, item: Any, may_be_empty: bool) -> list[Any]:
        items = []
        while count := self.long():
            limit = None
            if count < 0:
                size = self.long()
                if size < 0 or size > len(self.data) - self.at:
                    raise NotAvroError("block size")
                count, limit = -count, self.at + size
            if may_be_empty:
                self.free -= count
            if self.free < 0 or (not may_be_empty and count > len(self.data) - self.at):
                raise NotAvroError("items that are not there")
            items += [item() for _ in range(count)]
            if limit is not None and self.at != limit:
                raise NotAvroError("block size")
        return items

    def value(self, schema: Schema) -> Any:
        schema = self.named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, list):
            return self.value(schema[self.index(len(schema))])
        kind = kind_of(schema)
        if kind in ("record", "enum", "fixed"):
            self.named[schema["name"]] = schema
        if kind == "record":
            return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
        if kind == "array":
            return self.blocks(lambda: self.value(schema["items"]), self.may_be_empty(schema["items"]))
        if kind == "map":
            return Pairs(self.blocks(lambda: (self.value("string"), self.value(schema["values"])), False))
        if kind == "enum":
            return schema["symbols"][self.index(len(schema["symbols"]))]
        if kind == "fixed":
            data = self.take(schema["size"])
            if schema.get("logicalType") == "duration" and max(struct.unpack("<II", data[:8])) >= 1 << 31:
                raise NotAvroError("duration of more than int32 holds")
            return self.decimal(schema, data)
        return self.primitive(schema, kind)

    def primitive(self, schema: Schema, kind: str) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            byte = self.take(1)[0]
            if byte > 1:
                raise NotAvroError("boolean that is not 0 or 1")
            return byte == 1
        if kind == "int":
            found = self.long()
            if not -(2**31) <= found < 2**31:
                raise NotAvroError("int of more than 32 bits")
            return self.time(schema, found)
        if kind == "long":
            return self.time(schema, self.long())
        if kind in ("float", "double"):
            return struct.unpack("<f" if kind == "float" else "<d", self.take(4 if kind == "float" else 8))[0]
        data = self.take(self.long())
        if kind == "bytes":
            return self.decimal(schema, data)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise NotAvroError("text that is not UTF-8") from None

    @staticmethod
    def time(schema: Schema, found: int) -> int:
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        day = DAYS.get((kind_of(schema), logical))
        if day is not None and not 0 <= found < day:
            raise NotAvroError("time outside of a day")
        return found

    @staticmethod
    def decimal(schema: Schema, data: bytes) -> bytes:
        if is_decimal(schema):
            if not data:
                raise NotAvroError("decimal without bytes")
            if abs(int.from_bytes(data, "big", signed=True)) >= 10 ** schema["precision"]:
                raise NotAvroError("decimal of too many digits")
        return data

    def may_be_empty(self, schema: Schema) -> bool:
        schema = self.named.get(schema, schema) if isinstance(schema, str) else schema
        kind = kind_of(schema)
        if kind == "record":
            return all(self.may_be_empty(field["type"]) for field in schema["fields"])
        return kind == "null" or (kind == "fixed" and schema["size"] == 0)


def kind_of(schema: Schema) -> str:
    """The kind of a type; a list is a union."""
    if isinstance(schema, list):
        return "union"
    return schema["type"] if isinstance(schema, dict) else schema


def is_decimal(schema: Schema) -> bool:
    """Whether a type is a decimal that is valid."""
    return isinstance(schema, dict) and schema.get("logicalType") == "decimal" and schema["scale"] <= schema["precision"]


def read(schema: Schema, data: bytes) -> Any:
    """The value; raises `NotAvroError`."""
    reader = _Reader(data)
    value = reader.value(schema)
    if reader.at != len(data):
        raise NotAvroError("bytes after the end")
    return value


def _is_of(schema: Schema, value: Any) -> bool:
    """Whether a Python value belongs to a type of a union. Unions have at most one type for each type of Python."""
    kinds = {
        type(None): ("null",), bool: ("boolean",), int: ("int", "long"), float: ("float", "double"), str: ("string", "enum"),
        bytes: ("bytes", "fixed"), dict: ("record", "map"), list: ("array",), Pairs: ("map",),
    }  # fmt: skip
    return kind_of(schema) in kinds[type(value)]


def as_column(schema: Schema, value: Any, named: dict[str, Schema] | None = None) -> Any:
    """What Kolumn's column holds for a value; values of fastavro are taken too."""
    named = {} if named is None else named
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = kind_of(schema)
    if kind in ("record", "enum", "fixed"):
        named[schema["name"]] = schema
    if kind == "union":
        return _of_union(schema, value, named)
    if kind == "record":
        return {field["name"]: as_column(field["type"], value[field["name"]], named) for field in schema["fields"]}
    if kind == "array":
        return [as_column(schema["items"], one, named) for one in value]
    if kind == "map":
        pairs = value.items() if isinstance(value, dict) else value
        return [(key, as_column(schema["values"], one, named)) for key, one in pairs]
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind in ("bytes", "fixed"):
        # Defaults of bytes are text.
        data = value.encode("latin-1") if isinstance(value, str) else value
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        if is_decimal(schema):
            return int.from_bytes(data, "big", signed=True)
        if logical == "duration":
            months, days, milliseconds = struct.unpack("<III", data)
            return months, days, milliseconds * 1_000_000
        return data
    return value


def _of_union(schema: list[Schema], value: Any, named: dict[str, Schema]) -> Any:
    others = [one for one in schema if kind_of(one) != "null"]
    resolved = [named.get(one, one) if isinstance(one, str) else one for one in others]
    if value is None:
        return None
    kinds = {kind_of(one) for one in resolved}
    if kinds == {"int", "long"}:
        return value
    if kinds == {"float", "double"}:
        return struct.pack("<d", value)
    if len(others) == 1:
        return as_column(resolved[0], value, named)
    made = [as_column(one, value, named) if _is_of(one, value) else None for one in resolved]
    names = [one["name"] if isinstance(one, dict) and "name" in one else kind_of(one) for one in resolved]
    return dict(zip(names, made, strict=True))


def of_column(array: pa.Array) -> list[Any]:
    """What an Arrow array holds, in the form of `as_column`."""
    kind = array.type
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        names = [kind.field(k).name for k in range(kind.num_fields)]
        parts = [of_column(array.field(k)) for k in range(kind.num_fields)]
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)] if parts else [{} for _ in array]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        ends = array.offsets.to_pylist()
        if pa.types.is_map(kind):
            items: list[Any] = list(zip(of_column(array.keys), of_column(array.items), strict=True))
        else:
            items = of_column(array.values)
        rows = [items[first:last] for first, last in pairwise(ends)]
    elif pa.types.is_floating(kind):
        size = kind.bit_width // 8
        data = array.buffers()[1].to_pybytes()[array.offset * size :] if len(array) else b""
        rows = [data[size * k : size * (k + 1)] for k in range(len(array))]
    elif pa.types.is_decimal(kind):
        rows = [None if one is None else int(one.scaleb(kind.scale, _EXACT)) for one in array.to_pylist()]
    elif pa.types.is_temporal(kind) and kind != pa.month_day_nano_interval():
        rows = array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    elif kind == pa.month_day_nano_interval():
        rows = [None if one is None else tuple(one) for one in array.to_pylist()]
    else:
        rows = array.to_pylist()
    return [row if flag else None for row, flag in zip(rows, valid, strict=True)]
