"""`read`, `scan`, `batches` and `verify`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Unpack

import pyarrow as pa

from kolumn.backend import require
from kolumn.copies.tiers import linked_as_log
from kolumn.core import keywords
from kolumn.core.keywords import known_keywords
from kolumn.core.text import NAMED_BY, as_strings, check_payload, strings_of
from kolumn.damage.findings import OnDamage
from kolumn.decode.chunk import Decoder, decoder_of
from kolumn.decode.pipeline import scan_ranges
from kolumn.log.pieces import batch_table
from kolumn.options import Options, row_limit
from kolumn.readers.plan import ReadPlan, live_segments, plan_read
from kolumn.readers.topics import plan_topics, types_by_topic
from kolumn.readers.verified import Report, verified
from kolumn.source.segments import Range
from kolumn.values.schemas.schema import NO_VALUES, UntypedError
from kolumn.values.typed import payload_names


@known_keywords()
def scan(
    source: keywords.Source,
    *,
    on_damage: OnDamage | None = None,
    payload: keywords.Payload = "binary",
    limit: int | None = None,
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
    limit : int, optional
        At most so many records. A small limit reads few bytes.
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
    return pa.RecordBatchReader.from_batches(*_records(source, Options.of(**options), on_damage, payload, limit))


def _records(
    source: keywords.Source, chosen: Options, on_damage: OnDamage | None, payload: str, limit: int | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if limit is not None:
        chosen = chosen.for_rows(limit := row_limit(limit))
    if payload != "binary":
        check_payload(payload)
    decoder = decoder_of(chosen.backend)
    plan = plan_read(source, chosen)
    options, schema = plan.options, plan.options.schema
    if payload == "binary":
        return schema, scan_ranges(plan.ranges, options, on_damage, decoder=decoder, limit=limit)
    schema = as_strings(schema, payload_names(options.columns, options.typed))
    batches = scan_ranges(plan.ranges, options.with_added(NAMED_BY), on_damage, decoder=decoder, limit=limit)
    return schema, strings_of(batches, schema)


def each_topic(
    source: keywords.Source, options: Options, on_damage: OnDamage | None = None, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a source whose topics may have types of their own, so that batches differ in their columns."""
    decoder = decoder_of(options.backend)
    options = options.for_rows(limit)
    try:
        plans = plan_topics(source, options)
    except UntypedError as error:
        if error.why != NO_VALUES:
            raise
        # There may be nothing at all, or tombstones.
        plans = plan_topics(source, options, is_one_of_several=True)
    return _of_plans(plans, on_damage, decoder, limit)


def _of_plans(plans: list[ReadPlan], on_damage: OnDamage | None, decoder: Decoder, left: int | None) -> Iterator[pa.RecordBatch]:
    for plan in plans:
        for batch in scan_ranges(plan.ranges, plan.options, on_damage, decoder=decoder, limit=left):
            left = None if left is None else left - batch.num_rows
            yield batch


@known_keywords()
def read(
    source: keywords.Source,
    *,
    on_damage: OnDamage | None = None,
    payload: keywords.Payload = "binary",
    limit: int | None = None,
    **options: Unpack[keywords.ReadOptions],
) -> pa.Table:
    """Read the records of Kafka log segments into one Arrow table; parameters, columns and errors as `scan`."""
    # No RecordBatchReader is used: Arrow calls its generator from C++, where an interrupt could become another error.
    schema, records = _records(source, Options.of(**options), on_damage, payload, limit)
    return pa.Table.from_batches(list(records), schema)


_OF_RECORDS = {*keywords.ChoiceOptions.__annotations__, *keywords.PayloadOptions.__annotations__} - {"include_snapshots"}


@known_keywords(
    keywords.refused((_OF_RECORDS | {"max_batch_bytes", "max_ratio"}) - {"threads"}, "batches lists whole batches and decodes no record")
)
def batches(source: keywords.Source, *, on_damage: OnDamage | None = None, **options: Unpack[keywords.ReadOptions]) -> pa.Table:
    """List the entries of Kafka log segments: one row for each batch, or outermost message of formats 0 and 1.

    Parameters are those of `scan` that do not concern records. With ``check_crcs=False`` only headers are read and ``crcValid`` is null.
    A wrong checksum is reported in ``crcValid`` and is not an error here; an entry with an impossible length is an error. With
    ``errors="skip"`` the list continues after the damage, as `read` does, and ``on_damage`` is called with a `kolumn.Damage` for each
    damaged stretch. Damage inside records is not found, since they are not decoded.

    Returns
    -------
    pyarrow.Table
        Columns of `kolumn.schema.BATCH_SCHEMA`, in host memory.
    """
    chosen = Options.of(**options)
    return batch_table(live_segments(source, chosen).whole_ranges(), chosen, on_damage)


_VERIFIED = {"backend", "threads", "trusted", *keywords.PayloadOptions.__annotations__}
_VERIFIED -= {"value_as", "key_as", "value_errors", "key_errors", "decode"}


@known_keywords(
    keywords.refused((_OF_RECORDS | {"errors", "replicas"}) - _VERIFIED, "verify reads every record and reports all damage and loss")
)
def verify(source: keywords.Source, **options: Unpack[keywords.ReadOptions]) -> Report:
    """Check every checksum and every record of Kafka log segments, and report the damage. Damaged bytes never raise an error.

    Parameters are those of `scan` that neither choose records nor copies. With ``value_format`` or ``key_format`` values or keys are
    decoded too, and the report counts the fields that cannot be; they do not make it less ``ok``.

    Returns
    -------
    Report
    """
    asked = Options.of(**options)
    require(asked.backend)
    live = live_segments(source, replace(asked, errors="skip"))
    asked = replace(asked, errors="skip")
    known = types_by_topic(asked, source, list(map(Range.whole, live.segments)))
    return replace(verified(linked_as_log(live.segments, asked), asked, known), left_out=live.left_out())
