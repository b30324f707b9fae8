"""A log changes at any step of a read: all planned rows are read, or an error names the file; rows never go missing."""

import os
import pickle
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.fuzz import STEPS, tried
from kit.looks import Looks, Operation
from kit.outcome import raises
from kolumn.core.schema import BATCH_SCHEMA, record_schema
from kolumn.readers.schemas import records_of
from kolumn.source.segments import find_segments
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema, with_columns
from kolumn.spark_plugin.read.stream import RecordStream
from kolumn.spark_plugin.source import BatchTableReader, RecordReader

SEGMENTS, RECORDS = 4, 40
"""Number of segments of the first partition, and of records in each."""
LONGER, SHORTER = 23, 3
"""Bytes of a value in a change; values of the unchanged log have 8."""
INDEXES = (".index", ".timeindex")


def table(first: int, count: int, width: int = 8, mark: bytes = b"") -> pa.Table:
    offsets = range(first, first + count)
    values = [(mark + b"%d" % i).rjust(width, b"-")[-width:] for i in offsets]
    times = [1_700_000_000_000 + i for i in offsets]
    return pa.table({"key": [b"k%d" % (i % 7) for i in offsets], "value": values, "offset": offsets, "timestampMs": times})


def write(records: pa.Table, folder: Path) -> Path:
    (path,) = kolumn.write(records, folder, codec="none", batch_bytes=300, segment_bytes=1 << 30, index_interval_bytes=300)
    return Path(path)


def taken(made: Path, path: Path) -> None:
    """Copy the files of a segment that was made elsewhere to the folder and base name of another one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (*INDEXES, ".log"):
        shutil.copy(made.with_suffix(suffix), path.with_suffix(suffix))


def make_log(folder: Path, scratch: Path) -> Path:
    """A log directory: a partition of rolled segments and an active one, and another partition. All times are in the past."""
    for number in range(SEGMENTS):
        first = number * RECORDS
        taken(write(table(first, RECORDS), scratch / f"made-{number}" / "t-0"), folder / "t-0" / f"{first:020}.log")
    taken(write(table(0, RECORDS), scratch / "made-u" / "u-0"), folder / "u-0" / f"{0:020}.log")
    for path in folder.rglob("*"):
        os.utime(path, ns=(10**18, 10**18))
    return folder


def other(scratch: Path, first: int, count: int = RECORDS, width: int = 8, every: int = 1) -> Path:
    """A segment of other values, which replaces one of the log or is appended to it; or of every so many of the log's own records."""
    folder = scratch / f"{first}-{count}-{width}-{every}" / "t-0"
    rows = table(first, count, width, b"x" if every == 1 else b"").take(list(range(0, count, every)))
    return next(folder.glob("*.log"), None) or write(rows, folder)


Change = Callable[[Path, Path], list[Operation]]
"""The parts of a change, from the log directory and a folder for what is made for it."""
LAST, END = SEGMENTS - 1, SEGMENTS * RECORDS


def place(log: Path, number: int) -> Path:
    return log / "t-0" / f"{number * RECORDS:020}.log"


def _put(made: Path, path: Path) -> None:
    fresh = path.with_suffix(".restored")
    shutil.copy(made, fresh)
    os.replace(fresh, path)


def replaced(number: int, width: int) -> Change:
    return lambda log, scratch: [partial(_put, other(scratch, number * RECORDS, width=width), place(log, number))]


def rewritten(number: int, width: int) -> Change:
    return lambda log, scratch: [partial(place(log, number).write_bytes, other(scratch, number * RECORDS, width=width).read_bytes())]


def _cut(path: Path, batches: int | None) -> None:
    """Shorten a file to half of it, or to whole batches."""
    os.truncate(path, path.stat().st_size // 2 if batches is None else kolumn.batches(path)["position"][batches].as_py())


def _append(path: Path, made: Path, share: int = 1) -> None:
    """Append the batches of another segment, or the first bytes of them."""
    data = made.read_bytes()
    with path.open("ab") as file:
        file.write(data[: len(data) // share])


def _suffixed(path: Path, before: str, after: str) -> None:
    for suffix in (".log", *INDEXES):
        one = f"{path.with_suffix(suffix)}"
        os.rename(f"{one}{before}", f"{one}{after}")


def _removed(path: Path) -> None:
    for suffix in (".log", *INDEXES):
        path.with_suffix(suffix).unlink()


def new_leader(log: Path, scratch: Path) -> list[Operation]:
    """A follower truncates entries that the new leader does not have, and appends the leader's: in the end it has more bytes."""
    last = place(log, LAST)
    offset = kolumn.batches(last)["lastOffset"][1].as_py() + 1
    return [partial(_cut, last, 2), partial(_append, last, other(scratch, offset, 2 * RECORDS))]


def rolled(log: Path, scratch: Path) -> list[Operation]:
    new = place(log, 0).with_name(f"{END + RECORDS:020}.log")
    return [partial(_append, place(log, LAST), other(scratch, END)), new.touch, partial(_append, new, other(scratch, END + RECORDS))]


def _cleaned(made: Path, path: Path) -> None:
    for suffix in (".log", *INDEXES):
        shutil.copy(made.with_suffix(suffix), f"{path.with_suffix(suffix)}.cleaned")


def compacted(first: int, count: int) -> Change:
    """The cleaner replaces several segments by one, in the order of ``UnifiedLog.replaceSegments`` of Kafka."""

    def change(log: Path, scratch: Path) -> list[Operation]:
        # Keep every third record, as if it were the newest of its key.
        path, old = place(log, first), [place(log, number) for number in range(first, first + count)]
        made = other(scratch, first * RECORDS, count * RECORDS, every=3)
        return [
            partial(_cleaned, made, path),
            partial(_suffixed, path, ".cleaned", ".swap"),
            lambda: [_suffixed(one, "", ".deleted") for one in old],
            partial(_suffixed, path, ".swap", ""),
        ]

    return change


CHANGES: dict[str, Change] = {
    **{
        f"{how.__name__}-{size}-{number}": how(number, width)
        for how in (replaced, rewritten)
        for size, width in (("larger", LONGER), ("smaller", SHORTER), ("same-size", 8))
        for number in (1, LAST)
    },
    **{
        f"cut-{to}-{number}": lambda log, _, number=number, count=count: [partial(_cut, place(log, number), count)]
        for to, count in (("half", None), ("batches", 2))
        for number in (1, LAST)
    },
    # By hand, or as a broker does; retention deletes the first segment.
    **{f"deleted-{number}": lambda log, _, number=number: [partial(_removed, place(log, number))] for number in (0, 1, LAST)},
    **{f"renamed-{number}": lambda log, _, number=number: [partial(_suffixed, place(log, number), "", ".deleted")] for number in (0, 1)},
    "grown": lambda log, scratch: [partial(_append, place(log, LAST), other(scratch, END))],
    "grown-half": lambda log, scratch: [partial(_append, place(log, LAST), other(scratch, END), 2)],
    "new-leader": new_leader,
    "rolled": rolled,
    "compacted": compacted(1, 1),
    "compacted-two": compacted(1, 2),
    "topic-deleted": lambda log, _: [partial(os.rename, log / "t-0", log / f"t-0.{'0a' * 16}-delete")],
}


COLUMNS = ("topic", "partition", "offset", "value")
CHUNK = 700
"""Size of chunks and of tasks in bytes: a segment has several of each."""

Rows = list[Any]


@dataclass(frozen=True)
class Reader:
    name: str
    # ``(planned, log, folder)``: rows, in any order, from the result of ``plan``, the log directory and an empty folder
    read: Callable[[Any, Path, Path], Rows]
    # ``(before, log)``: the plan, from the result of ``before`` and the log directory
    plan: Callable[[Any, Path], Any] = lambda before, log: None
    # ``(log)``: facts of the unchanged log from an earlier time; it is not a step of the reader
    before: Callable[[Path], Any] = lambda log: None


def rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [tuple(row[name] for name in COLUMNS) for batch in batches for row in batch.to_pylist()]


def read(_: Any, log: Path, scratch: Path, **options: Any) -> Rows:
    return rows(kolumn.read(log, columns=COLUMNS, **options).to_batches())


def scan(_: Any, log: Path, scratch: Path, **options: Any) -> Rows:
    return rows(kolumn.scan(log, columns=COLUMNS, chunk_bytes=CHUNK, **options))


def batch_rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    """Rows without the path, which depends on the folder of the test."""
    return [(Path(row.pop("segment")).name, *row.values()) for batch in batches for row in batch.to_pylist()]


def verify(_: Any, log: Path, scratch: Path) -> Rows:
    report = kolumn.verify(log)
    return [(report.ok, report.segments, report.batches, report.records)]


def written(_: Any, log: Path, scratch: Path, by: Callable[..., object]) -> Rows:
    by(log, scratch / "to")
    return read(None, scratch / "to", scratch)


def spark_options(log: Path, **texts: str) -> LoadOptions:
    return LoadOptions.of({"path": str(log), "splitBytes": str(CHUNK)} | texts)


SCHEMA = spark_schema(record_schema(COLUMNS))


def record_reader(log: Path, **texts: str) -> RecordReader:
    return RecordReader(spark_options(log, **texts), SCHEMA)


def batch_reader(log: Path) -> BatchTableReader:
    return BatchTableReader(spark_options(log, table="batches"), spark_schema(BATCH_SCHEMA))


def sent(tasks: Any) -> Any:
    """Pickle tasks and load them again, as Spark does to send them to workers."""
    return pickle.loads(pickle.dumps(tasks))


def spark_plan(_: Any, log: Path, **texts: str) -> Any:
    return sent(record_reader(log, **texts).partitions())


def spark_read(splits: Any, log: Path, scratch: Path, **texts: str) -> Rows:
    return [row for split in splits for row in rows(record_reader(log, **texts).read(split))]


def batches_of(read: Callable[[Any], Iterable[pa.RecordBatch]], splits: Any) -> Iterable[pa.RecordBatch]:
    return (batch for split in splits for batch in read(split))


def stream(log: Path) -> RecordStream:
    return RecordStream(with_columns(spark_options(log, startingOffsets="earliest"), SCHEMA), SCHEMA)


def stream_ends(log: Path) -> Any:
    start = {"t": {"0": 0}, "u": {"0": 0}}
    return start, stream(log).latestOffset(start, None)


READERS = [
    Reader("read", partial(read, threads=1)),
    Reader("read-view", partial(read, threads=3, binary="view")),
    Reader("read-from-offset", partial(read, threads=1, start_offset=50, end_offset=150)),
    Reader("read-committed", partial(read, threads=1, isolation_level="read_committed")),
    Reader("scan-1", partial(scan, threads=1)),
    Reader("scan-3", partial(scan, threads=3)),
    Reader("scan-skip", partial(scan, threads=1, errors="skip")),
    Reader("history", lambda _, log, scratch: rows(kolumn.history(log, key="k3", include_values=True).to_batches())),
    Reader("latest", lambda _, log, scratch: rows(kolumn.latest(log, columns=COLUMNS, as_of_offset=70).to_batches())),
    Reader("batches", lambda _, log, scratch: batch_rows(kolumn.batches(log).to_batches())),
    Reader("verify", verify),
    Reader("space", lambda _, log, scratch: list(map(str, kolumn.space(log)))),
    Reader("convert", partial(written, by=partial(kolumn.convert, magic=1))),
    Reader("compact", partial(written, by=kolumn.compact)),
    # Keys and values as the schemas are made of; those of this log are none.
    Reader("schemas-topic", lambda _, log, scratch: [value for _, value, _ in records_of([str(log)], kolumn.Skipped())]),
    Reader("open-transactions", lambda _, log, scratch: kolumn.open_transactions(log, now=0).to_pylist()),
    Reader("audit", lambda _, log, scratch: kolumn.audit(log, now=0).findings.select(["kind", "firstOffset"]).to_pylist()),
    Reader("spark", spark_read, plan=spark_plan),
    Reader("spark-merge", partial(spark_read, replicas="merge"), plan=partial(spark_plan, replicas="merge")),
    Reader(
        "spark-batches",
        lambda splits, log, scratch: batch_rows(batches_of(batch_reader(log).read, splits)),
        plan=lambda _, log: sent(batch_reader(log).partitions()),
    ),
    Reader(
        "stream",
        lambda splits, log, scratch: rows(batches_of(stream(log).read, splits)),
        plan=lambda ends, log: sent(stream(log).partitions(*ends)),
        before=stream_ends,
    ),
    Reader("stream-ends", lambda _, log, scratch: [stream_ends(log)]),
]


def fresh(folder: Path) -> Path:
    """Create an empty folder, which replaces an existing one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


class Trials:
    """Runs of a reader over a log that is made again for each of them."""

    def __init__(self, reader: Reader, source: Path, scratch: Path) -> None:
        self.reader, self.source, self.scratch, self.log = reader, source, scratch, scratch / "log"

    def restart(self, change: str) -> list[Operation]:
        """Restore the original log; returns the parts of a change."""
        shutil.rmtree(self.log, ignore_errors=True)
        shutil.copytree(self.source, self.log)
        return CHANGES[change](self.log, self.source.parent / "others") if change else []

    def run(self, before: Any) -> Rows:
        return sorted(self.reader.read(self.reader.plan(before, self.log), self.log, fresh(self.scratch / "to")), key=repr)

    def states(self, change: str) -> list[Rows | None]:
        """Correct results after each part of a change; None if only an error is correct."""
        operations, states = self.restart(change), list[Rows | None]()
        before = self.reader.before(self.log)
        for operation in operations:
            operation()
            try:
                states.append(self.run(before))
            except kolumn.KolumnError:
                states.append(None)
        return states

    def changed(self, change: str = "", at: int = 0, apart: bool = False) -> tuple[Looks, Rows | kolumn.KolumnError]:
        """Run the reader, and make a change at one of its steps."""
        operations = self.restart(change)
        before, looks = self.reader.before(self.log), Looks(self.log, at, operations, apart)
        with pytest.MonkeyPatch.context() as patch:
            looks.install(patch)
            try:
                return looks, self.run(before)
            except kolumn.KolumnError as error:
                return looks, error

    def check(self, states: list[Rows | None], change: str, at: int, apart: bool) -> bool:
        """Check the result of such a run; returns whether it has rows."""
        looks, found = self.changed(change, at, apart)
        where = f"{self.reader.name}, {change} at step {at}: {looks.steps[at - 1] if at <= len(looks.steps) else 'none'}"
        if isinstance(found, kolumn.KolumnError):
            # The error of a stream for a deleted partition names no file.
            assert str(self.log) in str(found) or "t-0: " in str(found), f"{where}: names no file: {found}"
            return False
        known = len(states) - 1 if looks.planned is None else looks.planned
        right = [state for state in states[: known + 1] if state is not None]
        assert any(found == state for state in right), f"{where}: {len(found)} rows, expected one of {[len(one) for one in right]}"
        return True


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reads")
    return make_log(folder / "source", folder / "made")


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_changed_at_a_step(source: Path, tmp_path: Path, reader: Reader) -> None:
    trials, counts, left = Trials(reader, source, tmp_path), Counter[bool](), list[tuple[list[Rows | None], str, int, bool]]()
    looks, unchanged = trials.changed()
    assert isinstance(unchanged, list), unchanged
    trials.restart("")
    assert trials.run(reader.before(trials.log)) == unchanged
    # If few steps are tried, each reader tries half of the changes.
    for change in list(CHANGES)[READERS.index(reader) % 2 :: 2] if STEPS == "few" else CHANGES:
        states = [unchanged, *trials.states(change)]
        steps = list(range(1, len(looks.steps) + 1))
        # Others for each reader and change.
        random.Random(f"{reader.name} {change}").shuffle(steps)
        some = tried(steps, 2)
        for apart in (False, True)[: min(2, len(states) - 1)]:
            counts.update(trials.check(states, change, at, apart) for at in some)
            left += [(states, change, at, apart) for at in steps if at not in some]
    # Both results must occur: a test in which all runs succeed, or all fail, would prove nothing. If few steps miss one, others are tried.
    random.Random(reader.name).shuffle(left)
    while STEPS == "few" and left and len(counts) < 2:
        counts[trials.check(*left.pop())] += 1
    assert min(counts[True], counts[False]) > (0 if STEPS == "few" else len(CHANGES) // 8)


MANY = 120


class Torn:
    """A listing of a folder in two system calls: names up to the middle are read, then the folder changes, then the others are read."""

    def __init__(self, path: str, happens: list[Callable[[], None]], scandir: Callable[[str], Any]) -> None:
        self._path, self._happens, self._scandir = path, happens, scandir

    def __enter__(self) -> Iterator[Any]:
        early = sorted(self._scandir(self._path), key=lambda one: one.name)
        middle = early[len(early) // 2].name
        for happens in self._happens[:1]:
            happens()
            self._happens.pop(0)
        late = sorted(self._scandir(self._path), key=lambda one: one.name)
        return iter([one for one in early if one.name < middle] + [one for one in late if one.name >= middle])

    def __exit__(self, *error: object) -> None:
        pass


def many(folder: Path) -> Path:
    made = write(table(0, 1), folder.parent / "made" / "t-0").read_bytes()
    folder.mkdir(parents=True)
    for number in range(MANY):
        (folder / f"{number:020}.log").write_bytes(made)
    return folder


@pytest.mark.parametrize("old", [True, False], ids=["old", "in-the-same-tick"])
def test_a_name_changes_while_a_large_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    """The file gets a name that the listing has passed already. The folder's time may not show it, because it changes in ticks."""
    folder = many(tmp_path / "t-0")
    swap = folder / f"{1:020}.log.swap"
    swap.write_bytes((folder / f"{0:020}.log").read_bytes())
    # The file is late among the names first, and early after it is renamed.
    swap = swap.rename(folder / "zzz")
    scandir, stat = os.scandir, os.stat
    times = stat(folder).st_mtime_ns if not old else 10**18

    def renamed() -> None:
        swap.rename(folder / f"{0:019}a.log")
        if not old:
            os.utime(folder, ns=(times, times))

    os.utime(folder, ns=(times, times))
    happens = [renamed]
    monkeypatch.setattr(os, "scandir", lambda path: Torn(path, happens, scandir))
    found = [one.path for one in find_segments(folder)]
    assert (happens, len(found)) == ([], MANY + 1)


def test_a_large_folder_that_never_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = many(tmp_path / "t-0")
    numbers = iter(range(1000))
    happens = [(lambda: (folder / f"new-{next(numbers)}").touch())] * 1000
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: Torn(path, happens, scandir))
    raises(kolumn.KolumnError, rf"{folder}: cannot be listed: files in it got other names each of \d+ times", find_segments, folder)
