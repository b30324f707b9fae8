"""`write`: an Arrow table becomes segments of a topic-partition."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core import keywords
from kolumn.core.arrays import Int64s
from kolumn.core.errors import ArgumentError, unknown
from kolumn.core.keywords import known_keywords
from kolumn.formats import layouts
from kolumn.source.storage import within
from kolumn.writers.compress import codec_of, level_of
from kolumn.writers.encoders import encode
from kolumn.writers.entries import EntrySettings
from kolumn.writers.outgoing import name_of, outgoing, parent_of
from kolumn.writers.segments import SegmentFiles
from kolumn.writers.table import check_columns, take_apart

ROWS = 1 << 16
"""Approximate number of rows that are encoded at a time, and maximum bytes of their keys and values."""
BYTES = 8 << 20
HEAD = 2048
"""Rows that are copied to complete a batch that began in the previous piece."""
_LARGEST = 2**31 - 1
"""The magic that each format writes by default."""


@known_keywords()
def write(
    table: "pa.Table | pa.RecordBatch | pa.RecordBatchReader | keywords.ArrowStream",
    path: keywords.Path,
    *,
    format: keywords.Format = "kafka",
    magic: int | None = None,
    codec: keywords.Codec = "none",
    level: int | None = None,
    base_offset: int | None = None,
    batch_bytes: int = 16384,
    batch_records: int | None = None,
    segment_bytes: int = 1 << 30,
    index_interval_bytes: int = 4096,
) -> list[str]:
    """Write records as Kafka log segments, with their offset and time indexes.

    Parameters
    ----------
    table : pyarrow.Table, RecordBatch, RecordBatchReader or anything with ``__arrow_c_stream__``
        Any record columns of `kolumn.core.schema.RECORD_COLUMNS`; a missing column is null, or has the value that a plain producer
        sends. Keys and values may be binary or strings. ``offset`` must increase; gaps are kept. ``timestampMs`` overrides
        ``timestamp``; ``timestampType`` 1 makes batches with LogAppendTime. Columns that describe where a record was read (topic,
        partition, segment, position, magic, codec, transaction) have no effect. ``tombstone`` is used in KIP-87, where null means
        "a tombstone if it has no value"; ``controlType``, ``timestampSeconds`` and ``brokerTimestampMs`` are used in enriched messages.
    path : str or PathLike
        A segment file (``*.log``), or the folder of a topic-partition, which may exist only if it is empty. At a URL no file
        appears before all are written.
    format, magic : str, int, optional
        "kafka" writes 0, 1 or 2 (the default). Headers, control records and transactions need 2, and so does zstd. "enriched",
        "kip98-draft", "v3-compact" and "kip87" write that draft, or with ``magic`` a shipped format that may be mixed in.
    codec : str
        "none", "gzip", "snappy", "lz4" or "zstd".
    level : int, optional
        Level of gzip (0 to 9) or zstd.
    base_offset : int, optional
        Offset of the first record of a table without the column ``offset``; 0 by default.
    batch_bytes, batch_records : int
        Maximum bytes before compression and records of a batch, unless one record is larger; ``batch.size`` of Kafka's producer.
    segment_bytes, index_interval_bytes : int
        Maximum bytes of a segment in a folder; bytes between two entries of an index. As Kafka's ``segment.bytes`` and
        ``index.interval.bytes``.

    Returns
    -------
    list of str
        Paths of the segments, in the order of their offsets.

    Raises
    ------
    ArgumentError
        An option or a column is invalid, offsets do not increase, or the target exists. Nothing is left at the target.
    KolumnError
        The target cannot be written; the message contains the file and the reason. Nothing is left at the target. Files that a
        killed run left in the same folder are removed by the next run.
    """
    how = settings(format, magic, codec, level, batch_bytes, batch_records)
    reader = _reader(table, base_offset)
    return _write(reader, name_of(path), how, base_offset or 0, segment_bytes, index_interval_bytes)


def _write(reader: pa.RecordBatchReader, target: str, how: EntrySettings, base_offset: int, segment_bytes: int, interval: int) -> list[str]:
    enriched = layouts.FORMATS[how.format].timed_index
    with (
        outgoing(parent_of(target), [target]) as places,
        places(target) as place,
        SegmentFiles(place, segment_bytes, interval, enriched) as files,
    ):
        Writer(files, how, base_offset).add_all(reader)
    return [target if files.single else within(target, one.name) for one in files.paths]


def settings(format: str, magic: int | None, codec: str, level: int | None, batch_bytes: int, batch_records: int | None) -> EntrySettings:
    """Check parameters of `write` and convert them to `EntrySettings`."""
    if format not in layouts.FORMAT_NAMES:
        raise ArgumentError(unknown("format", format, layouts.FORMAT_NAMES))
    into = layouts.format_of(format)
    chosen, wanted = codec_of(codec), into.magic if magic is None else magic
    written = {**into.magics, **({into.magic: into.own_layouts[-1]} if into.own_layouts else {})}
    if wanted not in written:
        raise ArgumentError(f"magic={magic}: format {format!r} has {', '.join(map(str, sorted(written)))}")
    level_of(chosen, level)
    most = _LARGEST if batch_records is None else batch_records
    if batch_bytes < 1 or most < 1:
        raise ArgumentError(f"batch_bytes={batch_bytes}, batch_records={batch_records}: expected at least 1")
    return EntrySettings(layouts.FORMATS.index(into), written[wanted].number, wanted, chosen, level, batch_bytes, most)


def _reader(table: Any, base_offset: int | None) -> pa.RecordBatchReader:
    reader = _stream(table)
    check_columns(reader.schema)
    if base_offset is not None and "offset" in reader.schema.names:
        raise ArgumentError(f"base_offset={base_offset}: the table has a column 'offset'")
    return reader


def _stream(table: Any) -> pa.RecordBatchReader:
    if isinstance(table, pa.RecordBatchReader):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(table.schema, [table])
    try:
        return pa.RecordBatchReader.from_stream(table)
    except TypeError as error:
        raise ArgumentError(f"table: expected an Arrow table or reader, found {type(table).__name__}") from error


def cut_into_pieces(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Pieces of a bounded size: small record batches are combined, and only large ones are cut."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        step = max(1, 4 * min(ROWS, batch.num_rows * BYTES // max(batch.nbytes, 1)))
        for at in range(0, batch.num_rows, step):
            part = batch.slice(at, step)
            waiting.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if rows >= ROWS or size >= BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


class Writer:
    """Encodes piece by piece: the rows of a batch that is not full are kept for the next piece."""

    def __init__(self, files: SegmentFiles, how: EntrySettings, next_offset: int) -> None:
        self.files, self.how, self.next_offset, self.last_offset = files, how, next_offset, -1
        self.rest: pa.Table | None = None

    def add_all(self, reader: pa.RecordBatchReader) -> None:
        """Write all rows of a reader."""
        for piece in cut_into_pieces(reader):
            self.add(piece, last=False)
        self.add(reader.schema.empty_table(), last=True)

    def add(self, piece: pa.Table, last: bool) -> None:
        """Write all complete batches, and with ``last`` the remaining rows too."""
        while self.rest is not None and piece.num_rows:
            # Only the rows that complete the waiting batch are concatenated with it, since that copies.
            waiting, head = self.rest.num_rows, min(HEAD, piece.num_rows)
            done = self._write(pa.concat_tables([self.rest, piece.slice(0, head)]), last and head == piece.num_rows)
            self.rest = None if done >= waiting else pa.concat_tables([self.rest.slice(done), piece.slice(0, head)])
            piece = piece.slice(done - waiting if done >= waiting else head)
        if piece.num_rows or last:
            rows = piece if self.rest is None else self.rest
            done = self._write(rows, last)
            self.rest = rows.slice(done) if done < rows.num_rows else None

    def _write(self, rows: pa.Table, last: bool) -> int:
        given = take_apart(rows, self.next_offset)
        _check_offsets(given.offset, self.last_offset)
        encoded, done = encode(given, self.how, last)
        self.files.append(encoded)
        if done:
            self.last_offset, self.next_offset = int(given.offset[done - 1]), self.next_offset + done
        return done


def _check_offsets(offset: Int64s, last: int) -> None:
    """Check that offsets increase, starting after ``last``, which is -1 at the beginning."""
    wrong = np.diff(offset, prepend=last) <= 0
    if wrong.any():
        at = int(wrong.argmax())
        before = last if at == 0 else int(offset[at - 1])
        raise ArgumentError(f"column 'offset': {offset[at]} follows {before}: offsets have to increase, from 0 or more")
