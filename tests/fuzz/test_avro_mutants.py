"""Damaged Avro values: each is valid exactly if the specification says so, and no other row changes. KOLUMN_FUZZ_MUTANTS is their number.

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


def same_by_fastavro(row: Any, line: bytes) -> bool:
    """fastavro's maps have each key once."""
    theirs = as_column(EVERYTHING, fastavro.schemaless_reader(io.BytesIO(line), PLAIN, None))
    theirs["attributes"], ours = dict(theirs["attributes"]), dict(row["attributes"])
    for maps in (theirs["attributes"], ours):
        maps.update({key: None if one is None else dict(one) for key, one in maps.items()})
    return bool(theirs == {**row, "attributes": ours})


SOME = ("id", "note", "span")
"""Wanted alone, of values that lie side by side: they are read block by block."""
PLAIN = fastavro.parse_schema(plain(EVERYTHING))


def compare(lines: list[bytes]) -> int:
    """Decode and compare; returns how many rows are valid."""
    column, valid = AvroDecoder(registered(EVERYTHING)).decode(bodies(lines))
    column.validate(full=True)
    for number, (line, one) in enumerate(zip(lines, list(zip(of_column(column), valid.tolist(), strict=True)), strict=True)):
        assert one == expected(line), (number, line)
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
