"""What the end of a segment is: a normal end, the tail of an active segment, or damage; and files that are no segments.

A segment is rolled if another one follows it in its directory. Then it has all offsets below the next one's base offset, except those
that compaction or transactions removed, and no incomplete entry. Index files next to the log show how far it once went: if they list
offsets that the log does not have, bytes are missing. Index files of missing segments show the same. The first leader
epoch shows where the log once began.
"""

import re
import sys
from dataclasses import replace
from typing import NamedTuple

from kolumn.core.errors import Code, CorruptBatchError, FormatError
from kolumn.cpu_fallback.check import HEADERS
from kolumn.cpu_fallback.machine.checksum import crc32c
from kolumn.damage.findings import Kind, Remark, Tally, Trouble
from kolumn.damage.intact import claimed_size
from kolumn.damage.search import Search
from kolumn.decode.host.chunks import Stop
from kolumn.decode.host.headers import headers
from kolumn.formats import entry, layouts, redpanda, table, v2
from kolumn.formats.entries import Entries
from kolumn.formats.memory import i32_at, i32_little_at, i64_at
from kolumn.source import storage
from kolumn.source.names import MANIFEST, file_name
from kolumn.source.segment_file import SegmentFile, side_bytes
from kolumn.source.segments import Range, Segment
from kolumn.source.side_files import CHECKPOINT, ENRICHED_INDEX, OFFSET_INDEX, TIER_CHECKPOINT, TIME_INDEX, Epochs, index_in, read_epochs

_LOOKED_AT = 512
_SMALLEST_WRONG = 2  # number of wrong fields from which on the first bytes are not a header: damage to a segment seldom affects two fields
_LARGEST_OFFSET = 1 << 56  # no log reaches this offset: a thousand million records a second for two years
_FOREIGN_NAMES = (
    (r"\d{20}(-\S+)?\.index", "an offset index"),
    (r"\d{20}(-\S+)?\.timeindex", "a time index"),
    (r"\d{20}(-\S+)?\.txnindex", "a transaction index"),
    (r"\d{20}(-\S+)?\.snapshot", "a producer snapshot"),
    (r".*-checkpoint", "a checkpoint file"),
    (r"partition\.metadata", "the metadata of a partition"),
)
_SIGNATURES = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "a ZIP or JAR file",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"Obj\x01": "an Avro file",
    b"ORC": "an ORC file",
    b"SQLite format 3": "an SQLite database",
    b"\x7fELF": "a program",
    b"\xca\xfe\xba\xbe": "a Java class",
}


class Reach(NamedTuple):
    """How far the log goes according to an index file: an offset in it, and the position of that offset's batch or of one before it."""

    offset: int
    position: int
    name: str


def at_stop(file: SegmentFile, stop: Stop, floor: int, tally: Tally, remarks: bool = True) -> Trouble | None:
    """The trouble if the end of the chain of entries, after the offset ``floor``, is not a normal end of the segment.

    The tail is added to ``tally``. With ``remarks``, so are oddities that are not damage; other files are read for them.
    """
    if stop.code == Code.OK and stop.position < file.size:
        return None
    if tally.damage and tally.damage[-1].position + tally.damage[-1].size >= stop.position:
        # Damage that is already reported explains the offsets in its header. If it has none, it explains all.
        claimed = tally.damage[-1].last_offset
        if claimed is None and stop.code == Code.OK:
            return None
        floor = max(floor, -1 if claimed is None else claimed)
    if stop.code == Code.OK:
        return _whole(file, stop.position, floor, tally, remarks)
    if stop.code == Code.ZERO_TAIL and file.zeros_from(stop.position):
        return _zeros(file, stop.position, floor, tally)
    return _truncated(file, stop, floor, tally) if stop.code == Code.TRUNCATED else _bad_length(file, stop, floor, None)


def rest_after(trouble: Trouble | None, file: SegmentFile, part: Range, errors: str, tally: Tally) -> Range | None:
    """What is left of a range after trouble by which the chain of entries is lost; None without trouble, or if nothing is left.

    The damage is added to ``tally``; with ``errors="raise"`` it is a `CorruptBatchError`. No caller should have a variable for the trouble:
    the traceback of its error references the caller's frame, which would keep the data read in memory until a garbage collection.
    """
    if trouble is None:
        return None
    if not trouble.position and trouble.error.code != Code.NOT_A_SEGMENT:
        trouble = _no_segment(file, trouble)
    try:
        if errors == "raise":
            raise trouble.error
        following = trouble.resume
        if following is None:
            following = Search(file).next_entry(trouble.position, trouble.floor)
        position, floor = file.size if following is None else following, trouble.floor
        tally.damage.append(trouble.damage(position))
    finally:
        del trouble
    return None if position >= part.end else replace(part, start=position, floor=floor)


def _no_segment(file: SegmentFile, trouble: Trouble) -> Trouble:
    """The trouble at the very beginning of a file. If the file is not a segment and no intact entry follows, the trouble reports that."""
    foreign = _foreign(file, 0, trouble.floor)
    if foreign is None:
        return trouble
    resume = trouble.resume
    if resume is None:
        resume = Search(file).next_entry(0, trouble.floor)
    return foreign if resume is None else replace(trouble, resume=resume)


def _foreign(file: SegmentFile, position: int, floor: int) -> Trouble | None:
    """The trouble of a file that is not a segment; None unless ``position`` is 0 and the file looks like something else."""
    what = _looks_like(file) if position == 0 else None
    if what is None:
        return None
    found = f"{what} ({file.size} byte{'' if file.size == 1 else 's'})"
    expected = "a log segment of Redpanda" if layouts.FORMATS[file.format] is redpanda.FORMAT else None
    return Trouble(0, floor, FormatError(file.path, 0, Code.NOT_A_SEGMENT, expected=expected, found=found), resume=file.size)


def _looks_like(file: SegmentFile) -> str | None:
    """Description of a file whose first bytes are not an entry's header; None if they can be a header, possibly damaged."""
    for pattern, what in _FOREIGN_NAMES:
        if re.fullmatch(pattern, storage.base_name(file.path)):
            return what
    head = bytes(file.read(0, min(_LOOKED_AT, file.size))[: min(_LOOKED_AT, file.size)])
    if not any(head):
        # The file is empty, or begins with preallocated zeros.
        return None
    looks = next((name for signature, name in _SIGNATURES.items() if head.startswith(signature)), "text" if _is_text(head) else None)
    if file.format == layouts.KAFKA and is_redpandas(head):
        return "a segment of Redpanda"
    if layouts.FORMATS[file.format] is redpanda.FORMAT and _is_kafkas(head, file.size):
        return "a segment of Kafka"
    if layouts.has_own_frame(file.format) or len(head) <= entry.PREFIX:
        return looks
    offset, size = i64_at(head, 0), i32_at(head, entry.SIZE_AT)
    wrong = (
        looks is not None,
        # Of formats 0 and 1 it may be a wrapper's last offset.
        not (file.segment.base_offset or 0) <= offset < (file.segment.following or _LARGEST_OFFSET),
        size < entry.SMALLEST or size > file.size - entry.OVERHEAD,
        layouts.layout_of(file.format, head[entry.MAGIC_AT]) == layouts.NO_LAYOUT,
    )
    return (looks or "bytes in which no batch begins") if sum(wrong) >= _SMALLEST_WRONG else None


def is_redpandas(head: bytes) -> bool:
    """Whether a file begins with a batch of Redpanda, by the checksum of its header."""
    return len(head) >= redpanda.HEADER and redpanda.header_crc(head) == crc32c(head[: redpanda.HEADER], redpanda.HEADER_CRC_FROM)


def _is_kafkas(head: bytes, size: int) -> bool:
    """Whether a file of ``size`` bytes begins like an entry of the shipped formats."""
    if len(head) < v2.HEADER or entry.entry(head, 0, size)[0] != Code.OK:
        return False
    layout = layouts.layout_of(layouts.KAFKA, entry.magic_at(head, 0))
    return layout != layouts.NO_LAYOUT and bool(layouts.plausible(layout, head, 0, i32_at(head, entry.SIZE_AT)))


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut only at the end.
        if error.start < len(head) - 3:
            return False
    return not any(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head)


def _bad_length(file: SegmentFile, stop: Stop, floor: int, following: int | None) -> Trouble:
    head = file.read(stop.position, min(stop.position + HEADERS, file.size))
    size, left, expected = claimed_size(head, file.format), file.size - stop.position, None
    beyond = f", {size - left} bytes more than there are, with intact batches after it" if following is not None else ""
    base = layouts.offset_at(file.format, head, 0)
    if layouts.has_no_magics(file.format):
        expected = f"at least {redpanda.HEADER}, and a batch that ends inside the file"
        size = i32_little_at(head, 4)
    else:
        size -= entry.OVERHEAD
    error = CorruptBatchError(file.path, stop.position, Code.BAD_LENGTH, base_offset=base, expected=expected, found=f"{size}{beyond}")
    return Trouble(stop.position, floor, error, resume=following)


def _truncated(file: SegmentFile, stop: Stop, floor: int, tally: Tally) -> Trouble | None:
    """Judge a last entry that ends after the end of the file, or of which fewer bytes are left than an entry's minimum."""
    rolled, left = _is_rolled(file.segment), file.size - stop.position
    if left > entry.PREFIX:
        # An active segment normally ends like this, so one intact entry inside the incomplete one proves nothing there.
        following = Search(file).next_entry(stop.position, floor, truncated=not rolled)
        if following is not None:
            return _bad_length(file, stop, floor, following)
    if (foreign := _foreign(file, stop.position, floor)) is not None:
        return foreign
    if not rolled:
        tally.tail, tally.tail_bytes = "truncated", left
        _active(file, stop.position, floor, tally)
        return None
    head = file.read(stop.position, min(stop.position + entry.PREFIX, file.size))
    # Other fields may be in front of the offset.
    least = entry.SIZE_AT if layouts.FORMATS[file.format].own_offset is None else entry.PREFIX
    base = layouts.offset_at(file.format, head, 0) if left >= least else None
    expected = f"an entry that ends inside the file, since the segment is rolled ({_next(file)} follows)"
    found = f"the first {left} byte{'' if left == 1 else 's'}" + (f" of {stop.size} bytes" if stop.size > left else "")
    error = CorruptBatchError(file.path, stop.position, Code.TRUNCATED, base_offset=base, expected=expected, found=found)
    return Trouble(stop.position, floor, error, file.size, lost=_up_to_next(file, floor))


def _zeros(file: SegmentFile, position: int, floor: int, tally: Tally) -> Trouble | None:
    """Judge zeros up to the end of the file: space that was allocated in advance, or bytes that were overwritten."""
    left = file.size - position
    if (foreign := _foreign(file, position, floor)) is not None:
        return foreign
    if not _is_rolled(file.segment):
        reach = _reach_of(file.segment, floor, file.size)
        # The bytes are read again: meanwhile a broker may have appended to the log, and then to the index.
        if reach is None or reach.offset <= floor or file.read(position, min(position + entry.PREFIX, file.size)).any():
            tally.tail, tally.tail_bytes = "zeros", left
            return None
        expected, lost = f"entries up to offset {reach.offset} at least, according to {reach.name}", (floor + 1, reach.offset)
    else:
        between = _up_to_next(file, floor)
        if between is None:
            text = f"the segment is rolled and ends with {left} bytes of zeros"
            evidence = f"no offset is absent before {_next(file)}"
            tally.remarks.append(Remark(file.path, position, Kind.ZERO_TAIL, None, None, text, evidence))
            return None
        expected, lost = f"entries up to offset {between[1]} ({_next(file)} follows)", between
    error = CorruptBatchError(file.path, position, Code.SEGMENT_END, expected=expected, found=f"{left} bytes of zeros")
    return Trouble(position, floor, error, file.size, lost=lost)


def _whole(file: SegmentFile, position: int, floor: int, tally: Tally, remarks: bool = True) -> Trouble | None:
    """Judge a last entry that ends at the end of the file."""
    segment = file.segment
    if segment.base_offset is None or not layouts.FORMATS[file.format].as_shipped:
        return None
    if segment.orphans and (orphan := _orphan_of(segment, floor)) is not None:
        return _missing(file, position, floor, *orphan)
    if segment.following is None:
        if remarks:
            _active(file, position, floor, tally)
        return None
    if floor >= segment.following:
        return _too_far(file, floor, tally)
    lost = _up_to_next(file, floor)
    if lost is None or _has_grown(segment):
        return None
    reach = _reach_of(segment, floor, file.size)
    if reach is None:
        tally.remarks.append(_gap(file, position, lost))
        return None
    expected = f"entries up to offset {max(reach.offset, floor + 1)} at least, according to {reach.name}"
    found = f"the end of the file after offset {floor}" if file.size else "an empty file"
    error = CorruptBatchError(file.path, position, Code.SEGMENT_END, expected=expected, found=found)
    return Trouble(position, floor, error, file.size, lost=lost)


def absent_after(file: SegmentFile, floor: int) -> Trouble | None:
    """The trouble if index files prove that offsets after a segment's last entry are missing; it names the offsets and the file."""
    trouble = _whole(file, file.size, floor, Tally())
    return trouble if trouble is not None and trouble.error.code in (Code.SEGMENT_END, Code.SEGMENT_MISSING) else None


def _gap(file: SegmentFile, position: int, lost: tuple[int, int]) -> Remark:
    if file.size == 0:
        text = f"the segment is rolled and empty: {_absent(*lost)}"
        return Remark(file.path, 0, Kind.EMPTY_SEGMENT, *lost, text, f"{_next(file)} follows, and no index file has an entry")
    evidence = f"{storage.base_name(file.path)} ends with offset {lost[0] - 1}, {_next(file)} follows, no index file lists a later offset"
    return Remark(file.path, position, Kind.OFFSET_GAP, *lost, _absent(*lost), evidence)


def _active(file: SegmentFile, position: int, floor: int, tally: Tally) -> None:
    """Remark if files next to the last segment list offsets that it lacks. It is not damage: they may have been copied after the log."""
    segment = file.segment
    if segment.base_offset is None or not segment.path.endswith(".log"):
        return
    reach = _reach_of(segment, floor, file.size)
    if reach is None or reach.offset <= floor or _has_grown(segment):
        return
    text = f"offsets from {floor + 1} to {reach.offset} or a later one are absent"
    evidence = f"{reach.name} lists offset {reach.offset}; it may have been copied after the log"
    tally.remarks.append(Remark(file.path, position, Kind.ENDS_EARLY, floor + 1, reach.offset, text, evidence))


def _is_rolled(segment: Segment) -> bool:
    """Whether another segment follows this one, and its size is the one of the listing: a listing is not an atomic snapshot."""
    return segment.following is not None and not _has_grown(segment)


def _has_grown(segment: Segment) -> bool:
    """Whether a broker has appended to a segment since it was listed: then index entries are newer than the bytes that were read."""
    if segment.manifest is not None:
        return False
    now = storage.look(segment.path)
    return now is None or now.size != segment.size


def _too_far(file: SegmentFile, floor: int, tally: Tally) -> Trouble | None:
    """The trouble of a segment with offsets that the next segment also has: a file has a wrong name, or a base offset is damaged.

    It is a remark if the offsets reach the next segment without a gap, and that one begins as its name says: both have these offsets.
    """
    following = file.segment.following
    assert following is not None
    position, base, lowest = file.size, None, None
    for entries in headers(file.segment):
        beyond = entries[entries.last_offset >= following]
        if len(beyond):
            position, base = beyond[0].position, beyond[0].base_offset
            lowest = beyond[0].last_offset if base == table.UNKNOWN else base
            break
    if lowest is not None and lowest <= following and _begins_as_named(file):
        text = f"offsets go back from this segment to the next: {floor} is followed by {following}; both have offsets from there on"
        evidence = f"{_next(file)} begins with {following}"
        tally.remarks.append(Remark(file.path, position, Kind.OFFSETS_BACK, following, floor, text, evidence))
        return None
    expected, found = f"offsets below {following}, where {_next(file)} begins", f"offsets up to {floor}"
    base = None if base == table.UNKNOWN else base
    error = CorruptBatchError(file.path, position, Code.OFFSET_ORDER, base_offset=base, expected=expected, found=found)
    return Trouble(file.size, floor, error, file.size, lost=(following, floor))


def _begins_as_named(file: SegmentFile) -> bool:
    """Whether the next segment, a file of this folder, begins with the offset in its name."""
    path = storage.beside(file.path, _next(file))
    look = None if file.segment.copy_id is not None or file.segment.manifest is not None else storage.look(path)
    if look is None or not look.size:
        return False
    other = replace(file.segment, path=path, base_offset=file.segment.following, size=look.size, identity=None)
    known = file.segment.following, table.UNKNOWN
    return any(entries[0].base_offset in known for entries in headers(other, 0, 1) if len(entries))


def compare_start(file: SegmentFile, entries: Entries, errors: str, tally: Tally) -> None:
    """Compare the offsets of a segment's first entry, the first of ``entries``, if its checksum is right, with the file's name and its
    neighbours.

    With ``errors="skip"`` wrong offsets are damage of no bytes in ``tally``: the records are still returned. With "raise" they are a
    `CorruptBatchError`.
    """
    values, segment = entries.array[0].tolist(), file.segment
    base, last = values[table.BASE_OFFSET], values[table.LAST_OFFSET]
    if values[table.POSITION] or values[table.CODE]:
        return
    if base == segment.base_offset and segment.twin is None and (base == 0 or segment.preceding is not None):
        return
    error = _at_start(file, base, last, tally)
    if error is not None and errors == "raise":
        raise error
    if error is not None:
        tally.damage.append(Trouble(0, -1, error, lost=(int(error.base_offset or 0), last)).damage(0))


def _at_start(file: SegmentFile, base: int, last: int, tally: Tally) -> CorruptBatchError | None:
    segment, named = file.segment, file.segment.base_offset
    lowest = last if base == table.UNKNOWN else base
    if segment.twin is not None:
        expected = "offsets that no other segment of the directory has"
        found = f"{lowest}: {storage.base_name(segment.twin)} has offsets of this file too"
        return CorruptBatchError(file.path, 0, Code.OFFSET_ORDER, base_offset=lowest, expected=expected, found=found)
    if named is None or not layouts.FORMATS[file.format].as_shipped or not segment.path.endswith((".log", ".swap", MANIFEST)):
        return None
    if lowest < named:
        expected = f"offsets from {named} on, according to the name of the file"
        return CorruptBatchError(file.path, 0, Code.OFFSET_ORDER, base_offset=lowest, expected=expected, found=str(lowest))
    if base != table.UNKNOWN and base > named:
        evidence = f"the name of the file contains {named}, its first batch begins with offset {base}"
        tally.remarks.append(Remark(file.path, 0, Kind.OFFSET_GAP, named, base - 1, _absent(named, base - 1), evidence))
    if segment.preceding is None and named > 0 and not segment.orphans and (begun := _first_epoch(segment)) is not None and begun < named:
        evidence = f"leader-epoch-checkpoint has an epoch that begins with offset {begun}; retention and deleted records look the same"
        tally.remarks.append(Remark(file.path, 0, Kind.OFFSET_GAP, begun, named - 1, _absent(begun, named - 1), evidence))
    return None


def _absent(first: int, last: int) -> str:
    return f"offset {first} is absent" if first == last else f"offsets {first} to {last} are absent"


def _missing(file: SegmentFile, position: int, floor: int, gone: Segment, reach: Reach) -> Trouble:
    segment, base = file.segment, gone.base_offset or 0
    if base < (segment.base_offset or 0):
        lost = base, (segment.base_offset or 0) - 1
    else:
        lost = floor + 1, reach.offset if segment.following is None else segment.following - 1
    found = f"{reach.name}, which lists offset {reach.offset}, and no log"
    error = CorruptBatchError(gone.path, 0, Code.SEGMENT_MISSING, base_offset=base, found=found)
    return Trouble(position, floor, error, file.size, lost=lost)


def _up_to_next(file: SegmentFile, floor: int) -> tuple[int, int] | None:
    """The offsets between the last one and the next segment; None without any."""
    following = file.segment.following
    return (floor + 1, following - 1) if following is not None and floor + 1 < following else None


def _next(file: SegmentFile) -> str:
    following = file.segment.following
    assert following is not None
    # A name of Redpanda has a term, which is not known.
    return file_name(following) if file.segment.raft is None else f"one at offset {following}"


def _reach_of(segment: Segment, floor: int, size: int) -> Reach | None:
    """The index file of a segment that goes furthest past an offset and a number of bytes; None if no index file goes past either.

    An index entry of zeros is preallocated space.
    """
    if segment.base_offset is None:
        return None
    timed = layouts.format_of(segment.format).timed_index
    furthest: Reach | None = None
    for suffix, dtype in ((".index", ENRICHED_INDEX),) if timed else ((".index", OFFSET_INDEX), (".timeindex", TIME_INDEX)):
        index, names = index_in(side_bytes(segment, suffix), dtype), dtype.names or ()
        if index is None:
            continue
        last, offset = index[-1], segment.base_offset + int(index[-1]["offset"])
        position = int(last["position"]) if "position" in names else 0
        if (position > 0 or ("timestamp" in names and last["timestamp"] > 0)) and (offset > floor or position >= size):
            reach = Reach(offset, position, storage.base_name(storage.with_suffix(segment.path, suffix)))
            furthest = reach if furthest is None or reach[:2] > furthest[:2] else furthest
    return furthest


def _orphan_of(segment: Segment, floor: int) -> tuple[Segment, Reach] | None:
    """The first segment without a log whose index files list offsets that no segment has."""
    for name in segment.orphans:
        base = int(storage.base_name(name).partition(".")[0])
        gone = replace(segment, path=storage.with_suffix(name, ".log"), base_offset=base, size=0, orphans=(), beside=None)
        reach = _reach_of(gone, -1 if base < (segment.base_offset or 0) else floor, sys.maxsize)
        if reach is not None:
            return gone, reach
    return None


def _first_epoch(segment: Segment) -> int | None:
    """Start offset of the first leader epoch in the checkpoint of the log, or of a tier's segment; Kafka raises it when it deletes."""
    if segment.manifest is not None:
        epochs: Epochs | None = segment.manifest.epochs
    elif segment.copy_id is not None:
        epochs = read_epochs(storage.with_suffix(segment.path, TIER_CHECKPOINT))
    else:
        epochs = read_epochs(storage.beside(segment.path, CHECKPOINT))
    return epochs[0][1] if epochs else None
