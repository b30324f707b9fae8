"""What every format of values offers: bodies in, a typed column out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.values.schemas.schema import Schema


@dataclass(frozen=True)
class Bodies:
    """The payloads of some rows without what precedes them, in host memory: int64 arrays with a row each.

        at        address of the body
        length    its bytes; -1 for null, and where prefix or headers are malformed, name no known schema, or say that it is Avro as JSON
        prefix    bytes of the recognised prefix in front of it, also of a body that was decompressed; 0 without one
        framing   `kolumn.values.wire.framing`. After Confluent's wire format Protobuf bodies begin with message indexes (of its header
                  they are in `Schema.message_indexes`), after Apicurio's, and beside its headers, with a ``Ref`` message
        schema    index into ``schemas`` of the writer's schema; -1: the body has the reader's schema

    ``schemas`` are the writers' schemas so far: later bodies of the same read have them at the same indexes, and may have more. With
    ``bare`` a body that is not valid may be a value that only looks as if it had a prefix: it is decoded again from ``prefix`` bytes before
    it. ``held`` keeps the memory alive.
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
    """Decodes bodies of one format into a column of ``type``, which is known before. Threads use one decoder at the same time."""

    type: pa.DataType

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """The column, of ``type``, and which rows are valid. A row that is not valid is null; no other row is affected."""
