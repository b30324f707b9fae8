"""What precedes values of schema registries a second time, slowly and readably: the schema and message that a value names, and its body."""

import re
import zlib
from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

Headers = list[tuple[str, bytes | None]]
AZURE = re.compile(rb"(?:\xa1.|\xb1....)?avro/binary\+([0-9a-fA-F]{32})", re.DOTALL)


class Message(NamedTuple):
    """A Protobuf message as serializers mean it: Confluent's path, Glue's number, the name that Apicurio's write, if it means this one;
    and the paths of all messages of the file."""

    path: tuple[int, ...]
    number: int
    name: str
    full_name: str
    paths: Collection[tuple[int, ...]] = ()


class NoBodyError(Exception):
    """Why a value has no body; the first of ``bodies`` that is a message may be one, as old serializers write it."""

    def __init__(self, why: str, bodies: Sequence[bytes] = ()) -> None:
        super().__init__(why)
        self.bodies = bodies


def body_of(value: bytes, headers: Headers, is_key: bool, known: Collection[int | UUID], message: Message | None) -> bytes:
    """The body of a value, which with a ``message`` has to be one of that; a NoBodyError if it names another one, or no known schema."""
    # The last header of a name counts.
    told = {name: data for name, data in dict(headers).items() if data is not None}
    kind = "key" if is_key else "value"
    if (confluent := told.get(f"__{kind}_schema_id")) is not None:
        return _by_confluents_header(value, confluent, known, message)
    for name in ("contentId", "globalId", "artifactId"):
        if (found := told.get(f"apicurio.{kind}.{name}")) is not None:
            if name == "artifactId" or len(found) != 8 or int.from_bytes(found, "big", signed=True) not in known:
                raise NoBodyError("header")
            if told.get(f"apicurio.{kind}.encoding", b"BINARY") != b"BINARY":
                raise NoBodyError("encoding")
            own = told.get("apicurio.protobuf.type" + (".key" if is_key else ""))
            if message is not None and own is not None and own.decode("utf-8", "replace") not in (message.name, message.full_name):
                raise NoBodyError("another message")
            return value if message is None else _after_apicurio(value, message, or_nothing=True)
    azure = told.get("content-type")
    if azure is not None and (match := AZURE.fullmatch(azure)) is not None:
        return _known(value, UUID(match[1].decode()), known)
    return _by_prefix(value, known, message)


def _known(body: bytes, key: int | UUID, known: Collection[int | UUID]) -> bytes:
    if key not in known:
        raise NoBodyError(f"unknown {key}")
    return body


def _by_confluents_header(value: bytes, told: bytes, known: Collection[int | UUID], message: Message | None) -> bytes:
    if told[:1] == b"\0" and len(told) >= 5:
        key: int | UUID = int.from_bytes(told[1:5], "big", signed=True)
        rest = told[5:]
    elif told[:1] == b"\1" and len(told) >= 17:
        key, rest = UUID(bytes=told[1:17]), told[17:]
    else:
        raise NoBodyError("header")
    if rest:
        path, after = _indexes(rest)
        if after or (message is not None and path != message.path):
            raise NoBodyError("message indexes")
    return _known(value, key, known)


def _by_prefix(value: bytes, known: Collection[int | UUID], message: Message | None) -> bytes:
    if value[:5] == bytes(5) and len(value) >= 9:
        body = _known(value[9:], int.from_bytes(value[1:9], "big", signed=True), known)
        return body if message is None else _after_apicurio(body, message)
    if value[:1] == b"\0" and len(value) >= 5:
        body = _known(value[5:], int.from_bytes(value[1:5], "big", signed=True), known)
        return body if message is None else _after_either(body, message)
    if value[:1] == b"\1" and len(value) >= 17:
        body = _known(value[17:], UUID(bytes=value[1:17]), known)
        return body if message is None else _after_either(body, message)
    if value[:2] in (b"\3\0", b"\3\5") and len(value) >= 18:
        body = _known(value[18:], UUID(bytes=value[2:18]), known)
        if value[1] == 5:
            stream = zlib.decompressobj()
            try:
                body = stream.decompress(body)
            except zlib.error:
                raise NoBodyError("zlib") from None
            if not stream.eof or stream.unused_data:
                raise NoBodyError("zlib")
        if message is None:
            return body
        number, after = _varint(body, 5)
        if number != message.number:
            raise NoBodyError("number")
        return after
    raise NoBodyError("no prefix")


def _varint(data: bytes, most: int = 10) -> tuple[int, bytes]:
    found = 0
    for k, byte in enumerate(data[:most]):
        found |= (byte & 0x7F) << 7 * k
        if byte < 0x80:
            return found & 0xFFFFFFFFFFFFFFFF, data[k + 1 :]
    raise NoBodyError("varint")


def _zigzag(data: bytes) -> tuple[int, bytes]:
    found, data = _varint(data)
    return (found >> 1) ^ -(found & 1), data


def _indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    count, data = _zigzag(data)
    if not 0 <= count <= len(data):
        raise NoBodyError("message indexes")
    path = []
    for _ in range(count):
        index, data = _zigzag(data)
        path.append(index)
    return tuple(path) or (0,), data


def _after_either(body: bytes, message: Message) -> bytes:
    if _name(body) in (message.name, message.full_name):
        return _after_apicurio(body, message)
    try:
        path, after = _indexes(body)
    except NoBodyError:
        path, after = (), b""
    if path == message.path:
        return after
    name = _name(body)
    if (path in message.paths and _is_message(after)) or (name is not None and "." not in name):
        raise NoBodyError("message indexes")
    raise NoBodyError("message indexes", _as_old_ones(body, message))


def _is_message(body: bytes) -> bool:
    try:
        Timestamp.FromString(body)
    except DecodeError:
        return False
    return True


def _as_old_ones(body: bytes, message: Message) -> list[bytes]:
    """The bodies after message indexes as plain varints, and without any, if the file has no other outermost message."""
    found = []
    try:
        count, rest = _varint(body)
        path = []
        for _ in range(min(count, 99)):
            index, rest = _varint(rest)
            path.append(index)
        if (tuple(path) or (0,)) == message.path:
            found.append(rest)
    except NoBodyError:
        pass
    is_only_one = [path for path in message.paths if len(path) == 1] == [message.path]
    return [*found, body] if is_only_one else found


def _after_apicurio(body: bytes, message: Message, *, or_nothing: bool = False) -> bytes:
    name = _name(body)
    if name is not None and "." in name and name != message.full_name:
        # No serializer writes what the message is in.
        name = None
    if name is not None:
        if name not in (message.name, message.full_name):
            raise NoBodyError("another name")
        _, body = _varint(body, 5)
        body = body[len(name) + 2 :]
    if body and 0 < body[0] < 8:
        path, body = _indexes(body)
        if path != message.path:
            raise NoBodyError("message indexes")
    elif name is None and not or_nothing:
        raise NoBodyError("no name")
    return body


def _name(body: bytes) -> str | None:
    """The name in a ``Ref``, if there is one: its length, a tag, the length of the name and the name."""
    try:
        length, rest = _varint(body, 5)
    except NoBodyError:
        return None
    name = rest[2:length]
    if len(rest) < length or length < 3 or rest[0] != 10 or rest[1] != length - 2 or not re.fullmatch(rb"[\w.]+", name):
        return None
    return name.decode()
