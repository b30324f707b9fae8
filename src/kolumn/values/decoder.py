"""What every format of values offers: bodies in, a typed column out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from kolumn.arrays import Flags, Int64s
from kolumn.schemas.schema import Schema


@dataclass(frozen=True)
class Bodies:
    """The payloads of some rows without what precedes them, in host memory.

    Attributes
    ----------
    at : int64 array of n
        Addresses of the bodies.
    length : int64 array of n
        Bytes of each body; -1 for a row without a value, or whose prefix or headers are malformed, name no known schema, or say that the
        body is Avro as JSON.
    prefix : int64 array of n
        Bytes of the recognised prefix in front of the body, also of a body that was decompressed; 0 without one.
    framing : int64 array of n
        Which framing was recognised: constants of `kolumn.encodings.framing`. Bodies of Protobuf begin with message indexes after
        Confluent's prefixes (after its header they are in `Schema.message_indexes`), with a `Ref` message after Apicurio's, and, as
        version 3 of its serializers writes them, beside its headers.
    schema : int64 array of n
        Index into ``schemas`` of the writer's schema; -1 without one: a body then has the reader's schema.
    schemas : sequence of Schema
        Writers' schemas so far. Later bodies of the same read have the same schemas at the same places, and may have more.
    bare : bool
        Whether a row whose body is not valid may be a value without a prefix that only looks like one: it is decoded again from its
        first byte, ``prefix`` bytes before the body.
    held : object
        What keeps the memory alive.
    """

    at: Int64s
    length: Int64s
    prefix: Int64s
    framing: Int64s
    schema: Int64s
    schemas: Sequence[Schema]
    bare: bool = False
    held: Any = None

    def __len__(self) -> int:
        return len(self.at)


class ValueDecoder(Protocol):
    """Decodes bodies of one format into one type. Threads use one decoder at the same time.

    Attributes
    ----------
    type : pa.DataType
        Type of the column, known before anything is decoded.
    """

    type: pa.DataType

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """The column, of ``type``, and which rows are valid. A row that is not valid is null; no other row is affected."""
