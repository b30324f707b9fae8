"""The bytes of entries by purpose, counted field by field for each layout."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import AnyArray, Int64s
from kolumn.cpu_fallback.encode import sizes
from kolumn.cpu_fallback.encode.sizes import count_batches, count_payloads, count_sets
from kolumn.formats import enriched, layouts, v2
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries
from kolumn.formats.varint import uvarint_size, varint_size
from kolumn.log.pieces import Piece
from kolumn.writers.table import RecordsIn, take_apart

PARTS = ("keys", "values", "headers", "offsets", "timestamps", "lengths", "crc", "producer", "attributes", "compression")
"""Purposes of bytes. ``headers`` are those of records; ``lengths`` includes counts and the surplus bytes of overlong varints;
``attributes`` are all other fixed fields; ``compression`` is what a codec saves, a negative number."""

_CRC, _PRODUCER = 4, 14
_TAG = 9
"""Bytes of the broker timestamp of an enriched message."""


@dataclass
class CountedEntries:
    """Entries of one layout with ``size``, in format 3 with ``payload`` too, and their records: the first of each, and the one after the
    last.

    ``tagged`` (uint8) flags enriched messages that have a broker timestamp.
    """

    entries: Entries
    given: RecordsIn
    first: Int64s
    stop: int
    tagged: AnyArray | None = None

    @property
    def counts(self) -> Int64s:
        """Number of records of each entry."""
        return np.diff(np.append(self.first, self.stop))


def anatomy(piece: Piece) -> Counter[str]:
    """Bytes of each of `PARTS` in the entries of a piece; together they are the bytes of the entries."""
    found: Counter[str] = Counter()
    for layout in np.unique(piece.entries.layout).tolist():
        some = piece.entries.layout == layout
        entries, counts, records = piece.entries, piece.counts, piece.records
        if not some.all():
            entries, counts, records = entries[some], counts[some], records.filter(pa.array(np.repeat(some, counts)))
        tagged = np.asarray(pc.is_valid(records["brokerTimestampMs"])) if layout == enriched.LAYOUT.number else None
        table = pa.Table.from_batches([records.select(["offset", "timestampMs", "key", "value", "headers"])])
        first = np.cumsum(counts) - counts
        found.update(count(CountedEntries(entries, take_apart(table, 0), first, records.num_rows, tagged), layout))
    return found


def count(what: CountedEntries, layout: int) -> Counter[str]:
    """Bytes of each of `PARTS` in entries of a layout.

    What is left of an entry's size is ``compression`` if it has a codec, else ``lengths``: fields may be longer than they need to be.
    """
    by_loop, packed = np.zeros((2, sizes.WIDTH), np.int64), what.entries.codec != NONE
    found: Counter[str] = Counter()
    records, first, stop, rows = what.given.records, what.first, what.stop, np.ascontiguousarray(what.entries.array)
    if layouts.holds_records(layout):
        count_batches(records, layouts.attribute_bytes(layout), first, stop, rows, by_loop)
    elif layouts.is_set(layout):
        count_sets(records, first, stop, rows, by_loop)
    else:
        count_payloads(records, first, stop, rows, by_loop)
    for kind in (0, 1):
        some = packed == bool(kind)
        if not some.any():
            continue
        own = Counter(dict(zip(PARTS, by_loop[kind].tolist(), strict=False)))
        entries, counts = what.entries[some], what.counts[some]
        if layouts.holds_records(layout):
            own.update(_batches(entries, int(counts.sum()), layout))
        elif layouts.is_set(layout):
            own.update(_sets(len(entries), int(counts.sum())))
        else:
            tagged = 0 if what.tagged is None else int(what.tagged[np.repeat(some, what.counts)].sum())
            own.update(_messages(entries, counts, layout, len(entries) if kind else 0, tagged))
        own["compression" if kind else "lengths"] += int(entries.size.sum()) - sum(own.values())
        found.update(own)
    return found


def _batches(rows: Entries, records: int, layout: int) -> Counter[str]:
    """Headers of batches, and the attributes of their records."""
    entries = len(rows)
    found = Counter(crc=_CRC * entries, producer=_PRODUCER * entries, attributes=layouts.attribute_bytes(layout) * records + 7 * entries)
    if layout == v2.LAYOUT.number:
        return found + Counter(lengths=8 * entries, timestamps=16 * entries, offsets=(8 + 4) * entries)
    base, highest = rows.base_timestamp.tolist(), (rows.max_timestamp - rows.base_timestamp).tolist()
    stamps = sum(map(varint_size, base)) + sum(map(varint_size, highest))
    last = sum(map(uvarint_size, (rows.last_offset - rows.base_offset).tolist()))
    lengths = int(rows.payload.sum()) - stamps - last - (8 + 7 + _CRC + _PRODUCER) * entries
    return found + Counter(timestamps=stamps, offsets=8 * entries + last, lengths=lengths)


def _sets(entries: int, messages: int) -> Counter[str]:
    """Sets of the KIP-98 draft: every message has its length, its timestamp and its checksum."""
    return Counter(
        lengths=4 * entries,
        offsets=12 * entries,
        timestamps=8 * (messages + entries),
        crc=_CRC * (messages + entries),
        producer=_PRODUCER * entries,
        attributes=messages + 3 * entries,
    )


def _messages(rows: Entries, counts: Int64s, layout: int, wrappers: int, tagged: int) -> Counter[str]:
    """Messages, and the wrappers around them."""
    if layout == enriched.LAYOUT.number:
        return tagged_messages(int(counts.sum()) + wrappers, tagged)
    timed = rows.magic >= 1
    return plain_messages(int(counts.sum()) + wrappers, int(counts[timed].sum()) + (int(timed.sum()) if wrappers else 0))


def plain_messages(messages: int, timed: int) -> Counter[str]:
    """Messages of formats 0 and 1, apart from keys and values; ``timed`` of them have a timestamp."""
    return Counter(offsets=8 * messages, crc=_CRC * messages, lengths=12 * messages, attributes=2 * messages, timestamps=8 * timed)


def tagged_messages(messages: int, tagged: int) -> Counter[str]:
    """Enriched messages, apart from keys and values; ``tagged`` of them have a broker timestamp."""
    timestamps = 4 * messages + _TAG * tagged
    return Counter(offsets=8 * messages, crc=_CRC * messages, lengths=(12 + 4) * messages, attributes=2 * messages, timestamps=timestamps)
