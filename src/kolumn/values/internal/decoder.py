"""Keys or values of internal topics and of control records as one struct column.

    struct<type: string, version: int16, OffsetCommit: struct<…>, GroupMetadata: struct<…>, …, bytes: binary>

``type`` names the message of a row, whose fields are in the struct of that name; the others are null. A message without fields has no
struct. What cannot be decoded, an unknown message or version, is in ``bytes`` as it was stored. So are payloads of other topics.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags
from kolumn.values.internal import topics
from kolumn.values.internal.definitions import Definition
from kolumn.values.internal.wire import arrow_type

LOOKS_AT = ("key", "value", "topic", "isControl")
"""Record columns by which a message is recognised."""
_TYPE = pa.field("type", pa.string(), metadata={"kolumn": "message"})
_SLICE, _ROWS = 1 << 20, 10_000
"""Bytes of payloads, and rows, that are Python objects at a time: these take many times the memory."""


@dataclass(frozen=True)
class Reading:
    """What a read can meet: topics, records of control batches, and the topic of files whose folder names none."""

    topics: tuple[str, ...]
    control: bool
    nameless: str | None = None


class InternalDecoder:
    """Decodes one column, "key" or "value". Threads use one decoder at the same time."""

    def __init__(self, column: str, reading: Reading) -> None:
        self.column, self.nameless = column, reading.nameless
        found: dict[str, Definition] = {}
        for topic in sorted({*reading.topics, *([reading.nameless] if reading.nameless else [])}):
            found |= topics.key_messages(topic) if column == "key" else topics.value_messages(topic)
        if reading.control and column == "value":
            found |= topics.control_messages()
        self._messages = {name: arrow_type(one) for name, one in found.items() if one.fields}
        self.type = pa.struct([_TYPE, ("version", pa.int16()), *self._messages.items(), ("bytes", pa.binary())])

    def decode(self, found: Mapping[str, pa.Array]) -> tuple[pa.Array, Flags]:
        """The column, and which rows were decoded or belong to other topics, from the columns `LOOKS_AT`."""
        rows = [found[name].to_pylist() for name in ("topic", "isControl")]
        keys, payloads = found["key"], found[self.column]
        parts: list[pa.Array] = []
        valid = np.zeros(len(payloads), np.bool_)
        for start, stop in _slices(payloads):
            part = zip(
                rows[0][start:stop], rows[1][start:stop], keys[start:stop].to_pylist(), payloads[start:stop].to_pylist(), strict=True
            )
            made, good = self._slice([self._one(*row) for row in part])
            parts.append(made)
            valid[start:stop] = good
        return pa.concat_arrays(parts) if parts else pa.array([], self.type), valid

    def _one(
        self, topic: str | None, is_control: bool, key: bytes | None, payload: bytes | None
    ) -> tuple[topics.DecodedMessage, bytes | None, bool]:
        """What a row is, the bytes that are kept, and whether it is valid."""
        topic = topic or self.nameless
        if payload is None:
            return topics.DecodedMessage(), None, False
        if not is_control and topic not in topics.INTERNAL_TOPICS:
            return topics.DecodedMessage(), payload, True
        one = (
            topics.decode_key(topic, is_control, payload) if self.column == "key" else topics.decode_value(topic, is_control, key, payload)
        )
        return one, None if one.is_known else payload, one.is_known

    def _slice(self, rows: list[tuple[topics.DecodedMessage, bytes | None, bool]]) -> tuple[pa.Array, Flags]:
        place: dict[str, list[int]] = {}
        fields: dict[str, list[Mapping[str, object]]] = {}
        for i, (one, _, _) in enumerate(rows):
            if one.type in self._messages and one.fields is not None:
                place.setdefault(one.type or "", []).append(i)
                fields.setdefault(one.type or "", []).append(one.fields)
        columns = [pa.array([one.type for one, _, _ in rows], pa.string()), pa.array([one.version for one, _, _ in rows], pa.int16())]
        for name, kind in self._messages.items():
            columns.append(_spread(pa.array(fields[name], kind), place[name], len(rows)) if name in place else pa.nulls(len(rows), kind))
        columns.append(pa.array([kept for _, kept, _ in rows], pa.binary()))
        good = np.array([is_valid for _, _, is_valid in rows], np.bool_)
        null = pa.array([not is_valid and kept is None for _, kept, is_valid in rows], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=null), good


def is_message(kind: pa.DataType) -> bool:
    """Whether a type is that of an `InternalDecoder`."""
    return pa.types.is_struct(kind) and kind.num_fields > 0 and kind[0].metadata == _TYPE.metadata


def unknown_messages(batch: pa.RecordBatch) -> dict[str, int]:
    """How many keys and values of a batch are kept as bytes, by what is known of them."""
    found: Counter[str] = Counter()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if is_message(column.type):
            kept = column.filter(pc.is_valid(pc.struct_field(column, "bytes")))
            for type, version in zip(kept.field("type").to_pylist(), kept.field("version").to_pylist(), strict=True):
                found[f"{name}s of type {type or 'unknown'}{'' if version is None else f', version {version}'}"] += 1
    return dict(found)


def _slices(payloads: pa.BinaryArray) -> Iterator[tuple[int, int]]:
    """Rows from and to, with some payloads' bytes each; a row at least."""
    ends = (
        np.frombuffer(payloads.buffers()[1], np.int32, len(payloads) + 1, 4 * payloads.offset) if len(payloads) else np.zeros(1, np.int32)
    )
    start = 0
    while start < len(payloads):
        full = int(np.searchsorted(ends, int(ends[start]) + _SLICE, "right")) - 1
        stop = min(max(start + 1, full), len(payloads), start + _ROWS)
        yield start, stop
        start = stop


def _spread(values: pa.Array, place: list[int], rows: int) -> pa.Array:
    """The values in their rows, null elsewhere."""
    at = np.full(rows, -1, np.int64)
    at[place] = np.arange(len(place))
    return values.take(pa.array(at, mask=at < 0))
