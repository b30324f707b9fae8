"""`scan_pylibcudf`, `scan_cudf`, `read_pylibcudf` and `read_cudf`: records as columns on the GPU."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from kolumn.backend import RESIDENT, require
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import known_keywords
from kolumn.core.text import check_payload
from kolumn.decode.device.resident import ResidentOptions
from kolumn.decode.host.aborted import matter
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats import layouts
from kolumn.options import Options
from kolumn.readers.plan import plan_read
from kolumn.source.segments import Range

if TYPE_CHECKING:
    from kolumn.kernels.columns.assemble import Named

logger = logging.getLogger("kolumn.values")

_REFUSED = keywords.refused(("backend", "binary"), "the columns are made on the GPU, in its types")


@known_keywords(_REFUSED)
def scan_pylibcudf(
    source: keywords.Source, *, payload: keywords.Payload = "binary", **options: Unpack[keywords.ReadOptions]
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
        All others as in `kolumn.scan`, without ``backend`` and ``binary``.

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
    return ((table, names) for table, names, _ in _scan(source, _chosen(options), payload))


@known_keywords(_REFUSED)
def scan_cudf(source: keywords.Source, *, payload: keywords.Payload = "binary", **options: Unpack[keywords.ReadOptions]) -> Iterator[Any]:
    """Stream the records of Kafka log segments as cudf.DataFrames, over the tables of `scan_pylibcudf`; parameters and errors as there.

    Returns
    -------
    iterator of cudf.DataFrame
        Frames with at least one row, in the order of the log; nothing is copied.
    """
    from kolumn.kernels.columns.assemble import from_pylibcudf, require_cudf

    require_cudf()
    return (from_pylibcudf(*named) for named in _scan(source, _chosen(options), payload))


@known_keywords(_REFUSED)
def read_pylibcudf(
    source: keywords.Source, *, payload: keywords.Payload = "binary", **options: Unpack[keywords.ReadOptions]
) -> tuple[Any, list[str]]:
    """Read the records of Kafka log segments into columns on the GPU; parameters and errors as `scan_pylibcudf`.

    Returns
    -------
    table : pylibcudf.Table
        Device memory; columns as in `scan_pylibcudf`. A log of one chunk is returned as it was decoded. Of several chunks the columns are
        joined one after the other, so that at most the log and one of its columns are on the GPU at a time.
    names : list of str
    """
    table, names, _ = _read(source, _chosen(options), payload)
    return table, names


@known_keywords(_REFUSED)
def read_cudf(source: keywords.Source, *, payload: keywords.Payload = "binary", **options: Unpack[keywords.ReadOptions]) -> Any:
    """The same as a cudf.DataFrame over that table; parameters and errors as `scan_pylibcudf`."""
    from kolumn.kernels.columns.assemble import from_pylibcudf, require_cudf

    require_cudf()
    return from_pylibcudf(*_read(source, _chosen(options), payload))


def _scan(source: keywords.Source, chosen: Options, payload: str) -> "Iterator[Named]":
    chosen, ranges, asked = _asked(source, chosen, payload)
    from kolumn.kernels.columns.assemble import from_arrow, named

    if asked is None:
        return (from_arrow(pa.Table.from_batches([batch]), payload) for batch in scan_ranges(ranges, chosen))
    return map(named, scan_ranges(ranges, asked))


def _read(source: keywords.Source, chosen: Options, payload: str) -> "Named":
    chosen, ranges, asked = _asked(source, chosen, payload)
    from kolumn.kernels.columns.assemble import concatenate, from_arrow

    if asked is None:
        return from_arrow(pa.Table.from_batches(scan_ranges(ranges, chosen), chosen.schema), payload)
    return concatenate(list(scan_ranges(ranges, asked)), asked)


def _asked(source: keywords.Source, chosen: Options, payload: str) -> tuple[Options, list[Range], ResidentOptions | None]:
    """The options with types of the typed columns, the ranges that are read, and `resident_options`."""
    check_payload(payload)
    require(chosen.backend)
    plan = plan_read(source, chosen)
    return replace(plan.options, binary="contiguous"), plan.ranges, resident_options(plan.options, payload, plan.ranges)


def resident_options(chosen: Options, payload: str, ranges: Iterable[Range]) -> ResidentOptions | None:
    """The options of a read of ranges whose columns stay on the GPU, with types of the typed columns.

    None if the host decodes one of these, settles what became of transactions, leaves out what deleted segments have twice, or translates
    raw offsets.
    """
    if (matter(chosen) and chosen.format == "kip98-draft") or chosen.include_deleted_segments:
        return None
    if any(part.segment.format in layouts.RAW for part in ranges):
        return None
    values: tuple[Any, ...] = ()
    if chosen.typed:
        from kolumn.kernels.values.columns import Values

        try:
            values = tuple(map(Values.of, chosen.typed))
        except ArgumentError as reason:
            logger.info("typed columns are decoded on the host and copied to the GPU: %s", reason)
            return None
    return ResidentOptions(**{**vars(chosen.stored), "backend": RESIDENT}, payload=payload, asked=chosen.columns, values=values)


def _chosen(options: keywords.ReadOptions) -> Options:
    """The options of a read on the GPU: fields of values and keys are columns, unless a call says otherwise."""
    # Options without a format are refused by name.
    if options.get("key_format") is not None:
        options["key_as"] = options.get("key_as") or "columns"
    if options.get("value_format") is not None:
        options["value_as"] = options.get("value_as") or "columns"
    options["backend"] = "gpu"
    return Options.of(**options)
