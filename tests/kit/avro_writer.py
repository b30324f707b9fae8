"""Random Avro values, written with every variation that the format allows, and damage to them."""

import random
import struct
from typing import Any

from kit import encoder
from kit.avro_reader import DAYS, Schema, is_decimal, kind_of
from kit.encoder import overlong

HOSTILE = (0, 1, -1, 2, 63, 64, -64, 127, 128, 65535, 65536, 70000, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))


def _record(name: str, /, **fields: Schema) -> Schema:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields.items()]}


def _many(items: Schema) -> Schema:
    return {"type": "array", "items": items}


EVERYTHING: Schema = _record(
    "Everything", id="long", small="int", flag="boolean", f="float", d="double", text="string", raw="bytes", note=["null", "string"],
    count=["long", "null"], nothing="null", color={"type": "enum", "name": "Color", "symbols": ["RED", "GREEN", "BLUE"]},
    fixed={"type": "fixed", "name": "Five", "size": 5}, price={"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
    huge=["null", {"type": "fixed", "name": "Huge", "size": 20, "logicalType": "decimal", "precision": 45, "scale": 0}],
    span={"type": "fixed", "name": "Span", "size": 12, "logicalType": "duration"}, time={"type": "int", "logicalType": "time-millis"},
    any=["null", "boolean", "string", "double", _many("int")],
    place=["null", _record("Place", x="double", name="string", tags=_many("string"))],
    items=_many(_record("Item", sku="string", qty="int", parts=_many("long"))),
    attributes={"type": "map", "values": ["null", {"type": "map", "values": "string"}]}, nulls=_many("null"), empty=_many(_record("Empty")),
)  # fmt: skip
"""A record with every kind of field."""


def random_value(rng: random.Random, schema: Schema) -> Any:
    """A value; a union's is a pair of branch and value, a map's a list of pairs."""
    kind = kind_of(schema)
    if kind == "union":
        branch = rng.randrange(len(schema))
        return branch, random_value(rng, schema[branch])
    if kind == "record":
        return [random_value(rng, field["type"]) for field in schema["fields"]]
    if kind == "array":
        return [random_value(rng, schema["items"]) for _ in range(rng.choice((0, 1, 2, 3, 9)))]
    if kind == "map":
        keys = dict.fromkeys(random_value(rng, "string") for _ in range(rng.choice((0, 1, 2))))
        return [(key, random_value(rng, schema["values"])) for key in keys]
    if kind == "enum":
        return rng.randrange(len(schema["symbols"]))
    if is_decimal(schema):
        most = 10 ** schema["precision"] - 1
        number = rng.choice((0, -1, most, -most, rng.randint(-most, most), rng.randint(-200, 200)))
        return number.to_bytes(schema.get("size") or number.bit_length() // 8 + rng.choice((1, 1, 9, 30)), "big", signed=True)
    if kind == "fixed":
        return struct.pack("<III", *(rng.getrandbits(31) for _ in range(3))) if "logicalType" in schema else rng.randbytes(schema["size"])
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if (kind, logical) in DAYS:
        return rng.randrange(DAYS[kind, logical])
    number = rng.choice((0, 1, -1, rng.getrandbits(6), rng.getrandbits(20), -rng.getrandbits(31), rng.getrandbits(31)))
    return {
        "null": None, "boolean": rng.random() < 0.5, "int": rng.choice((number, number, 2**31 - 1, -(2**31))),
        "float": struct.unpack("<f", struct.pack("<f", rng.choice((rng.random(), -0.0, 2**-149))))[0],
        "long": number if rng.random() < 0.6 else rng.getrandbits(64) - 2**63,
        "double": rng.choice((rng.random(), -0.0, 5e-324, -1e-300)),
        "bytes": rng.randbytes(rng.choice((0, 1, 3, 8, 17, 40))),
        "string": "".join(rng.choice("abcdefgh\0\x7f é߿ࠀ€\uffff😀\U0010ffff") for _ in range(rng.choice((0, 1, 4, 8, 12, 33)))),
    }[kind]  # fmt: skip


def varint(value: int, longer: int = 0) -> bytes:
    """Zig-zag varint with ``longer`` bytes more than needed, as far as ten allow."""
    encoded = encoder.varint(value)
    return overlong(encoded, min(len(encoded) + longer, 10))


class Writer:
    """Writes values of `random_value` as the format allows: overlong numbers, blocks of any length, with and without sizes, keys again."""

    def __init__(self, rng: random.Random, again: float = 0.1) -> None:
        self.rng, self.again = rng, again

    def number(self, value: int) -> bytes:
        return varint(value, self.rng.choice((1, 2, 9)) if self.rng.random() < 0.03 else 0)

    def blocks(self, items: list[bytes]) -> bytes:
        out = b""
        while items:
            count = self.rng.randint(1, len(items))
            body, items = b"".join(items[:count]), items[count:]
            out += self.number(-count) + self.number(len(body)) + body if self.rng.random() < 0.4 else self.number(count) + body
        return out + self.number(0)

    def write(self, schema: Schema, value: Any) -> bytes:
        kind = kind_of(schema)
        if kind == "union":
            return self.number(value[0]) + self.write(schema[value[0]], value[1])
        if kind == "record":
            return b"".join(self.write(field["type"], one) for field, one in zip(schema["fields"], value, strict=True))
        if kind == "array":
            return self.blocks([self.write(schema["items"], one) for one in value])
        if kind == "map":
            pairs = [self.write("string", key) + self.write(schema["values"], one) for key, one in value]
            return self.blocks(pairs * 2 if self.rng.random() < self.again else pairs)
        if kind in ("int", "long", "enum"):
            return self.number(value)
        if kind in ("null", "boolean"):
            return b"" if kind == "null" else bytes([value])
        if kind in ("float", "double"):
            return struct.pack("<f" if kind == "float" else "<d", value)
        data = value.encode() if kind == "string" else value
        return data if kind == "fixed" else self.number(len(data)) + bytes(data)


def damaged(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Bytes flipped, cut, repeated, or replaced by those of another value or by hostile numbers."""
    kind = rng.randrange(7)
    at = rng.randrange(len(data) + 1)
    size = rng.randrange(6)
    if kind == 0 and data:
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + rng.randbytes(size) + data[at:]
    if kind == 3:
        return data[:at] + data[at + size :]
    if kind == 4:
        return data[:at] + other[rng.randrange(len(other) + 1) :]
    return data[:at] + varint(rng.choice(HOSTILE), rng.choice((0, 0, 1, 9))) + data[at + (kind == 5) :]
