"""Damaged Avro values: each is valid exactly if the specification says so, no other row changes, and the fields that are left of others are
those that fastavro reads. KOLUMN_FUZZ_MUTANTS is their number.

Every value ends where its memory ends: a byte read after it ends the process.
"""

import io
import random
from typing import Any

import fastavro

from kit.avro_reader import NotAvroError, as_column, of_column, read
from kit.avro_values import plain, registered, side_by_side
from kit.avro_writer import EVERYTHING, Writer, damaged, random_value
from kit.fuzz import FIRST, MUTANTS
from kit.guarded import bodies
from kolumn.values.avro import AvroDecoder

LAXER = (
    "boolean that is not 0 or 1", "int of more than 32 bits", "varint of more than ten bytes", "index out of range", "block size",
    "items that are not there", "negative length", "bytes after the end", "time outside of a day", "duration of more than int32 holds",
    "decimal without bytes", "decimal of too many digits",
)  # fmt: skip
"""What fastavro accepts and the specification, or Arrow, does not. It counts indexes from the end if they are negative, believes counts and
not the sizes of blocks, leaves bytes after a value to its caller, and is called here without logical types."""


def values(rng: random.Random, count: int) -> list[bytes]:
    return [Writer(rng).write(EVERYTHING, random_value(rng, EVERYTHING)) for _ in range(count)]


def expected(line: bytes) -> tuple[Any, bool]:
    """The row, and whether it is valid; fastavro is asked where the specification leaves no room."""
    broken = ""
    try:
        row = as_column(EVERYTHING, read(EVERYTHING, line))
    except NotAvroError as error:
        broken = str(error)
    if broken:
        assert broken in LAXER or not fastavro_reads(line), (broken, line)
        return None, False
    assert same_by_fastavro(row, line), line
    return row, True


def fastavro_reads(line: bytes) -> bool:
    try:
        fastavro.schemaless_reader(io.BytesIO(line), PLAIN, None)
    except (EOFError, ValueError, IndexError, OverflowError, MemoryError):
        return False
    return True


def same_by_fastavro(row: Any, line: bytes, lost: tuple[str, ...] = ()) -> bool:
    """But for what is lost. fastavro's maps have each key once."""
    theirs = as_column(EVERYTHING, fastavro.schemaless_reader(io.BytesIO(line), PLAIN, None))
    row = {**row, "attributes": dict(row["attributes"] or [])}
    theirs["attributes"] = dict(theirs["attributes"])
    for maps in (theirs["attributes"], row["attributes"]):
        maps.update({key: None if one is None else dict(one) for key, one in maps.items()})
    for path in lost:
        assert has_null(row, path.split(".")), (path, row)
        for one in (theirs, row):
            leave_out(one, path.split("."))
    return bool(theirs == row)


def has_null(part: Any, steps: list[str]) -> bool:
    if isinstance(part, list):
        return any(has_null(one, steps) for one in part)
    if steps == ["attributes"]:
        # Values of this map can be null, and its keys can not.
        return not part["attributes"] or None in part["attributes"].values()
    return part is not None and (has_null(part[steps[0]], steps[1:]) if steps[1:] else part[steps[0]] is None)


def leave_out(part: Any, steps: list[str]) -> None:
    for one in part if isinstance(part, list) else [part]:
        if one is not None and steps[1:]:
            leave_out(one[steps[0]], steps[1:])
        elif one is not None:
            one.pop(steps[0], None)


def salvaged(decoder: AvroDecoder, lines: list[bytes], rows: list[tuple[Any, bool]]) -> int:
    """Compare what the plain reader has of values; returns how many of them lost fields, but not all."""
    column, lost = decoder.salvage(bodies(lines))
    column.validate(full=True)
    some = 0
    for line, (row, valid), kept, paths in zip(lines, rows, of_column(column), lost, strict=True):
        assert valid == (not paths), (line, paths)
        if valid or paths == ("$",):
            assert quiet(row) == quiet(kept), line
        else:
            some += 1
            assert not fastavro_reads(line) or same_by_fastavro(kept, line, paths), (line, paths)
    return some


def quiet(row: Any) -> Any:
    """A number that signals that it is none is a quiet one in Python."""
    if row is None or row["f"][3] & 0x7F != 0x7F or not row["f"][2] & 0x80:
        return row
    return {**row, "f": row["f"][:2] + bytes([row["f"][2] | 0x40]) + row["f"][3:]}


SOME = ("id", "note", "span")
"""Wanted alone, of values that lie side by side: they are read block by block."""
PLAIN = fastavro.parse_schema(plain(EVERYTHING))
PARTLY: list[int] = []
"""How many values of each comparison lost fields, but not all."""


def compare(lines: list[bytes]) -> int:
    """Decode and compare; returns how many rows are valid."""
    decoder = AvroDecoder(registered(EVERYTHING))
    column, valid = decoder.decode(bodies(lines))
    column.validate(full=True)
    rows = list(zip(of_column(column), valid.tolist(), strict=True))
    for number, (line, one) in enumerate(zip(lines, rows, strict=True)):
        assert one == expected(line), (number, line)
    PARTLY.append(salvaged(decoder, lines, rows))
    for wanted in SOME:
        decoder = AvroDecoder(registered(EVERYTHING), (wanted,))
        apart, beside = decoder.decode(bodies(lines)), decoder.decode(side_by_side(lines))
        assert beside[1].tolist() == apart[1].tolist(), wanted
        assert of_column(beside[0]) == of_column(apart[0]), wanted
        # What is skipped is not looked at as closely: bytes of a text, or how large a decimal is.
        assert not (valid & ~apart[1]).any(), wanted
    return int(valid.sum())


def test_every_variation_every_byte_and_every_length() -> None:
    assert compare(values(random.Random(FIRST), 300)) == 300
    for line in values(random.Random(FIRST + 1), 3):
        flipped = [line[:at] + bytes([line[at] ^ 1 << bit]) + line[at + 1 :] for at in range(len(line)) for bit in (0, 1, 6, 7)]
        cut = [line[:at] for at in range(len(line))]
        assert compare([line, *flipped, line]) >= 2
        assert compare([line, *cut, line]) == 2


def test_mutants() -> None:
    rng = random.Random(FIRST + 2)
    whole = 0
    for _ in range(-(-MUTANTS // 500)):
        originals = values(rng, 50)
        whole += compare([damaged(rng, rng.choice(originals), rng.choice(originals)) for _ in range(500)])
    assert 0 < whole < MUTANTS
    assert sum(PARTLY) > MUTANTS // 100
