"""Damaged segments of Redpanda against the plain reader of `kit.redpanda`. ``python -m kit.redpanda_mutants SEED`` replays one."""

import faulthandler
import random
import struct
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa

import kolumn
from kit import oracle, redpanda
from kit.corpus import small_segments
from kit.differential import SECONDS_EACH, Judge, expect_same, judged, rows_of
from kit.encoder import Record, batch, with_crc
from kit.fuzz import replay
from kit.mutate import ANYWHERE, HOSTILE, INSIDE, Mutant, anywhere, make_entry, make_records
from kit.paths import GENERAL, without

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
    """All modes of reading one mutant."""
    judged(REDPANDA, *make(seed), seed, path)


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


REDPANDA = Judge("redpanda", redpanda, read, lambda segment: not segment.rows(), claimed, fits_shorter, intact_after)


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
