"""`scan_pylibcudf`, `scan_cudf`, `read_pylibcudf` and `read_cudf`: records as columns on the GPU."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from kolumn import keywords
from kolumn.api import live_segments
from kolumn.arrow.payload_strings import check_payload
from kolumn.backend import RESIDENT, require
from kolumn.decode.device.resident import ResidentOptions
from kolumn.decode.pipeline import scan_ranges
from kolumn.errors import ArgumentError
from kolumn.keywords import known_keywords
from kolumn.log.transactions import with_transactions
from kolumn.options import Options
from kolumn.reader_types import with_types
from kolumn.replicas.ranges import log_ranges
from kolumn.source.segments import Range
from kolumn.transactions.states import matter

if TYPE_CHECKING:
    from kolumn.kernels.columns.assemble import Named

logger = logging.getLogger("kolumn.values")


@known_keywords()
def scan_pylibcudf(
    source: keywords.Source,
    *,
    payload: keywords.Payload = "binary",
    format: keywords.Format = "kafka",
    columns: keywords.Columns | None = None,
    include_headers: bool = False,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_timestamp: keywords.Time | None = None,
    end_timestamp: keywords.Time | None = None,
    isolation_level: keywords.IsolationLevel = "read_uncommitted",
    include_control: bool = False,
    check_crcs: bool = True,
    errors: keywords.Errors = "raise",
    replicas: keywords.Replicas = "raise",
    backend: keywords.Backend = "auto",
    binary: keywords.Binary = "contiguous",
    chunk_bytes: int | None = None,
    threads: int | None = None,
    memory_bytes: int | None = None,
    topic: str | None = None,
    partition: int | None = None,
    max_batch_bytes: int = 2**31 - 1,
    max_ratio: float = 1032.0,
    trusted: bool = True,
    on_progress: keywords.Progress | None = None,
    keys: keywords.Keys | None = None,
    **payloads: Unpack[keywords.PayloadOptions],
) -> Iterator[tuple[Any, list[str]]]:
    """Stream the records of Kafka log segments as tables on the GPU: for topics that do not fit into its memory.

    A table is a chunk of the log, or a part of one; no column of it is copied on the way. Device memory is bounded as by `kolumn.scan`:
    at most twice ``threads`` chunks are under way, ``memory_bytes`` limits what they may decompress to together, and no more is decoded
    until the caller asks for the next table. What the caller keeps of the tables is not counted.

    Parameters
    ----------
    source
        As in `kolumn.scan`.
    payload : str
        "binary": keys, values and headers' values as lists of uint8, cuDF's only type for bytes. "string": as strings, whose bytes are
        not checked: the caller guarantees that they are text.
    value_format, key_format, … : optional
        As in `kolumn.scan`, except that fields are separate columns unless ``value_as="struct"``. Columns and their order are those of
        `kolumn.scan` for the same options.

        Avro and Protobuf are decoded on the GPU, with "registry" each record by the schema that its own prefix or header names. The host
        decodes "json", "csv" and "fixed", reads with ``value_errors="raise"`` or ``decode``, and Protobuf messages with maps, required
        fields or more than 62 fields; the columns are then copied to the GPU, and the logger ``kolumn.values`` says so at level INFO. The
        host also decodes chunks with compressed values of AWS Glue, and chunks with a message that no serializer writes: a string, bytes
        or a message twice in a field that is not repeated, or unknown groups.

        Lists, maps, messages and records become cuDF's lists and structs, enums strings, fixed sizes lists of uint8, times of day
        integers. cuDF has no type for decimals of more than 38 digits and for durations of
        Avro: leave them out by ``value_columns``.
    columns, start_offset, …
        All others as in `kolumn.scan`; ``backend`` and ``binary`` have no effect.

    Returns
    -------
    iterator of (pylibcudf.Table, list of str)
        Tables with at least one row and the names of their columns, in the order of the log; no table for a log without records. Device
        memory; columns as in `kolumn.schema.RECORD_COLUMNS`, timestamps without a time zone, headers as lists of structs of key and
        value. Of "kip98-draft", what became of transactions is settled on the host: the columns are copied there and back.

    Raises
    ------
    ArgumentError
        At the call: an option that makes no sense, or a source without segments.
    MissingError
        At the call: there is no GPU, or a package is missing.
    CorruptBatchError, FormatError, LimitError
        While it is read, as `kolumn.scan`.
    """
    chosen = Options.of(
        format=format, columns=columns, include_headers=include_headers, start_offset=start_offset, end_offset=end_offset,
        start_timestamp=start_timestamp, end_timestamp=end_timestamp, isolation_level=isolation_level, include_control=include_control,
        check_crcs=check_crcs, errors=errors, replicas=replicas, backend="gpu", binary=binary, chunk_bytes=chunk_bytes, threads=threads,
        memory_bytes=memory_bytes, topic=topic, partition=partition, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, trusted=trusted,
        on_progress=on_progress, keys=keys, **_as_columns(payloads),
    )  # fmt: skip
    return ((table, names) for table, names, _ in _scan(source, chosen, payload))


@known_keywords()
def scan_cudf(
    source: keywords.Source,
    *,
    payload: keywords.Payload = "binary",
    format: keywords.Format = "kafka",
    columns: keywords.Columns | None = None,
    include_headers: bool = False,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_timestamp: keywords.Time | None = None,
    end_timestamp: keywords.Time | None = None,
    isolation_level: keywords.IsolationLevel = "read_uncommitted",
    include_control: bool = False,
    check_crcs: bool = True,
    errors: keywords.Errors = "raise",
    replicas: keywords.Replicas = "raise",
    backend: keywords.Backend = "auto",
    binary: keywords.Binary = "contiguous",
    chunk_bytes: int | None = None,
    threads: int | None = None,
    memory_bytes: int | None = None,
    topic: str | None = None,
    partition: int | None = None,
    max_batch_bytes: int = 2**31 - 1,
    max_ratio: float = 1032.0,
    trusted: bool = True,
    on_progress: keywords.Progress | None = None,
    keys: keywords.Keys | None = None,
    **payloads: Unpack[keywords.PayloadOptions],
) -> Iterator[Any]:
    """Stream the records of Kafka log segments as cudf.DataFrames, over the tables of `scan_pylibcudf`; parameters and errors as there.

    Returns
    -------
    iterator of cudf.DataFrame
        Frames with at least one row, in the order of the log; nothing is copied.
    """
    from kolumn.kernels.columns.frame import from_pylibcudf, require_cudf

    require_cudf()
    chosen = Options.of(
        format=format, columns=columns, include_headers=include_headers, start_offset=start_offset, end_offset=end_offset,
        start_timestamp=start_timestamp, end_timestamp=end_timestamp, isolation_level=isolation_level, include_control=include_control,
        check_crcs=check_crcs, errors=errors, replicas=replicas, backend="gpu", binary=binary, chunk_bytes=chunk_bytes, threads=threads,
        memory_bytes=memory_bytes, topic=topic, partition=partition, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, trusted=trusted,
        on_progress=on_progress, keys=keys, **_as_columns(payloads),
    )  # fmt: skip
    found = _scan(source, chosen, payload)
    return (from_pylibcudf(*one) for one in found)


@known_keywords()
def read_pylibcudf(
    source: keywords.Source,
    *,
    payload: keywords.Payload = "binary",
    format: keywords.Format = "kafka",
    columns: keywords.Columns | None = None,
    include_headers: bool = False,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_timestamp: keywords.Time | None = None,
    end_timestamp: keywords.Time | None = None,
    isolation_level: keywords.IsolationLevel = "read_uncommitted",
    include_control: bool = False,
    check_crcs: bool = True,
    errors: keywords.Errors = "raise",
    replicas: keywords.Replicas = "raise",
    backend: keywords.Backend = "auto",
    binary: keywords.Binary = "contiguous",
    chunk_bytes: int | None = None,
    threads: int | None = None,
    memory_bytes: int | None = None,
    topic: str | None = None,
    partition: int | None = None,
    max_batch_bytes: int = 2**31 - 1,
    max_ratio: float = 1032.0,
    trusted: bool = True,
    on_progress: keywords.Progress | None = None,
    keys: keywords.Keys | None = None,
    **payloads: Unpack[keywords.PayloadOptions],
) -> tuple[Any, list[str]]:
    """Read the records of Kafka log segments into columns on the GPU; parameters and errors as `scan_pylibcudf`.

    Returns
    -------
    table : pylibcudf.Table
        Device memory; columns as in `scan_pylibcudf`. A log of one chunk is returned as it was decoded. Of several chunks the columns are
        joined one after the other, so that at most the log and one of its columns are on the GPU at a time.
    names : list of str
    """
    chosen = Options.of(
        format=format, columns=columns, include_headers=include_headers, start_offset=start_offset, end_offset=end_offset,
        start_timestamp=start_timestamp, end_timestamp=end_timestamp, isolation_level=isolation_level, include_control=include_control,
        check_crcs=check_crcs, errors=errors, replicas=replicas, backend="gpu", binary=binary, chunk_bytes=chunk_bytes, threads=threads,
        memory_bytes=memory_bytes, topic=topic, partition=partition, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, trusted=trusted,
        on_progress=on_progress, keys=keys, **_as_columns(payloads),
    )  # fmt: skip
    table, names, _ = _read(source, chosen, payload)
    return table, names


@known_keywords()
def read_cudf(
    source: keywords.Source,
    *,
    payload: keywords.Payload = "binary",
    format: keywords.Format = "kafka",
    columns: keywords.Columns | None = None,
    include_headers: bool = False,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_timestamp: keywords.Time | None = None,
    end_timestamp: keywords.Time | None = None,
    isolation_level: keywords.IsolationLevel = "read_uncommitted",
    include_control: bool = False,
    check_crcs: bool = True,
    errors: keywords.Errors = "raise",
    replicas: keywords.Replicas = "raise",
    backend: keywords.Backend = "auto",
    binary: keywords.Binary = "contiguous",
    chunk_bytes: int | None = None,
    threads: int | None = None,
    memory_bytes: int | None = None,
    topic: str | None = None,
    partition: int | None = None,
    max_batch_bytes: int = 2**31 - 1,
    max_ratio: float = 1032.0,
    trusted: bool = True,
    on_progress: keywords.Progress | None = None,
    keys: keywords.Keys | None = None,
    **payloads: Unpack[keywords.PayloadOptions],
) -> Any:
    """The same as a cudf.DataFrame over that table; parameters and errors as `scan_pylibcudf`."""
    from kolumn.kernels.columns.frame import from_pylibcudf, require_cudf

    require_cudf()
    chosen = Options.of(
        format=format, columns=columns, include_headers=include_headers, start_offset=start_offset, end_offset=end_offset,
        start_timestamp=start_timestamp, end_timestamp=end_timestamp, isolation_level=isolation_level, include_control=include_control,
        check_crcs=check_crcs, errors=errors, replicas=replicas, backend="gpu", binary=binary, chunk_bytes=chunk_bytes, threads=threads,
        memory_bytes=memory_bytes, topic=topic, partition=partition, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, trusted=trusted,
        on_progress=on_progress, keys=keys, **_as_columns(payloads),
    )  # fmt: skip
    return from_pylibcudf(*_read(source, chosen, payload))


def _scan(source: keywords.Source, chosen: Options, payload: str) -> "Iterator[Named]":
    chosen, ranges, asked = _asked(source, chosen, payload)
    from kolumn.kernels.columns.assemble import from_arrow, named

    if asked is None:
        return (from_arrow(pa.Table.from_batches([batch]), payload) for batch in scan_ranges(ranges, chosen))
    return (named(table) for table in _tables(ranges, asked))


def _read(source: keywords.Source, chosen: Options, payload: str) -> "Named":
    chosen, ranges, asked = _asked(source, chosen, payload)
    from kolumn.kernels.columns.assemble import concatenate, from_arrow

    if asked is None:
        return from_arrow(pa.Table.from_batches(scan_ranges(ranges, chosen), chosen.schema), payload)
    return concatenate(list(_tables(ranges, asked)), asked)


def _asked(source: keywords.Source, chosen: Options, payload: str) -> tuple[Options, list[Range], ResidentOptions | None]:
    """The options with types of the typed columns, the ranges that are read, and `resident_options`."""
    check_payload(payload)
    require(chosen.backend)
    ranges = with_transactions(log_ranges(live_segments(source, chosen), chosen), chosen)
    chosen = with_types(chosen, source, ranges)
    return replace(chosen, binary="contiguous"), ranges, resident_options(chosen, payload)


def resident_options(chosen: Options, payload: str) -> ResidentOptions | None:
    """The options of a read whose columns stay on the GPU, with types of the typed columns.

    None if the host decodes one of these, or settles what became of transactions.
    """
    if matter(chosen) and chosen.format == "kip98-draft":
        return None
    values: tuple[Any, ...] = ()
    if chosen.typed:
        from kolumn.kernels.values.schema import Values

        try:
            values = tuple(map(Values.of, chosen.typed))
        except ArgumentError as reason:
            logger.info("typed columns are decoded on the host and copied to the GPU: %s", reason)
            return None
    return ResidentOptions(**{**vars(chosen.stored), "backend": RESIDENT}, payload=payload, asked=chosen.columns, values=values)


def _tables(ranges: list[Range], asked: ResidentOptions) -> Iterator[Any]:
    """`kolumn.kernels.columns.table.DeviceTable` of each chunk."""
    return scan_ranges(ranges, asked)


def _as_columns(payloads: keywords.PayloadOptions) -> keywords.PayloadOptions:
    """The options for values and keys: fields are columns, unless a call says otherwise."""
    # Options without a format are refused by name.
    flat: keywords.PayloadOptions = {}
    if payloads.get("key_format") is not None:
        flat["key_as"] = payloads.get("key_as") or "columns"
    if payloads.get("value_format") is not None:
        flat["value_as"] = payloads.get("value_as") or "columns"
    return {**payloads, **flat}
