"""Kolumn against the independent reader, mutant by mutant. ``python -m kit.differential SEED`` in ``tests`` replays one."""

import faulthandler
import random
import resource
import zlib
from collections.abc import Callable
from functools import cache
from itertools import groupby, pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import pyarrow as pa

import kolumn
from kit import oracle
from kit.corpus import small_segments
from kit.fuzz import replay
from kit.guarded import guard_columns
from kit.mutate import Mutant, make_segment, mutate
from kit.paths import GENERAL, without
from kolumn.core.errors import Code
from kolumn.core.keywords import Format

COLUMNS = list(oracle.Row._fields)
HEADLESS = [name for name in COLUMNS if name != "headers"]
OPTIONS: list[dict[str, Any]] = [{}, {"binary": "view"}, {"chunk_bytes": 100}, {"chunk_bytes": 1000}, {"memory_bytes": 300}]
SECONDS_EACH = 30
MEMORY = 1 << 30
"""Resident memory that a process may reach, in bytes: segments have some kilobytes."""
ADDRESS_SPACE = 16 << 30


def rows_of(table: pa.Table) -> list[oracle.Row]:
    """Rows of a table with `COLUMNS`."""
    columns = [table[name].to_pylist() for name in COLUMNS]
    at = COLUMNS.index("headers")
    columns[at] = [tuple((header["key"], header["value"]) for header in headers) for headers in columns[at]]
    return list(map(oracle.Row._make, zip(*columns, strict=True)))


def read(path: Path, both: bool = True, **options: Any) -> list[oracle.Row]:
    """Every row and column as Kolumn reads them; with ``both``, the general path and the loops without headers have to give the same."""
    whole = _outcome(path, COLUMNS, options)
    if both:
        with without(GENERAL):
            expect_same(whole, _outcome(path, COLUMNS, options), f"{options}: general path")
        expect_same(whole, _outcome(path, HEADLESS, options), f"{options}: without headers")
    if isinstance(whole, kolumn.CorruptBatchError):
        raise whole
    return rows_of(whole)


def expect_same(whole: Any, other: Any, text: str) -> None:
    """Raise an AssertionError unless another way to read gave the same error, or the same columns."""
    if isinstance(whole, kolumn.CorruptBatchError):
        same = isinstance(other, kolumn.CorruptBatchError) and str(other) == str(whole)
    else:
        same = isinstance(other, pa.Table) and whole.select(other.column_names).equals(other)
    expect(same, f"{text}: {other}, expected {whole}")


def _outcome(path: Path, columns: list[str], options: dict[str, Any]) -> Any:
    try:
        table = kolumn.read(path, columns=columns, include_control=True, threads=1, **options)
    except kolumn.CorruptBatchError as error:
        return error
    table.validate(full=True)
    return table


def make(seed: int) -> tuple[list[bytes], Mutant]:
    """Original entries and the mutant of a seed."""
    rng = random.Random(seed)
    entries = rng.choice(small_segments()) if rng.random() < 0.2 else make_segment(rng)
    return entries, mutate(rng, entries)


def expect(condition: bool, text: str) -> None:
    """Raise an AssertionError with a text, and nothing else, unless the condition holds."""
    if not condition:
        raise AssertionError(text)


class Judge(NamedTuple):
    """How mutants of a format are read, by Kolumn and by a plain reader. ``plain`` has the functions of `kit.oracle`."""

    format: Format
    plain: Any
    read: Callable[..., list[oracle.Row]]
    is_foreign: Callable[[oracle.Segment], bool]  # whether a file of which the plain reader reads nothing may be called no segment
    claimed: Callable[[bytes, int], bytes]  # the entry at a position, by its length
    fits_shorter: Callable[[bytes], bool]
    intact_after: Callable[[bytes, int], bool]


def compare(seed: int, path: Path) -> None:
    """All modes of reading one mutant of Kafka's formats."""
    judged(KAFKA, *make(seed), seed, path)


def judged(judge: Judge, entries: list[bytes], mutant: Mutant, seed: int, path: Path) -> None:
    """All modes of reading one mutant, one of them by both paths."""
    path.write_bytes(mutant.data)
    rng = random.Random(seed + 1)
    options = rng.choices(OPTIONS, (6, 6, 2, 2, 1))[0]
    both = rng.randrange(3)
    for check_crcs in (True, False):
        strict(judge, path, both == check_crcs, mutant, judge.plain.read(mutant.data, check_crcs), check_crcs=check_crcs, **options)
    skipping(judge, path, both == 2, mutant, entries, **options)


def strict(judge: Judge, path: Path, both: bool, mutant: Mutant, expected: oracle.Segment, **options: Any) -> None:
    """``errors="raise"``: the same rows, or an error at the same position."""
    try:
        found = judge.read(path, both, **options)
    except kolumn.CorruptBatchError as error:
        if error.position == expected.first_error:
            return
        if error.code == Code.NOT_A_SEGMENT and judge.is_foreign(expected):
            # Java takes a file of which it reads nothing for a log that was cut.
            return
        lost = expected.stop == "truncated" and expected.first_error is None and error.position == expected.position
        # An intact entry may begin in the last bytes of the one before: what is gone there equals the zeros of its offset.
        beyond = judge.fits_shorter(mutant.data[error.position :]) or judge.intact_after(mutant.data, max(error.position - 8, -1))
        expect(lost and beyond, f"{options}: error where the plain reader has none: {error}")
        return
    expect(expected.first_error is None, f"{options}: no error; the plain reader has one at {expected.first_error}: {_error(expected)}")
    expect(found == expected.rows(), f"{options}: rows differ: {first_difference(found, expected.rows())}")
    if mutant.ordered and options["check_crcs"] and increasing(expected.rows()):
        after = [at for at, _ in mutant.untouched if at > expected.position]
        # One entry alone may as well lie inside the value of a record of the last one, which was cut.
        expect(len(after) < 2, f"{options}: intact entries at {after} are lost in silence after {expected.position}")


def _error(segment: oracle.Segment) -> str:
    return next((entry.error for entry in segment.entries if entry.error), segment.stop)


def fits_shorter(entry: bytes) -> bool:
    """Whether the entry is intact but for its length: its checksum is right for some end within the file."""
    magic, stored = entry[16], entry[17:21] if entry[16] == 2 else entry[12:16]
    checksum, start = (crc32c.crc32c, 21) if magic == 2 else (zlib.crc32, 16)
    register = checksum(entry[start : start + 10])
    for at in range(start + 10, len(entry) + 1):
        if register.to_bytes(4, "big") == stored:
            return True
        register = checksum(entry[at : at + 1], register)
    return False


def intact_after(data: bytes, position: int) -> bool:
    """Whether an intact entry begins after ``position``."""
    for at in range(position + 1, len(data) - 17):
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if 14 <= size <= len(data) - at - 12 and oracle.read_entry(data[at : at + 12 + size], at).error is None:
            return True
    return False


def increasing(rows: list[oracle.Row]) -> bool:
    """Whether offsets increase: where they don't, what fits after damage can't be told by offsets."""
    return all(one.offset < other.offset for one, other in pairwise(rows))


def skipping(judge: Judge, path: Path, both: bool, mutant: Mutant, entries: list[bytes], **options: Any) -> None:
    """``errors="skip"``: all rows of all intact entries, of damaged ones the rows that are sound, and no others; other functions agree."""
    expected = judge.plain.read(mutant.data)
    found = judge.read(path, both, errors="skip", **options)
    by_position = {at: list(rows) for at, rows in groupby(found, key=lambda row: row.position)}
    expect(list(by_position) == sorted(by_position), "skip: order")
    for entry in expected.entries:
        if rows := judge.plain.sound_rows(mutant.data[entry.position : entry.position + entry.size], entry.position):
            lost = "intact entry at {} is lost or differs" if entry.error is None else "sound records at {} are not what is read"
            expect(by_position.get(entry.position) == rows, "skip: " + lost.format(entry.position))
    if mutant.ordered and increasing(found):
        after = sum(at > expected.position for at, _ in mutant.untouched)
        for at, index in mutant.untouched:
            if skipped_whole(expected, at) or (expected.stop == "truncated" and after < 2 and at > expected.position):
                continue
            rows = judge.plain.read_entry(entries[index], at).rows
            expect(by_position.get(at, []) == rows, f"skip: untouched entry at {at} is lost or differs")
    for at, rows in by_position.items():
        expect(judge.plain.sound_rows(judge.claimed(mutant.data, at), at) == rows, f"skip: rows from a damaged entry at {at}")
    asked = {name: one for name, one in options.items() if name != "binary"}
    listed = kolumn.batches(path, format=judge.format, errors="skip", **asked)
    missing = set(by_position) - set(listed.filter(listed["crcValid"])["position"].to_pylist())
    expect(not missing, f"batches: the entries at {missing} are read and not listed")
    report = kolumn.verify(path, format=judge.format, threads=1)
    expect(report.records == len(found), f"verify: {report.records} records, {len(found)} read")
    expect(report.ok or expected.first_error is not None or expected.stop == "truncated", f"verify: {report.damage.to_pylist()}")
    stops = f"the plain reader stops at {expected.first_error}: {_error(expected)}"
    expect(not report.ok or expected.first_error is None, f"verify: ok, but {stops}")


def skipped_whole(segment: oracle.Segment, position: int) -> bool:
    """Whether the position lies inside an entry that is intact, or whose length leads on: what is inside is never looked at."""
    for entry, following in zip_longest(segment.entries, segment.entries[1:]):
        if entry.position < position < entry.position + entry.size:
            if entry.error is None:
                # The deletion took bytes that equal the ones after them: an intact entry ends in this one.
                return True
            return following.error is None if following else segment.stop in ("end", "zeros")
    return False


def _claimed(data: bytes, at: int) -> bytes:
    return data[at : at + 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)]


KAFKA = Judge("kafka", oracle, read, lambda segment: not segment.entries, _claimed, fits_shorter, intact_after)


def first_difference(found: list[oracle.Row], expected: list[oracle.Row]) -> str:
    """The first row and column that differ."""
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        for name in COLUMNS:
            if getattr(one, name) != getattr(other, name):
                return f"row {index}, {name}: {getattr(one, name)!r}, expected {getattr(other, name)!r}"
    return f"{len(found)} rows, expected {len(expected)}"


def peak_memory() -> int:
    """Most resident memory that this process had, in bytes. (``getrusage`` would count that of the process it was started from.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@cache
def _bounded() -> None:
    """Let a process of its own end where a loop writes past its columns, or takes more memory than there can be any need for."""
    guard_columns()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def compare_bounded(seed: int, folder: Path) -> None:
    """Compare a mutant in bounded time and memory; the process dies with a stack trace where it takes too long."""
    _bounded()
    faulthandler.dump_traceback_later(SECONDS_EACH, exit=True)
    try:
        compare(seed, folder / "0.log")
        peak = peak_memory()
        expect(peak <= MEMORY, f"{peak >> 20} MiB of resident memory")
    except AssertionError as error:
        raise AssertionError(f"{make(seed)[1].kind}: {error}") from None
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    replay(compare_bounded)
