"""Keys and values of internal topics and of control records: Kafka's definitions of messages (`definitions/README.md`), what reads a
message by its definition, which message a record holds, and all of them as one struct column. Every length and count is compared with the
bytes that are there before anything is made of it.

    int8 … int64, uint16, uint32, float64    big-endian
    bool       1 byte              uuid       16 bytes
    string     length i16 | UTF-8           flexible versions: uvarint length + 1, 0 for null
    bytes      length i32 | bytes           likewise
    array      count i32 | elements         likewise
    struct     its fields; if it can be null, i8 before them, negative for null; of a tagged one uvarint, 0 for null
    flexible versions: after the fields of every struct   uvarint count | count times: uvarint tag | uvarint size | value

    __consumer_offsets, __transaction_state, __share_group_state
        key    i16 number of the message | key, in its version 0
        value  i16 version | value
    __cluster_metadata, __remote_log_metadata
        value  uvarint 1 | uvarint number of the message | uvarint version | message, and nothing after it
    control records of any topic
        key    i16 version | i16 type
        value  message, which begins with its version; of a transaction's marker it stands before the message

Sources: Kafka's ``MessageDataGenerator``, ``CoordinatorRecordSerde``, ``AbstractApiMessageSerde``, ``ControlRecordUtils`` and
``EndTransactionMarker``. Strings that are not UTF-8 get replacement characters, as in Java.
"""

import json
import re
import struct
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags
from kolumn.formats import v2

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
LARGEST_VERSION = 2**15 - 1  # Versions have 15 bits in Kafka.


def _versions(text: str) -> range:
    if text == "none":
        return range(0)
    first, dash, last = text.rstrip("+").partition("-")
    return range(int(first), 1 + (int(last) if dash else LARGEST_VERSION if text.endswith("+") else int(first)))


@dataclass(frozen=True)
class FieldDefinition:
    """A field of a message or struct. ``name`` is as Kafka's tools print it, with a small first letter; ``type`` is "string", "int32" and
    so on, or "struct", whose ``fields`` these are; ``tag`` is -1 without one; ``default`` the text or number in the file, None without one.
    """

    name: str
    type: str
    is_array: bool
    versions: range
    nullable: range
    tagged: range
    tag: int
    default: object
    fields: "tuple[FieldDefinition, ...]"


@dataclass(frozen=True)
class Definition:
    """A message. Records name it by its ``number`` (``apiKey``), -1 without one; ``type`` is "coordinator-key", "coordinator-value",
    "metadata" or "data".
    """

    name: str
    number: int
    type: str
    versions: range
    flexible: range
    fields: tuple[FieldDefinition, ...]


@cache
def definitions(module: str) -> dict[str, Definition]:
    """The messages of a module of Kafka, by name."""
    folder = files("kolumn.values.internal").joinpath("definitions", module)
    texts = [_COMMENT.sub("", file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".json")]
    messages = [_message(json.loads(text)) for text in texts]
    return {message.name: message for message in sorted(messages, key=lambda message: (message.number, message.name))}


def _message(text: Mapping[str, Any]) -> Definition:
    shared = {common["name"]: common["fields"] for common in text.get("commonStructs", ())}
    versions, flexible = _versions(text["validVersions"]), _versions(text["flexibleVersions"])
    fields = tuple(_defined(field, shared) for field in text["fields"])
    return Definition(text["name"], text.get("apiKey", -1), text["type"], versions, flexible, fields)


def _defined(text: Mapping[str, Any], shared: Mapping[str, Any]) -> FieldDefinition:
    type, name = text["type"].removeprefix("[]"), text["name"]
    inner = text.get("fields") or shared.get(type)
    return FieldDefinition(
        name[0].lower() + name[1:],
        "struct" if inner is not None else type,
        text["type"].startswith("[]"),
        # A tagged field may leave out what it has in common with its tag.
        _versions(text.get("versions") or text["taggedVersions"]),
        _versions(text.get("nullableVersions", "none")),
        _versions(text.get("taggedVersions", "none")),
        text.get("tag", -1),
        # As Jackson's text of a node.
        "null" if "default" in text and text["default"] is None else text.get("default"),
        tuple(_defined(field, shared) for field in inner or ()),
    )


_NUMBERS = {
    "int8": (">b", pa.int8()), "int16": (">h", pa.int16()), "int32": (">i", pa.int32()), "int64": (">q", pa.int64()),
    "uint16": (">H", pa.uint16()), "uint32": (">I", pa.uint32()), "float64": (">d", pa.float64()), "bool": (">?", pa.bool_()),
}  # fmt: skip
_VARIABLE = {"string": pa.string(), "uuid": pa.string(), "bytes": pa.binary()}
_ZERO_UUID = "A" * 22
MOST_ELEMENTS = 1 << 20  # Elements of arrays in one message: a byte can be an element, which takes hundreds of bytes in Python.


class MalformedMessageError(ValueError):
    """The bytes are not of the message."""


class MessageBytes:
    """Bytes of a message, how far they were read, and how many more elements of arrays are taken."""

    def __init__(self, data: bytes, position: int = 0, elements: int = MOST_ELEMENTS) -> None:
        self.data, self.position, self.elements = data, position, elements

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.position:
            raise MalformedMessageError(f"{size} bytes are needed at byte {self.position}, {self.left} are there")
        begin, self.position = self.position, self.position + size
        return self.data[begin : self.position]

    def uvarint(self) -> int:
        """An unsigned varint of at most 5 bytes."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedMessageError(f"the number at byte {self.position - 5} has more than 5 bytes")

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def elements_of(self, count: int) -> int:
        """A count of things of which each has a byte or more, once it is checked."""
        if count > self.left:
            raise MalformedMessageError(f"{count} elements are said to be in the {self.left} bytes from byte {self.position} on")
        self.elements -= count
        if self.elements < 0:
            raise MalformedMessageError(f"more than {MOST_ELEMENTS} elements")
        return count


_Read = Callable[[MessageBytes], Any]
_Step = tuple[str, _Read]


@cache
def reader(message: Definition, version: int) -> _Read:
    """What reads a version of a message from `MessageBytes`, as a dict of its fields; it raises `MalformedMessageError`. Fields that the
    version does not have are absent. Tagged fields that are not there have their default.
    """
    return _struct(message.fields, version, version in message.flexible)


def arrow_type(message: Definition | FieldDefinition) -> pa.StructType:
    """The struct with the fields of all versions of a message or struct."""
    types = [(field.name, field.is_array, _type(field)) for field in message.fields]
    return pa.struct([pa.field(name, pa.list_(pa.field("element", type)) if is_array else type) for name, is_array, type in types])


def _type(field: FieldDefinition) -> pa.DataType:
    if field.type == "struct":
        return arrow_type(field)
    return _VARIABLE[field.type] if field.type in _VARIABLE else _NUMBERS[field.type][1]


def _struct(fields: tuple[FieldDefinition, ...], version: int, flexible: bool) -> _Read:
    steps: list[_Step] = []
    tagged: dict[int, _Step] = {}
    defaults: dict[str, Any] = {}
    for field in fields:
        if version not in field.versions:
            continue
        step = field.name, _field(field, version, flexible)
        if version in field.tagged:
            tagged[field.tag] = step
            defaults[field.name] = _default(field, version)
        else:
            steps.append(step)

    def run(source: MessageBytes) -> dict[str, Any]:
        values = {name: read(source) for name, read in steps}
        if flexible:
            values |= defaults
            _tagged(source, tagged, values)
        return values

    return run


def _tagged(source: MessageBytes, known: dict[int, _Step], values: dict[str, Any]) -> None:
    for _ in range(source.elements_of(source.uvarint())):
        tag, size = source.uvarint(), source.uvarint()
        part = MessageBytes(source.take(size), elements=source.elements)
        if tag in known:
            name, read = known[tag]
            values[name] = read(part)
            source.elements = part.elements
            if part.left:
                raise MalformedMessageError(f"{part.left} bytes are left of the tagged field {name}")


def _field(field: FieldDefinition, version: int, flexible: bool) -> _Read:
    nullable = version in field.nullable
    if field.is_array:
        element = _element(field, version, flexible, nullable=False)
        return lambda source: None if (count := _size(source, 4, flexible, field, nullable)) is None else [
            element(source) for _ in range(source.elements_of(count))
        ]  # fmt: skip
    inner = _element(field, version, flexible, nullable)
    if field.type == "struct" and nullable:
        if version in field.tagged:
            return lambda source: None if source.uvarint() == 0 else inner(source)
        return lambda source: None if source.take(1)[0] >= 0x80 else inner(source)
    return inner


def _element(field: FieldDefinition, version: int, flexible: bool, nullable: bool) -> _Read:
    """What reads a field or an element of an array; ``nullable``: whether a string, or bytes, can be null."""
    if field.type == "struct":
        return _struct(field.fields, version, flexible)
    if field.type in ("string", "bytes"):
        width, is_text = (2, True) if field.type == "string" else (4, False)

        def run(source: MessageBytes) -> str | bytes | None:
            length = _size(source, width, flexible, field, nullable)
            data = None if length is None else source.take(length)
            return data.decode("utf-8", "replace") if is_text and data is not None else data

        return run
    if field.type == "uuid":
        return lambda source: urlsafe_b64encode(source.take(16))[:22].decode()
    form = struct.Struct(_NUMBERS[field.type][0])
    unpack, size = form.unpack, form.size
    return lambda source: unpack(source.take(size))[0]


def _size(source: MessageBytes, width: int, flexible: bool, field: FieldDefinition, nullable: bool) -> int | None:
    """Length or count of a field, in ``width`` bytes unless ``flexible``; None for null."""
    size = source.uvarint() - 1 if flexible else int.from_bytes(source.take(width), "big", signed=True)
    if size >= 0:
        return size
    if not nullable:
        raise MalformedMessageError(f"{field.name} is null")
    return None


def _default(field: FieldDefinition, version: int) -> Any:
    """The value of a tagged field that is not there."""
    given = field.default
    if given == "null":
        return None
    if field.is_array:
        return []
    if field.type == "struct":
        return {inner.name: _default(inner, version) for inner in field.fields if version in inner.versions}
    if field.type == "uuid":
        return _ZERO_UUID
    if field.type == "bool":
        return str(given).lower() == "true"
    if field.type in ("string", "bytes"):
        return given or ("" if field.type == "string" else b"")
    return (float if field.type == "float64" else int)(str(given or 0))


CLUSTER_METADATA = "__cluster_metadata"
_KEYED = {
    "__consumer_offsets": "group-coordinator", "__transaction_state": "transaction-coordinator",
    "__share_group_state": "share-coordinator",
}  # fmt: skip
_FRAMED = {CLUSTER_METADATA: "metadata", "__remote_log_metadata": "storage"}
INTERNAL_TOPICS = (*_KEYED, *_FRAMED)  # Topics whose records are decoded.
_OF_CONTROL = {
    "COMMIT": "EndTxnMarker", "ABORT": "EndTxnMarker", "LEADER_CHANGE": "LeaderChangeMessage", "SNAPSHOT_HEADER": "SnapshotHeaderRecord",
    "SNAPSHOT_FOOTER": "SnapshotFooterRecord", "KRAFT_VERSION": "KRaftVersionRecord", "KRAFT_VOTERS": "VotersRecord",
}  # fmt: skip
_FRAME = 1  # The only frame that there is.


@dataclass(frozen=True)
class DecodedMessage:
    """What a key or a value is: name of the message, None if it is not known; its version, of a key of a coordinator the number of its
    message; its definition and its fields, None if no field was decoded.
    """

    type: str | None = None
    version: int | None = None
    message: Definition | None = None
    fields: Mapping[str, Any] | None = None

    @property
    def is_known(self) -> bool:
        return self.fields is not None


UNKNOWN = DecodedMessage()


def decode_key(topic: str | None, is_control: bool, key: bytes) -> DecodedMessage:
    """A key; `DecodedMessage.fields` is None for one that is not known, or malformed."""
    source = MessageBytes(key)
    try:
        if is_control:
            version, type = source.int16(), _control_type(key)
            return DecodedMessage(type, version, None, None if type is None else {})
        if topic not in _KEYED:
            return UNKNOWN
        number = source.int16()
        message = _coordinator(topic, True).get(number)
        return DecodedMessage(None, number) if message is None else _read(source, _plain(message.name), number, message, 0)
    except MalformedMessageError:
        return UNKNOWN


def decode_value(topic: str | None, is_control: bool, key: bytes | None, value: bytes) -> DecodedMessage:
    """A value; as `decode_key`. ``key`` says which message it is, unless the value does."""
    source = MessageBytes(value)
    try:
        if is_control:
            return _control(key or b"", source)
        if topic in _KEYED:
            number, version = MessageBytes(key or b"").int16(), source.int16()
            message = _coordinator(topic, False).get(number)
            return DecodedMessage(None, version) if message is None else _read(source, _plain(message.name), version, message, version)
        if topic in _FRAMED and source.uvarint() == _FRAME:
            number, version = source.uvarint(), source.uvarint()
            message = _metadata(topic).get(number)
            if message is not None and version <= LARGEST_VERSION:
                return _read(source, message.name, version, message, version)
    except MalformedMessageError:
        pass
    return UNKNOWN


def _control(key: bytes, source: MessageBytes) -> DecodedMessage:
    name = _OF_CONTROL.get(_control_type(key) or "")
    if name is None:
        return UNKNOWN
    message = definitions("clients")[name]
    version = used = MessageBytes(source.data).int16()
    if name == "EndTxnMarker":
        source.int16()
        # Java reads newer markers as the newest that it knows.
        used = min(version, message.versions[-1])
    return _read(source, name, version, message, used, more=used < version)


def _read(source: MessageBytes, type: str, shown: int, message: Definition, version: int, more: bool = False) -> DecodedMessage:
    """A message; not known if bytes are left after it, except for ``more``: previews of Kafka wrote other fields in the same versions."""
    if version in message.versions:
        try:
            fields = reader(message, version)(source)
            if more or not source.left:
                return DecodedMessage(type, shown, message, fields)
        except MalformedMessageError:
            pass
    return DecodedMessage(type, shown, message)


def _control_type(key: bytes) -> str | None:
    number = v2.control_type(key)
    return v2.CONTROL_TYPES[number] if number is not None and 0 <= number < len(v2.CONTROL_TYPES) else None


def _plain(name: str) -> str:
    return name.removesuffix("Key").removesuffix("Value")


@cache
def _coordinator(topic: str, is_key: bool) -> dict[int, Definition]:
    type = "coordinator-key" if is_key else "coordinator-value"
    return {message.number: message for message in definitions(_KEYED[topic]).values() if message.type == type}


@cache
def _metadata(topic: str) -> dict[int, Definition]:
    return {message.number: message for message in definitions(_FRAMED[topic]).values()}


LOOKS_AT = ("key", "value", "topic", "isControl")  # Record columns by which a message is recognised.
_TYPE = pa.field("type", pa.string(), metadata={"kolumn": "message"})
_SLICE, _ROWS = 1 << 20, 10_000  # Bytes of payloads, and rows, that are Python objects at a time: these take many times the memory.


@dataclass(frozen=True)
class Reading:
    """What a read can meet: topics, records of control batches, and the topic of files whose folder names none."""

    topics: tuple[str, ...]
    control: bool
    nameless: str | None = None


class InternalDecoder:
    """Decodes one column, "key" or "value". Threads use one decoder at the same time.

        struct<type: string, version: int16, OffsetCommit: struct<…>, GroupMetadata: struct<…>, …, bytes: binary>

    ``type`` names the message of a row, whose fields are in the struct of that name; the others are null. A message without fields has no
    struct. What cannot be decoded, an unknown message or version, is in ``bytes`` as it was stored. So are payloads of other topics.
    """

    def __init__(self, column: str, reading: Reading) -> None:
        self._is_key, self._nameless = column == "key", reading.nameless
        messages: dict[str, Definition] = {}
        for topic in sorted({*reading.topics, *([reading.nameless] if reading.nameless else [])}):
            if topic in _KEYED:
                messages |= {_plain(message.name): message for message in _coordinator(topic, self._is_key).values()}
            elif topic in _FRAMED and not self._is_key:
                messages |= {message.name: message for message in _metadata(topic).values()}
        if reading.control and not self._is_key:
            messages |= {name: definitions("clients")[name] for name in _OF_CONTROL.values()}
        self._types = {name: arrow_type(message) for name, message in messages.items() if message.fields}
        self.type = pa.struct([_TYPE, ("version", pa.int16()), *self._types.items(), ("bytes", pa.binary())])

    def decode(self, columns: Mapping[str, pa.Array]) -> tuple[pa.Array, Flags]:
        """The column, and which rows were decoded or belong to other topics, from the columns `LOOKS_AT`."""
        payloads = columns["key" if self._is_key else "value"]
        parts: list[pa.Array] = []
        valid = np.zeros(len(payloads), np.bool_)
        for start, stop in _slices(payloads):
            rows = (column[start:stop].to_pylist() for column in (columns["topic"], columns["isControl"], columns["key"], payloads))
            part, valid[start:stop] = self._slice([self._row(*row) for row in zip(*rows, strict=True)])
            parts.append(part)
        return pa.concat_arrays(parts) if parts else pa.array([], self.type), valid

    def _row(
        self, topic: str | None, is_control: bool, key: bytes | None, payload: bytes | None
    ) -> tuple[DecodedMessage, bytes | None, bool]:
        """What a row is, the bytes that are kept, and whether it is valid."""
        topic = topic or self._nameless
        if payload is None:
            return UNKNOWN, None, False
        if not is_control and topic not in INTERNAL_TOPICS:
            return UNKNOWN, payload, True
        decoded = decode_key(topic, is_control, payload) if self._is_key else decode_value(topic, is_control, key, payload)
        return decoded, None if decoded.is_known else payload, decoded.is_known

    def _slice(self, rows: list[tuple[DecodedMessage, bytes | None, bool]]) -> tuple[pa.Array, Flags]:
        numbers: dict[str, list[int]] = {}
        fields: dict[str, list[Mapping[str, object]]] = {}
        for number, (decoded, _, _) in enumerate(rows):
            if decoded.type in self._types and decoded.fields is not None:
                numbers.setdefault(decoded.type, []).append(number)
                fields.setdefault(decoded.type, []).append(decoded.fields)
        columns = [pa.array([row[0].type for row in rows], pa.string()), pa.array([row[0].version for row in rows], pa.int16())]
        for name, type in self._types.items():
            columns.append(_spread(pa.array(fields[name], type), numbers[name], len(rows)) if name in fields else pa.nulls(len(rows), type))
        columns.append(pa.array([kept for _, kept, _ in rows], pa.binary()))
        null = pa.array([not is_valid and kept is None for _, kept, is_valid in rows], pa.bool_())
        array = pa.StructArray.from_arrays(columns, fields=list(self.type), mask=null)
        return array, np.array([is_valid for _, _, is_valid in rows], np.bool_)


def is_message(type: pa.DataType) -> bool:
    return pa.types.is_struct(type) and type.num_fields > 0 and type[0].metadata == _TYPE.metadata


def unknown_messages(batch: pa.RecordBatch) -> dict[str, int]:
    """How many keys and values of a batch are kept as bytes, by what is known of them."""
    counts: Counter[str] = Counter()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if is_message(column.type):
            kept = column.filter(pc.is_valid(pc.struct_field(column, "bytes")))
            for type, version in zip(kept.field("type").to_pylist(), kept.field("version").to_pylist(), strict=True):
                counts[f"{name}s of type {type or 'unknown'}{'' if version is None else f', version {version}'}"] += 1
    return dict(counts)


def _slices(payloads: pa.BinaryArray) -> Iterator[tuple[int, int]]:
    """Rows from and to, with some payloads' bytes each; a row at least."""
    count, start = len(payloads), 0
    ends = np.frombuffer(payloads.buffers()[1], np.int32, count + 1, 4 * payloads.offset) if count else np.zeros(1, np.int32)
    while start < count:
        full = int(np.searchsorted(ends, int(ends[start]) + _SLICE, "right")) - 1
        stop = min(max(start + 1, full), count, start + _ROWS)
        yield start, stop
        start = stop


def _spread(values: pa.Array, numbers: list[int], rows: int) -> pa.Array:
    indexes = np.full(rows, -1, np.int64)
    indexes[numbers] = np.arange(len(numbers))
    return values.take(pa.array(indexes, mask=indexes < 0))
