"""Manifests in Redpanda's buckets, which say of a partition which objects are its log.

All numbers are little-endian. An envelope is ``u8 version | u8 compat version | u32 size`` and what it holds; what is left of one is of
newer releases, and is skipped. Text and bytes have a u32 length before them; offsets that are not set are -2^63.

    manifest.bin    envelope of: text namespace, text topic, i32 partition, i64 revision, bytes segments, u32 count, count times an
                    envelope of a replaced segment, i64 last offset, i64 start offset, i64 last compacted, i64 in sync, u64 bytes of the
                    log, i64 start and i64 delta of the archive, i64 clean, i64 start offset of consumers, u64 bytes of the archive,
                    bytes spillover
    segments,       envelope of: envelope of: 13 columns `COLUMNS`; hints, which are skipped
    spillover
    column          envelope of: u32 frames, and the frames
    frame           envelope of: u32 16, 16 times i64 head, bool and tail, u64 rows, and what is skipped
    tail            envelope of: i64 initial, i64 last, bytes data, u32 groups of 16 values
    data            for each group u8 bits and 16 numbers of so many bits, in planes: 64 bits alone, else 32, 16 and 8 as they fit, then the
                    rest; a plane of w bits has 2 w bytes, with number i at bit i w. A base offset is the number plus the one before, any
                    other value is the number xor the one before.

``manifest.json`` has the same in JSON, without what has its default; a segment's key is its short name. Spillover manifests have the older
part of a log; they are manifests too, named in the manifest by their offsets.
"""

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from kolumn.core.arrays import Int64s
from kolumn.core.errors import KolumnError
from kolumn.source.redpanda import HIGHEST_RAW

MOST_BYTES = 16 << 20
_MOST_SEGMENTS = 1 << 20
_NOT_SET = -(2**63)
_GROUP = 16
_SHORT = re.compile(r"(?P<base>[0-9]{1,19})-(?P<term>[0-9]{1,19})-v1\.log")
COLUMNS = (
    *("is_compacted", "size_bytes", "base_offset", "committed_offset", "base_timestamp", "max_timestamp", "delta_offset", "ntp_revision"),
    *("archiver_term", "segment_term", "delta_offset_end", "sname_format", "metadata_size_hint"),
)
_DEFAULTS = {**dict.fromkeys(COLUMNS, _NOT_SET), "is_compacted": 0, "sname_format": 1, "metadata_size_hint": 0}


class Stored(NamedTuple):
    """A segment that a manifest names; offsets are raw ones, and None is what is not set."""

    base: int
    last: int
    size: int
    term: int
    archiver_term: int | None
    revision: int | None
    delta: int | None
    delta_end: int | None
    sname_format: int

    @property
    def name(self) -> str:
        """The last part of its key, without the archiver's term."""
        middle = "" if self.sname_format < 2 else f"{self.last}-{self.size}-"
        return f"{self.base}-{middle}{self.term}-v1.log"

    @property
    def suffix(self) -> str:
        """The end of its key: the archiver's term."""
        return "" if self.archiver_term is None else f".{self.archiver_term}"


@dataclass(frozen=True)
class Manifest:
    """What a manifest says; offsets are raw ones, and None is what is not set.

    Attributes
    ----------
    spilled : list of (int, int)
        First and last offset of each spillover manifest; None if it does not say which there are.
    """

    namespace: str
    topic: str
    partition: int
    revision: int
    segments: list[Stored] = field(repr=False)
    last_offset: int | None = None
    start_offset: int | None = None
    archive_start: int | None = None
    start_consumer_offset: int | None = None
    log_bytes: int | None = None
    spilled: list[tuple[int, int]] | None = None

    @property
    def is_deleted(self) -> bool:
        """Whether all records of its segments were deleted: up to an offset that no segment has yet."""
        last = max(self.segments, key=lambda stored: stored.last, default=None)
        return last is not None and (self.start_consumer_offset or 0) > last.last + 1 - (last.delta_end or 0)

    @property
    def start(self) -> int:
        """The first raw offset of the log."""
        known = [offset for offset in (self.start_offset, self.archive_start) if offset is not None]
        return min(known, default=0)


class _Malformed(Exception):  # noqa: N818
    """What is wrong; `parse` makes a `KolumnError` of it."""


def parse(name: str, data: bytes) -> Manifest:
    """Parse a manifest of either kind; a KolumnError, with the field and what was found, if it is malformed."""
    try:
        if len(data) > MOST_BYTES:
            _refuse("the whole file", f"at most {MOST_BYTES} bytes", len(data))
        # In the binary kind there is a version first.
        return _from_json(data) if data[:1] in (b"{", b" ", b"\n", b"\t", b"\r") else _from_binary(data)
    except _Malformed as error:
        raise KolumnError(f"{name}: malformed manifest, {error}") from None


def _refuse(field: str, expected: str, found: object) -> NoReturn:
    raise _Malformed(f"{field}: expected {expected}, found {str(found)[:80]!r}")


class _Bytes:
    """Bytes that are read in order; each length is compared with those that are left."""

    def __init__(self, data: memoryview, field: str) -> None:
        self.data, self.field, self.at = data, field, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> memoryview:
        if size > self.left:
            _refuse(self.field, f"{size} more bytes at {self.at}", f"{self.left} bytes")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, layout: str) -> int:
        return int(struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))[0])

    def offset(self) -> int | None:
        value = self.number("q")
        return None if value == _NOT_SET else value

    def bytes(self) -> memoryview:
        return self.take(self.number("I"))

    def text(self) -> str:
        try:
            return str(self.bytes(), "utf-8")
        except UnicodeDecodeError as error:
            _refuse(self.field, "text in UTF-8", error)

    def flag(self) -> bool:
        value = self.number("B")
        if value > 1:
            _refuse(self.field, "0 or 1", value)
        return value == 1

    def envelope(self, field: str) -> "_Bytes":
        _, compat, size = struct.unpack("<BBI", self.take(6))
        if compat > 16:
            _refuse(field, "an envelope that readers of these releases understand", f"compat version {compat}")
        return _Bytes(self.take(size), field)


def _from_binary(data: bytes) -> Manifest:
    top = _Bytes(memoryview(data), "the whole file").envelope("the manifest")
    namespace, topic, partition, revision = top.text(), top.text(), top.number("i"), top.number("q")
    segments = _segments(top.bytes())
    for _ in range(top.number("I")):
        top.envelope("replaced segments")
    last, start, _, _ = (top.offset() for _ in range(4))
    size = top.number("Q")
    # Fields of later releases may not be there.
    archive, _, _, consumers = (top.offset() if top.left >= 8 else None for _ in range(4))
    spilled = None
    if top.left >= 12:
        top.number("Q")
        stored = _segments(top.bytes(), True) if top.left >= 4 else []
        spilled = [(one.base, one.last) for one in stored]
    return _checked(Manifest(namespace, topic, partition, revision, segments, last, start, archive, consumers, size, spilled))


def _segments(data: memoryview, are_manifests: bool = False) -> list[Stored]:
    if not len(data):
        return []
    columns = _Bytes(data, "segments").envelope("segments").envelope("columns")
    values = {name: _column(columns.envelope(f"column {name}"), name) for name in COLUMNS}
    if len({len(column) for column in values.values()}) > 1:
        _refuse("segments", "columns of one length", {name: len(column) for name, column in values.items()})
    rows = zip(*(values[name].tolist() for name in COLUMNS), strict=True)
    return [_stored(dict(zip(COLUMNS, row, strict=True)), are_manifests) for row in rows]


def _column(column: _Bytes, name: str) -> Int64s:
    parts, rows = [np.zeros(0, np.int64)], 0
    for _ in range(column.number("I")):
        part = _frame(column.envelope(column.field), name == "base_offset")
        parts.append(part)
        rows += len(part)
        if rows > _MOST_SEGMENTS:
            _refuse(column.field, f"at most {_MOST_SEGMENTS} segments", rows)
    return np.concatenate(parts)


def _frame(frame: _Bytes, is_delta: bool) -> Int64s:
    if (count := frame.number("I")) != _GROUP:
        _refuse(frame.field, f"{_GROUP} values at the head of a frame", count)
    head = np.frombuffer(frame.take(8 * _GROUP), "<i8").astype(np.int64)
    groups = _tail(frame.envelope(frame.field), is_delta) if frame.flag() else np.zeros(0, np.int64)
    size = frame.number("Q")
    if not len(groups) <= size <= len(groups) + _GROUP:
        _refuse(frame.field, f"{len(groups)} to {len(groups) + _GROUP} rows", size)
    return np.concatenate([groups, head[: size - len(groups)]])


def _tail(tail: _Bytes, is_delta: bool) -> Int64s:
    initial, _, data, rows = tail.number("q"), tail.number("q"), tail.bytes(), tail.number("I")
    # A group has a byte at least.
    if rows > min(len(data), _MOST_SEGMENTS // _GROUP):
        _refuse(tail.field, f"groups of {_GROUP} values in {len(data)} bytes", rows)
    numbers = np.zeros(rows * _GROUP, np.uint64)
    packed = _Bytes(data, tail.field)
    for row in range(rows):
        numbers[row * _GROUP : (row + 1) * _GROUP] = _group(packed)
    first = np.array([initial], np.int64).view(np.uint64)
    both = np.concatenate([first, numbers])
    values = np.cumsum(both, dtype=np.uint64) if is_delta else np.bitwise_xor.accumulate(both)
    return values[1:].view(np.int64)


def _group(packed: _Bytes) -> NDArray[np.uint64]:
    bits = packed.number("B")
    if bits > 64:
        _refuse(packed.field, "numbers of at most 64 bits", bits)
    if bits == 64:
        return np.frombuffer(packed.take(8 * _GROUP), "<u8")
    numbers, low = np.zeros(_GROUP, np.uint64), 0
    for width in (32, 16, 8):
        if bits - low >= width:
            numbers |= np.frombuffer(packed.take(2 * width), f"<u{width // 8}").astype(np.uint64) << np.uint64(low)
            low += width
    if (width := bits - low) > 0:
        plane = int.from_bytes(packed.take(2 * width), "little")
        rest = [plane >> width * i & (1 << width) - 1 for i in range(_GROUP)]
        numbers |= np.array(rest, np.uint64) << np.uint64(low)
    return numbers


def _stored(values: dict[str, int], are_manifests: bool = False) -> Stored:
    """A segment by its fields, or what is noted of a spillover manifest in the same fields."""
    for name, value in values.items():
        if type(value) is not int and not (name == "is_compacted" and isinstance(value, bool)):
            _refuse(f"segments, {name}", "an integer", value)
    base, last, size, term = (values[name] for name in ("base_offset", "committed_offset", "size_bytes", "segment_term"))
    if not 0 <= base <= last <= HIGHEST_RAW:
        _refuse("segments, committed_offset", f"a last offset from the base offset {base} on, both of 63 bits", last)
    if not 0 <= size < 2**50:
        _refuse("segments, size_bytes", "0 or more bytes, and fewer than 2^50", size)
    if not are_manifests and not 0 <= term < 2**31:
        _refuse("segments, segment_term", "a term of 31 bits", term)
    known = {name: None if values[name] == _NOT_SET else values[name] for name in ("archiver_term", "ntp_revision")}
    for name in ("archiver_term", "ntp_revision"):
        if (number := known[name]) is not None and not 0 <= number < 2**63:
            _refuse(f"segments, {name}", "0 or more", number)
    delta, end = (_delta(name, values[name], base, last) for name in ("delta_offset", "delta_offset_end"))
    if values["sname_format"] not in (1, 2, 3):
        _refuse("segments, sname_format", "1, 2 or 3", values["sname_format"])
    return Stored(base, last, size, term, known["archiver_term"], known["ntp_revision"], delta, end, values["sname_format"])


def _delta(name: str, value: int, base: int, last: int) -> int | None:
    if value == _NOT_SET:
        return None
    # Before offset n there are at most n that are none of consumers.
    if not 0 <= value <= (base if name == "delta_offset" else last + 1):
        _refuse(f"segments, {name}", f"0 or more, and no more than the offset {base}", value)
    return value


def _from_json(data: bytes) -> Manifest:
    try:
        top = json.loads(data)
    except (ValueError, RecursionError) as error:
        _refuse("the whole file", "a JSON object", error)
    if not isinstance(top, dict):
        _refuse("the whole file", "a JSON object", top)
    namespace, topic = (_json_text(top, name) for name in ("namespace", "topic"))
    numbers = {name: _json_number(top, name) for name in ("partition", "revision", "last_offset", "start_offset", "cloud_log_size_bytes")}
    numbers |= {name: _json_number(top, name) for name in ("archive_start_offset", "start_kafka_offset")}
    members = top.get("segments") or {}
    if not isinstance(members, dict) or len(members) > _MOST_SEGMENTS:
        _refuse("segments", f"an object of at most {_MOST_SEGMENTS} segments", type(members).__name__)
    segments = sorted(_json_segments(members))
    last, start, archive = numbers["last_offset"], numbers["start_offset"], numbers["archive_start_offset"]
    partition, revision = numbers["partition"], numbers["revision"]
    if partition is None or revision is None:
        _refuse("partition", "numbers of the partition and its revision", None)
    rest = last, start, archive, numbers["start_kafka_offset"], numbers["cloud_log_size_bytes"]
    return _checked(Manifest(namespace, topic, partition, revision, segments, *rest))


def _json_segments(members: dict[str, object]) -> Iterator[Stored]:
    for name, member in members.items():
        match = _SHORT.fullmatch(name)
        if match is None or not isinstance(member, dict):
            _refuse("segments", "segments by names such as 0-1-v1.log", name)
        values = {**_DEFAULTS, "segment_term": int(match["term"]), **{key: member[key] for key in COLUMNS if key in member}}
        stored = _stored(values)
        if (stored.base, stored.term) != (int(match["base"]), int(match["term"])):
            _refuse("segments, base_offset", f"offset and term of {name}", f"{stored.base}, {stored.term}")
        yield stored


def _json_text(top: dict[str, object], name: str) -> str:
    value = top.get(name)
    if not isinstance(value, str):
        _refuse(name, "text", value)
    return value


def _json_number(top: dict[str, object], name: str) -> int | None:
    value = top.get(name)
    if value is None or value == _NOT_SET:
        return None
    if type(value) is not int or not -(2**63) <= value < 2**63:
        _refuse(name, "an integer of 64 bits", value)
    return value


def _checked(manifest: Manifest) -> Manifest:
    if not 0 <= manifest.partition < 2**31:
        _refuse("partition", "0 or more", manifest.partition)
    if not 0 <= manifest.revision < 2**63:
        _refuse("revision", "0 or more", manifest.revision)
    for name in (manifest.namespace, manifest.topic):
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
            _refuse("topic", "at most 249 letters, digits, '.', '_' and '-'", name)
    if manifest.segments:
        # A changed digit there would leave out all of the log.
        last = max(manifest.segments, key=lambda stored: stored.last)
        for field, start, end in (
            ("start_offset", manifest.start_offset, last.last + 1),
            ("archive_start_offset", manifest.archive_start, last.last + 1),
        ):
            if start is not None and not 0 <= start <= end:
                _refuse(field, f"0 to {end}, where the log ends", start)
    if manifest.start_consumer_offset is not None and manifest.start_consumer_offset < 0:
        _refuse("start_kafka_offset", "0 or more", manifest.start_consumer_offset)
    return manifest
