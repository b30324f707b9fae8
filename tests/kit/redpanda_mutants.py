"""Damaged segments of Redpanda against the plain reader of `kit.redpanda`. ``python -m kit.redpanda_mutants SEED`` replays one."""

import faulthandler
import random
import struct
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa

import kolumn
from kit import oracle, redpanda
from kit.corpus import small_segments
from kit.differential import OPTIONS, SECONDS_EACH, expect, expect_same, first_difference, increasing, rows_of
from kit.encoder import Record, batch, with_crc
from kit.fuzz import replay
from kit.mutate import ANYWHERE, HOSTILE, INSIDE, Mutant, anywhere, make_entry, make_records
from kit.paths import GENERAL, without
from kolumn.core.errors import Code

COLUMNS = ["rawOffset", *oracle.Row._fields[1:]]
HEADLESS = [name for name in COLUMNS if name != "headers"]
FIELDS = ((0, "<I"), (4, "<i"), (8, "<q"), (16, "<b"), (17, "<I"), (21, "<h"), (23, "<i"), (27, "<q"), (35, "<q"), (43, "<q"),
          (51, "<h"), (53, "<i"), (57, "<i"))  # fmt: skip
"""Positions and types of a header's fields."""
OWN = (3, 9, redpanda.TX_FENCE, redpanda.CONFIGURATION, redpanda.GHOST, redpanda.PLACEHOLDER, redpanda.ELSEWHERE, 100, -56)


def make(seed: int) -> tuple[list[bytes], Mutant]:
    """Original batches and the mutant of a seed."""
    rng = random.Random(seed)
    some = [entry for entry in rng.choice(small_segments()) if entry[16] == 2] if rng.random() < 0.2 else []
    kafkas = some if len(some) > 1 else list(_batches(rng))
    entries = [redpanda.of_kafka(entry, kind=rng.choice(OWN) if rng.random() < 0.1 else redpanda.DATA) for entry in kafkas]
    name = rng.choice([*ANYWHERE, "rearrange", "header", "header", "header", "zeros", "inside", "inside", "inside", "inside"])
    if name == "zeros":
        return entries, _with_zeros(rng, entries)
    if name in ("header", "inside"):
        index = rng.randrange(len(entries))
        damaged = _header(rng, entries[index]) if name == "header" else _inside(rng, kafkas[index])
        return entries, _found([*entries[:index], damaged, *entries[index + 1 :]], entries, name)
    return entries, anywhere(rng, entries, name)


def _batches(rng: random.Random) -> list[bytes]:
    """A few batches whose offsets increase; a value may hold whole batches."""
    offset, found = rng.choice((0, 1, 100, 1 << 33)), list[bytes]()
    for _ in range(rng.randint(2, 6)):
        records = make_records(rng, offset, rng.randint(1, 6))
        if rng.random() < 0.1:
            inner = batch([Record(rng.choice((0, offset, offset + 1)), b"k", b"v", 1)])
            records[0] = Record(offset, b"whole", inner if rng.random() < 0.3 else redpanda.of_kafka(inner), 5)
        entry = make_entry(rng, records)
        found.append(entry if entry[16] == 2 else batch(records))
        offset = records[-1].offset + rng.choice((1, 1, 1, 5))
    return found


def _found(pieces: list[bytes], entries: list[bytes], kind: str) -> Mutant:
    data = b"".join(pieces)
    places = [(data.find(entry), index) for index, entry in enumerate(entries)]
    return Mutant(data, kind, tuple(sorted(place for place in places if place[0] >= 0)))


def _with_zeros(rng: random.Random, entries: list[bytes]) -> Mutant:
    """Zeros between batches or after them, as allocation in advance and lost writes leave them; or instead of some bytes."""
    zeros, at = bytes(rng.choice((1, 30, 60, 61, 62, 100, 500))), rng.randint(0, len(entries))
    if rng.random() < 0.5:
        return _found([*entries[:at], zeros, *entries[at:]], entries, "zeros")
    data = b"".join(entries)
    start = rng.randrange(len(data))
    return _found([data[:start], zeros[: len(data) - start], data[start + len(zeros) :]], entries, "zeros")


def _header(rng: random.Random, entry: bytes) -> bytes:
    """A field of the header is another one; in some with its checksum right again."""
    at, form = rng.choice(FIELDS)
    size = struct.calcsize(form)
    number = rng.choice((rng.choice(HOSTILE), struct.unpack_from(form, entry, at)[0] + rng.choice((-2, -1, 1, 2, 64))))
    field = (number & (1 << 8 * size) - 1).to_bytes(size, "little")
    changed = entry[:at] + field + entry[at + size :]
    return redpanda.sealed(changed[4 : redpanda.HEADER]) + changed[redpanda.HEADER :] if rng.random() < 0.4 else changed


def _inside(rng: random.Random, kafka: bytes) -> bytes:
    """Damage inside of a batch, mostly with both checksums right."""
    damaged = INSIDE[rng.choice(list(INSIDE))](rng, kafka)
    if len(damaged) < redpanda.HEADER:
        return redpanda.of_kafka(kafka)[: len(damaged)]
    if rng.random() < 0.9:
        damaged = with_crc(damaged)
    damaged = damaged[:16] + b"\2" + damaged[17:]
    length = max(min(struct.unpack_from(">i", damaged, 8)[0], (1 << 31) - 13), -(1 << 31))
    return redpanda.of_kafka(damaged[:8] + struct.pack(">i", length) + damaged[12:])


def compare(seed: int, path: Path) -> None:
    """All modes of reading one mutant, one of them by both paths."""
    entries, mutant = make(seed)
    path.write_bytes(mutant.data)
    rng = random.Random(seed + 1)
    options = rng.choices(OPTIONS, (6, 6, 2, 2, 1))[0]
    both = rng.randrange(3)
    for check_crcs in (True, False):
        strict(path, both == check_crcs, mutant, redpanda.read(mutant.data, check_crcs), check_crcs=check_crcs, **options)
    skipping(path, both == 2, mutant, entries, **options)


def read(path: Path, both: bool, **options: Any) -> list[oracle.Row]:
    """Every row with its raw offset; with ``both`` by the general path too, and without headers."""
    whole = _outcome(path, COLUMNS, options)
    if both:
        with without(GENERAL):
            expect_same(whole, _outcome(path, COLUMNS, options), f"{options}: general path")
        expect_same(whole, _outcome(path, HEADLESS, options), f"{options}: without headers")
    if isinstance(whole, kolumn.CorruptBatchError):
        raise whole
    return rows_of(whole.rename_columns(oracle.Row._fields))


def _outcome(path: Path, columns: list[str], options: dict[str, Any]) -> Any:
    try:
        table: pa.Table = kolumn.read(path, format="redpanda", columns=columns, include_control=True, threads=1, **options)
    except kolumn.CorruptBatchError as error:
        return error
    table.validate(full=True)
    return table


def strict(path: Path, both: bool, mutant: Mutant, expected: oracle.Segment, **options: Any) -> None:
    """``errors="raise"``: the same rows, or an error at the same position."""
    try:
        found = read(path, both, **options)
    except kolumn.CorruptBatchError as error:
        if error.position == expected.first_error or (error.code == Code.NOT_A_SEGMENT and not expected.rows()):
            return
        lost = expected.stop == "truncated" and expected.first_error is None and error.position == expected.position
        beyond = fits_shorter(mutant.data[error.position :]) or intact_after(mutant.data, max(error.position - 8, -1))
        expect(lost and beyond, f"{options}: error where there is none: {error}")
        return
    expect(expected.first_error is None, f"{options}: no error; expected at {expected.first_error}: {_error(expected)}")
    expect(found == expected.rows(), f"{options}: rows differ: {first_difference(found, expected.rows())}")
    if mutant.ordered and options["check_crcs"] and increasing(expected.rows()):
        after = [at for at, _ in mutant.untouched if at > expected.position]
        # One batch alone may as well lie inside the value of a record of the last one, which was cut.
        expect(len(after) < 2, f"{options}: intact entries at {after} are lost in silence after {expected.position}")


def _error(segment: oracle.Segment) -> str:
    return next((entry.error for entry in segment.entries if entry.error), segment.stop)


def fits_shorter(entry: bytes) -> bool:
    """Whether the checksum of the records is right for some end within the file."""
    if len(entry) < redpanda.HEADER:
        return False
    _, _, _, stored, *fields = redpanda.REDPANDA.unpack_from(entry, 4)
    register = crc32c.crc32c(struct.pack(">hiqqqhii", *fields))
    for at in range(redpanda.HEADER, len(entry) + 1):
        if register == stored:
            return True
        register = crc32c.crc32c(entry[at : at + 1], register)
    return False


def intact_after(data: bytes, position: int) -> bool:
    """Whether an intact batch begins after a position."""
    starts = range(position + 1, len(data) - redpanda.HEADER + 1)
    return any(redpanda.read_entry(entry, at).error is None for at in starts if (entry := claimed(data, at)))


def claimed(data: bytes, at: int) -> bytes:
    """Bytes of the batch with a right header at a position, if all of them are there; else none."""
    size = struct.unpack_from("<i", data, at + 4)[0] if redpanda.has_header(data[at : at + redpanda.HEADER]) else 0
    return data[at : at + size] if redpanda.HEADER <= size <= len(data) - at else b""


def skipping(path: Path, both: bool, mutant: Mutant, entries: list[bytes], **options: Any) -> None:
    """``errors="skip"``: all rows of all intact batches, of damaged ones the rows that are sound, and no others; other functions agree."""
    expected = redpanda.read(mutant.data)
    found = read(path, both, errors="skip", **options)
    by_position = {at: list(rows) for at, rows in groupby(found, key=lambda row: row.position)}
    expect(list(by_position) == sorted(by_position), "skip: order")
    for entry in expected.entries:
        if rows := redpanda.sound_rows(mutant.data[entry.position : entry.position + entry.size], entry.position):
            lost = "intact entry at {} is lost or differs" if entry.error is None else "sound records at {} are not what is read"
            expect(by_position.get(entry.position) == rows, "skip: " + lost.format(entry.position))
    if mutant.ordered and increasing(found):
        after = sum(at > expected.position for at, _ in mutant.untouched)
        for at, index in mutant.untouched:
            if skipped_whole(expected, at) or (expected.stop == "truncated" and after < 2 and at > expected.position):
                continue
            rows = redpanda.read_entry(entries[index], at).rows
            expect(by_position.get(at, []) == rows, f"skip: untouched entry at {at} is lost or differs")
    for at, rows in by_position.items():
        expect(redpanda.sound_rows(claimed(mutant.data, at), at) == rows, f"skip: rows from a damaged entry at {at}")
    listed = kolumn.batches(path, format="redpanda", errors="skip", **{name: one for name, one in options.items() if name != "binary"})
    missing = set(by_position) - set(listed.filter(listed["crcValid"])["position"].to_pylist())
    expect(not missing, f"batches: the entries at {missing} are read and not listed")
    report = kolumn.verify(path, format="redpanda", threads=1)
    expect(report.records == len(found), f"verify: {report.records} records, {len(found)} read")
    expect(report.ok or expected.first_error is not None or expected.stop == "truncated", f"verify: {report.damage.to_pylist()}")
    expect(not report.ok or expected.first_error is None, f"verify: ok, but there is damage at {expected.first_error}")


def skipped_whole(segment: oracle.Segment, position: int) -> bool:
    """Whether the position lies inside a batch that is intact, or whose length leads on: what is inside is never looked at."""
    for entry, following in zip_longest(segment.entries, segment.entries[1:]):
        if entry.position < position < entry.position + entry.size:
            if entry.error is None:
                return True
            return following.error is None if following else segment.stop in ("end", "zeros")
    return False


def compare_bounded(seed: int, folder: Path) -> None:
    """Compare a mutant in bounded time."""
    faulthandler.dump_traceback_later(SECONDS_EACH, exit=True)
    try:
        compare(seed, folder / "0.log")
    except AssertionError as error:
        raise AssertionError(f"{make(seed)[1].kind}: {error}") from None
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    replay(compare_bounded)
