"""`write`: an Arrow table becomes the files of a topic-partition: segments, and the indexes that a broker stores next to each.

    <base offset, 20 digits>.log         the batches
    <base offset, 20 digits>.index       i32 offset - base | i32 position          of a batch, about every index_interval_bytes
    <base offset, 20 digits>.timeindex   i64 largest timestamp so far | i32 offset - base of the batch that has it

An enriched log has one index that includes the times, as its proposal specifies. It always contains the last entry:

    <base offset, 20 digits>.index       i32 offset - base | i64 largest timestamp so far | i32 position

Redpanda's segments have other names, and no file beside them that is written here. All batches of a segment are of the term in its name:

    <base offset>-<term>-v1.log          the batches

Entries are written as by ``LogSegment.append``: before a batch, once more bytes than the interval have been written since the last
entry. A segment's last timestamp is added when it is closed.
"""

import re
import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from kolumn.core import keywords
from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import ArgumentError, unknown
from kolumn.core.keywords import known_keywords
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.cpu_fallback.encode.index import index_entries
from kolumn.formats import layouts
from kolumn.formats.entries import Entries, Entry
from kolumn.source.names import PARTITION, file_name
from kolumn.source.storage import base_name, within
from kolumn.writers.commit.staged_file import StagedFile, final_name, writing
from kolumn.writers.encoders import encode
from kolumn.writers.entries import Encoded, EntrySettings, check_columns, codec_of, level_of, take_apart
from kolumn.writers.markers import with_named_types
from kolumn.writers.names import term_in
from kolumn.writers.outgoing import name_of, outgoing, parent_of
from kolumn.writers.payloads import NAMES, decoded, decoded_type, encoded, encoders_of, written_schema

_LARGEST_RELATIVE = 2**31 - 1
_INDEX = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIMES = np.dtype([("time", ">i8"), ("offset", ">i4")])
_MAKES_A_FRAME = {"collect": ".collect()", "to_frame": ".to_frame('value')"}
_INDEX_OF_PANDAS = re.compile(r"__index_level_\d+__")
_ENRICHED = np.dtype([("offset", ">i4"), ("time", ">i8"), ("position", ">i4")])


class SegmentFiles:
    """Files of one partition, in a staging place; they are complete and on disk when the context ends without an error.

    ``place`` is a segment file (``*.log``), or the folder of a topic-partition, which is made. In a folder, a segment is rolled before it
    would exceed ``segment_bytes``; a segment file becomes as large as a segment can be, and with ``rolls`` more follow beside it, named by
    their base offsets. The ``format``, by its number, decides about names and indexes. The first segment in a folder is named by
    ``begins``, if its first batch begins later. Raises `ArgumentError` if a size is less than 1, or the data does not fit into one segment
    file, and `KolumnError` if a file cannot be written.
    """

    def __init__(
        self, place: Path, segment_bytes: int, index_interval_bytes: int, format: int = layouts.KAFKA, rolls: bool = False,
        begins: int | None = None,
    ) -> None:  # fmt: skip
        self._segment, self.rolls, self._begins = _segment_of(format), rolls, begins
        self.place, self.single = place, place.suffix == ".log"
        self.segment_bytes = _LARGEST_RELATIVE if self.single else segment_bytes
        self.interval, self.name = index_interval_bytes, self._segment.name
        if min(segment_bytes, index_interval_bytes) < 1:
            raise ArgumentError(f"segment_bytes={segment_bytes}, index_interval_bytes={index_interval_bytes}: expected at least 1")
        self.paths: list[Path] = []
        self.last_offset = -1
        self._open: _Segment | None = None

    def __enter__(self) -> Self:
        if not self.single:
            # Without its parents: the folder of a job that has failed must not come back.
            with writing(self.place):
                self.place.mkdir(0o700, exist_ok=True)
        return self

    def __exit__(self, failed: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if failed is None:
            if self._open is None and self.single:
                self._open = self._segment(self.place.with_suffix(""), 0, 0, None)
                self.paths.append(self.place)
            if self._open is not None:
                self._open.complete()
        elif self._open is not None:
            self._open.abandon()

    def append(self, batches: Encoded) -> None:
        entries, done = batches.entries, 0
        while done < len(entries):
            rest = entries[done:]
            fits = 0 if self._open is None else self._open.fits(rest, self.segment_bytes)
            if not fits:
                self._roll(rest[0])
                continue
            assert self._open is not None
            some, start = rest[:fits], rest[0].position
            self._open.note(some.position - start + self._open.size, some, self.interval)
            self._open.write(batches.data[start : some[-1].end])
            self.last_offset, done = some[-1].last_offset, done + fits

    def append_tail(self, data: Bytes) -> None:
        """Append bytes that are not an entry: the tail of an active segment."""
        if self._open is not None and len(data):
            self._open.write(data)

    def _roll(self, first: Entry) -> None:
        base = first.base_offset
        if self._begins is not None and not self.paths and 0 <= first.last_offset - self._begins <= _LARGEST_RELATIVE:
            base = min(base, self._begins)
        term = self._term_of(first)
        name = self.name(base, term)
        if self._open is not None:
            if self.single and not self.rolls:
                raise ArgumentError(f"{final_name(self.place)}: more than a segment can hold: name a folder, in which segments are rolled")
            self._open.complete()
        elif self.single:
            own = self.place.stem
            # Too far from the offset in the segment's name for an index, or for a broker to start on the segment.
            is_far = self.rolls and _is_offset(own) and first.last_offset - int(own) > _LARGEST_RELATIVE
            name = name if is_far else own
        # Index entries are relative to the offset in the file's name, if it has one.
        named = int(name) if _is_offset(name) and int(name) <= base else base
        folder = self.place.parent if self.single else self.place
        path = folder / f"{name}.log"
        if path.exists():
            raise ArgumentError(f"{final_name(path)}: two segments would get this name: their offsets overlap. Use kolumn.recover first")
        self._open = self._segment(folder / name, named, named if self.rolls else base, term if self.rolls or not self.single else None)
        self.paths.append(path)

    def _term_of(self, first: Entry) -> int:
        """The term of the segment that begins with an entry: that of the one before, or of the name that is given, if it has none."""
        if first.leader_epoch >= 0:
            return first.leader_epoch
        if self._open is not None:
            return self._open.term or 0
        return term_in(self.place.stem) or 0


def _is_offset(name: str) -> bool:
    return len(name) == 20 and name.isdigit()


class IndexEntries:
    """The entries of the offset index and of the time index of a segment, relative to its ``base`` offset. A batch too far from it for 32
    bits gets no entry."""

    def __init__(self, base: int, index: StagedFile | BytesIO, times: StagedFile | BytesIO) -> None:
        self.base, self.size, self.since, self.last = base, 0, 0, base
        self.time, self.time_offset, self.time_noted = -1, base, -1
        self.index, self.times = index, times

    def note(self, positions: Int64s, entries: Entries, interval: int) -> None:
        due, newest, offsets = self._due(positions, entries, interval)
        last = entries.last_offset[due] - self.base
        near = last <= _LARGEST_RELATIVE
        self.index.write(_packed(_INDEX, last[near], positions[due][near]))
        relative = offsets - self.base
        near = relative <= _LARGEST_RELATIVE
        time, relative = newest[near], relative[near]
        later = time > np.append(self.time_noted, time[:-1])[: len(time)]
        self.times.write(_packed(_TIMES, time[later], relative[later]))
        self.time_noted = max(self.time_noted, int(time.max(initial=-1)))

    def _due(self, positions: Int64s, entries: Entries, interval: int) -> tuple[Int64s, Int64s, Int64s]:
        """Batches that get index entries: their numbers, the largest timestamp up to each, the last offset of the batch with it."""
        due, time, offset = (np.empty(len(entries), np.int64) for _ in range(3))
        state = np.array([self.size - self.since, self.time, self.time_offset], np.int64)
        rows, position = np.ascontiguousarray(entries.array), np.ascontiguousarray(positions)
        count = index_entries(rows, position, min(interval, _LARGEST_RELATIVE), state, due, time, offset)
        start, self.time, self.time_offset = state.tolist()
        self.size = int(positions[-1]) + entries[-1].size
        self.since, self.last = self.size - start, entries[-1].last_offset
        return due[:count], time[:count], offset[:count]

    def note_time(self) -> None:
        """Add the largest timestamp so far; called when a segment is closed too."""
        if self.time > self.time_noted and self.time_offset - self.base <= _LARGEST_RELATIVE:
            self.times.write(struct.pack(">qi", self.time, self.time_offset - self.base))
            self.time_noted = self.time


class _Segment(IndexEntries):
    """One segment that is being written, and its indexes. Offsets that are too far from ``first`` do not fit."""

    suffixes: tuple[str, ...] = (".log", ".index", ".timeindex")

    def __init__(self, stem: Path, base: int, first: int, term: int | None) -> None:
        self.first, self.term = first, term
        self.files = [StagedFile(Path(f"{stem}{suffix}")) for suffix in self.suffixes]
        self.log = self.files[0]
        super().__init__(base, self.files[1 % len(self.files)], self.files[-1])

    @staticmethod
    def name(base: int, term: int) -> str:
        """The name of a segment, without a suffix."""
        return file_name(base, "")

    def fits(self, entries: Entries, segment_bytes: int) -> int:
        """How many of some batches, one after the other, this segment has room for; an empty segment has room for the first."""
        near = int(entries.last_offset.max()) - self.first <= _LARGEST_RELATIVE
        if near and self.size + entries[-1].end - entries[0].position <= segment_bytes:
            return len(entries)
        after = self.size + entries.end - entries[0].position
        full = (after > segment_bytes) | (entries.last_offset - self.first > _LARGEST_RELATIVE)
        if self.size == 0:
            full[0] = False
        return int(np.argmax(full)) if full.any() else len(entries)

    def write(self, data: Bytes) -> None:
        self.log.write(data)

    def complete(self) -> None:
        self.note_time()
        for file in reversed(self.files):
            file.complete()

    def abandon(self) -> None:
        for file in self.files:
            file.abandon()


class _EnrichedSegment(_Segment):
    suffixes = (".log", ".index")

    def __init__(self, stem: Path, base: int, first: int, term: int | None) -> None:
        super().__init__(stem, base, first, term)
        self.newest: tuple[int, int, int] | None = None

    def note(self, positions: Int64s, entries: Entries, interval: int) -> None:
        due, newest, _ = self._due(positions, entries, interval)
        base = entries.base_offset - self.base
        some = base[due]
        near = some <= _LARGEST_RELATIVE
        self.index.write(_packed(_ENRICHED, some[near], newest[near], positions[due][near]))
        is_last = len(due) > 0 and due[-1] == len(entries) - 1
        self.newest = None if is_last else (int(base[-1]), self.time, int(positions[-1]))

    def complete(self) -> None:
        if self.newest is not None and self.newest[0] <= _LARGEST_RELATIVE:
            self.index.write(struct.pack(">iqi", *self.newest))
        super().complete()

    def note_time(self) -> None:
        """Times are in the one index."""


class _SegmentOfTerm(_Segment):
    """A segment of Redpanda, of one term, unless that is None."""

    suffixes = (".log",)

    @staticmethod
    def name(base: int, term: int) -> str:
        return f"{base}-{term}-v1"

    def fits(self, entries: Entries, segment_bytes: int) -> int:
        fits = super().fits(entries, segment_bytes)
        other = (entries.leader_epoch != self.term) & (entries.leader_epoch >= 0)
        return fits if self.term is None or not other.any() else min(fits, int(np.argmax(other)))

    def note(self, positions: Int64s, entries: Entries, interval: int) -> None:
        self.size = int(positions[-1]) + entries[-1].size

    def note_time(self) -> None:
        """Nothing is beside it."""


def _segment_of(format: int) -> type[_Segment]:
    known = layouts.FORMATS[format]
    return (_EnrichedSegment if known.timed_index else _Segment) if known.indexed else _SegmentOfTerm


def _packed(type: np.dtype[Any], *columns: Int64s) -> bytes:
    made = np.empty(len(columns[0]), type)
    for name, column in zip(type.names or (), columns, strict=True):
        made[name] = column
    return made.tobytes()


ROWS = 1 << 16  # approximate number of rows that are encoded at a time, and maximum bytes of their keys and values
BYTES = 8 << 20
HEAD = 2048  # rows that are copied to complete a batch that began in the previous piece
_LARGEST = 2**31 - 1


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
    value_format: keywords.WrittenFormat | None = None,
    key_format: keywords.WrittenFormat | None = None,
    value_schema: keywords.PayloadSchema = None,
    key_schema: keywords.PayloadSchema = None,
    value_message: str | None = None,
    key_message: str | None = None,
    value_framing: str = "auto",
    key_framing: str = "auto",
    value_schema_id: int | None = None,
    key_schema_id: int | None = None,
) -> list[str]:
    """Write records as Kafka log segments, with their offset and time indexes.

    Parameters
    ----------
    table : pyarrow.Table, RecordBatch, RecordBatchReader or anything with ``__arrow_c_stream__``
        Frames of pandas and Polars and relations of DuckDB have it. Any record columns of `kolumn.schema.RECORD_COLUMNS`; a
        missing column is null, or has the value that a plain producer sends, but for ``timestamp``: without one it is -1, as of a
        record that has none. Keys and values may be binary, strings or categories. ``offset`` must increase; gaps are kept. ``timestampMs``
        overrides ``timestamp``; ``timestampType`` 1 makes batches with LogAppendTime. ``topic`` and ``partition`` must be those of the
        folder, and otherwise have no effect, as columns that describe where a record was read (segment, position, magic, codec,
        transaction). An index without a name that pandas adds is left out. ``tombstone`` is used in KIP-87, where null means
        "a tombstone if it has no value"; ``timestampSeconds`` and ``brokerTimestampMs`` are used in enriched messages. ``controlType`` says
        of a control record what its key says, so that it needs no key: COMMIT, ABORT, …
    path : str or PathLike
        A segment file (``*.log``), or the folder of a topic-partition, which may exist only if it is empty. Readers take topic and
        partition from its name, ``orders-0``; of a folder ``orders`` both are null. At a URL no file appears before all are written.
    format, magic : str, int, optional
        "kafka" writes 0, 1 or 2 (the default). Headers, control records and transactions need 2, and so does zstd. "enriched",
        "kip98-draft", "v3-compact" and "kip87" write that draft, or with ``magic`` a shipped format that may be mixed in. "redpanda"
        writes Redpanda's batches: ``offset`` is the raw offset, a folder's segments are named ``<base offset>-<term>-v1.log``, with the
        column ``leaderEpoch`` as the term (0 without one), and there are no index files.
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
    value_format, key_format : str, optional
        "avro", "protobuf" or "json": the column is encoded, as a read with the same format and schema decodes it. Null values stay
        null, or are the bytes of a column ``valueRaw`` beside it; ``valueValid`` and ``valueSchemaId`` have no effect. It takes Python
        some microseconds for each field.
    value_schema, value_message, and those for keys
        The schema, as for `kolumn.read`, and the name of the Protobuf message.
    value_framing, key_framing : str
        What precedes each value: "none", "confluent" (a 0, the id, and the indexes of a Protobuf message), or "single-object" of Avro.
        The default is "confluent" with an id.
    value_schema_id, key_schema_id : int, optional
        The id that a registry gave the schema.

    Returns
    -------
    list of str
        Paths of the segments, in the order of their offsets.

    Raises
    ------
    ArgumentError
        An option or a column is invalid, a value does not fit its schema, offsets do not increase, or the target exists. Nothing is
        left at the target.
    KolumnError
        The target cannot be written; the message contains the file and the reason. Nothing is left at the target. Files that a
        killed run left in the same folder are removed by the next run.
    """
    how = settings(format, magic, codec, level, batch_bytes, batch_records)
    of_values = value_format, value_schema, value_message, value_framing, value_schema_id
    of_keys = key_format, key_schema, key_message, key_framing, key_schema_id
    given = {f"value_{name}": option for name, option in zip(NAMES, of_values, strict=True)}
    given |= {f"key_{name}": option for name, option in zip(NAMES, of_keys, strict=True)}
    encoders = encoders_of(given)
    reader, target = _stream(table), name_of(path)
    schema = written_schema(reader.schema, encoders)
    check_columns(schema)
    if base_offset is not None and "offset" in reader.schema.names:
        raise ArgumentError(f"base_offset={base_offset}: the table has a column 'offset'")
    with (
        outgoing(parent_of(target), [target]) as place,
        place(target) as staged,
        SegmentFiles(staged, segment_bytes, index_interval_bytes, how.format) as files,
    ):
        writer = Writer(files, how, base_offset or 0)
        for piece in with_named_types(encoded(_of_one_partition(cut_into_pieces(reader), target), encoders), how.layout):
            writer.add(piece, last=False)
        writer.add(schema.empty_table(), last=True)
    return [target if files.single else within(target, file.name) for file in files.paths]


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


def _stream(table: Any) -> pa.RecordBatchReader:
    if isinstance(table, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(table.schema, [table])
    try:
        reader = table if isinstance(table, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(table)
    except (TypeError, pa.ArrowException) as error:
        expected = "a table or reader of pyarrow, a frame of pandas or Polars, or a relation of DuckDB"
        makes = next((call for name, call in _MAKES_A_FRAME.items() if hasattr(table, name)), None)
        why = f", and Arrow makes no table of it: {'; '.join(map(str, error.args))}" if isinstance(error, pa.ArrowException) else ""
        hint = f": {makes} makes it one" if makes else why
        raise ArgumentError(f"table: expected {expected}, found {type(table).__name__}{hint}") from error
    # A frame of pandas whose rows were filtered brings its index as a column.
    kept = [number for number, name in enumerate(reader.schema.names) if not _INDEX_OF_PANDAS.fullmatch(name)]
    fields = map(reader.schema.field, kept)
    schema = pa.schema([field.with_type(decoded_type(field.type)) for field in fields])
    if schema.equals(reader.schema):
        return reader
    rows = ([decoded(batch.column(number)) for number in kept] for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, (pa.RecordBatch.from_arrays(columns, schema=schema) for columns in rows))


def _of_one_partition(pieces: Iterator[pa.Table], target: str) -> Iterator[pa.Table]:
    """The pieces, whose columns topic and partition must name one topic-partition, that of the folder's name if it has one."""
    folder = base_name(parent_of(target) if target.endswith(".log") else target)
    named = PARTITION.fullmatch(folder)
    found: dict[str, set[str]] = {"topic": set(), "partition": set()}
    for piece in pieces:
        for name in found.keys() & set(piece.schema.names):
            try:
                # pandas makes floats of partitions if some are missing.
                column = piece[name].cast(pa.string() if name == "topic" else pa.int64())
            except pa.ArrowException as error:
                raise ArgumentError(f"column {name!r}: expected {RECORD_COLUMNS[name]}, found {piece[name].type}: {error}") from error
            found[name] |= {str(value) for value in column.unique().to_pylist() if value is not None}
            _check_one(name, sorted(found[name]), folder, named)
        yield piece


def _check_one(name: str, found: list[str], folder: str, named: re.Match[str] | None) -> None:
    """Raise `ArgumentError` unless a column has one value, which the folder's name has too."""
    if len(found) > 1:
        each = f"table.filter(pyarrow.compute.field({name!r}) == {found[1] if name == 'partition' else repr(found[1])})"
        text = f"found {', '.join(found[:4])}, and a folder is one topic-partition: write each to its own, such as kolumn.write({each}, …)"
        raise ArgumentError(f"column {name!r}: {text}")
    if named is not None and found and found[0] != (named["topic"] if name == "topic" else str(int(named["partition"]))):
        right = f"{found[0]}-{named['partition']}" if name == "topic" else f"{named['topic']}-{found[0]}"
        text = f"found {found[0]}, and the folder is {folder}: write to {right}, or leave the columns topic and partition out"
        raise ArgumentError(f"column {name!r}: {text}")


def cut_into_pieces(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Pieces of a bounded size: small record batches are combined, and only large ones are cut."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        step = max(1, 4 * min(ROWS, batch.num_rows * BYTES // max(batch.nbytes, 1)))
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
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

    def add(self, piece: pa.Table, last: bool) -> None:
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
        # Offsets increase; the last one is -1 at the beginning.
        wrong = np.diff(given.offset, prepend=self.last_offset) <= 0
        if wrong.any():
            row = int(wrong.argmax())
            before = int(given.offset[row - 1]) if row else self.last_offset
            raise ArgumentError(f"column 'offset': {given.offset[row]} follows {before}: offsets have to increase, from 0 or more")
        encoded, done = encode(given, self.how, last)
        self.files.append(encoded)
        if done:
            self.last_offset, self.next_offset = int(given.offset[done - 1]), self.next_offset + done
        return done
