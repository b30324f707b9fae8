"""The bytes of entries by purpose, counted field by field for each layout."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.arrays import Int64s
from kolumn.codecs import NONE
from kolumn.formats import enriched, layouts, table, v2
from kolumn.log.pieces import Piece

PARTS = ("keys", "values", "headers", "offsets", "timestamps", "lengths", "crc", "producer", "attributes", "compression")
"""Purposes of bytes. ``headers`` are those of records; ``lengths`` includes counts and the surplus bytes of overlong varints;
``attributes`` are all other fixed fields; ``compression`` is what a codec saves, a negative number."""

_CRC, _PRODUCER = 4, 14


def anatomy(piece: Piece) -> Counter[str]:
    """Bytes of each of `PARTS` in the entries of a piece; together they are the bytes of the entries."""
    found: Counter[str] = Counter()
    kinds = piece.entries.layout * 2 + (piece.entries.codec != NONE)
    for kind in np.unique(kinds).tolist():
        some = kinds == kind
        part = replace(
            piece, entries=piece.entries[some], counts=piece.counts[some], records=piece.records.filter(np.repeat(some, piece.counts))
        )
        layout, packed = divmod(kind, 2)
        if layouts.holds_records(layout):
            own = _batches(part, layout)
        elif layouts.is_set(layout):
            own = _sets(part)
        else:
            own = _messages(part, layout, packed)
        own["keys"], own["values"] = _bytes(part.records["key"]), _bytes(part.records["value"])
        own["compression" if packed else "lengths"] += int(part.entries.size.sum()) - sum(own.values())
        found.update(own)
    return found


def _bytes(column: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)


def _lengths(column: pa.Array) -> Int64s:
    """Lengths of payloads, -1 for null."""
    return pc.fill_null(pc.binary_length(column).cast("int64"), -1).to_numpy()


def _unsigned(values: Int64s) -> Int64s:
    """Bytes of each unsigned varint."""
    raw = values.astype(np.uint64)
    return sum(((raw >> np.uint64(bits) > 0).astype(np.int64) for bits in range(7, 64, 7)), np.ones(len(raw), np.int64))


def _varints(values: Int64s) -> Int64s:
    """Bytes of each zig-zag varint."""
    return _unsigned(((values << 1) ^ (values >> 63)).view(np.uint64))


def _of_entry(piece: Piece, values: Int64s) -> Int64s:
    return np.repeat(values, piece.counts)


def _batches(piece: Piece, layout: int) -> Counter[str]:
    rows, records, entries = piece.entries, piece.records, len(piece.entries)
    time = records["timestampMs"].to_numpy() - _of_entry(piece, piece.entries.base_timestamp)
    time[_of_entry(piece, piece.entries.timestamp_type) == table.LOG_APPEND_TIME] = 0
    times, offsets = _varints(time), _varints(records["offset"].to_numpy() - _of_entry(piece, piece.entries.base_offset))
    key, value, listed = (
        _lengths(records["key"]),
        _lengths(records["value"]),
        pc.list_value_length(records["headers"]).cast("int64").to_numpy(),
    )
    headers = records["headers"].flatten()
    name, content = _lengths(headers.field("key")), _lengths(headers.field("value"))
    each = np.append(0, np.cumsum(np.maximum(name, 0) + np.maximum(content, 0) + _varints(name) + _varints(content)))
    stops = np.cumsum(listed)
    attributes = layouts.attribute_bytes(layout)
    counted = _varints(key) + _varints(value) + _varints(listed)
    body = attributes + times + offsets + counted + np.maximum(key, 0) + np.maximum(value, 0) + each[stops] - each[stops - listed]
    header_bytes = int(np.maximum(name, 0).sum() + np.maximum(content, 0).sum())
    found = Counter(headers=header_bytes, crc=_CRC * entries, producer=_PRODUCER * entries, attributes=attributes * len(key) + 7 * entries)
    found["lengths"] = int((_varints(body) + counted).sum() + each[-1]) - header_bytes
    found["timestamps"], found["offsets"] = int(times.sum()), int(offsets.sum()) + 8 * entries
    if layout == v2.LAYOUT.number:
        found["lengths"] += 8 * entries
        found["timestamps"] += 16 * entries
        found["offsets"] += 4 * entries
        return found
    base, highest = rows.base_timestamp, rows.max_timestamp
    stamps = int((_varints(base) + _varints(highest - base)).sum())
    last = int(_unsigned(rows.last_offset - rows.base_offset).sum())
    found["timestamps"] += stamps
    found["offsets"] += last
    found["lengths"] += int(rows.payload.sum()) - stamps - last - (8 + 7 + _CRC + _PRODUCER) * entries
    return found


def _sets(piece: Piece) -> Counter[str]:
    """Sets of the KIP-98 draft: every message has its length, its timestamp and its checksum."""
    records, entries, messages = piece.records, len(piece.entries), piece.records.num_rows
    key, value = _lengths(records["key"]), _lengths(records["value"])
    delta = _unsigned(records["offset"].to_numpy() - _of_entry(piece, piece.entries.base_offset))
    counted = np.where((key >= 0) & (value >= 0), _unsigned(np.maximum(key, 0)), 0)
    body = 13 + delta + counted + np.maximum(key, 0) + np.maximum(value, 0)
    return Counter(
        lengths=int((counted + _unsigned(body)).sum()) + 4 * entries,
        offsets=int(delta.sum()) + 12 * entries,
        timestamps=8 * (messages + entries),
        crc=_CRC * (messages + entries),
        producer=_PRODUCER * entries,
        attributes=messages + 3 * entries,
    )


def _messages(piece: Piece, layout: int, packed: int) -> Counter[str]:
    """Messages, and the wrappers around them."""
    wrappers = len(piece.entries) if packed else 0
    messages = piece.records.num_rows + wrappers
    found = Counter(offsets=8 * messages, crc=_CRC * messages, lengths=12 * messages, attributes=2 * messages)
    if layout == enriched.LAYOUT.number:
        tagged = pc.sum(pc.is_valid(piece.records["brokerTimestampMs"])).as_py() or 0
        found["lengths"] += 4 * messages
        found["timestamps"] = 4 * messages + 9 * tagged
        return found
    timed = piece.entries.magic >= 1
    found["timestamps"] = 8 * (int(piece.counts[timed].sum()) + (int(timed.sum()) if packed else 0))
    return found
