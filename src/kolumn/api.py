"""`read`, `scan`, `batches` and `verify`."""

from collections.abc import Iterator
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
from kolumn.replicas.ranges import log_ranges, whole_ranges
from kolumn.replicas.tiers import linked_as_log, log_of, whole_segments
from kolumn.source.aiven_file import LARGEST_CHUNK, Access, wrapped_keys
from kolumn.source.read_ahead import AHEAD_BYTES
from kolumn.source.segments import Listed, Segment, find_segments
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


def segments_of(source: keywords.Source, options: Options) -> list[Segment]:
    """Live segments of a source, without duplicate offsets of a topic-partition; errors as `kolumn.replicas.copies.one_log`."""
    return whole_segments(log_of(live_segments(source, options), options))


@known_keywords()
def scan(
    source: keywords.Source,
    *,
    on_damage: OnDamage | None = None,
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
    format : str
        "kafka": the shipped formats 0, 1 and 2, told apart entry by entry. "enriched", "kip98-draft", "v3-compact" or "kip87": a
        draft, mixed with shipped formats as its proposal allows.
    columns : str or iterable of str, optional
        Record columns (`kolumn.schema.RECORD_COLUMNS`), in order. Default: those of Spark's Kafka source.
    include_headers : bool
        Add ``headers`` to the columns.
    start_offset, end_offset : int, optional
        Keep records with start <= offset < end.
    start_timestamp, end_timestamp : int, datetime or str, optional
        Keep records with start <= timestamp < end: milliseconds since 1970, a datetime, or ISO 8601 text, in UTC if it has no time
        zone. A record without a timestamp is outside of every range.
    isolation_level : str
        "read_uncommitted"; "read_committed" leaves out aborted transactions, and all records from the first open transaction on.
    include_control : bool
        Return the records of control batches too.
    check_crcs : bool
        Compare checksums before a batch is decoded.
    errors : str
        "raise" stops at the first damage, "skip" continues after it.
    replicas : str
        What to do if several directories of the source have the same offsets of a topic-partition. "raise": an error; "first": read
        only the directory that comes first in the source; "merge": read each offset once, from a copy in which it is intact. A merge
        reads all copies twice, and compares checksums even with ``check_crcs=False``.
    backend : str
        "cpu", "gpu", or "auto": the value of the environment variable KOLUMN_BACKEND, else the CPU.
    binary : str
        "contiguous", or "view" for binary_view columns that point into the segment's bytes.
    chunk_bytes : int, optional
        Bytes of a segment that are read and decoded at a time, at most, about. Default: 16 MiB, 64 MiB on a GPU.
    threads : int, optional
        How many chunks are decoded at a time. Default: the cores that this process may use.
    memory_bytes : int, optional
        Decompressed bytes of all chunks in progress, for all threads together; in addition one batch, if it alone is larger than the
        share of a chunk. A thread has two chunks in progress. Default: 8 times ``chunk_bytes`` for each thread.
    topic : str, optional
        Topic, instead of the one in the directory's name.
    partition : int, optional
        Partition, instead of the one in the directory's name.
    max_batch_bytes : int
        Largest decompressed size of one batch, in bytes.
    max_ratio : float
        Largest ratio of decompressed to compressed size of a batch that decompresses to more than 64 MiB.
    trusted : bool
        On a GPU, whether its library may decompress batches whose checksum is right. Its behaviour is undefined for malformed or
        crafted bytes with a right checksum; with False the CPU's codecs decompress.
    on_progress : callable, optional
        Called with the bytes of the entries that were read since the last call, from any thread.
    keys : mapping, optional
        Of encrypted segments in a tier: for each name of a key the file of its private RSA key, PEM or DER.
    value_format, key_format : str, optional
        What values, or keys, are: "avro", "protobuf", "json" (objects), "csv" (RFC 4180), "fixed" (numbers at fixed places), or
        "registry", what the schemas of the topic say. ``value`` is then a struct, and ``valueValid`` (bool) and ``valueSchemaId``
        (int64: the number in the prefix) come after the other columns, unless ``columns`` names the columns; ``valueRaw`` is the
        payload. A value that is not valid is null, as a value that is absent is; of "csv" only its wrong fields are null.
    value_schema, key_schema : object, optional
        The type of the column. Avro: a schema as text or dict. Protobuf: .proto text, bytes of a FileDescriptorSet or a generated class.
        JSON: a mapping of names to types, where a type is a name ("int64", "float64", "string", "bool", "timestamp", …), a mapping, or
        a list of one type; also an Arrow schema. csv: names and names of types. fixed: names and NumPy dtypes (">i8"). None: of JSON
        the type is inferred from the first values and logged (`kolumn.values`), else the newest schema of ``value_schemas`` decides.
    value_schemas, key_schemas : object, optional
        Where the schemas come from that values name: a path of a topic `_schemas`, a folder, a mapping or callable from ids to texts, a
        registry's URL. None with "registry": the topic `_schemas` beside the source.
    value_message, key_message : str, optional
        Name of the Protobuf message.
    value_columns, key_columns : str or iterable of str, optional
        Fields to decode; a dotted name is a field of a struct. Default: all.
    value_framing, key_framing : str
        What precedes each value; "auto" recognises it.
    value_as, key_as : str, optional
        "struct": one column (default), "columns": the fields of the struct as columns, at its place. On a GPU the default is "columns".
    value_errors, key_errors : str
        "keep" a record whose value is not valid, or "raise" an error at it.
    value_separator, key_separator : str
        Between the fields of "csv".
    value_skip, key_skip : int
        Bytes in front of each value of "avro" that are left out.
    value_sample, key_sample : int
        How many values a type of "json" is inferred from.
    decode : str, optional
        "internal": ``key`` and ``value`` of the topics that a cluster keeps for itself, and of control records, as structs: ``type`` names
        the message, ``version`` its version, a struct of that name has its fields, and ``bytes`` keeps what is not known
        (`kolumn.values.internal.decoder`). ``keyValid`` and ``valueValid`` come after the other columns.
    include_snapshots : bool
        Also read the KRaft snapshots (``.checkpoint``) in the folders of the source, before the log.
    include_deleted_records : bool, optional
        Whether to return records below the log start offset (DeleteRecords), which no consumer gets. The offset is that of
        ``log-start-offset-checkpoint`` in the log directory, if it names the topic-partition and is not after the end of the log. None:
        of a partition folder True, since its files are returned as they are; of a log with a tier False, since it is put together
        to what the broker serves.

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
    chosen = Options.of(
        format=format, columns=columns, include_headers=include_headers, start_offset=start_offset, end_offset=end_offset,
        start_timestamp=start_timestamp, end_timestamp=end_timestamp, isolation_level=isolation_level, include_control=include_control,
        check_crcs=check_crcs, errors=errors, replicas=replicas, backend=backend, binary=binary, chunk_bytes=chunk_bytes, threads=threads,
        memory_bytes=memory_bytes, topic=topic, partition=partition, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, trusted=trusted,
        on_progress=on_progress, keys=keys, **payloads,
    )  # fmt: skip
    return reader_of(source, chosen, on_damage, payload)


def reader_of(source: keywords.Source, chosen: Options, on_damage: OnDamage | None, payload: str) -> pa.RecordBatchReader:
    """`scan` with checked options."""
    return pa.RecordBatchReader.from_batches(*_records(source, chosen, on_damage, payload))


def _records(
    source: keywords.Source, chosen: Options, on_damage: OnDamage | None, payload: str
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    check_payload(payload)
    require(chosen.backend)
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
) -> pa.Table:
    """Read the records of Kafka log segments into one Arrow table; parameters, columns and errors as `scan`."""
    chosen = Options.of(
        format=format, columns=columns, include_headers=include_headers, start_offset=start_offset, end_offset=end_offset,
        start_timestamp=start_timestamp, end_timestamp=end_timestamp, isolation_level=isolation_level, include_control=include_control,
        check_crcs=check_crcs, errors=errors, replicas=replicas, backend=backend, binary=binary, chunk_bytes=chunk_bytes, threads=threads,
        memory_bytes=memory_bytes, topic=topic, partition=partition, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, trusted=trusted,
        on_progress=on_progress, keys=keys, **payloads,
    )  # fmt: skip
    # No RecordBatchReader is used: Arrow calls its generator from C++, where an interrupt could become another error.
    schema, found = _records(source, chosen, on_damage, payload)
    return pa.Table.from_batches(list(found), schema)


@known_keywords()
def batches(
    source: keywords.Source,
    *,
    on_damage: OnDamage | None = None,
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
) -> pa.Table:
    """List the entries of Kafka log segments: one row for each batch, or outermost message of formats 0 and 1.

    Parameters are those of `scan`. With ``check_crcs=False`` only headers are read and ``crcValid`` is null. A wrong checksum is reported
    in ``crcValid`` and is not an error here; an entry with an impossible length is an error. With ``errors="skip"`` the list continues
    after the damage, as `read` does, and ``on_damage`` is called with a `kolumn.Damage` for each damaged stretch. Damage inside records
    is not found, since they are not decoded. Options that concern records, such as ``columns`` and ranges, have no effect.

    Returns
    -------
    pyarrow.Table
        Columns of `kolumn.schema.BATCH_SCHEMA`, in host memory.
    """
    chosen = Options.of(
        format=format, columns=columns, include_headers=include_headers, start_offset=start_offset, end_offset=end_offset,
        start_timestamp=start_timestamp, end_timestamp=end_timestamp, isolation_level=isolation_level, include_control=include_control,
        check_crcs=check_crcs, errors=errors, replicas=replicas, backend=backend, binary=binary, chunk_bytes=chunk_bytes, threads=threads,
        memory_bytes=memory_bytes, topic=topic, partition=partition, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, trusted=trusted,
        on_progress=on_progress, keys=keys, **payloads,
    )  # fmt: skip
    return batch_table(whole_ranges(live_segments(source, chosen), chosen), chosen, on_damage)


@known_keywords()
def verify(
    source: keywords.Source,
    *,
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
) -> Report:
    """Check every checksum and every record of Kafka log segments, and report the damage. Damaged bytes never raise an error.

    Parameters are those of `scan`; ``errors``, ``replicas``, ``columns``, ranges and other options that select records have no effect.

    Returns
    -------
    Report
    """
    asked = Options.of(
        format=format, columns=columns, include_headers=include_headers, start_offset=start_offset, end_offset=end_offset,
        start_timestamp=start_timestamp, end_timestamp=end_timestamp, isolation_level=isolation_level, include_control=include_control,
        check_crcs=check_crcs, errors=errors, replicas=replicas, backend=backend, binary=binary, chunk_bytes=chunk_bytes, threads=threads,
        memory_bytes=memory_bytes, topic=topic, partition=partition, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, trusted=trusted,
        on_progress=on_progress, keys=keys, **payloads,
    )  # fmt: skip
    require(asked.backend)
    from kolumn.entries.left_out import left_out
    from kolumn.verification.verified import verified

    listed: Listed = []
    segments = live_segments(source, replace(asked, errors="skip"), listed)
    return replace(verified(linked_as_log(segments, asked), asked), left_out=left_out(listed, segments))
