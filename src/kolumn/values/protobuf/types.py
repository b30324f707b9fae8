"""Protobuf's types as Arrow's.

    int32, sint32, sfixed32            int32            float, double       float, double
    uint32, fixed32                    uint32           bool                bool
    int64, sint64, sfixed64            int64            string, bytes       string, binary
    uint64, fixed64                    uint64           enum                dictionary<int32, string>
    message, group                     struct           repeated            list<element>
    map<K, V>                          map<K, V>        oneof               its members, each nullable
    google.protobuf.Timestamp          timestamp[ns, UTC]
    google.protobuf.Duration           duration[ns]
    google.protobuf.Int64Value, ...    the value's type, nullable

Fields with presence are nullable: those of proto2, ``optional`` ones, members of a oneof, messages. Others have their default when they
are absent. A number that an open enum has no symbol for is null, so enums that are open are nullable too. A Timestamp or a Duration that
64 bits of nanoseconds cannot hold is null.

The interpreter writes *raw* columns first. In these Timestamp, Duration and wrappers are the messages that they are on the wire, since
messages that come in parts are merged. Open enums are numbers there, closed ones indexes of symbols, and required fields can be null.
`kolumn.values.protobuf.finish` makes the types above of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.values.types import Wanted, wanted_fields

MOST_NESTED = 100
"""Messages in messages that Protobuf's parsers accept."""
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM = range(1, 15)
_SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(15, 19)
_SCALARS = {
    _DOUBLE: pa.float64(), _FLOAT: pa.float32(), _INT64: pa.int64(), _UINT64: pa.uint64(), _INT32: pa.int32(), _FIXED64: pa.uint64(),
    _FIXED32: pa.uint32(), _BOOL: pa.bool_(), _STRING: pa.string(), _BYTES: pa.binary(), _UINT32: pa.uint32(), _SFIXED32: pa.int32(),
    _SFIXED64: pa.int64(), _SINT32: pa.int32(), _SINT64: pa.int64(), _ENUM: pa.dictionary(pa.int32(), pa.string()),
}  # fmt: skip
"""Arrow's types by the numbers of types in FieldDescriptorProto."""
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
WRAPPERS = frozenset(f"google.protobuf.{name}Value" for name in _WRAPPED)
TIMES = {"google.protobuf.Timestamp": pa.timestamp("ns", "UTC"), "google.protobuf.Duration": pa.duration("ns")}
_TIME_FIELDS = [("seconds", 1, _INT64), ("nanos", 2, _INT32)]


@dataclass(frozen=True)
class Shape:
    """A field, or a message as a whole, and its types.

    ``number`` and ``field`` (a descriptor) of a message as a whole are 0 and None. ``fields`` are those of a message with columns, in the
    order of the file; of a map key and value. ``raw`` is what the interpreter writes, ``type`` what comes out, of a repeated field its
    list; ``raw_null`` and ``null``: whether they can be null; ``element_null``: whether an element of the list can. ``special`` is the full
    name of a Timestamp, a Duration or a wrapper, else "".
    """

    name: str
    number: int
    field: Any
    fields: "tuple[Shape, ...]"
    raw: pa.DataType
    type: pa.DataType
    raw_null: bool
    null: bool
    element_null: bool
    special: str

    @property
    def is_map(self) -> bool:
        """Whether it is a map."""
        return self.field is not None and is_map(self.field)

    @property
    def is_list(self) -> bool:
        """Whether it is repeated, and no map."""
        return self.field is not None and bool(self.field.is_repeated) and not self.is_map

    @property
    def is_message(self) -> bool:
        """Whether it, or its element, is a message or a group."""
        return self.field is None or self.field.type in (_MESSAGE, _GROUP)


def has_required(shape: Shape) -> bool:
    """Whether there is a required field in it."""
    own = shape.field is not None and bool(shape.field.is_required)
    return own or any(has_required(one) for one in shape.fields)


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return field.type == _MESSAGE and field.is_repeated and bool(field.message_type.GetOptions().map_entry)


def symbols(enum: Any) -> dict[int, str]:
    """Numbers and names of an enum. The default is the first; of several names of a number the first counts."""
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return names


def is_closed(enum: Any) -> bool:
    """Whether numbers without a symbol are unknown fields: enums of proto2, and those that an edition declares closed."""
    return bool(enum.is_closed)


def shape(message: Any, columns: Iterable[str] | None = None) -> Shape:
    """The types of a message. ``columns`` are names of fields, with dots for those of messages in it ("id", "customer.name"), or None for
    all; a message stands for all of its fields.

    `ArgumentError` if there is no such field, or a message contains itself and so has no type in Arrow.
    """
    fields = _fields(message, None if columns is None else wanted_fields(columns), (), (message.full_name,))
    raw, type = _struct(fields)
    return Shape("", 0, None, fields, raw, type, True, True, False, "")


def _struct(fields: Iterable[Shape]) -> tuple[pa.DataType, pa.DataType]:
    raw = pa.struct([pa.field(one.name, one.raw, nullable=one.raw_null) for one in fields])
    return raw, pa.struct([pa.field(one.name, one.type, nullable=one.null) for one in fields])


def _fields(message: Any, wanted: Wanted, path: tuple[str, ...], around: tuple[str, ...]) -> tuple[Shape, ...]:
    if wanted is not None:
        missing = sorted(set(wanted) - {field.name for field in message.fields})
        if missing:
            names = ", ".join(field.name for field in message.fields) or "no fields"
            raise ArgumentError(f"{message.full_name} has no field {missing[0]!r}: it has {names}")
    return tuple(
        _field(field, None if wanted is None else wanted[field.name], (*path, field.name), around)
        for field in message.fields if wanted is None or field.name in wanted
    )  # fmt: skip


def _field(field: Any, wanted: Wanted, path: tuple[str, ...], around: tuple[str, ...]) -> Shape:
    fields: tuple[Shape, ...] = ()
    special = ""
    if field.type in (_MESSAGE, _GROUP):
        inner = field.message_type
        if inner.full_name in around:
            raise ArgumentError(
                f"{'.'.join(path)}: message {inner.full_name} contains itself, so it has no type in Arrow: name the columns without it"
            )
        if len(around) > MOST_NESTED:
            raise ArgumentError(f"{'.'.join(path)}: messages are nested more than {MOST_NESTED} deep")
        special = _special(inner)
        if wanted is not None and (special or is_map(field)):
            raise ArgumentError(f"{'.'.join(path)} is one column: its parts cannot be named")
        fields = _fields(inner, wanted, path, (*around, inner.full_name))
        raw, type = _struct(fields)
        if special:
            type = TIMES.get(special) or fields[0].type
    elif wanted is not None:
        raise ArgumentError(f"{'.'.join(path)} is not a message: {'.'.join((*path, next(iter(wanted))))} is not there")
    else:
        raw = type = _SCALARS[field.type]
    if field.type == _ENUM:
        raw = pa.int32()
    can_be_null = special in TIMES or (field.type == _ENUM and not is_closed(field.enum_type))
    if is_map(field):
        key, value = fields
        raw, type = (
            pa.map_(key.raw, pa.field("value", one, nullable=null)) for one, null in ((value.raw, False), (value.type, value.null))
        )
        return Shape(field.name, field.number, field, fields, raw, type, False, False, False, "")
    if field.is_repeated:
        raw, type = (pa.list_(pa.field("element", one, nullable=null)) for one, null in ((raw, False), (type, can_be_null)))
        return Shape(field.name, field.number, field, fields, raw, type, False, False, can_be_null, special)
    required = bool(field.is_required)
    # In an entry of a map what is absent has its default, messages too.
    present = bool(field.has_presence) and not field.containing_type.GetOptions().map_entry
    null = (present and not required) or can_be_null
    return Shape(field.name, field.number, field, fields, raw, type, present or required, null, False, special)


def _special(message: Any) -> str:
    name: str = message.full_name
    fields = [(field.name, field.number, field.type) for field in message.fields]
    if name in TIMES:
        return name if fields == _TIME_FIELDS else ""
    return name if name in WRAPPERS and [field[:2] for field in fields] == [("value", 1)] and not message.fields[0].is_repeated else ""
