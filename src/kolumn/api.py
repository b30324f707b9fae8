"""`read`, `scan`, `batches` and `verify`."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Unpack

import pyarrow as pa

from kolumn import keywords
from kolumn.arrow.payload_strings import NAMED_BY, as_strings, check_payload, strings_of
from kolumn.backend import require
from kolumn.decode.pipeline import OnDamage, scan_ranges
from kolumn.entries.replaced import with_twins, without_replaced
from kolumn.entries.snapshots import with_snapshots
from kolumn.internal_topics.remote_copies import without_unfinished
from kolumn.keywords import known_keywords
from kolumn.log.batch_table import batch_table
from kolumn.log.transactions import with_transactions
from kolumn.options import Options
from kolumn.reader_types import with_types
from kolumn.replicas.by_folder import ranges_by_folder
from kolumn.replicas.ranges import log_ranges, whole_ranges
from kolumn.replicas.tiers import linked_as_log, log_of, whole_segments
from kolumn.source.aiven_file import LARGEST_CHUNK, Access, wrapped_keys
from kolumn.source.read_ahead import AHEAD_BYTES
from kolumn.source.segments import Listed, Range, Segment, find_segments
from kolumn.values.columns.stage import payload_names
from kolumn.verification.report import Report


def live_segments(source: keywords.Source, options: Options, listed: Listed | None = None) -> list[Segment]:
    """Live segments of a source, including those of all copies of a topic-partition; ``listed`` as in `find_segments`."""
    found = find_segments(source, options.topic, options.partition, options.errors == "skip", listed)
    given = options.memory_bytes or 0
    wrapped = wrapped_keys(one.manifest for one in found if one.manifest is not None)
    access = Access(options.keys, options.errors == "skip", min(AHEAD_BYTES, given or AHEAD_BYTES), max(LARGEST_CHUNK, given), wrapped)
    # The same object as that of the segments, if it is equal: to compare two takes much longer.
    wanted = (options.format, Segment.access if access == Segment.access else access)
    named = [one if (one.format, one.access) == wanted else replace(one, format=options.format, access=access) for one in found]
    live = without_unfinished(with_twins(without_replaced(named)))
    return with_snapshots(live) if options.include_snapshots else live


def segments_of(source: keywords.Source, options: Options, of_tiers: bool = False) -> list[Segment]:
    """Live segments of a source, without duplicate offsets of a topic-partition; errors as `kolumn.replicas.copies.one_log`."""
    return whole_segments(log_of(live_segments(source, options), options), of_tiers)


@known_keywords()
def scan(
    source: keywords.Source,
    *,
    on_damage: OnDamage | None = None,
    payload: keywords.Payload = "binary",
    **options: Unpack[keywords.ReadOptions],
) -> pa.RecordBatchReader:
    """Stream the records of Kafka log segments as Arrow record batches.

    Memory is bounded for sources of any size: at most twice ``threads`` chunks are in progress, and ``memory_bytes`` limits their
    decompressed bytes. A batch that is larger than a chunk's share is decoded when no other chunk is in progress.

    Parameters
    ----------
    source : str, PathLike or iterable of those, buffer, or binary file object
        A segment file, a ``topic-partition`` directory, a log directory of many, a glob, or a list of those. Several directories of
        one topic-partition are one log if their offsets do not overlap; otherwise ``replicas`` decides what is read. Or one segment in
        memory, of no topic and partition unless they are given: ``bytes``, ``bytearray``, ``memoryview``, ``mmap``, ``pyarrow.Buffer``
        and arrays of bytes are decoded where they are, and must not change while data that were read from them are in use. A file
        object is read into memory, from its position to its end. The column ``segment`` and errors name it ``<memory>``, or by the
        name of the file object. There are no index files then, and no neighbours.
    on_damage : callable, optional
        Called with a `kolumn.Damage` for each damaged stretch that ``errors="skip"`` leaves out; `kolumn.Skipped` collects them.
    payload : str
        "binary": keys, values and headers' values as bytes. "string": as strings over the same bytes; bytes that are not UTF-8
        are a `PayloadError`.
    **options

    Returns
    -------
    pyarrow.RecordBatchReader
        Columns of `kolumn.schema.RECORD_COLUMNS` in host memory, records in file order. Keys and values are copied out of the
        segment; with ``binary="view"`` they point into its bytes, which stay in memory as long as a batch does. In a segment in
        memory they point into the caller's buffer, except in its last batch.

    Raises
    ------
    ArgumentError
        An option is unknown, a value is not allowed, the source has no segments, or copies of a topic-partition overlap while
        ``replicas`` is "raise".
    MissingError
        A GPU was requested, and there is none, or a package is missing. Raised by the call itself, before anything is read.
    CorruptBatchError, FormatError, LimitError
        Damage, with ``errors="raise"``; raised during the read. A truncated last entry and a zero-filled tail are not errors.
    PayloadError
        A value or key that is not valid, with ``value_errors="raise"`` or ``key_errors="raise"``, or not UTF-8, with
        ``payload="string"``; raised during the read.
    """
    return reader_of(source, Options.of(**options), on_damage, payload)


def reader_of(source: keywords.Source, chosen: Options, on_damage: OnDamage | None, payload: str) -> pa.RecordBatchReader:
    """`scan` with checked options."""
    return pa.RecordBatchReader.from_batches(*_records(source, chosen, on_damage, payload))


def _records(
    source: keywords.Source, chosen: Options, on_damage: OnDamage | None, payload: str, ranges: Iterable[Range] | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    check_payload(payload)
    require(chosen.backend)
    if ranges is None:
        ranges = with_transactions(log_ranges(live_segments(source, chosen), chosen), chosen)
        chosen = with_types(chosen, source, ranges)
    if payload == "binary":
        return chosen.schema, scan_ranges(ranges, chosen, on_damage)
    schema = as_strings(chosen.schema, payload_names(chosen.columns, chosen.typed))
    return schema, strings_of(scan_ranges(ranges, chosen.with_added(NAMED_BY), on_damage), schema)


@known_keywords()
def read(
    source: keywords.Source,
    *,
    on_damage: OnDamage | None = None,
    payload: keywords.Payload = "binary",
    **options: Unpack[keywords.ReadOptions],
) -> pa.Table:
    """Read the records of Kafka log segments into one Arrow table; parameters, columns and errors as `scan`."""
    chosen = Options.of(**options)

    def table(ranges: Iterable[Range] | None = None) -> pa.Table:
        # No RecordBatchReader is used: Arrow calls its generator from C++, where an interrupt could become another error.
        schema, found = _records(source, chosen, on_damage, payload, ranges)
        return pa.Table.from_batches(list(found), schema)

    by_folder = ranges_by_folder(source, chosen) if on_damage is None else None
    early = None if by_folder is None else by_folder.read(table, lambda: log_ranges(live_segments(source, chosen), chosen))
    return table() if early is None else early


_OF_RECORDS = {*keywords.ChoiceOptions.__annotations__, *keywords.PayloadOptions.__annotations__} - {"include_snapshots"}


@known_keywords(
    keywords.refused((_OF_RECORDS | {"max_batch_bytes", "max_ratio"}) - {"threads"}, "batches lists whole batches and decodes no record")
)
def batches(
    source: keywords.Source,
    *,
    on_damage: OnDamage | None = None,
    **options: Unpack[keywords.ReadOptions],
) -> pa.Table:
    """List the entries of Kafka log segments: one row for each batch, or outermost message of formats 0 and 1.

    Parameters are those of `scan` that do not concern records. With ``check_crcs=False`` only headers are read and ``crcValid`` is null.
    A wrong checksum is reported in ``crcValid`` and is not an error here; an entry with an impossible length is an error. With
    ``errors="skip"`` the list continues after the damage, as `read` does, and ``on_damage`` is called with a `kolumn.Damage` for each
    damaged stretch. Damage inside records
    is not found, since they are not decoded.

    Returns
    -------
    pyarrow.Table
        Columns of `kolumn.schema.BATCH_SCHEMA`, in host memory.
    """
    chosen = Options.of(**options)
    return batch_table(whole_ranges(live_segments(source, chosen), chosen), chosen, on_damage)


@known_keywords(
    keywords.refused(
        (_OF_RECORDS | {"errors", "replicas"}) - {"backend", "threads", "trusted"}, "verify reads every record and reports all damage"
    )
)
def verify(
    source: keywords.Source,
    **options: Unpack[keywords.ReadOptions],
) -> Report:
    """Check every checksum and every record of Kafka log segments, and report the damage. Damaged bytes never raise an error.

    Parameters are those of `scan` that neither choose records nor copies.

    Returns
    -------
    Report
    """
    asked = Options.of(**options)
    require(asked.backend)
    from kolumn.entries.left_out import left_out
    from kolumn.verification.verified import verified

    listed: Listed = []
    segments = live_segments(source, replace(asked, errors="skip"), listed)
    return replace(verified(linked_as_log(segments, asked), asked), left_out=left_out(listed, segments))
