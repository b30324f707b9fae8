"""Finds the outcome of the transactions of a topic-partition.

With side files (`side_files`) only the end of the log has to be walked: ``.txnindex`` lists the aborted transactions, the newest
``.snapshot`` those that were open at its offset. Otherwise the headers of all batches are walked, and the markers are read, many in one
pass. In both cases the log decides: an index entry is used only if the log has its marker at the given offset.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from operator import itemgetter

import numpy as np

from kolumn.copies.copies import log_end
from kolumn.core.arrays import Bytes
from kolumn.core.errors import shown
from kolumn.core.recycle import take
from kolumn.core.threads import TRANSACTIONS, workers
from kolumn.cpu_fallback.check import check, gather
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.damage.findings import OnDamage, Tally
from kolumn.decode.host.aborted import Transactions, matter, may_stop
from kolumn.decode.host.chunks import MOST_ENTRIES, header_rows
from kolumn.decode.host.run import Run, decode_run
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats import layouts, v2
from kolumn.formats.entries import Entries, Entry
from kolumn.log.live import without_replaced
from kolumn.log.pieces import entry_rows
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.source.names import file_name
from kolumn.source.read_ahead import BLOCK
from kolumn.source.redpanda import aborted_ranges
from kolumn.source.segment_file import SegmentFile, is_absent, side_bytes
from kolumn.source.segments import HIGHEST, Range, Segment, segments_in
from kolumn.source.side_files import AbortedTxn, aborted_in, open_in
from kolumn.source.storage import base_name, beside, is_url, listing, parent, read_bytes

logger = logging.getLogger(__name__)
_TOGETHER = 1 << 20  # Bytes of batches that are read together, unless one alone is larger. A marker has less than 100.
_VERSION = 2  # bytes, at the beginning of a marker's key, before the type (i16), and of its value, before the coordinator's epoch (i32)


def marker_types(file: SegmentFile, markers: Entries) -> list[int | None]:
    """Type of the control record in each of some control batches; None if a batch has no control record, or is damaged."""
    return _of_markers(file, markers, "key", 2)


def coordinator_epochs(file: SegmentFile, markers: Entries) -> list[int | None]:
    """Epoch of the coordinator that wrote each of some markers; None as for `marker_types`."""
    return _of_markers(file, markers, "value", 4)


def _of_markers(file: SegmentFile, markers: Entries, column: str, size: int) -> list[int | None]:
    """The number of ``size`` bytes after the version in the key or the value of each marker."""
    numbers: dict[int, int | None] = {}
    for positions, good, source in _intact(file, markers):
        options = Options(columns=(column,), include_control=True, errors="skip", format=file.segment.format)
        run = decode_run(source, 0, good, options, need_key=column == "key") if len(good) else None
        numbers |= zip(positions, _first_numbers(run, len(good), column, size), strict=True)
    return [numbers.get(position) for position in markers.position.tolist()]


def intact_positions(file: SegmentFile, entries: Entries) -> set[int]:
    """Positions of those entries whose checksums are right."""
    return {position for positions, _, _ in _intact(file, entries) for position in positions}


def _intact(file: SegmentFile, entries: Entries) -> Iterator[tuple[list[int], Entries, Bytes]]:
    """The intact entries, some at a time: their positions in the file, and their rows and bytes in memory of their own."""
    for some in _cut(entries[entries.end <= file.size]):
        here = some.copy()
        window, view = take(int(here.size.sum()) + PAD)
        if file.is_local:
            here = here[: gather(file.descriptor, here.array, window.address)]
        else:
            # Small reads are served from larger ones there.
            parts = [file.read(row.position, row.end)[: row.size].data for row in here]
            view[: sum(map(len, parts))] = b"".join(parts)
        positions, here.position, here.code = here.position.copy(), np.cumsum(here.size) - here.size, 0
        check(window.address, 0, here.array)
        intact = here.is_intact
        yield positions[intact].tolist(), here[intact], np.frombuffer(window, np.uint8)


def _cut(entries: Entries) -> Iterator[Entries]:
    ends, first = np.cumsum(entries.size), 0
    while first < len(entries):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + _TOGETHER, side="right")))
        yield entries[first:stop]
        first = stop


def _first_numbers(run: Run | None, count: int, column: str, size: int) -> list[int | None]:
    """The signed number after the version, an i16, in the first record of each of ``count`` batches, as `v2.control_type` reads it."""
    if run is None or not run.rows:
        return [None] * count
    payload = getattr(run.columns, column)
    assert payload.ends is not None
    assert payload.data is not None
    ends = np.frombuffer(memoryview(payload.ends), np.int32, run.rows + 1).astype(np.int64)
    data = np.frombuffer(memoryview(payload.data), np.uint8)
    first = np.minimum(np.cumsum(run.records) - run.records, run.rows - 1)
    sound = np.flatnonzero((run.records > 0) & (ends[first + 1] - ends[first] >= _VERSION + size))
    sound = sound[data[ends[first[sound]]] < 128]
    start = ends[first[sound]] + _VERSION
    numbers = np.full(count, None)
    high = data[start].astype(np.int8).astype(np.int64) << 8 * (size - 1)
    numbers[sound] = sum((data[start + i].astype(np.int64) << 8 * (size - 1 - i) for i in range(1, size)), high)
    return list(numbers.tolist())


_SOUGHT = 16
"""For more aborted transactions of a segment all its headers are walked once, instead of a part of them for each transaction. Those of a
segment far away are too if it is not larger than what would be fetched for the parts."""


def with_transactions(ranges: list[Range], options: Options) -> list[Range]:
    """The ranges with the transactions of their topic-partition, if the options need them and they are not known yet."""
    if not matter(options):
        return ranges
    known: dict[str, Transactions] = {}

    def settled(part: Range) -> Range:
        if part.transactions is not None:
            return part
        key = parent(part.segment.path) if part.segment.base_offset is not None else part.segment.path
        if key not in known:
            known[key] = transactions_of_segment(part.segment, options)
        return replace(part, transactions=known[key])

    return list(map(settled, ranges))


def neighbours(segment: Segment) -> list[Segment]:
    """All segments of a segment's log in its directory: a transaction may begin and end in them."""
    if segment.base_offset is None:
        return [segment]
    folder = [replace(one, format=segment.format, access=segment.access) for one in segments_in(parent(segment.path) or ".")]
    return [one for one in without_replaced(folder) if one.base_offset is not None]


def transactions_of_segment(segment: Segment, options: Options) -> Transactions:
    return transactions_of(neighbours(segment), options)


def transactions_of_log(segment: Segment, log: Iterable[Segment], options: Options) -> Transactions:
    """Transactions of a segment's directory; of all segments of its topic-partition in a ``log`` that lies in several, as with a tier."""
    own = [one for one in log if one.key == segment.key]
    if segment.topic is None or len({parent(one.path) for one in own}) < 2:
        return transactions_of_segment(segment, options)
    return transactions_of(own, options)


def transactions_of(segments: list[Segment], options: Options) -> Transactions:
    """Transactions of a partition's segments, in order of base offset."""
    found = _transactions_of(segments, options)
    stable = found.last_stable_offset
    if stable is None or not may_stop(options):
        return found
    return _told(found, stable, select_ranges(segments, Options(start_offset=stable, end_offset=stable + 1)))


def _told(found: Transactions, stable: int, ranges: Iterable[Range]) -> Transactions:
    """With what the first batch of the earliest open transaction tells, at the last stable offset."""
    for part in ranges:
        if part.fault is not None or (part.segment.following or HIGHEST) <= stable:
            continue
        with SegmentFile(part.segment) as file:
            for entries in header_rows(file, part.start, part.end):
                first = entries[(entries.base_offset == stable) & (entries.transactional == 1)]
                if len(first):
                    time = first[0].base_timestamp
                    return replace(found, epoch=first[0].producer_epoch, since=time if time >= 0 else None)
    return found


def _transactions_of(segments: list[Segment], options: Options) -> Transactions:
    if layouts.format_of(segments[0].format).transactions_in_sets:
        return from_records(map(Range.whole, segments), options)
    if segments[0].memory is not None or any(segment.raft is not None for segment in segments):
        return from_headers(segments, options)
    if (from_files := from_side_files(segments, options)) is not None:
        return from_files
    transactions = from_headers(segments, options)
    return _with_unreadable(transactions, segments) if options.errors == "skip" else transactions


def _with_unreadable(transactions: Transactions, segments: list[Segment]) -> Transactions:
    """With the aborted transactions of index files whose markers are damaged. Without its marker a transaction would go on to the next
    marker of its producer, which may be a COMMIT."""
    aborted = [entry for segment in segments for entry in _unreadable(segment, _aborted(segment) or [])]

    def begin(producer: int, first: int, end: int) -> int:
        return max([first, *(last + 1 for owner, _, last in aborted if owner == producer and first <= last < end)])

    rest = [(producer, begin(producer, first, last), last) for producer, first, last in transactions.aborted]
    still = [(producer, begin(producer, first, HIGHEST)) for producer, first in transactions.open]
    return Transactions((*aborted, *rest), tuple(still))


def _unreadable(segment: Segment, aborted: list[AbortedTxn]) -> list[AbortedTxn]:
    """Those of which no intact entry has the marker's offset."""
    if not aborted:
        return []
    with SegmentFile(segment) as file:
        for entries in entry_rows(file, Options(errors="skip")):
            some = entries[entries.is_intact]
            aborted = [entry for entry in aborted if not ((some.base_offset <= entry[2]) & (entry[2] <= some.last_offset)).any()]
    return aborted


def of_ranges(ranges: list[Range], options: Options, found: Tally | None = None) -> Transactions:
    """Transactions of a log that consists of ranges of several copies, in order of offsets. The damage of a walk with ``errors="skip"`` is
    added to ``found``."""
    if not ranges:
        return Transactions()
    segment = ranges[0].segment
    if layouts.format_of(segment.format).transactions_in_sets:
        return from_records(ranges, options, None if found is None else found.damage.append)
    made = _from_headers(ranges, options, begun_at(segment) if segment.raft is None else {}, found=found)
    stable = made.last_stable_offset
    return made if stable is None or not may_stop(options) else _told(made, stable, ranges)


def readable_end(segments: list[Segment], options: Options) -> int:
    """Where a log ends; with read_committed, not after the offset where a committed reader must stop."""
    end = log_end(segments)
    stable = _transactions_of(segments, options).last_stable_offset if options.isolation_level == "read_committed" else None
    return end if stable is None else min(end, stable)


def from_headers(segments: list[Segment], options: Options, start: int = 0) -> Transactions:
    """From headers and markers alone. With ``errors="skip"`` checksums are compared too: a wrong length could hide entries that the read
    finds. The walk begins at offset ``start``, with the transactions that are open there according to a snapshot. The default is the
    beginning, where a snapshot may contain transactions that were open in deleted segments."""
    first = start or (segments[0].base_offset or 0)
    begun: dict[int, int] | None = None
    if segments[0].memory is None and segments[0].raft is None:
        snapshot = next((snapshot for offset, snapshot in snapshots(segments) if offset == first), None)
        begun = open_in(read_bytes(snapshot_of(segments[0], first)) if snapshot is None else snapshot())
    ends = [*(segment.lowest or 0 for segment in segments[1:]), start + 1]
    left = [Range.whole(segment) for segment, end in zip(segments, ends, strict=True) if end > start]
    return _from_headers(left, options, begun or {}, start)


def _from_headers(
    ranges: Iterable[Range], options: Options, begun: dict[int, int], start: int = 0, found: Tally | None = None
) -> Transactions:
    ranges = list(ranges)
    names = {part.segment.raft.aborted for part in ranges if part.segment.raft is not None} - {None}
    noted = _Noted(filter(None, names)) if names else None
    aborted: list[AbortedTxn] = []
    for file, entries in _transactional(ranges, options, found):
        entries = entries[entries.base_offset >= start]
        control = entries.control != 0
        kinds = iter(marker_types(file, entries[control]))
        # Batches that can be the first one of a producer's transaction, by producer.
        waiting: dict[int, list[int]] = {}
        ended: list[tuple[int, int | Sequence[int], int]] = []
        columns = (column.tolist() for column in (entries.producer_id, entries.base_offset, control))
        for i, (producer, offset, is_marker) in enumerate(zip(*columns, strict=True)):
            if noted is not None and noted.ended(producer, offset):
                begun.pop(producer, None)
                waiting.pop(producer, None)
            if not is_marker:
                if producer not in begun:
                    waiting.setdefault(producer, []).append(i)
                continue
            kind = next(kinds)
            if kind in (v2.ABORT, v2.COMMIT):
                begin, rows = begun.pop(producer, None), waiting.pop(producer, ())
                # What a committed transaction began with need not be known, so its bytes are not read.
                if kind == v2.ABORT:
                    ended.append((producer, rows if begin is None else begin, offset))
        firsts = [rows[0] for _, rows, _ in ended if not isinstance(rows, int) and rows] + [rows[0] for rows in waiting.values()]
        intact = intact_positions(file, entries[firsts]) if firsts else set()
        for producer, known, offset in ended:
            first = known if isinstance(known, int) else _first_intact(file, entries, known, intact)
            if first is not None:
                aborted.append((producer, first, offset))
        for producer, rows in waiting.items():
            if (first := _first_intact(file, entries, rows, intact)) is not None:
                begun[producer] = first
    if noted is None:
        return Transactions(tuple(aborted), tuple(begun.items()))
    still = tuple((producer, first) for producer, first in begun.items() if not noted.ended(producer, HIGHEST))
    return Transactions((*noted.besides(aborted), *aborted), still)


class _Noted:
    """The aborted transactions that files in Redpanda's bucket list. Compaction may have removed their markers, and then these are all
    that tells where the transactions ended."""

    def __init__(self, names: Iterable[str]) -> None:
        self._all: set[AbortedTxn] = set()
        for name in sorted(names):
            found = aborted_ranges(read_bytes(name))
            if found is None:
                logger.warning("%s: not a list of aborted transactions: markers in the log decide", shown(name))
            self._all.update(found or ())
        self._ends: dict[int, list[int]] = {}
        for producer, _, last in sorted(self._all, key=itemgetter(2), reverse=True):
            self._ends.setdefault(producer, []).append(last)

    def ended(self, producer: int, offset: int) -> bool:
        """Whether a transaction of a producer ended before an offset; each is told once, and offsets of a producer must not go back."""
        ends, was_told = self._ends.get(producer, []), False
        while ends and ends[-1] < offset:
            ends.pop()
            was_told = True
        return was_told

    def besides(self, aborted: list[AbortedTxn]) -> list[AbortedTxn]:
        """Those whose markers are not among some transactions."""
        markers = {(producer, last) for producer, _, last in aborted}
        return sorted(entry for entry in self._all if (entry[0], entry[2]) not in markers)


def _first_intact(file: SegmentFile, entries: Entries, rows: Sequence[int], intact: set[int]) -> int | None:
    """Offset of the first of some batches whose checksum is right: a damaged header must not open a transaction."""
    for i in rows:
        if entries[i].position in intact or (i != rows[0] and intact_positions(file, entries[i : i + 1])):
            return entries[i].base_offset
    return None


def from_records(ranges: Iterable[Range], options: Options, on_damage: OnDamage | None = None) -> Transactions:
    """From all records: in the KIP-98 draft markers are single messages of a set, and headers do not show them."""
    columns = ("producerId", "offset", "isControl", "controlType", "isTransactional")
    # Decoded on the CPU: Spark's driver calls this too, and must not open a GPU.
    cpu = Options(
        columns=columns, include_control=True, errors=options.errors, check_crcs=options.check_crcs, format=options.format, backend="cpu"
    )
    begun: dict[int, int] = {}
    aborted = []
    for batch in scan_ranges(ranges, cpu, on_damage):
        for producer, offset, control, kind, transactional in zip(*(batch[name].to_pylist() for name in columns), strict=True):
            if control:
                begin = begun.pop(producer, None)
                if kind == "ABORT" and begin is not None:
                    aborted.append((producer, begin, offset))
            elif transactional:
                begun.setdefault(producer, offset)
    return Transactions(tuple(aborted), tuple(begun.items()))


def from_side_files(segments: list[Segment], options: Options) -> Transactions | None:
    """From ``.txnindex`` files and the newest snapshot; None if one is missing or the log contradicts it."""
    needed, newest = _up_to(segments, options.end_offset), None
    if len(needed) == len(segments):
        # Without a snapshot all headers are walked anyway.
        later = sorted((item for item in snapshots(segments) if item[0] > (segments[0].base_offset or 0)), key=itemgetter(0), reverse=True)
        newest = next((offset for offset, snapshot in later if open_in(snapshot()) is not None), None)
        if newest is None:
            return None
    aborted = list[AbortedTxn]()
    with workers(TRANSACTIONS, None if is_url(segments[0].path) else 1) as pool:
        for entries in pool.map(partial(_confirmed, options=options), needed):
            if entries is None:
                return None
            aborted += entries
    if newest is None:
        return Transactions(tuple(aborted))
    rest = from_headers(segments, options, newest)
    known = {last for _, _, last in aborted}
    return Transactions((*aborted, *(entry for entry in rest.aborted if entry[2] not in known)), rest.open)


def _up_to(segments: list[Segment], end: int | None) -> list[Segment]:
    """The segments of a tier up to a snapshot after which no transaction goes on that began before an offset."""
    if end is None or any(segment.copy_id is None for segment in segments):
        return segments
    known = dict(snapshots(segments))
    for count, segment in enumerate(segments[1:], 1):
        if (low := segment.lowest or 0) >= end and low in known:
            begun = open_in(known[low]())
            if begun is not None and all(first >= end for first in begun.values()):
                return segments[:count]
    return segments


def _aborted(segment: Segment) -> list[AbortedTxn] | None:
    """Aborted transactions whose markers are among the offsets that are read from a segment; None if that is not known."""
    entries = aborted_in(side_bytes(segment, ".txnindex"))
    if entries is None and is_absent(segment, ".txnindex") and open_in(side_bytes(segment, ".snapshot")) is not None:
        # A tier gets an index only if there is an entry in it. A manifest tells; a file that is not there may have been lost.
        return [] if segment.manifest is not None or _abort_markers(segment) == (set(), segment.size) else None
    low, end = segment.start_offset or 0, HIGHEST if segment.end_offset is None else segment.end_offset
    return entries if entries is None else [entry for entry in entries if low <= entry[2] < end]


def _confirmed(segment: Segment, options: Options) -> list[AbortedTxn] | None:
    """As `_aborted`, of those that have offsets that the options ask for; None too if the log contradicts it."""
    entries = _aborted(segment)
    if entries is None:
        return None
    low, end = options.start_offset or 0, HIGHEST if options.end_offset is None else options.end_offset
    entries = [entry for entry in entries if entry[2] >= low and entry[1] < end]
    return entries if _has_aborts(segment, entries) else None


def snapshots(segments: list[Segment]) -> Iterator[tuple[int, Callable[[], bytes | None]]]:
    """Offsets of snapshots, and what reads them. The name of one in a tier is that of its segment, and its offset is after its end."""
    for segment, after in zip_longest(segments, segments[1:]):
        if segment.copy_id is None or segment.end_offset is not None:
            continue
        last = segment.manifest.last if segment.manifest is not None else None
        end = after.lowest if after is not None else None if last is None else last + 1
        if end is not None:
            yield end, partial(side_bytes, segment, ".snapshot")
    for folder in dict.fromkeys(parent(segment.path) or "." for segment in segments if segment.copy_id is None):
        for entry in listing(folder):
            stem, _, suffix = base_name(entry.name).partition(".")
            if suffix == "snapshot" and stem.isdigit():
                yield int(stem), partial(read_bytes, entry.name)


def snapshot_of(segment: Segment, offset: int) -> str:
    """Name of the snapshot of producers at an offset of a segment's log."""
    return beside(segment.path, file_name(offset, ".snapshot"))


def _transactional(ranges: Iterable[Range], options: Options, found: Tally | None) -> Iterator[tuple[SegmentFile, Entries]]:
    """Transactional batches, including markers, some thousands at a time."""
    walk = Options(errors="skip", check_crcs=options.check_crcs and options.errors == "skip")
    for part in ranges:
        with SegmentFile(part.segment) as file:
            held, count = list[Entries](), 0
            for entries in entry_rows(file, walk, part, found):
                some = entries[entries.transactional == 1]
                if not len(some):
                    continue
                held, count = [*held, some], count + len(some)
                if count >= MOST_ENTRIES:
                    yield file, Entries.joined(held)
                    held, count = [], 0
            if held:
                yield file, Entries.joined(held)


def _has_aborts(segment: Segment, aborted: list[AbortedTxn]) -> bool:
    """Whether the log has the ABORT markers of transactions."""
    far = segment.manifest is not None or is_url(segment.path)
    if len(aborted) <= _SOUGHT and not (far and segment.size <= len(aborted) * BLOCK):
        return all(_has_abort(segment, producer, last) for producer, _, last in aborted)
    markers, _ = _abort_markers(segment)
    return all((producer, last) in markers for producer, _, last in aborted)


def _abort_markers(segment: Segment) -> tuple[set[tuple[int, int]], int]:
    """Producer and offset of each ABORT marker, and where the headers lead to."""
    aborts, end = set[tuple[int, int]](), 0
    with SegmentFile(segment) as file:
        for entries in header_rows(file, 0, file.size):
            markers = entries[entries.control == 1]
            types = marker_types(file, markers)
            aborts |= {(marker.producer_id, marker.base_offset) for marker, type in zip(markers, types, strict=True) if type == v2.ABORT}
            end = entries[-1].end if len(entries) else end
    return aborts, end


def begun_at(segment: Segment) -> dict[int, int]:
    """First offsets of the transactions that were open where a segment begins, by producer, as its snapshot says."""
    return open_in(read_bytes(snapshot_of(segment, segment.base_offset or 0))) or {}


def marker_of(file: SegmentFile, row: Entry) -> int | None:
    """Type of the control record in a batch; None if it has no control record, or is damaged."""
    return marker_types(file, Entries(row.array.reshape(1, -1)))[0]


def abort_markers(file: SegmentFile, entries: Entries, begun: dict[int, int]) -> Iterator[tuple[Entry, int | None]]:
    """Each ABORT marker of some batches, and the first offset of the transaction that it ends; None if the log does not have that.

    ``begun`` has the first offset of each transaction that is open, by its producer: it goes on from there, and is that at each marker.
    """
    for row in entries[entries.transactional == 1]:
        if not row.control:
            begun.setdefault(row.producer_id, row.base_offset)
            continue
        marker = marker_of(file, row)
        first = begun.pop(row.producer_id, None) if marker in (v2.ABORT, v2.COMMIT) else None
        if marker == v2.ABORT:
            yield row, first


def _has_abort(segment: Segment, producer: int, offset: int) -> bool:
    """Whether the log has an ABORT marker of a producer at an offset."""
    for part in select_ranges([segment], Options(start_offset=offset)):
        with SegmentFile(segment) as file:
            for entries in header_rows(file, part.start, file.size):
                for row in entries[entries.base_offset >= offset]:
                    same = row.base_offset == offset and row.producer_id == producer and row.control == 1
                    return bool(same) and marker_of(file, row) == v2.ABORT
    return False
