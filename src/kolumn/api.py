"""`read`, `scan`, `batches` and `verify`."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from kolumn.backend import require
from kolumn.damage.remarks import REMARKED, Kind, Remark, null_values, remark_table
from kolumn.decode.pipeline import OnDamage, scan_ranges
from kolumn.decode.result import Tally
from kolumn.entries.replaced import with_twins, without_replaced
from kolumn.log.batch_table import batch_tables
from kolumn.log.transactions import with_transactions
from kolumn.options import Options
from kolumn.replicas.copies import Overlap, one_log, overlaps
from kolumn.replicas.ranges import log_ranges, whole_ranges
from kolumn.schema import BATCH_SCHEMA, record_schema
from kolumn.source.payloads import as_strings, check_payload, strings_of
from kolumn.source.segments import Range, Segment, find_segments
from kolumn.verification.report import Report, make_report


def live_segments(source: Any, options: Options) -> list[Segment]:
    """Live segments of a source, of all copies of a topic-partition that are in it."""
    found = find_segments(source, options.topic, options.partition)
    return with_twins(without_replaced([replace(segment, format=options.format) for segment in found]))


def segments_of(source: Any, options: Options) -> list[Segment]:
    """Live segments of a source, no offset of a topic-partition twice; errors as `kolumn.replicas.copies.one_log`."""
    return one_log(live_segments(source, options), options)


def scan(source: Any, *, on_damage: OnDamage | None = None, payload: str = "binary", **options: Any) -> pa.RecordBatchReader:
    """Stream the records of Kafka log segments as Arrow record batches.

    Memory is bounded: at most twice ``threads`` chunks are under way, and ``memory_bytes`` limits what they may inflate to together,
    whatever the size of the source. One batch that is larger than a chunk's share is decoded when nothing else is.

    Parameters
    ----------
    source : str, PathLike or iterable of those
        A segment file, a ``topic-partition`` directory, a log directory of many, a glob, or a list of those. Several directories of
        one topic-partition are one log where their offsets do not overlap; else ``replicas`` says what to do.
    on_damage : callable, optional
        Is given a `kolumn.Damage` for each damaged stretch that ``errors="skip"`` leaves out; `kolumn.Skipped` collects and counts them.
    payload : str
        "binary": keys, values and headers' values as bytes. "string": as strings over the same bytes, which are not looked at: that they
        are text is the caller's word.
    **options
        Attributes of `kolumn.options.Options`.

    Returns
    -------
    pyarrow.RecordBatchReader
        Columns of `kolumn.schema.RECORD_COLUMNS` in host memory, records in file order. Keys and values are copied out of the
        segment; with ``binary="view"`` they point into its bytes, which stay in memory as long as a batch does.

    Raises
    ------
    ArgumentError
        An unknown option, a value that makes no sense, a source without segments, or copies of a topic-partition that overlap while
        ``replicas`` is "raise".
    MissingError
        A GPU was asked for, and there is none, or a package is missing: at the call, before anything is read.
    CorruptBatchError, FormatError, LimitError
        While it is read, with ``errors="raise"``. A truncated last entry and a zero-filled tail are no errors.
    """
    check_payload(payload)
    chosen = Options.of(**options)
    require(chosen.backend)
    ranges = with_transactions(log_ranges(live_segments(source, chosen), chosen), chosen)
    schema, found = record_schema(chosen.columns, chosen.binary), scan_ranges(ranges, chosen, on_damage)
    if payload == "string":
        schema = as_strings(schema)
        found = (strings_of(batch, schema) for batch in found)
    return pa.RecordBatchReader.from_batches(schema, found)


def read(source: Any, *, on_damage: OnDamage | None = None, payload: str = "binary", **options: Any) -> pa.Table:
    """Read the records of Kafka log segments into one Arrow table; parameters, columns and errors as `scan`."""
    with scan(source, on_damage=on_damage, payload=payload, **options) as reader:
        return reader.read_all()


def batches(source: Any, *, on_damage: OnDamage | None = None, **options: Any) -> pa.Table:
    """List the entries of Kafka log segments: one row for each batch, or outermost message of formats 0 and 1.

    With ``check_crcs=False`` only headers are read and ``crcValid`` is null. A wrong checksum is reported in ``crcValid`` and is
    no error here; an entry with an impossible length is. With ``errors="skip"`` the list goes on after the damage, as `read` does,
    and ``on_damage`` is given a `kolumn.Damage` for each damaged stretch. Damage inside records, which are not decoded here, is not seen.

    Returns
    -------
    pyarrow.Table
        Columns of `kolumn.schema.BATCH_SCHEMA`, host memory.
    """
    chosen = Options.of(**options)
    tables = [table for one in whole_ranges(live_segments(source, chosen), chosen) for table in batch_tables(one, chosen, on_damage)]
    return pa.concat_tables(tables) if tables else BATCH_SCHEMA.empty_table()


def verify(source: Any, **options: Any) -> Report:
    """Check every checksum and every record of Kafka log segments, and say what is damaged. Never raises on bad bytes.

    Parameters
    ----------
    source, **options
        As for `scan`; ``errors``, ``columns`` and ranges have no effect.

    Returns
    -------
    Report
    """
    asked = Options.of(**options)
    require(asked.backend)
    columns = REMARKED if asked.format == "kip87" else ("offset",)
    everything = Options(columns=columns, include_control=True, errors="skip", binary="view", format=asked.format)
    chosen = replace(
        everything,
        check_crcs=asked.check_crcs,
        chunk_bytes=asked.chunk_bytes,
        threads=asked.threads,
        backend=asked.backend,
        max_batch_bytes=asked.max_batch_bytes,
        max_ratio=asked.max_ratio,
        trusted=asked.trusted,
        on_progress=asked.on_progress,
    )
    found: list[tuple[Segment, Tally]] = []
    segments = live_segments(source, asked)
    remarked = [remark_table(map(_copies, overlaps(segments)))]
    for batch in scan_ranges(map(Range.whole, segments), chosen, tally=lambda one, tally: found.append((one.segment, tally))):
        if columns is REMARKED and (made := null_values(batch)).num_rows:
            remarked.append(made)
    return make_report(found, remarked)


def _copies(overlap: Overlap) -> Remark:
    one, other = overlap.folders
    text = f"{overlap.topic}-{overlap.partition}: {one} and {other} both have offsets from {overlap.first} to {overlap.last}"
    evidence = "a read of both needs replicas='merge' or replicas='first'; here each is verified by itself"
    return Remark(one, 0, Kind.COPIES, overlap.first, overlap.last, text, evidence)
