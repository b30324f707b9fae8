"""Changes that brokers and operators make to a log directory. A change has several parts, and after each part the directory is a log.

A new change needs a row here, and is then tried on every reader, at every step.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

import kolumn
from kit.looks import Operation

SEGMENTS, RECORDS = 4, 40
"""Number of segments of the first partition, and of records in each."""
LONGER, SHORTER = 23, 3
"""Bytes of a value in a change; values of the unchanged log have 8."""
INDEXES = (".index", ".timeindex")


def table(first: int, count: int, width: int = 8, mark: bytes = b"") -> pa.Table:
    """Records with repeating keys, and values of one length."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "key": [b"k%d" % (i % 7) for i in numbers],
            "value": [(mark + b"%d" % i).rjust(width, b"-")[-width:] for i in numbers],
            "offset": pa.array(numbers, pa.int64()),
            "timestampMs": pa.array([1_700_000_000_000 + i for i in numbers], pa.int64()),
        }
    )


def write(records: pa.Table, folder: Path) -> Path:
    """One segment with its indexes."""
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


class Others:
    """Segments that replace those of the log, and batches that are appended to it; each is made once."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.made: dict[tuple[int, int, int, bytes], Path] = {}

    def of(self, first: int, count: int = RECORDS, width: int = 8, mark: bytes = b"x") -> Path:
        """A segment with these records."""
        key = first, count, width, mark
        if key not in self.made:
            self.made[key] = write(table(*key), self.scratch / str(len(self.made)) / "t-0")
        return self.made[key]

    def batches(self, first: int, count: int) -> bytes:
        """Bytes of batches that a broker appends."""
        return self.of(first, count).read_bytes()


Change = Callable[[Path, Others], Iterator[Operation]]


def place(log: Path, number: int) -> Path:
    """Path of a segment of the first partition."""
    return log / "t-0" / f"{number * RECORDS:020}.log"


def _put(other: Path, path: Path) -> None:
    fresh = path.with_suffix(".restored")
    shutil.copy(other, fresh)
    os.replace(fresh, path)


def replaced(number: int, width: int) -> Change:
    """Put another file under the name, like a restored backup."""

    def change(log: Path, others: Others) -> Iterator[Operation]:
        yield partial(_put, others.of(number * RECORDS, width=width), place(log, number))

    return change


def rewritten(number: int, width: int) -> Change:
    """Write other contents to the same inode, like `cp`."""

    def change(log: Path, others: Others) -> Iterator[Operation]:
        yield partial(place(log, number).write_bytes, others.of(number * RECORDS, width=width).read_bytes())

    return change


def _cut(path: Path, batches: int | None) -> None:
    """Shorten a file to half of it, or to whole batches."""
    os.truncate(path, path.stat().st_size // 2 if batches is None else kolumn.batches(path)["position"][batches].as_py())


def cut(number: int, batches: int | None) -> Change:
    def change(log: Path, _: Others) -> Iterator[Operation]:
        yield partial(_cut, place(log, number), batches)

    return change


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _deleted(path: Path, rename: bool) -> None:
    for suffix in (".log", *INDEXES):
        one = path.with_suffix(suffix)
        if rename:
            os.rename(one, f"{one}.deleted")
        else:
            os.unlink(one)


def deleted(number: int, rename: bool) -> Change:
    """Delete a segment by hand, or like a broker, which renames it first; retention deletes the first segment."""

    def change(log: Path, _: Others) -> Iterator[Operation]:
        yield partial(_deleted, place(log, number), rename)

    return change


LAST = SEGMENTS - 1
END = SEGMENTS * RECORDS


def grown(whole: bool) -> Change:
    """Append whole batches to the active segment, or a batch and a half."""

    def change(log: Path, others: Others) -> Iterator[Operation]:
        data = others.batches(END, RECORDS)
        yield partial(_append, place(log, LAST), data if whole else data[: len(data) // 2])

    return change


def new_leader(log: Path, others: Others) -> Iterator[Operation]:
    """A follower truncates entries that the new leader does not have, and appends the leader's: in the end it has more bytes."""
    yield partial(_cut, place(log, LAST), 2)
    offset = kolumn.batches(place(log, LAST))["lastOffset"][1].as_py() + 1
    yield partial(_append, place(log, LAST), others.batches(offset, 2 * RECORDS))


def rolled(log: Path, others: Others) -> Iterator[Operation]:
    """A broker appends, and rolls a new segment."""
    yield partial(_append, place(log, LAST), others.batches(END, RECORDS))
    new = place(log, 0).with_name(f"{END + RECORDS:020}.log")
    yield new.touch
    yield partial(_append, new, others.batches(END + RECORDS, RECORDS))


def _suffixed(path: Path, before: str, after: str) -> None:
    for suffix in (".log", *INDEXES):
        one = f"{path.with_suffix(suffix)}"
        os.rename(f"{one}{before}", f"{one}{after}")


def _cleaned(made: Path, path: Path) -> None:
    for suffix in (".log", *INDEXES):
        shutil.copy(made.with_suffix(suffix), f"{path.with_suffix(suffix)}.cleaned")


def compacted(first: int, count: int) -> Change:
    """The cleaner replaces several segments by one, in the order of ``UnifiedLog.replaceSegments`` of Kafka."""

    def change(log: Path, others: Others) -> Iterator[Operation]:
        # Keep every third record, as if it were the newest of its key.
        path, old = place(log, first), [place(log, number) for number in range(first, first + count)]
        kept = table(first * RECORDS, count * RECORDS).take(list(range(0, count * RECORDS, 3)))
        others.scratch.mkdir(exist_ok=True)
        folder = others.scratch / f"cleaned-{first}-{count}" / "t-0"
        made = next(folder.glob("*.log"), None) or write(kept, folder)
        yield partial(_cleaned, made, path)
        yield partial(_suffixed, path, ".cleaned", ".swap")
        yield lambda: [_deleted(one, rename=True) for one in old]
        yield partial(_suffixed, path, ".swap", "")

    return change


def topic_deleted(log: Path, _: Others) -> Iterator[Operation]:
    yield partial(os.rename, log / "t-0", log / f"t-0.{'0a' * 16}-delete")


CHANGES: dict[str, Change] = {
    **{
        f"{how.__name__}-{size}-{number}": how(number, width)
        for how in (replaced, rewritten)
        for size, width in (("larger", LONGER), ("smaller", SHORTER), ("same-size", 8))
        for number in (1, LAST)
    },
    **{f"cut-{where}-{number}": cut(number, batches) for where, batches in (("half", None), ("batches", 2)) for number in (1, LAST)},
    **{f"deleted-{number}": deleted(number, rename=False) for number in (0, 1, LAST)},
    **{f"renamed-{number}": deleted(number, rename=True) for number in (0, 1)},
    "grown": grown(whole=True),
    "grown-half": grown(whole=False),
    "new-leader": new_leader,
    "rolled": rolled,
    "compacted": compacted(1, 1),
    "compacted-two": compacted(1, 2),
    "topic-deleted": topic_deleted,
}
