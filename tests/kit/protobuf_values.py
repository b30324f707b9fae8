"""Random Protobuf schemas, wire bytes for them, and what the package protobuf reads: the rows that a decoder has to return.

It shares no code with Kolumn. Everything comes from a `random.Random`, so a seed makes a case again.
"""

import json
import math
import random
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    json_format,
    message,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)  # fmt: skip

from kit.encoder import overlong, uvarint

F = descriptor_pb2.FieldDescriptorProto
SCALARS = [kind for kind in range(1, 19) if kind not in (F.TYPE_GROUP, F.TYPE_MESSAGE, F.TYPE_ENUM)]
KEYS = [kind for kind in SCALARS if kind not in (F.TYPE_DOUBLE, F.TYPE_FLOAT, F.TYPE_BYTES)]
JSONS = ["Struct", "Value", "ListValue"]
KNOWN = ["Timestamp", "Duration", "Int64Value", "StringValue", "BoolValue", "DoubleValue", "BytesValue", "UInt32Value", *JSONS]
DEEPEST = 4  # Messages around one of random bytes.
VARINTS = {3, 4, 5, 8, 13, 14, 17, 18}
NUMBERS = [*range(1, 12), 15, 16, 17, 100, 255, 256, 300, 2047, 2048, 70000, 2**29 - 1]
NANO = 10**9
ORDER = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
package shop;
enum Color { NONE = 0; RED = 5; GREEN = -3; }
message Item { string sku = 1; int32 qty = 2; repeated bytes parts = 3; google.protobuf.Timestamp at = 4; }
message Order {
  int64 id = 1;
  optional string customer = 2;
  Color color = 3;
  repeated Color colors = 4;
  repeated Item items = 5;
  Item first = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.Duration took = 8;
  google.protobuf.StringValue label = 9;
  repeated sint64 numbers = 10;
  bool paid = 11;
  fixed32 four = 12;
  double price = 13;
  oneof how { string card = 14; Item gift = 15; uint64 points = 16; }
  bytes raw = 2000;
}
"""
"""The schema of a shop's orders, with most kinds of fields."""


def schema(rng: random.Random) -> bytes:
    """A FileDescriptorSet; the record is the message ``t.M0`` of its last file."""
    proto3 = rng.random() < 0.6
    file = descriptor_pb2.FileDescriptorProto(name="made.proto", package="t", syntax="proto3" if proto3 else "proto2")
    known = [one.DESCRIPTOR for one in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)]
    file.dependency.extend(one.name for one in known)
    for number in range(2):
        enum = file.enum_type.add(name=f"E{number}")
        values = [0 if proto3 or number == 0 else rng.choice([0, 3, -2])]
        values += [one for one in rng.sample([1, 2, 5, 7, -1, 300, 2**31 - 1, -(2**31)], 4) if one not in values]
        for value in values:
            enum.value.add(name=f"S{number}_{value}".replace("-", "m"), number=value)
    count = rng.randint(1, 4)
    for number in range(count):
        # Now and then a message of a few is in itself.
        _message(rng, file.message_type.add(name=f"M{number}"), range(number + 1 if count > 2 or rng.random() < 0.6 else 0, count), proto3)
    files = [_serialised(one) for one in known]
    return descriptor_pb2.FileDescriptorSet(file=[*files, file]).SerializeToString()


def _serialised(descriptor: Any) -> Any:
    made = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(made)
    return made


def _message(rng: random.Random, made: Any, others: Sequence[int], proto3: bool) -> None:
    oneof = made.oneof_decl.add(name="choice") is not None and rng.random() < 0.6
    hidden = []
    size = rng.choice([0, 1, 3, 5, 8, 8, 70])
    numbers = rng.sample(NUMBERS, min(size, 12)) + (list(range(1000, 1000 + size)) if size > 12 else [])
    for number in numbers:
        field = made.field.add(name=f"f{number}", number=number, label=F.LABEL_OPTIONAL)
        if rng.random() < 0.12:
            _map(rng, made, field, others)
            continue
        _type(rng, field, others)
        if not proto3 and rng.random() < 0.08:
            group = made.nested_type.add(name=f"G{number}")
            group.field.add(name="a", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
            group.field.add(name="b", number=2, type=F.TYPE_STRING, label=F.LABEL_REPEATED)
            field.name, field.type, field.type_name = f"g{number}", F.TYPE_GROUP, f".t.{made.name}.G{number}"
        chance = rng.random()
        if chance < 0.3:
            field.label = F.LABEL_REPEATED
            if field.type not in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE, F.TYPE_GROUP) and rng.random() < 0.5:
                field.options.packed = rng.random() < 0.5
        elif chance < 0.5 and oneof:
            field.oneof_index = 0
        elif chance < 0.6 and not proto3:
            field.label = F.LABEL_REQUIRED if rng.random() < 0.5 else F.LABEL_OPTIONAL
        elif chance < 0.7 and proto3:
            field.proto3_optional = True
            hidden.append(field)
    if not any(field.HasField("oneof_index") for field in made.field):
        del made.oneof_decl[:]
    for field in hidden:
        field.oneof_index = len(made.oneof_decl)
        made.oneof_decl.add(name=f"_{field.name}")


def _type(rng: random.Random, field: Any, others: Sequence[int]) -> None:
    chance = rng.random()
    if chance < 0.12:
        field.type, field.type_name = F.TYPE_ENUM, f".t.E{rng.randint(0, 1)}"
    elif chance < 0.22:
        field.type, field.type_name = F.TYPE_MESSAGE, f".google.protobuf.{rng.choice(KNOWN)}"
    elif chance < 0.5 and others:
        field.type, field.type_name = F.TYPE_MESSAGE, f".t.M{rng.choice(others)}"
    else:
        field.type = rng.choice(SCALARS)


def _map(rng: random.Random, made: Any, field: Any, others: Sequence[int]) -> None:
    entry = made.nested_type.add(name=f"F{field.number}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=rng.choice(KEYS), label=F.LABEL_OPTIONAL)
    value = entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL)
    _type(rng, value, others)
    if value.type == F.TYPE_ENUM:
        # Only an enum that begins with 0 can be in a map.
        value.type_name = ".t.E0"
    field.label, field.type, field.type_name = F.LABEL_REPEATED, F.TYPE_MESSAGE, f".t.{made.name}.{entry.name}"


def in_edition(serialised: bytes) -> bytes:
    """The same schema in edition 2023, in which strings have to be UTF-8; a schema of proto3 as it is."""
    files = descriptor_pb2.FileDescriptorSet.FromString(serialised)
    file = files.file[-1]
    if file.syntax == "proto3":
        return serialised
    file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
    features = descriptor_pb2.FeatureSet
    file.options.features.enum_type = features.CLOSED
    file.options.features.repeated_field_encoding = features.EXPANDED
    todo = list(file.message_type)
    while todo:
        one = todo.pop()
        todo += one.nested_type
        for field in one.field:
            if field.label == F.LABEL_REQUIRED:
                field.label, field.options.features.field_presence = F.LABEL_OPTIONAL, features.LEGACY_REQUIRED
            if field.type == F.TYPE_GROUP:
                field.type, field.options.features.message_encoding = F.TYPE_MESSAGE, features.DELIMITED
            if field.options.packed:
                field.options.features.repeated_field_encoding = features.PACKED
            field.options.ClearField("packed")
    return files.SerializeToString()


def message_class(serialised: bytes, name: str = "t.M0") -> Any:
    """The class of a message of a FileDescriptorSet."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(serialised).file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def varint(value: int, more: int = 0) -> bytes:
    """An unsigned varint of 64 bits, with more bytes than it needs."""
    encoded = uvarint(value)
    return overlong(encoded, len(encoded) + more)


def _number(rng: random.Random) -> int:
    bits = rng.choice([0, 1, 3, 7, 8, 14, 31, 32, 33, 63, 64])
    value = rng.getrandbits(bits) if bits else 0
    return -value if rng.random() < 0.2 else value


def _text(rng: random.Random, broken: float) -> bytes:
    text = "".join(rng.choice(["a", "b", "é", "€", "😀", "\0", "xyz" * 12]) for _ in range(rng.choice([0, 1, 2, 5, 9]))).encode()
    return text + rng.choice([b"\xff", b"\xc3", b"\xed\xa0\x80"]) if rng.random() < broken else text


def _field(rng: random.Random, number: int, kind: int, inner: bytes, broken: float) -> bytes:
    """One field of a type, with its tag; ``inner`` is the body of a message."""
    if kind in VARINTS:
        more = rng.choice([0, 0, 0, 1, 3]) if rng.random() < broken else 0
        value = rng.choice([0, 1, 2, 3, 5, 7, 300]) if kind == F.TYPE_ENUM else _number(rng)
        return varint(number << 3) + varint(value, more)
    if kind in (1, 6, 16):
        return varint(number << 3 | 1) + rng.choice([rng.randbytes(8), struct.pack("<d", rng.choice([0.0, -0.0, 1.5, math.nan]))])
    if kind in (2, 7, 15):
        return varint(number << 3 | 5) + rng.choice([rng.randbytes(4), struct.pack("<f", rng.choice([0.0, 2.5, math.inf]))])
    if kind == F.TYPE_GROUP:
        return varint(number << 3 | 3) + inner + varint(number << 3 | 4)
    if kind == F.TYPE_STRING:
        inner = _text(rng, broken / 4)
    elif kind == F.TYPE_BYTES:
        inner = rng.randbytes(rng.choice([0, 1, 5, 33]))
    return varint(number << 3 | 2) + varint(len(inner)) + inner


def body(rng: random.Random, descriptor: Any, broken: float = 0.0, depth: int = 0) -> bytes:
    """A message on the wire: fields in any order, again, packed or not; now and then unknown ones, and with ``broken`` malformed ones."""
    made = []
    fields = list(descriptor.fields)
    if depth > DEEPEST:
        return b""
    for _ in range(rng.choice([0, 1, 2, 4, 9]) if depth else rng.choice([0, 3, 8, 20])):
        if not fields or rng.random() < 0.04:
            made.append(_field(rng, rng.choice([13, 14, 2**20]), rng.choice([*SCALARS, F.TYPE_GROUP]), b"", broken))
            continue
        field = rng.choice(fields)
        inner = body(rng, field.message_type, broken, depth + 1) if field.message_type is not None else b""
        kind = rng.choice(SCALARS) if rng.random() < broken / 4 else field.type
        many = field.is_repeated and kind in [*SCALARS, F.TYPE_ENUM] and kind not in (F.TYPE_STRING, F.TYPE_BYTES)
        if many and rng.random() < 0.5:
            one = [_field(rng, 1, kind, b"", broken)[1:] for _ in range(rng.randint(0, 5))]
            made.append(varint(field.number << 3 | 2) + varint(sum(map(len, one))) + b"".join(one))
        else:
            made.append(_field(rng, field.number, kind, inner, broken))
    if descriptor.has_options and descriptor.GetOptions().map_entry:
        # Few keys, so that they come again.
        key = descriptor.fields_by_number[1]
        if key.type in VARINTS and rng.random() < 0.7:
            made.append(varint(1 << 3) + varint(rng.randint(0, 3)))
    required = [field for field in fields if field.is_required]
    if rng.random() < 0.9:
        made += [
            _field(rng, one.number, one.type, body(rng, one.message_type, 0, depth + 1) if one.message_type else b"", 0) for one in required
        ]
    return b"".join(made)


def mutants(rng: random.Random, value: bytes, other: bytes, flips: int) -> list[bytes]:
    """Damage: bits, cuts, and pieces of another value."""
    made = [value[: rng.randint(0, len(value))], value + other, other[rng.randint(0, len(other)) :] + value]
    for _ in range(flips if value else 0):
        flipped = bytearray(value)
        flipped[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        made.append(bytes(flipped))
    at = rng.randint(0, len(value))
    made.append(value[:at] + rng.randbytes(rng.randint(1, 4)) + value[at:])
    return made


def expected(kind: Any, value: bytes, unit: int = NANO) -> Any:
    """The row that a value is, in the form of `plain`, with so many ``unit`` of times a second; None if it is not valid."""
    try:
        made = kind.FromString(value)
        return _row(made, (), unit) if made.IsInitialized() else None
    except (message.DecodeError, UnicodeDecodeError, OutsideError):
        return None


class OutsideError(Exception):
    """What a column or JSON cannot hold."""


def _row(made: Any, around: tuple[str, ...], unit: int) -> Any:
    around = (*around, made.DESCRIPTOR.full_name)
    return {field.name: _cell(made, field, around, unit) for field in made.DESCRIPTOR.fields}


def _cell(made: Any, field: Any, around: tuple[str, ...], unit: int) -> Any:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, inner = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        return {"map": {_leaf(key, one, around, unit): _leaf(inner, other, around, unit) for one, other in getattr(made, name).items()}}
    if field.is_repeated:
        return [_leaf(field, one, around, unit) for one in getattr(made, name)]
    if field.has_presence and not made.HasField(name):
        return None
    return _leaf(field, getattr(made, name), around, unit)


def _leaf(field: Any, value: Any, around: tuple[str, ...], unit: int) -> Any:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name in around or name.rpartition(".")[2] in JSONS:
            return _json(value)
        if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
            total = (value.seconds * NANO + value.nanos) * unit // NANO
            if not (-(2**62) <= value.seconds < 2**62 and -(2**63) <= total < 2**63):
                raise OutsideError
            return total
        if name.startswith("google.protobuf."):
            return _leaf(field.message_type.fields[0], value.value, around, unit)
        return _row(value, around, unit)
    if field.enum_type is not None:
        return next((one.name for one in field.enum_type.values if one.number == value), str(value))
    return "nan" if isinstance(value, float) and math.isnan(value) else (str(value) if isinstance(value, float) else value)


def _json(value: Any) -> Any:
    try:
        return {"json": json.loads(json_format.MessageToJson(value, preserving_proto_field_name=True))}
    except (json_format.Error, ValueError, TypeError) as error:
        raise OutsideError from error


def plain(scalar: Any) -> Any:
    """A value of an Arrow array in the form of `expected`: floats as text, times as integers, maps as {"map": …}."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.TimestampScalar | pa.DurationScalar):
        return scalar.value
    if isinstance(scalar, pa.MapScalar):
        pairs = [(plain(one["key"]), plain(one["value"])) for one in scalar.values] if scalar.values is not None else []
        assert len(dict(pairs)) == len(pairs)
        return {"map": dict(pairs)}
    if isinstance(scalar, pa.ListScalar):
        return [plain(one) for one in scalar.values]
    if isinstance(scalar, pa.StructScalar):
        return {field.name: plain(scalar[number]) for number, field in enumerate(scalar.type)}
    if isinstance(scalar, pa.ExtensionScalar):
        return {"json": json.loads(scalar.value.as_py())}
    value = scalar.as_py()
    return "nan" if isinstance(value, float) and math.isnan(value) else (str(value) if isinstance(value, float) else value)
