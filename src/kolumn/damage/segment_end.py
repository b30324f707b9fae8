"""What the end of a segment is: a normal end, the tail of an active segment, or damage.

A segment is rolled if another one follows it in its directory. Then it has all offsets below the next one's base offset, except those
that compaction or transactions removed, and no incomplete entry. Index files next to the log show how far it once went: if they list
offsets that the log does not have, bytes are missing. Index files of missing segments show the same. The first leader
epoch shows where the log once began.
"""

import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kolumn.core.arrays import Bytes
from kolumn.core.errors import Code, CorruptBatchError
from kolumn.damage.findings import Trouble
from kolumn.damage.foreign import looks_like, not_a_segment
from kolumn.damage.remarks import Kind, Remark
from kolumn.damage.search import Search
from kolumn.decode.result import Tally
from kolumn.formats import entry, layouts, table
from kolumn.formats.entries import Entry
from kolumn.log.chunks import Stop
from kolumn.log.headers import headers
from kolumn.log.seek import ENRICHED_INDEX, OFFSET_INDEX, TIME_INDEX, read_index
from kolumn.source import storage
from kolumn.source.names import MANIFEST
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment
from kolumn.source.side_files import TIER_CHECKPOINT, read_epochs

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Reach:
    """How far the log goes according to an index file: an offset in it, and the position of that offset's batch or of one before it."""

    offset: int
    position: int
    name: str


def at_stop(file: SegmentFile, stop: Stop, floor: int, found: Tally, remarks: bool = True) -> Trouble | None:
    """The trouble if the end of the chain of entries, after the offset ``floor``, is not a normal end of the segment.

    The tail is added to ``found``; so is what is odd and no damage, for which other files are read, if somebody wants ``remarks``.
    """
    if stop.code == Code.OK and stop.position < file.size:
        return None
    if found.damage and _damaged_at(stop.position, found):
        # Damage that is already reported explains the offsets in its header. If it has none, it explains all.
        claimed = found.damage[-1].last_offset
        if claimed is None and stop.code == Code.OK:
            return None
        floor = max(floor, -1 if claimed is None else claimed)
    if stop.code == Code.OK:
        return _whole(file, stop.position, floor, found, remarks)
    if stop.code == Code.ZERO_TAIL and file.zeros_from(stop.position):
        return _zeros(file, stop.position, floor, found)
    return _truncated(file, stop, floor, found) if stop.code == Code.TRUNCATED else _bad_length(file, stop, floor, None)


def resumed(
    file: SegmentFile, one: Range, errors: str, found: Tally, until_trouble: Callable[[Range], Generator[_Item, None, Trouble | None]]
) -> Iterator[_Item]:
    """Read a range, and continue after damage if ``errors`` allows it. The damage is added to ``found``.

    ``until_trouble`` reads the rest of the range up to its end or to where the chain of entries is lost, and returns the trouble.

    Raises
    ------
    CorruptBatchError
        The chain of entries is lost, with ``errors="raise"``.
    """
    rest = one
    while (trouble := _no_segment(file, (yield from until_trouble(rest)))) is not None:
        try:
            if errors == "raise":
                raise trouble.error
            following = trouble.resume
            if following is None:
                following = Search(file).next_entry(trouble.position, trouble.floor)
            position, floor = file.size if following is None else following, trouble.floor
            found.damage.append(trouble.damage(position))
        finally:
            # An error's traceback references this frame, which would keep the data read in memory until a garbage collection.
            del trouble
        if position >= one.end:
            return
        rest = replace(one, start=position, floor=floor)


def _no_segment(file: SegmentFile, trouble: Trouble | None) -> Trouble | None:
    """The trouble at the very beginning of a file. If the file is not a segment and no intact entry follows, the trouble reports that."""
    if trouble is None or trouble.position or trouble.error.code == Code.NOT_A_SEGMENT:
        return trouble
    foreign = _foreign(file, 0, trouble.floor)
    if foreign is None:
        return trouble
    resume = trouble.resume
    if resume is None:
        resume = Search(file).next_entry(0, trouble.floor)
    return foreign if resume is None else replace(trouble, resume=resume)


def _foreign(file: SegmentFile, position: int, floor: int) -> Trouble | None:
    """The trouble of a file that is not a segment; None unless ``position`` is 0 and the file looks like something else."""
    what = looks_like(file) if position == 0 else None
    return None if what is None else Trouble(0, floor, not_a_segment(file.path, file.size, what), resume=file.size)


def _damaged_at(position: int, found: Tally) -> bool:
    """Whether damage that ends directly before ``position`` is already reported."""
    return bool(found.damage) and found.damage[-1].position + found.damage[-1].size >= position


def _bad_length(file: SegmentFile, stop: Stop, floor: int, following: int | None) -> Trouble:
    head = file.read(stop.position, min(stop.position + entry.PREFIX, file.size))
    size = int.from_bytes(bytes(head[8:12]), "big", signed=True)
    left = file.size - stop.position
    beyond = f", {size - left + entry.OVERHEAD} bytes more than there are, with intact batches after it" if following is not None else ""
    error = CorruptBatchError(file.path, stop.position, Code.BAD_LENGTH, base_offset=_base_offset(head), found=f"{size}{beyond}")
    return Trouble(stop.position, floor, error, resume=following)


def _base_offset(head: Bytes) -> int:
    return int.from_bytes(bytes(head[:8]), "big", signed=True)


def _truncated(file: SegmentFile, stop: Stop, floor: int, found: Tally) -> Trouble | None:
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
        found.tail, found.tail_bytes = "truncated", left
        _active(file, stop.position, floor, found)
        return None
    claimed = f" of {stop.size} bytes" if left > entry.PREFIX else ""
    error = CorruptBatchError(
        file.path,
        stop.position,
        Code.TRUNCATED,
        base_offset=_base_offset(file.read(stop.position, stop.position + 8)) if left >= entry.SIZE_AT else None,
        expected=f"an entry that ends inside the file, since the segment is rolled ({_next(file)} follows)",
        found=f"the first {left} byte{'' if left == 1 else 's'}{claimed}",
    )
    return Trouble(stop.position, floor, error, file.size, lost=_up_to_next(file, floor))


def _zeros(file: SegmentFile, position: int, floor: int, found: Tally) -> Trouble | None:
    """Judge zeros up to the end of the file: space that was allocated in advance, or bytes that were overwritten."""
    left = file.size - position
    if (foreign := _foreign(file, position, floor)) is not None:
        return foreign
    if not _is_rolled(file.segment):
        reach = _reach_of(file.segment, floor, file.size)
        # The bytes are read again: meanwhile a broker may have appended to the log, and then to the index.
        if reach is None or reach.offset <= floor or file.read(position, min(position + entry.PREFIX, file.size)).any():
            found.tail, found.tail_bytes = "zeros", left
            return None
        expected, lost = f"entries up to offset {reach.offset} at least, according to {reach.name}", (floor + 1, reach.offset)
    else:
        between = _up_to_next(file, floor)
        if between is None:
            text = f"the segment is rolled and ends with {left} bytes of zeros"
            evidence = f"no offset is absent before {_next(file)}"
            found.remarks.append(Remark(file.path, position, Kind.ZERO_TAIL, None, None, text, evidence))
            return None
        expected, lost = f"entries up to offset {between[1]} ({_next(file)} follows)", between
    error = CorruptBatchError(file.path, position, Code.SEGMENT_END, expected=expected, found=f"{left} bytes of zeros")
    return Trouble(position, floor, error, file.size, lost=lost)


def _whole(file: SegmentFile, position: int, floor: int, found: Tally, remarks: bool = True) -> Trouble | None:
    """Judge a last entry that ends at the end of the file."""
    segment = file.segment
    if segment.base_offset is None or not layouts.FORMATS[file.format].as_shipped:
        return None
    if segment.orphans and (orphan := _orphan_of(segment, floor)) is not None:
        return _missing(file, position, floor, *orphan)
    if segment.following is None:
        if remarks:
            _active(file, position, floor, found)
        return None
    if floor >= segment.following:
        return _too_far(file, floor, found)
    lost = _up_to_next(file, floor)
    if lost is None or _has_grown(segment):
        return None
    reach = _reach_of(segment, floor, file.size)
    if reach is not None:
        error = CorruptBatchError(
            file.path,
            position,
            Code.SEGMENT_END,
            expected=f"entries up to offset {max(reach.offset, floor + 1)} at least, according to {reach.name}",
            found=f"the end of the file after offset {floor}" if file.size else "an empty file",
        )
        return Trouble(position, floor, error, file.size, lost=lost)
    found.remarks.append(_gap(file, position, lost))
    return None


def absent_after(file: SegmentFile, floor: int) -> Trouble | None:
    """The trouble if index files prove that offsets after a segment's last entry are missing; it names the offsets and the file."""
    trouble = _whole(file, file.size, floor, Tally())
    return trouble if trouble is not None and trouble.error.code in (Code.SEGMENT_END, Code.SEGMENT_MISSING) else None


def _gap(file: SegmentFile, position: int, lost: tuple[int, int]) -> Remark:
    evidence = f"{storage.base_name(file.path)} ends with offset {lost[0] - 1}, {_next(file)} follows, no index file lists a later offset"
    if file.size == 0:
        text = f"the segment is rolled and empty: {_absent(*lost)}"
        return Remark(file.path, 0, Kind.EMPTY_SEGMENT, *lost, text, f"{_next(file)} follows, and no index file has an entry")
    return Remark(file.path, position, Kind.OFFSET_GAP, *lost, _absent(*lost), evidence)


def _active(file: SegmentFile, position: int, floor: int, found: Tally) -> None:
    """Remark if files next to the last segment list offsets that it lacks. It is not damage: they may have been copied after the log."""
    segment = file.segment
    if segment.base_offset is None or not segment.path.endswith(".log"):
        return
    reach = _reach_of(segment, floor, file.size)
    if reach is None or reach.offset <= floor or _has_grown(segment):
        return
    text = f"offsets {floor + 1} to at least {reach.offset} are absent"
    evidence = f"{reach.name} lists offset {reach.offset}; it may have been copied after the log"
    found.remarks.append(Remark(file.path, position, Kind.ENDS_EARLY, floor + 1, reach.offset, text, evidence))


def _is_rolled(segment: Segment) -> bool:
    """Whether another segment follows this one, and its size is the one of the listing: a listing is not an atomic snapshot."""
    return segment.following is not None and not _has_grown(segment)


def _has_grown(segment: Segment) -> bool:
    """Whether a broker has appended to a segment since it was listed: then index entries are newer than the bytes that were read."""
    if segment.manifest is not None:
        return False
    now = storage.look(segment.path)
    return now is None or now.size != segment.size


def _too_far(file: SegmentFile, floor: int, found: Tally) -> Trouble | None:
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
        found.remarks.append(
            Remark(file.path, position, Kind.OFFSETS_BACK, following, floor, text, f"{_next(file)} begins with {following}")
        )
        return None
    error = CorruptBatchError(
        file.path,
        position,
        Code.OFFSET_ORDER,
        base_offset=None if base == table.UNKNOWN else base,
        expected=f"offsets below {following}, where {_next(file)} begins",
        found=f"offsets up to {floor}",
    )
    return Trouble(file.size, floor, error, file.size, lost=(following, floor))


def _begins_as_named(file: SegmentFile) -> bool:
    """Whether the next segment, a file of this folder, begins with the offset in its name."""
    path = storage.beside(file.path, _next(file))
    look = None if file.segment.copy_id is not None or file.segment.manifest is not None else storage.look(path)
    if look is None or not look.size:
        return False
    other = replace(file.segment, path=path, base_offset=file.segment.following, size=look.size, identity=None)
    return any(one[0].base_offset in (file.segment.following, table.UNKNOWN) for one in headers(other, 0, 1) if len(one))


def compare_start(file: SegmentFile, row: Entry, errors: str, found: Tally) -> None:
    """Compare the offsets of a segment's first entry, if its checksum is right, with the file's name and its neighbours.

    With ``errors="skip"`` wrong offsets are damage of no bytes in ``found``: the records are still returned.

    Raises
    ------
    CorruptBatchError
        With "raise": the entry has offsets that it cannot have.
    """
    values = row.array.tolist()
    if values[table.POSITION] or values[table.CODE]:
        return
    error = _at_start(file, values[table.BASE_OFFSET], values[table.LAST_OFFSET], found)
    if error is not None and errors == "raise":
        raise error
    if error is not None:
        found.damage.append(Trouble(0, -1, error, lost=(int(error.base_offset or 0), row.last_offset)).damage(0))


def _at_start(file: SegmentFile, base: int, last: int, found: Tally) -> CorruptBatchError | None:
    segment, named = file.segment, file.segment.base_offset
    lowest = last if base == table.UNKNOWN else base
    if segment.twin is not None:
        expected, twin = "offsets that no other segment of the directory has", storage.base_name(segment.twin)
        return CorruptBatchError(
            file.path, 0, Code.OFFSET_ORDER, base_offset=lowest, expected=expected, found=f"{lowest}: {twin} has offsets of this file too"
        )
    if named is None or not layouts.FORMATS[file.format].as_shipped or not segment.path.endswith((".log", ".swap", MANIFEST)):
        return None
    if lowest < named:
        expected = f"offsets from {named} on, according to the name of the file"
        return CorruptBatchError(file.path, 0, Code.OFFSET_ORDER, base_offset=lowest, expected=expected, found=str(lowest))
    if base != table.UNKNOWN and base > named:
        evidence = f"the name of the file contains {named}, its first batch begins with offset {base}"
        found.remarks.append(Remark(file.path, 0, Kind.OFFSET_GAP, named, base - 1, _absent(named, base - 1), evidence))
    if segment.preceding is None and named > 0 and not segment.orphans and (begun := _first_epoch(segment)) is not None and begun < named:
        evidence = f"leader-epoch-checkpoint has an epoch that begins with offset {begun}; retention and deleted records look the same"
        found.remarks.append(Remark(file.path, 0, Kind.OFFSET_GAP, begun, named - 1, _absent(begun, named - 1), evidence))
    return None


def _absent(first: int, last: int) -> str:
    return f"offset {first} is absent" if first == last else f"offsets {first} to {last} are absent"


def _missing(file: SegmentFile, position: int, floor: int, gone: Segment, reach: Reach) -> Trouble:
    segment, base = file.segment, gone.base_offset or 0
    if base < (segment.base_offset or 0):
        lost = base, (segment.base_offset or 0) - 1
    else:
        lost = floor + 1, reach.offset if segment.following is None else segment.following - 1
    error = CorruptBatchError(
        gone.path, 0, Code.SEGMENT_MISSING, base_offset=base, found=f"{reach.name}, which lists offset {reach.offset}, and no log"
    )
    return Trouble(position, floor, error, file.size, lost=lost)


def _up_to_next(file: SegmentFile, floor: int) -> tuple[int, int] | None:
    """The offsets between the last one and the next segment; None without any."""
    following = file.segment.following
    return (floor + 1, following - 1) if following is not None and floor + 1 < following else None


def _next(file: SegmentFile) -> str:
    return f"{file.segment.following:020d}.log"


def _reach_of(segment: Segment, floor: int, size: int) -> Reach | None:
    """The index file of a segment that goes furthest past an offset and a number of bytes; None if no index file goes past either.

    An index entry of zeros is preallocated space.
    """
    if segment.base_offset is None:
        return None
    found = []
    for suffix, kind in _kinds(segment):
        index = read_index(segment, suffix, kind)
        if index is None:
            continue
        last = index[-1]
        position = int(last["position"]) if "position" in kind.names else 0
        if position > 0 or ("timestamp" in kind.names and last["timestamp"] > 0):
            name = storage.base_name(storage.with_suffix(segment.path, suffix))
            found.append(Reach(segment.base_offset + int(last["offset"]), position, name))
    beyond = [one for one in found if one.offset > floor or one.position >= size]
    return max(beyond, key=lambda one: (one.offset, one.position), default=None)


def _kinds(segment: Segment) -> list[tuple[str, Any]]:
    if layouts.format_of(segment.format).timed_index:
        return [(".index", ENRICHED_INDEX)]
    return [(".index", OFFSET_INDEX), (".timeindex", TIME_INDEX)]


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
    """Start offset of the first leader epoch that ``leader-epoch-checkpoint`` lists; Kafka raises it when it deletes segments.

    A version, a number of lines, and a line ``epoch start-offset`` for each (``LeaderEpochCheckpointFile``). A tier has one per segment.
    """
    if segment.copy_id is not None:
        beside = storage.with_suffix(segment.path, TIER_CHECKPOINT)
        epochs = read_epochs(beside) if segment.manifest is None else segment.manifest.epochs
        return epochs[0][1] if epochs else None
    raw = storage.read_bytes(storage.beside(segment.path, "leader-epoch-checkpoint"))
    words = (raw or b"").split()
    if len(words) < 4 or words[0] != b"0" or not words[3].isdigit():
        return None
    return int(words[3])
