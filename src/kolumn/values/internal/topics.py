"""Which messages the records of a topic hold, and how a record names its message.

    __consumer_offsets, __transaction_state, __share_group_state
        key    i16 number of the message | key, in its version 0
        value  i16 version | value
    __cluster_metadata, __remote_log_metadata
        value  uvarint 1 | uvarint number of the message | uvarint version | message, and nothing after it
    control records of any topic
        key    i16 version | i16 type
        value  message, which begins with its version; of a transaction's marker it stands before the message

Sources: ``CoordinatorRecordSerde``, ``AbstractApiMessageSerde``, ``ControlRecordUtils`` and ``EndTransactionMarker`` of Kafka.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kolumn.formats import v2
from kolumn.values.internal.definitions import Definition, definitions
from kolumn.values.internal.wire import MalformedMessageError, MessageBytes, reader

CLUSTER_METADATA = "__cluster_metadata"
_KEYED = {
    "__consumer_offsets": "group-coordinator",
    "__transaction_state": "transaction-coordinator",
    "__share_group_state": "share-coordinator",
}
_FRAMED = {CLUSTER_METADATA: "metadata", "__remote_log_metadata": "storage"}
INTERNAL_TOPICS = (*_KEYED, *_FRAMED)
"""Topics whose records are decoded."""
_OF_CONTROL = {
    "COMMIT": "EndTxnMarker", "ABORT": "EndTxnMarker", "LEADER_CHANGE": "LeaderChangeMessage", "SNAPSHOT_HEADER": "SnapshotHeaderRecord",
    "SNAPSHOT_FOOTER": "SnapshotFooterRecord", "KRAFT_VERSION": "KRaftVersionRecord", "KRAFT_VOTERS": "VotersRecord",
}  # fmt: skip
_FRAME = 1
"""The only frame that there is."""
_LARGEST = 2**15 - 1
"""Versions have 15 bits in Kafka."""


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
        """Whether the bytes were decoded."""
        return self.fields is not None


UNKNOWN = DecodedMessage()


def key_messages(topic: str | None) -> dict[str, Definition]:
    """The keys that a topic can have, by the names of their columns."""
    return {} if topic not in _KEYED else {_plain(one.name): one for one in _coordinator(topic)[0].values()}


def value_messages(topic: str | None) -> dict[str, Definition]:
    """The values that a topic can have, by the names of their columns."""
    if topic in _KEYED:
        return {_plain(one.name): one for one in _coordinator(topic)[1].values()}
    return {} if topic not in _FRAMED else {one.name: one for one in _metadata(topic).values()}


def control_messages() -> dict[str, Definition]:
    """The values of control records, by the names of their columns."""
    return {name: definitions("clients")[name] for name in dict.fromkeys(_OF_CONTROL.values())}


def decode_key(topic: str | None, is_control: bool, key: bytes) -> DecodedMessage:
    """A key; `DecodedMessage.fields` is None for one that is not known, or malformed."""
    try:
        if is_control:
            version, kind = MessageBytes(key).int16(), _control_type(key)
            return DecodedMessage(kind, version, None, None if kind is None else {})
        if topic not in _KEYED:
            return UNKNOWN
        source = MessageBytes(key)
        number = source.int16()
        message = _coordinator(topic)[0].get(number)
        if message is None:
            return DecodedMessage(None, number)
        return _read(source, _plain(message.name), number, message, 0)
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
            message = _coordinator(topic)[1].get(number)
            return DecodedMessage(None, version) if message is None else _read(source, _plain(message.name), version, message, version)
        if topic in _FRAMED:
            return _framed(topic, source)
    except MalformedMessageError:
        pass
    return UNKNOWN


def _framed(topic: str, source: MessageBytes) -> DecodedMessage:
    if source.uvarint() != _FRAME:
        return UNKNOWN
    number, version = source.uvarint(), source.uvarint()
    message = _metadata(topic).get(number)
    if message is None or version > _LARGEST:
        return UNKNOWN
    return _read(source, message.name, version, message, version)


def _control(key: bytes, source: MessageBytes) -> DecodedMessage:
    kind = _control_type(key)
    name = _OF_CONTROL.get(kind or "")
    if name is None:
        return UNKNOWN
    message = definitions("clients")[name]
    version = used = MessageBytes(source.data).int16()
    if name == "EndTxnMarker":
        source.int16()
        # Java reads newer markers as the newest that it knows.
        used = min(version, message.versions.last)
    return _read(source, name, version, message, used, more=used < version)


def _read(source: MessageBytes, type: str, shown: int, message: Definition, version: int, more: bool = False) -> DecodedMessage:
    """A message; not known if bytes are left after it, except for ``more``: previews of Kafka wrote other fields in the same versions."""
    unknown = DecodedMessage(type, shown, message)
    if version not in message.versions:
        return unknown
    try:
        fields = reader(message, version)(source)
    except MalformedMessageError:
        return unknown
    return unknown if source.left and not more else DecodedMessage(type, shown, message, fields)


def _control_type(key: bytes) -> str | None:
    number = v2.control_type(key)
    return v2.CONTROL_TYPES[number] if number is not None and 0 <= number < len(v2.CONTROL_TYPES) else None


def _plain(name: str) -> str:
    return name.removesuffix("Key").removesuffix("Value")


@cache
def _coordinator(topic: str) -> tuple[dict[int, Definition], dict[int, Definition]]:
    """Keys and values by number."""
    found = definitions(_KEYED[topic]).values()
    keys = {one.number: one for one in found if one.kind == "coordinator-key"}
    return keys, {one.number: one for one in found if one.kind == "coordinator-value"}


@cache
def _metadata(topic: str) -> dict[int, Definition]:
    return {one.number: one for one in definitions(_FRAMED[topic]).values()}
