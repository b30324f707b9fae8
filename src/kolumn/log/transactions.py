"""Finds the outcome of the transactions of a topic-partition.

With side files (`side_files`) only the end of the log has to be walked: ``.txnindex`` lists the aborted transactions, the newest
``.snapshot`` those that were open at its offset. Otherwise the headers of all batches are walked, and the markers are read.
In both cases the log decides: an index entry is used only if the log has its marker at the given offset.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kolumn.codecs import NONE
from kolumn.cpu_fallback.check.checksums import check
from kolumn.decode.host.run import decode_run
from kolumn.decode.pipeline import scan_ranges
from kolumn.entries.replaced import without_replaced
from kolumn.formats import layouts, v2
from kolumn.formats.entries import Entry
from kolumn.log.batch_table import entry_rows
from kolumn.options import Options
from kolumn.plan.chunks import HEADER_WINDOW, chunks
from kolumn.plan.seek import select_ranges
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment, find_segments
from kolumn.source.side_files import read_snapshot, read_txnindex
from kolumn.source.storage import base_name, beside, listing, parent, with_suffix
from kolumn.transactions.states import Transactions, matter


def with_transactions(ranges: list[Range], options: Options) -> list[Range]:
    """The ranges with the transactions of their topic-partition, if the options need them and they are not known yet."""
    if not matter(options):
        return ranges
    found: dict[Any, Transactions] = {}
    settled = []
    for one in ranges:
        if one.transactions is not None:
            settled.append(one)
            continue
        key = parent(one.segment.path) if one.segment.base_offset is not None else one.segment.path
        if key not in found:
            found[key] = transactions_of_segment(one.segment, options)
        settled.append(replace(one, transactions=found[key]))
    return settled


def neighbours(segment: Segment) -> list[Segment]:
    """All segments of a segment's log in its directory: a transaction may begin and end in them."""
    if segment.base_offset is None:
        return [segment]
    found = [replace(one, format=segment.format) for one in find_segments(parent(segment.path) or ".")]
    return [one for one in without_replaced(found) if one.base_offset is not None]


def transactions_of_segment(segment: Segment, options: Options) -> Transactions:
    """Transactions of the partition that a segment belongs to."""
    return transactions_of(neighbours(segment), options)


def transactions_of(segments: list[Segment], options: Options) -> Transactions:
    """Transactions of a partition's segments, in order of base offset."""
    if layouts.format_of(segments[0].format).transactions_in_sets:
        return from_records(map(Range.whole, segments), options)
    return from_side_files(segments, options) or from_headers(segments, options)


def of_ranges(ranges: list[Range], options: Options) -> Transactions:
    """Transactions of a log that consists of ranges of several copies, in order of offsets."""
    if not ranges:
        return Transactions()
    segment = ranges[0].segment
    if layouts.format_of(segment.format).transactions_in_sets:
        return from_records(ranges, options)
    return _from_headers(ranges, options, read_snapshot(_snapshot(segment, segment.base_offset or 0)) or {})


def from_headers(segments: list[Segment], options: Options, start: int = 0) -> Transactions:
    """From headers and markers alone.

    Parameters
    ----------
    segments : list of Segment
    options : Options
        With ``errors="skip"`` checksums are compared too: a wrong length could hide entries that the read finds.
    start : int
        Offset at which the walk begins, with the transactions that are open there according to a snapshot. The default is the
        beginning, where a snapshot may contain transactions that were open in deleted segments.
    """
    first = start or (segments[0].base_offset or 0)
    begun = read_snapshot(_snapshot(segments[0], first)) or {}
    return _from_headers(map(Range.whole, _behind(segments, start)), options, begun, start)


def _from_headers(ranges: Iterable[Range], options: Options, begun: dict[int, int], start: int = 0) -> Transactions:
    aborted = []
    for file, row in _transactional(ranges, options):
        producer, offset = row.producer_id, row.base_offset
        if offset < start:
            continue
        if row.control:
            kind = marker_of(file, row)
            if kind in (v2.ABORT, v2.COMMIT):
                begin = begun.pop(producer, None)
                if kind == v2.ABORT and begin is not None:
                    aborted.append((producer, begin, offset))
        elif producer not in begun and _entry(file, row) is not None:
            begun[producer] = offset
    return Transactions(tuple(aborted), tuple(begun.items()))


def from_records(ranges: Iterable[Range], options: Options) -> Transactions:
    """From all records: in the KIP-98 draft markers are single messages of a set, and headers do not show them."""
    columns = ("producerId", "offset", "isControl", "controlType", "isTransactional")
    # Decoded on the CPU: Spark's driver calls this too, and must not open a GPU.
    walk = Options(
        columns=columns,
        include_control=True,
        errors=options.errors,
        check_crcs=options.check_crcs,
        format=options.format,
        backend="cpu",
    )
    begun: dict[int, int] = {}
    aborted = []
    for batch in scan_ranges(ranges, walk):
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
    aborted = []
    for segment in segments:
        entries = read_txnindex(with_suffix(segment.path, ".txnindex"))
        if entries is None or not all(_has_abort(segment, producer, last) for producer, _, last in entries):
            return None
        aborted += entries
    newest = max((offset for offset in _snapshots(segments) if offset > (segments[0].base_offset or 0)), default=None)
    if newest is None:
        return None
    rest = from_headers(segments, options, newest)
    known = {last for _, _, last in aborted}
    return Transactions((*aborted, *(one for one in rest.aborted if one[2] not in known)), rest.open)


def _snapshots(segments: list[Segment]) -> Iterator[int]:
    for entry in listing(parent(segments[0].path) or "."):
        stem, _, suffix = base_name(entry.name).partition(".")
        if suffix == "snapshot" and stem.isdigit() and read_snapshot(entry.name) is not None:
            yield int(stem)


def _snapshot(segment: Segment, offset: int) -> str:
    return beside(segment.path, f"{offset:020d}.snapshot")


def _behind(segments: list[Segment], offset: int) -> list[Segment]:
    """The segments that can have batches from an offset on."""
    ends = [one.base_offset or 0 for one in segments[1:]]
    return [one for one, end in zip(segments, [*ends, offset + 1], strict=True) if end > offset]


def _transactional(ranges: Iterable[Range], options: Options) -> Iterator[tuple[SegmentFile, Any]]:
    """Transactional batches, including markers, as rows of the batch table."""
    walk = Options(errors="skip", check_crcs=options.check_crcs and options.errors == "skip")
    for one in ranges:
        with SegmentFile(one.segment) as file:
            for entries in entry_rows(file, walk, one):
                for row in entries[entries.transactional == 1]:
                    yield file, row


def _entry(file: SegmentFile, row: Entry) -> Any:
    """The bytes of a batch, or None if its checksum is wrong: a damaged header must not open or end a transaction."""
    position, size = row.position, row.size
    if position + size > file.size:
        return None
    source = file.read(position, position + size)
    return None if check(source.ctypes.data, position, row.alone().array) else source


def begun_at(segment: Segment) -> dict[int, int]:
    """First offsets of the transactions that were open where a segment begins, by producer, as its snapshot says."""
    return dict(read_snapshot(_snapshot(segment, segment.base_offset or 0)) or {})


def marker_of(file: SegmentFile, row: Entry) -> int | None:
    """Type of the control record in a batch; None if it has no control record, or is damaged."""
    source = _entry(file, row)
    if source is None:
        return None
    if row.codec == NONE:
        entry = bytes(source[: row.size])
        skip = layouts.attribute_bytes(row.layout)
        record = v2.fields(entry, row.payload, len(entry), skip)
        return v2.control_type(entry[record.key : record.key + max(record.key_length, 0)]) if record.code == 0 else None
    # No broker compresses markers, but it is allowed.
    options = Options(columns=("key",), include_control=True, errors="skip", format=file.segment.format)
    run = decode_run(source, row.position, row.alone(), options, True)
    keys = run.columns.key_array(pa.binary(), run.at, run.sources) if run.rows else []
    return v2.control_type(keys[0].as_py() or b"") if run.rows else None


def _has_abort(segment: Segment, producer: int, offset: int) -> bool:
    """Whether the log has an ABORT marker of a producer at an offset."""
    for one in select_ranges([segment], Options(start_offset=offset)):
        with SegmentFile(segment) as file:
            for chunk in chunks(file, one.start, file.size, HEADER_WINDOW, payloads=False):
                for row in chunk.entries[chunk.entries.base_offset >= offset]:
                    same = row.base_offset == offset and row.producer_id == producer and row.control == 1
                    return bool(same) and marker_of(file, row) == v2.ABORT
    return False
