"""`append`: new records of a log become part of an Iceberg or a Delta table, every record once, by the table's own commits.

    state of the table ──▶ plan ──▶ Parquet files in the table's folder ──▶ one commit: files and the new state, both or none

The state is in the table: the next offset of each topic-partition. So no journal is needed. A run that is killed leaves files that no
commit names, as any writer's; what the engines have for that removes them (VACUUM, remove_orphan_files).

The engines are in `kolumn.tools.iceberg` and `kolumn.tools.delta`. Both compare a commit with others that happen meanwhile, in ways of
their own: the plan is made anew if another run of Kolumn was faster, and a commit is repeated if somebody else's did not touch the state.
"""

import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from kolumn.copies.copies import created_anew, last_offset, log_end, log_start, topic_ids
from kolumn.copies.ranges import every_range, plan_log
from kolumn.copies.tiers import log_of
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.core.keywords import known_keywords, refused
from kolumn.core.lost import LostValues
from kolumn.core.results import Result, counted
from kolumn.core.threads import PARQUET, workers
from kolumn.damage.findings import Damage, OnDamage, Skipped, tell_lost, tell_stops
from kolumn.damage.stopped import StoppedAt, lines
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats import layouts
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.readers.types import with_types
from kolumn.source.segments import Range, Segment
from kolumn.tools import parquet
from kolumn.tools.tables import RUN, DataFile, Key, OvertakenError, TableState, for_people, settings_of
from kolumn.values.narrowing import Narrowed, Tool, narrowed_schema, say_narrowed
from kolumn.writers.commit.staged_file import StagedFile, make_folders, writing

if TYPE_CHECKING:
    from kolumn.tools.delta import DeltaTarget
    from kolumn.tools.iceberg import IcebergTarget

    TableTarget = DeltaTarget | IcebergTarget

FILE_BYTES = 256 << 20
"""A file ends after the batch that makes it larger than this."""
LATER = "A later run appends the rest once the transaction has ended"
_TOOL: Tool = "Iceberg and Delta"
_ATTEMPTS = 10
_OPEN_FILES = 16  # of a topic-partition, each of another day
_DAY, _NO_DAY = 86_400_000_000, 2**63 - 1


@dataclass(frozen=True, repr=False)
class Appended(Result):
    """What `append` has done.

    Attributes
    ----------
    rows : int
    files : list of str
        Paths below the table's folder.
    next : dict
        The next offset of each topic-partition of the source, ``{"orders": {0: 812345}}``, as the table has it now.
    lost : list of tuple
        ``(topic, partition, first, end)``: the table ended at ``first`` and the log begins at ``end``. What was between was deleted before
        it was appended.
    damage : list of Damage
        What ``errors="skip"`` has left out.
    stopped : list of StoppedAt
        Where a run with ``isolation_level="read_committed"`` has stopped before the end of a log.
    """

    rows: int
    files: list[str]
    next: dict[str, dict[int, int]]
    lost: list[tuple[str, int, int, int]]
    damage: list[Damage]
    stopped: list[StoppedAt] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [
            f"{counted(self.rows, 'row')} in {counted(len(self.files), 'file')}",
            *(f"{topic}-{partition}: offsets {first} to {end - 1} were deleted before" for topic, partition, first, end in self.lost),
            *([f"{counted(len(self.damage), 'damaged stretch')} left out"] if self.damage else ()),
            *lines(self.stopped, LATER),
        ]
        return "; ".join(parts)


@known_keywords(
    refused(("start_offset", "start_timestamp"), "the table knows where a run begins; start_offsets says it for a table that does not")
    | refused(("end_offset", "end_timestamp", "binary"), "records are appended up to the end of the log")
    | refused(("include_deleted_segments",), "a table takes offsets as they grow, and deleted segments have earlier ones")
    | {
        "open_transactions": "option 'open_transactions': append takes each offset once, so it stops at an open transaction, and a later "
        "run goes on once that has ended. A dead broker ends none: write its log with `kolumn to-parquet --open-transactions skip`, or "
        'with deltalake.write_deltalake(table, kolumn.scan(source, isolation_level="read_committed", open_transactions="skip"))'
    }
)
def append(
    source: keywords.Source,
    table: object,
    *,
    start_offsets: Mapping[str, Mapping[int, int]] | None = None,
    by_day: bool = False,
    row_group_rows: int = keywords.ROW_GROUP_ROWS,
    compression: keywords.Compression = "zstd",
    on_damage: OnDamage | None = None,
    **options: Unpack[keywords.ReadOptions],
) -> Appended:
    """Append the records that an Iceberg or Delta table does not have yet, without Spark. Every record is in the table once.

    The table itself knows how far it has come: a commit has the files of a run and the next offsets, or nothing. A run that was killed
    can be repeated, and of two runs at once the slower one adds what the other has not. Files are one topic-partition's each, in the
    order of offsets.

    Parameters
    ----------
    source : as for `kolumn.read`
        Every segment needs a topic and a partition.
    table : pyiceberg.table.Table, deltalake.DeltaTable, str or PathLike
        A path or URI is that of a Delta table, which is made if it does not exist, partitioned by topic and partition.
    start_offsets : dict, optional
        ``{"orders": {0: 5000}}``: where to begin in topic-partitions of a table that has rows and no offsets of Kolumn's. Others begin at
        the start of the log.
    by_day : bool
        Whether a table that is made is partitioned by the day of the timestamp too, in UTC. Iceberg only.
    row_group_rows, compression : int, str
        Maximum rows of a row group; a codec of Parquet, "none" for no compression.
    on_damage : callable, optional
        Called at the end with a `kolumn.Damage` for each stretch that ``errors="skip"`` has left out.
    **options

    Returns
    -------
    Appended

    Raises
    ------
    ArgumentError
        An option is invalid, or other than in earlier runs; a topic has no schema, while others have one; the table cannot have the
        columns, is partitioned in another way, or has rows and no offsets; a segment has no topic or partition, or copies of a partition
        overlap.
    KolumnError
        The log ends before the offsets that the table has, or the topic has another id: it is another log. Or others have committed so
        often meanwhile that this run gave up.
    MissingError
        pyiceberg or deltalake is missing.
    """
    if compression not in get_args(keywords.Compression):
        raise ArgumentError(f"compression={compression!r}: expected one of {', '.join(get_args(keywords.Compression))}")
    if row_group_rows < 1:
        raise ArgumentError(f"row_group_rows={row_group_rows}: expected at least 1")
    needed = "topic", "partition", "offset", *(("timestamp",) if by_day else ())
    target, asked = _target(table), Options.of(**options).with_added(needed)
    for _ in range(_ATTEMPTS):
        with suppress(OvertakenError):
            values, run = LostValues(), _Run(source, asked, target, row_group_rows, compression)
            done = run.run(start_offsets, by_day)
            for lost in run.skipped:
                values.update(lost.values)
            tell_lost(values, on_damage)
            tell_stops(done.stopped, on_damage, LATER)
            if on_damage is not None:
                for piece in done.damage:
                    on_damage(piece)
            return done
    raise KolumnError(f"{target.name}: other runs have committed {_ATTEMPTS} times meanwhile. Run it again, alone")


def _target(table: object) -> "TableTarget":
    module = type(table).__module__
    if isinstance(table, str | os.PathLike) or module.startswith("deltalake."):
        from kolumn.tools.delta import DeltaTarget

        return DeltaTarget(table)
    if module.startswith("pyiceberg."):
        from kolumn.tools.iceberg import IcebergTarget

        return IcebergTarget(table)
    if not module.startswith("kolumn."):
        raise ArgumentError(f"table: expected a table of pyiceberg or deltalake, or the path or URI of a Delta table; found {table!r}")
    return cast("TableTarget", table)


class _Run:
    """A run, whose number is in the names of its files; ``sent``: a commit may have arrived in the table."""

    def __init__(self, source: keywords.Source, options: Options, target: "TableTarget", row_group_rows: int, compression: str) -> None:
        self.target, self.row_group_rows, self.compression = target, row_group_rows, compression
        self.segments = live_segments(source, options).segments
        self.options = with_types(options, source, map(Range.whole, self.segments), of_each_topic=True)
        self.number, self.sent, self.stopped = uuid.uuid4().hex, False, False
        self.skipped: list[Skipped] = []
        self.lost: list[tuple[str, int, int, int]] = []
        self._data = f"data/kolumn-{self.number}"

    def run(self, given: Mapping[str, Mapping[int, int]] | None, by_day: bool) -> Appended:
        target, logs, ids = self.target, self._logs(), topic_ids(self.segments)
        settings = settings_of(self.options.isolation_level, self.options.include_control)
        say_narrowed(self.options.schema, _TOOL)
        target.prepare(narrowed_schema(self.options.schema, _TOOL), by_day)
        self.options = self.options.with_added(("timestamp",) if target.by_day else ())
        before = target.state(logs, ids, settings)
        known = before or TableState(self._starts(given, logs) if before is None else {}, {}, settings)
        if before is not None and given is not None:
            raise ArgumentError(f"start_offsets: {target.name} has offsets of earlier runs: leave it out, and records after them are added")
        for what in created_anew(known.ids, ids):
            raise KolumnError(f"{target.name}: {what}. Append it to another table")
        if known.settings != settings:
            raise ArgumentError(
                f"{target.name}: this table was filled with {for_people(known.settings)}, and this run has {for_people(settings)}: "
                "use the same options, or another table"
            )
        parts = [(key, *self._new(key, own, known.next.get(key))) for key, own in logs.items()]
        reached = dict(known.next)
        try:
            added = self._write(parts)
            for file in added:
                # Never after what only headers tell: the next run looks at the rest again.
                key = file.topic, file.partition
                reached[key] = max(reached.get(key, 0), file.last + 1)
            if added:
                new = {file.topic: ids[file.topic] for file in added if file.topic in ids}
                after = TableState(reached, {**known.ids, **new}, settings)
                self._commit(added, after, lambda: target.state(logs, ids, settings) != before)
        finally:
            self._remove_unless_sent()
        nested: dict[str, dict[int, int]] = {}
        for topic, partition in sorted(logs.keys() & reached.keys()):
            nested.setdefault(topic, {})[partition] = reached[topic, partition]
        return Appended(sum(file.rows for file in added), [file.path for file in added], nested, self.lost, self.damage, self.stops)

    @property
    def damage(self) -> list[Damage]:
        return [piece for lost in self.skipped for piece in lost.pieces]

    @property
    def stops(self) -> list[StoppedAt]:
        return [own for lost in self.skipped for own in lost.stopped]

    def _logs(self) -> dict[Key, list[Segment]]:
        groups: dict[Key, list[Segment]] = {}
        for segment in self.segments:
            if segment.topic is None or segment.partition is None:
                raise ArgumentError(f"{segment.path}: its folder is not named topic-partition: give the options topic and partition")
            groups.setdefault((segment.topic, segment.partition), []).append(segment)
        return groups if self.options.replicas == "merge" else {key: log_of(own, self.options) for key, own in groups.items()}

    def _starts(self, given: Mapping[str, Mapping[int, int]] | None, logs: Mapping[Key, Any]) -> dict[Key, int]:
        if given is None and self.target.has_rows():
            raise ArgumentError(
                f"{self.target.name} has rows, and no offsets of Kolumn's: which records are in it is not known. Say in start_offsets "
                'where to begin: {"topic": {partition: offset}}, {} for the start of the log'
            )
        starts = {(topic, int(partition)): offset for topic, own in (given or {}).items() for partition, offset in own.items()}
        for topic, partition in starts.keys() - logs.keys():
            raise ArgumentError(f"start_offsets: there is no {topic}-{partition} in the source")
        return starts

    def _new(self, key: Key, segments: list[Segment], start: int | None) -> tuple[list[Range], Options]:
        """The ranges with new records of a topic-partition."""
        above = self._raw_above(segments)
        if start is not None:
            # Of a log of Redpanda the end is at least that of consumers.
            end, begin = log_end(segments), log_start(segments)
            begin = None if begin is None else begin - above
            if end < start and self.options.errors == "skip":
                # Damage may hide the end from the headers that lead to it.
                end = max(map(last_offset, segments)) + 1
            if end < start:
                raise KolumnError(
                    f"{self.target.name} has {key[0]}-{key[1]} up to offset {start - 1}, and the log ends at {end}: the topic was created "
                    "anew, or its log was cut. Append it to another table"
                )
            if begin is not None and begin > start:
                self.lost.append((*key, start, begin))
        within = self.options.within(start, None)
        return plan_log(segments, within), within

    def _raw_above(self, segments: list[Segment]) -> int:
        """By how much raw offsets of a log of Redpanda are above consumer offsets where it begins, which a table has; 0 of others."""
        is_raw = segments[0].format in layouts.RAW
        if is_raw and self.options.include_control:
            raise ArgumentError(
                "include_control: a table is continued by offsets, and consumers have none for some of Redpanda's own records. Leave it out"
            )
        whole = every_range(segments, self.options) if is_raw else []
        delta = whole[0].offsets.before(whole[0]) if whole else 0
        if delta is None:
            raise ArgumentError(
                f"{whole[0].segment.path}: the log begins later than at raw offset 0, and a table needs consumer offsets: name in "
                "start_delta how far raw offsets are above them where the log begins"
            )
        return int(delta)

    def _write(self, parts: list[tuple[Key, list[Range], Options]]) -> list[DataFile]:
        """Write the files, those of some topic-partitions at a time."""
        threads = max(1, min(self.options.threads, len(parts)))
        with workers(PARQUET, threads) as pool:
            begun = [pool.submit(self._part, number, *part, threads) for number, part in enumerate(parts)]
            try:
                return [file for written in begun for file in written.result()]
            finally:
                self.stopped = True

    def _part(self, number: int, key: Key, ranges: list[Range], options: Options, readers: int) -> list[DataFile]:
        """Write the files of one topic-partition: one for each day, if the table is partitioned by it, and for each `FILE_BYTES`."""
        files: dict[int | None, _File] = {}
        narrowed, skipped = Narrowed(narrowed_schema(options.schema, _TOOL)), Skipped()
        schema, done, count = narrowed.schema, list[DataFile](), itertools.count()
        self.skipped.append(skipped)
        kept = [name for name in schema.names if name not in self.target.in_names]
        try:
            for batch in scan_ranges(ranges, options.shared_by(readers), skipped):
                if self.stopped:
                    return []
                for day, rows in _days(batch) if self.target.by_day else [(None, batch)] if batch.num_rows else []:
                    if day not in files:
                        if len(files) == _OPEN_FILES:
                            done.append(files.pop(next(iter(files))).close(key))
                        place = f"{self._data}/{number:06d}-{next(count):06d}.parquet"
                        files[day] = _File(self.target, place, schema, kept, self.compression)
                    files[day].add(narrowed.batch(rows), self.row_group_rows)
                    if files[day].size >= FILE_BYTES:
                        done.append(files.pop(day).close(key))
            while files:
                done.append(files.pop(next(iter(files))).close(key))
            narrowed.say()
            return done
        finally:
            for file in files.values():
                file.abandon()

    def _commit(self, added: list[DataFile], after: TableState, has_moved: Callable[[], bool]) -> None:
        """Commit, again if others did without touching the state. Raises `OvertakenError` if the state has moved."""
        damage = [[piece.segment, piece.position, piece.size, piece.records_lost] for piece in self.damage[:1000]]
        texts = {"kolumn.lost": self.lost, "kolumn.damage": damage}
        notes = {RUN: self.number, **{name: json.dumps(rows) for name, rows in texts.items() if rows}}
        for _ in range(_ATTEMPTS):
            self.sent = True
            try:
                return self.target.commit(added, after, notes)
            except ArgumentError:
                self.sent = False
                raise
            except OvertakenError:
                if self.target.has_run(self.number):
                    # It has arrived, and the answer was lost.
                    return None
                self.sent = False
                self.target.prepare(narrowed_schema(self.options.schema, _TOOL), False)
                if has_moved():
                    raise
        raise KolumnError(f"{self.target.name}: others have committed {_ATTEMPTS} times meanwhile. Run it again")

    def _remove_unless_sent(self) -> None:
        """Remove the files, unless a commit with them may have arrived."""
        folder = f"{self.target.root}/{self._data}"
        if not self.sent and self.target.files.get_file_info(folder).type == fs.FileType.Directory:
            self.target.files.delete_dir(folder)


def _days(batch: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Parts of a batch by UTC day of the timestamp, records in order."""
    times = batch.column("timestamp").cast(pa.int64())
    days = np.where(times.is_valid(), times.fill_null(0).to_numpy() // _DAY, _NO_DAY)
    for day in np.unique(days).tolist():
        yield None if day == _NO_DAY else day, batch.filter(pa.array(days == day))


class _File:
    """A file that is being written, and a stream that counts its bytes."""

    closed = False

    def __init__(self, target: "TableTarget", place: str, schema: pa.Schema, columns: list[str], compression: str) -> None:
        self.place, self.columns, path = place, columns, f"{target.root}/{place}"
        if isinstance(target.files, fs.LocalFileSystem):
            with writing(path):
                make_folders(Path(path).parent)
            self.out: Any = StagedFile(Path(path))
        else:
            self.out = target.open(place)
        self.rows, self.size, self.first, self.last = 0, 0, 2**63 - 1, -1
        self.writer = parquet.writer(self, pa.schema([schema.field(name) for name in columns]), compression)
        self.times: tuple[int, int] | None = None

    def write(self, data: bytes) -> None:
        self.size += memoryview(data).nbytes
        # Streams of deltalake take nothing else.
        self.out.write(bytes(data))

    def flush(self) -> None:
        pass

    def add(self, rows: pa.RecordBatch, row_group_rows: int) -> None:
        offsets = pc.min_max(rows.column("offset")).as_py()
        self.first, self.last = min(self.first, offsets["min"]), max(self.last, offsets["max"])
        if "timestamp" in rows.schema.names:
            times = pc.min_max(rows.column("timestamp").cast(pa.int64())).as_py()
            if times["min"] is not None:
                low, high = self.times or (times["min"], times["max"])
                self.times = min(low, times["min"]), max(high, times["max"])
        self.rows += rows.num_rows
        self.writer.write_batch(rows.select(self.columns), row_group_size=row_group_rows)

    def close(self, key: Key) -> DataFile:
        self.writer.close()
        if isinstance(self.out, StagedFile):
            self.out.complete()
        else:
            self.out.close()
        return DataFile(self.place, *key, self.size, self.rows, self.first, self.last, self.times)

    def abandon(self) -> None:
        """Close it. A footer that is written now is discarded, or in an object that no commit names."""
        if isinstance(self.out, StagedFile):
            self.out.abandon()
        with suppress(OSError, pa.ArrowException):
            self.writer.close()
            if not isinstance(self.out, StagedFile):
                self.out.close()
