"""`read`, `scan`, `batches` and `verify`."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from kolumn.batch_table import batch_tables
from kolumn.damage import Tally
from kolumn.decode import scan_ranges
from kolumn.find_transactions import with_transactions
from kolumn.options import Options
from kolumn.plan import without_replaced
from kolumn.remarks import REMARKED, remarks
from kolumn.report import Report, make_report
from kolumn.schema import BATCH_SCHEMA, record_schema
from kolumn.seek import select_ranges
from kolumn.source import Range, Segment, find_segments


def segments_of(source: Any, options: Options) -> list[Segment]:
    """Live segments of a source."""
    found = find_segments(source, options.topic, options.partition)
    return without_replaced([replace(segment, format=options.format) for segment in found])


def scan(source: Any, **options: Any) -> pa.RecordBatchReader:
    """Stream the records of Kafka log segments as Arrow record batches.

    Memory is bounded: at most twice ``threads`` chunks of ``chunk_bytes`` are under way, whatever the size of the source.

    Parameters
    ----------
    source : str, PathLike or iterable of those
        A segment file, a ``topic-partition`` directory, a log directory of many, a glob, or a list of those.
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
        An unknown option, a value that makes no sense, or a source without segments.
    MissingError
        A GPU was asked for.
    CorruptBatchError, FormatError, LimitError
        While it is read, with ``errors="raise"``. A truncated last entry and a zero-filled tail are no errors.
    """
    chosen = Options.of(**options)
    ranges = with_transactions(select_ranges(segments_of(source, chosen), chosen), chosen)
    return pa.RecordBatchReader.from_batches(record_schema(chosen.columns, chosen.binary), scan_ranges(ranges, chosen))


def read(source: Any, **options: Any) -> pa.Table:
    """Read the records of Kafka log segments into one Arrow table; parameters, columns and errors as `scan`."""
    with scan(source, **options) as reader:
        return reader.read_all()


def batches(source: Any, **options: Any) -> pa.Table:
    """List the entries of Kafka log segments: one row for each batch, or outermost message of formats 0 and 1.

    With ``check_crcs=False`` only headers are read and ``crcValid`` is null. A wrong checksum is reported in ``crcValid`` and is
    no error here; an entry with an impossible length is. With ``errors="skip"`` the list goes on behind the damage, as `read` does.

    Returns
    -------
    pyarrow.Table
        Columns of `kolumn.schema.BATCH_SCHEMA`, host memory.
    """
    chosen = Options.of(**options)
    tables = [table for segment in segments_of(source, chosen) for table in batch_tables(segment, chosen)]
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
    )
    found: list[tuple[Segment, Tally]] = []
    whole = (Range.whole(segment) for segment in segments_of(source, asked))
    remarked = []
    for batch in scan_ranges(whole, chosen, tally=lambda one, tally: found.append((one.segment, tally))):
        if columns is REMARKED and (made := remarks(batch)).num_rows:
            remarked.append(made)
    return make_report(found, remarked)
