"""Copies of a partition whose leaders changed, with damage, merged by the reference and by Kolumn.

``python -m kit.elections SEED`` in ``tests`` compares those of one seed.
"""

import logging
import random
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import kolumn
from kit import oracle
from kit.broken_disks import Entry, History, batched_anew, compacted, damaged, mix, not_truncated, rolled, written_twice
from kit.fuzz import replay
from kit.merge_reference import NO_COPIES, File, Merged, all_strands, contents, merged, same

COLUMNS = ["offset", "key", "value", "timestampMs"]
SECONDS = 2
"""A read or a recovery of these small logs that takes longer goes in circles."""
SMALLEST = 26
"""Bytes of a message of format 0 without key and value."""
TOPIC_IDS = ("AAAAAAAAQACAAAAAAAAAAA", "AAAAAAAAQACAAAAAAAAAAQ")
Row = tuple[int, bytes | None, bytes | None, int]


@dataclass
class Case:
    """Folders on disk, the final leader's log, and what was done."""

    copies: list[list[File]] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    # Leader epoch -> the log of its leader at that epoch's end, offset -> (key, value, timestamp). The newest epoch of which anything is
    # intact says which of them is the truth: nothing on the disks can tell more
    logs: dict[int, dict[int, tuple[bytes | None, bytes | None, int]]] = field(default_factory=dict)
    traits: list[str] = field(default_factory=list)


def make(seed: int, folder: Path, calm: bool = False) -> Case:
    """Write the case of a seed. A calm one has the logs as brokers wrote them, in format 2, and damage inside of payloads alone."""
    rng, case = random.Random(seed), Case()
    history = History(rng, case.traits, calm)
    history.run()
    for epoch, log in history.ends.items():
        case.logs[epoch] = {one.offset: (one.key, one.value, one.timestamp) for entry in log for one in entry.records}
    brokers = rng.sample(range(len(history.logs)), min(len(history.logs), rng.choice((2, 2, 3))))
    if history.leader not in brokers and rng.random() < 0.8:
        brokers[rng.randrange(len(brokers))] = history.leader
    if rng.random() < 0.06:
        brokers = [history.leader]
    case.traits.append(f"copies of {brokers}, leader {history.leader}")
    disks = [history.logs[broker] for broker in brokers]
    if not calm:
        disks = [_changed(rng, log, history, f"b{number}", case.traits) for number, log in enumerate(disks)]
    segments = [rolled(rng, log, history.first, calm) for log in disks]
    if not calm and rng.random() < 0.12:
        mix(rng, segments, history, case.traits)
    often, ids = rng.choice((0, 0.3, 0.3, 0.6)), () if rng.random() < 0.95 else TOPIC_IDS[: rng.choice((1, 2))]
    for number, own in enumerate(segments):
        place = folder / f"b{number}" / "t-0"
        place.mkdir(parents=True)
        case.folders.append(place)
        if ids:
            case.traits.append(f"b{number}: topic id {ids[number % len(ids)]}")
            (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {ids[number % len(ids)]}")
        files = []
        for base, entries in sorted(own.items()):
            data, kind = b"".join(entry.data for entry in entries), ""
            if rng.random() < often and data:
                data, kind = damaged(rng, entries, calm)
                case.traits.append(f"b{number}/{base}: {kind}")
            path = place / f"{base:020}.log"
            if rng.random() < 0.08:
                path.with_suffix(".index").write_bytes(_index(base, entries))
            if kind != "removed":
                path.write_bytes(data)
                files.append(File(base, path, _intact(path, entries)))
        case.copies.append(files)
    return case


def _changed(rng: random.Random, log: list[Entry], history: History, name: str, traits: list[str]) -> list[Entry]:
    for chance, change in ((0.12, compacted), (0.12, batched_anew), (0.1, written_twice), (0.06, not_truncated)):
        if log and rng.random() < chance:
            log = change(rng, log, history)
            traits.append(f"{name}: {change.__name__}")
    return log


def _index(base: int, entries: list[Entry]) -> bytes:
    """An offset index with each entry but the first."""
    places = accumulate(len(entry.data) for entry in entries)
    return b"".join(struct.pack(">ii", entry.last - base, at) for entry, at in zip(entries[1:], places, strict=False))


def _intact(path: Path, entries: list[Entry]) -> tuple[int, ...]:
    """Where entries stand whole. What follows one that nothing precedes and nothing follows is cut off: it could as well be a value's."""
    data, found, at = path.read_bytes(), [], 0
    for entry in entries:
        if data[at : at + len(entry.data)] == entry.data:
            found.append(at)
        at += len(entry.data)
    ends = {one: one + 12 + int.from_bytes(data[one + 8 : one + 12], "big") for one in found}
    if found and found[-1] and found[-1] not in ends.values() and any(data[ends[found[-1]] :]):
        path.write_bytes(data[: ends[found[-1]]])
    return tuple(found)


def differences(case: Case, target: Path) -> Iterator[str]:
    """What Kolumn's merge and `kolumn.recover` make of a case otherwise than the reference."""
    expected = merged(case.copies)
    folders = [folder for folder, files in zip(case.folders, case.copies, strict=True) if files]
    if not folders or is_doubtful(case):
        return
    start = time.process_time()
    try:
        found = rows_of(folders, replicas="merge")
    except kolumn.ArgumentError as error:
        if expected != NO_COPIES:
            yield f"read: {error}"
    else:
        # One folder is no merge: it is read as it is.
        yield from _of_rows(found, expected) if len(folders) > 1 else ()
    middle = time.process_time()
    try:
        done = kolumn.recover(folders, target)
    except kolumn.ArgumentError as error:
        if expected != NO_COPIES:
            yield f"recover: {error}"
    else:
        yield from _of_recovery(done, target, expected)
    for what, seconds in (("read", middle - start), ("recover", time.process_time() - middle)):
        if seconds > SECONDS:
            yield f"{what}: {seconds:.1f} s"


def is_doubtful(case: Case) -> bool:
    """Whether offsets or leader epochs go back where a damaged base offset or epoch would look the same: no checksum covers them.

    They are no damaged ones where entries on both sides of the break adjoin others, or come twice, and have an epoch that others have.
    A case is doubtful too if the offset alone of an entry of format 0 or 1 is damaged.
    """
    if any(looks_intact(gap.data) for files in case.copies for gap in contents(files)[1]):
        return True
    strands = all_strands(case.copies)
    for strand, after in pairwise(strands):
        sides = (strand, strand.entries[-1].epoch), (after, after.entries[0].epoch)
        if strand.copy == after.copy and any(epoch >= 0 and sum(e.epoch == epoch for e in one.entries) < 2 for one, epoch in sides):
            return True
    nothing: Any = (None, None)
    for copy, files in enumerate(case.copies):
        for i in range(len(files)):
            own = [(strand, one) for strand in strands if strand.copy == copy for one in strand.entries if one.file == i]
            if len({id(strand) for strand, _ in own}) < 2:
                continue
            if any(gap.file == i and gap.headers() is None for gap in contents(files)[1]):
                # Where the chain of entries is broken too, a reader takes up those that come again, or those before them.
                return True
            for (before, one), (here, two), (after, three) in zip([nothing, *own], own, [*own[1:], nothing], strict=False):
                leads = after is here and three is not None and two.last + 1 == three.base
                follows = before is here and one is not None and one.last + 1 == two.base
                if (
                    not leads
                    and not follows
                    and sum((two.base, two.last) == (one.base, one.last) and all(map(same, two.rows, one.rows)) for _, one in own) < 2
                ):
                    return True
    return False


def looks_intact(data: bytes) -> bool:
    """Whether lengths lead through damaged bytes to an entry of format 0 or 1 with a right checksum."""
    at = 0
    while len(data) - at >= SMALLEST:
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if not at + SMALLEST <= end <= len(data):
            return False
        if data[at + 16] < 2 and oracle.read_entry(data[at:end], at).error is None:
            return True
        at = end
    return False


def rows_of(source: object, **options: object) -> list[Row]:
    """What Kolumn reads, control records too."""
    table = kolumn.read(source, columns=COLUMNS, include_control=True, errors="skip", threads=1, **options)
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def _of_rows(found: list[Row], expected: Merged | str) -> Iterator[str]:
    if isinstance(expected, str):
        yield f"read: {len(found)} rows, expected: {expected}"
        return
    offsets = [row[0] for row in found]
    if offsets != sorted(set(offsets)):
        yield "read: offsets do not grow"
    rows = {row[0]: row for row in found}
    wrong = [at for at, row in rows.items() if at in expected.rows and row not in _accepted(expected, at)]
    lost, more = sorted(expected.rows.keys() - rows.keys()), sorted(rows.keys() - expected.rows.keys())
    for text, some in (("other rows", wrong), ("lost", lost), ("that do not belong", more)):
        if some:
            yield f"read: {text} at {some}"


def _accepted(expected: Merged, offset: int) -> list[Row]:
    return [(row.offset, row.key, row.value, row.timestampMs) for row in expected.rows[offset]]


def _of_recovery(done: kolumn.Recovery, target: Path, expected: Merged | str) -> Iterator[str]:
    if isinstance(expected, str):
        yield f"recover: a log, expected: {expected}"
        return
    written = rows_of(target)
    told = sum(row["recordsLost"] or 0 for row in done.lost.to_pylist() if row["kind"] in ("superseded", "cut"))
    strange = [row[0] for row in written if row[0] not in expected.rows or row not in _accepted(expected, row[0])]
    if strange:
        yield f"recover: rows that do not belong at {strange}"
    left: list[oracle.Row] = []
    for _, row in expected.superseded:
        if not any(row.offset == other.offset and same(row, other) for other in left):
            left.append(row)
    shown = len(expected.rows) + len(left)
    if len(written) + told != shown:
        yield f"recover: {len(written)} rows and {told} in the report, intact are {shown}"


def compare(seed: int, folder: Path) -> None:
    """Merge and recover the copies of a seed."""
    # A line for each divergence.
    logging.getLogger("kolumn.replicas").setLevel(logging.ERROR)
    case = make(seed, folder / "disks")
    found = list(differences(case, folder / "recovered"))
    assert not found, f"{'; '.join(found)} ({'; '.join(case.traits)})"


if __name__ == "__main__":
    replay(compare)
