"""The key-value store of a Redpanda node, and what it tells of the consumer offsets in a log that begins later than at raw offset 0.

    <data>/redpanda/kvstore/<core>_0/<base>-<term>-v1.log     segments of batches of the type `KVSTORE`: what was put, in order
    <data>/redpanda/kvstore/<core>_0/snapshot                 the state up to a raw offset; segments before it may be gone

All numbers are in little-endian. A record of a segment:

    key     i8 key space | bytes
    value   u8 0: the key is deleted; or u8 1 | u32 length | bytes of the value

The snapshot is one batch with other bytes for its records, whose values are those bytes alone:

    u32 crc | u32 crc | i8 version | i32 8 | i64 last raw offset of the state | i32 bytes of what follows | a batch's header, 61 bytes |
    i64 term | i8 whether it is compressed | records
    record  u32 size | i8 attributes | i64 timestamp delta | i32 offset delta | i32 key length | u32 length, key |
            i32 value length | u32 length, value | i32 headers

Key space 4 has the offset translators' keys, two for each raft group: i8 kind | i64 group.

    kind 0  the map         u8 version | u8 version of the oldest reader | u32 bytes of what follows |
                            i64 delta before the first of the batches | u32 count | count × (i64 base raw offset | i32 raw offsets)
    kind 1  how far it goes i64 raw offset: all batches up to there that consumers have no offsets of are in the map

Which partition a group is of is only in the controller's log. So a map is taken as that of a log if it has exactly the batches that the log
has, as far as both are known, of these `_ENOUGH` at least or all that the log has, and if no other map that fits says another delta.

The checksums of each batch are compared, and those of the snapshot's batch too, after its records have got the bytes that they have in a
segment. What the two checksums at the beginning of a snapshot cover is not known, and they are not compared. So its last raw offset only
shows whether segments are missing. Records of segments that the snapshot has too are put again: the last one of each key counts.

A store in which anything is not as it is here is not used, nor are the others of its node: the map of the log may be there.

Source: the layout as Redpanda's public viewer shows it (tools/offline_log_viewer).
"""

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Int64s
from kolumn.core.errors import KolumnError, shown
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats.redpanda import HEADER
from kolumn.options import Options
from kolumn.source import storage
from kolumn.source.redpanda import named, partition_number
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import FolderEntry

KVSTORE = 4
"""Type of the store's batches."""
_OFFSETS, _MAP, _REACH = 4, 0, 1
_ENOUGH = 3  # batches that a map and a log have both
_SNAPSHOT = "snapshot"
_CORE = re.compile(r"[0-9]+_0")
_READ = Options(format="redpanda", columns=("batchType", "rawOffset", "key", "value"), include_control=True, backend="cpu")
_KEY, _ENVELOPE, _MAP_HEAD = struct.Struct("<bbq"), struct.Struct("<BBI"), struct.Struct("<qI")
_BATCH = np.dtype([("base", "<i8"), ("length", "<i4")])
_I8, _I32, _U32, _I64 = struct.Struct("<b"), struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<q")
_SNAPSHOT_HEAD, _TERM, _RECORD = struct.Struct("<IIbi"), struct.Struct("<qb"), struct.Struct("<Ibqi")
_SMALLEST_RECORD = _RECORD.size + 5 * _I32.size
_FAR = 1 << 62  # no log reaches this raw offset, and sums with it are no larger than 64 bits


class _NotAsKnownError(Exception):
    """Something in a store is not as the layout has it."""


@dataclass(frozen=True)
class Shown:
    """What the headers of a log show, as far as they were looked at: its raw offsets, first <= offset < end, and the batches that consumers
    have no offsets of."""

    first: int
    end: int
    base: Int64s
    length: Int64s


@dataclass(frozen=True, eq=False)
class OffsetMap:
    """The batches of a raft group that consumers have no offsets of, by raw offsets. ``start_delta`` is the delta before the first of them,
    and none is missing up to the raw offset ``reach``."""

    start_delta: int
    base: Int64s
    length: Int64s
    reach: int

    def delta_before(self, log: Shown) -> int | None:
        """The delta before the first batch of a log; None if this map does not fit it."""
        base, length = self.base, self.length
        inside, before = (base >= log.first) & (base < log.end), base < log.first
        ours = log.base <= self.reach
        # One batch may be at the same place in another log.
        if np.count_nonzero(inside) < max(1, min(_ENOUGH, len(log.base))):
            return None
        if not np.array_equal(base[inside], log.base[ours]) or not np.array_equal(length[inside], log.length[ours]):
            return None
        # What goes on into the log from before it is none of its batches.
        if (base[before] + length[before] > log.first).any():
            return None
        delta = self.start_delta + int(length[before].sum())
        return delta if 0 <= delta <= log.first else None

    @property
    def is_ordered(self) -> bool:
        """Whether its batches follow one another."""
        near = (self.base > -_FAR) & (self.base < _FAR) & (self.length > 0)
        return abs(self.start_delta) < _FAR and bool(near.all()) and bool((np.diff(self.base) >= self.length[:-1]).all())


class Stores(NamedTuple):
    """The maps in the stores of a node; none, and why, if they cannot be used."""

    maps: tuple[OffsetMap, ...]
    fault: str = ""

    def after(self, first: int) -> int:
        """The last raw offset that any map which may be of a log from raw offset ``first`` on tells about; -1 without such a map."""
        return max((held.reach for held in self.maps if (held.base >= first).any()), default=-1)

    def delta_before(self, log: Shown | None) -> tuple[int | None, str]:
        """The delta before the first batch of a log; None, and why, if it is not known."""
        if self.fault:
            return None, f"the node's key-value store is not used: {self.fault}"
        told = [] if log is None else [delta for held in self.maps if (delta := held.delta_before(log)) is not None]
        if not told:
            return None, "the node's key-value store has no map that fits the batches of the log"
        if len(set(told)) > 1:
            numbers = " or ".join(map(str, sorted(set(told))[:5]))
            return None, f"the node's key-value store has {len(told)} maps that fit the batches of the log: the difference is {numbers}"
        return told[0], ""


def stores_beside(path: str) -> Stores | None:
    """The stores of the node on which a segment is, of this machine; None if it is not in the folders of a node that has one."""
    if storage.is_url(path):
        return None
    partition = os.path.dirname(os.path.abspath(path))
    kvstore = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(partition))), "redpanda", "kvstore")
    if partition_number(os.path.basename(partition)) is None or not os.path.isdir(kvstore):
        return None
    name = kvstore
    maps: list[OffsetMap] = []
    try:
        folders = [entry.name for entry in storage.listing(kvstore) if entry.is_folder and _CORE.fullmatch(storage.base_name(entry.name))]
        for name in folders:
            maps += _maps(tuple(storage.listing(name)))
    except (_NotAsKnownError, KolumnError) as error:
        text = str(error)
        return Stores((), text if shown(name) in text else f"{shown(name)}: {text}")
    return Stores(tuple(maps)) if folders else None


@lru_cache(maxsize=16)
def _maps(files: tuple[FolderEntry, ...]) -> tuple[OffsetMap, ...]:
    """The maps of a store, by its files with their identities: it is read once, until it changes."""
    state = _state(files)
    maps: dict[int, OffsetMap] = {}
    for key, value in state.items():
        if len(key) != _KEY.size:
            continue
        _, kind, group = _KEY.unpack(key)
        if kind == _MAP:
            try:
                maps[group] = _map(value, state.get(_KEY.pack(_OFFSETS, _REACH, group)))
            except _NotAsKnownError as error:
                raise _NotAsKnownError(f"the map of raft group {group} is not as expected: {error}") from error
    return tuple(held for held in maps.values() if held.is_ordered)


def _map(value: bytes, reach: bytes | None) -> OffsetMap:
    fields = _Fields(value)
    _, oldest, size = fields.numbers(_ENVELOPE)
    if oldest or size != fields.left:
        raise _NotAsKnownError(f"expected an envelope of {fields.left} bytes for readers of version 0, found {size} bytes for {oldest}")
    start_delta, count = fields.numbers(_MAP_HEAD)
    batches = np.frombuffer(fields.take(count * _BATCH.itemsize), _BATCH)
    base, length = batches["base"].astype(np.int64), batches["length"].astype(np.int64)
    last = int(base[-1]) + int(length[-1]) - 1 if count else -1
    known = -1 if reach is None else _Fields(reach).only(_I64)
    return OffsetMap(start_delta, base, length, max(last, known))


def _state(files: tuple[FolderEntry, ...]) -> dict[bytes, bytes]:
    """Keys of offset translators and their values, after all that the files of a store tell."""
    state: dict[bytes, bytes] = {}
    covered = next((_add_snapshot(file, state) for file in files if _is_snapshot(file)), -1)
    end, reached = covered, -1
    segments = sorted(_segments(files), key=lambda segment: segment.base_offset or 0)
    for segment in segments:
        base = segment.base_offset or 0
        if base > end + 1:
            raise _NotAsKnownError(f"raw offsets {end + 1} to {base - 1}, before {shown(segment.path)}, are in no file")
        reached = max(reached, base - 1)
        for raw, key, value in _records(segment):
            reached = max(reached, raw)
            if key[:1] == bytes([_OFFSETS]):
                _put(state, key, _optional(value, segment, raw))
        end = max(end, reached)
    if segments and covered > reached:
        raise _NotAsKnownError(f"the snapshot is up to raw offset {covered}, and the segments up to {reached}: some are missing")
    return state


def _is_snapshot(file: FolderEntry) -> bool:
    return not file.is_folder and storage.base_name(file.name) == _SNAPSHOT


def _put(state: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        state.pop(key, None)
    else:
        state[key] = value


def _optional(value: bytes | None, segment: Segment, raw: int) -> bytes | None:
    if value is None:
        return None
    try:
        fields = _Fields(value)
        (there,) = fields.numbers(_I8)
        if there not in (0, 1):
            raise _NotAsKnownError(f"expected a flag, 0 or 1, found {there}")
        held = fields.sized() if there else None
        fields.end()
    except _NotAsKnownError as error:
        raise _NotAsKnownError(f"{shown(segment.path)}: the value at raw offset {raw} is not as expected: {error}") from error
    return held


def _segments(files: tuple[FolderEntry, ...]) -> Iterator[Segment]:
    for file in files:
        own = None if file.is_folder else named(storage.base_name(file.name))
        if own is not None and own.copy_id is None:
            yield Segment(file.name, None, None, own.base, file.size, format="redpanda", identity=file.identity)


def _records(segment: Segment) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Raw offsets, keys and values of the store's records in a segment; an error if anything in it is damaged, but for a torn end."""
    for batch in scan_ranges([Range.whole(segment)], _READ):
        for kind, raw, key, value in zip(*(batch.column(name).to_pylist() for name in _READ.columns), strict=True):
            if kind == KVSTORE:
                yield raw, key or b"", value


def _add_snapshot(file: FolderEntry, state: dict[bytes, bytes]) -> int:
    """Add what a snapshot has to the state; returns the last raw offset of it."""
    name = shown(file.name)
    data = storage.read_bytes(file.name)
    if data is None:
        raise _NotAsKnownError(f"{name}: cannot be read")
    try:
        fields = _Fields(data)
        *_, size = fields.numbers(_SNAPSHOT_HEAD)
        last = _Fields(fields.take(size)).only(_I64)
        (size,) = fields.numbers(_I32)
        batch, count = _batch(_Fields(fields.take(size)))
        fields.end()
        if last < -1:
            raise _NotAsKnownError(f"expected a raw offset, found {last}")
    except _NotAsKnownError as error:
        raise _NotAsKnownError(f"{name}: the snapshot is not as expected: {error}") from error
    found = 0
    for _, key, value in _records(Segment(file.name, None, None, None, len(batch), format="redpanda", memory=pa.py_buffer(batch))):
        found += 1
        if key[:1] == bytes([_OFFSETS]):
            _put(state, key, value)
    if found != count:
        raise _NotAsKnownError(f"{name}: expected {count} records of the store, found {found}")
    return last


def _batch(fields: "_Fields") -> tuple[bytes, int]:
    """The batch of a snapshot with the bytes that it has in a segment, and the number of its records."""
    header = fields.take(HEADER)
    size, count = _I32.unpack_from(header, 4)[0], _I32.unpack_from(header, HEADER - 4)[0]
    _, compressed = fields.numbers(_TERM)
    if compressed or not 0 <= count <= fields.left // _SMALLEST_RECORD:
        found = "compressed ones" if compressed else str(count)
        raise _NotAsKnownError(f"expected at most {fields.left // _SMALLEST_RECORD} records, not compressed, found {found}")
    batch = header + b"".join(_record(fields) for _ in range(count))
    fields.end()
    if len(batch) != size:
        raise _NotAsKnownError(f"expected a batch of {size} bytes, found {len(batch)}")
    return batch, count


def _record(fields: "_Fields") -> bytes:
    """A record of a snapshot with the bytes that it has in a segment."""
    size, attributes, timestamp, offset = fields.numbers(_RECORD)
    body = _I8.pack(attributes) + _varint(timestamp) + _varint(offset) + _with_length(fields) + _with_length(fields)
    (headers,) = fields.numbers(_I32)
    body += _varint(headers)
    if headers or len(body) != size:
        raise _NotAsKnownError(f"expected a record of {size} bytes without headers, found {len(body)} and {headers} headers")
    return _varint(size) + body


def _with_length(fields: "_Fields") -> bytes:
    (length,) = fields.numbers(_I32)
    held = fields.sized()
    if length != len(held) and (length, held) != (-1, b""):
        raise _NotAsKnownError(f"expected {length} bytes of a key or a value, found {len(held)}")
    return _varint(length) + held


def _varint(number: int) -> bytes:
    """A zig-zag varint."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


class _Fields:
    """Fields one after another; an error if there are fewer bytes than they say."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if not 0 <= count <= self.left:
            raise _NotAsKnownError(f"expected {count} bytes at position {self._at}, found {self.left}")
        self._at += count
        return self._data[self._at - count : self._at]

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def sized(self) -> bytes:
        return self.take(*self.numbers(_U32))

    def only(self, layout: struct.Struct) -> int:
        """The one number that all bytes are."""
        (number,) = self.numbers(layout)
        self.end()
        return int(number)

    def end(self) -> None:
        if self.left:
            raise _NotAsKnownError(f"expected no byte after position {self._at}, found {self.left}")
