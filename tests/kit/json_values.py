"""Random JSON: types and objects of them, as serialisers write them, and damage."""

import base64
import json
import random
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kit.json_oracle import expected, is_same, plain
from kolumn.values.decoder import Bodies
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.json import JsonDecoder

LEAVES = (
    pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float32(), pa.timestamp("ms"), pa.timestamp("us", tz="UTC"), pa.date32(),
    JSON_TEXT, pa.decimal128(9, 2), pa.decimal128(38, 38), pa.decimal256(76, 10), pa.binary(), pa.timestamp("ns", tz="UTC"),
    pa.timestamp("s", tz="UTC"), pa.time64("us"), pa.time32("s"),
)  # fmt: skip
PLAIN_NAMES = ("id", "a", "b", "name", "x", "items", "customer", "a_name_of_more_than_16_bytes", "eightlen", "sevenle", "A", "")
NAMES = (*PLAIN_NAMES, "größe", 'q"', "b\\")
_TEXT = 'aZ09 /"\\\b\f\n\r\t\x00\x1f\x7f\x80éÿĀ߿ࠀ世界\ud7ff\ue000\uffff😀𐀀\U0010ffff{}[],:'
_PIECES = (
    b'"', b'\\', b'{', b'}', b'[', b']', b',', b':', b'null', b'true', b'false', b'-', b'0', b'1', b'.', b'e', b'E', b'+', b' ', b'\n',
    b'\t', b'\r', b'\x00', b'\x1f', b'\x7f', b'\x80', b'\xff', b'\xc3\xa9', b'\xed\xa0\x80', b'\\u0041', b'\\u0000', b'\\ud800',
    b'\\udc00', b'\\ud83d\\ude00', b'\\n', b'\\x', b'\\u00e', b'NaN', b'Infinity', b'-Infinity', b'1e5', b'1E+400', b'0.1', b'-0',
    b'00', b'9223372036854775807', b'"id":1,', b'{}', b'[]', b'/**/', b"'", b'\xef\xbb\xbf', b'"a":', b'1.', b'.5', b'1e-400',
    b'12345678901234567890123', b'"\\u0061":1,', b'[[[[', b'{"a":{"a":', b'.0', b'e3',
)  # fmt: skip


def random_type(rng: random.Random, depth: int = 3) -> pa.StructType:
    """A struct of up to six fields, with structs and lists in it."""
    names = rng.sample(NAMES if rng.random() < 0.2 else PLAIN_NAMES, rng.randrange(1, 7))
    return pa.struct([(name, _any_type(rng, depth - 1)) for name in names])


def _any_type(rng: random.Random, depth: int) -> pa.DataType:
    kind = rng.random() if depth else 0
    if kind > 0.85:
        return random_type(rng, depth) if kind < 0.99 else pa.struct([])
    if kind > 0.78:
        return pa.map_(pa.string(), _any_type(rng, depth - 1))
    return pa.list_(_any_type(rng, depth - 1)) if kind > 0.68 else rng.choice(LEAVES)


def random_value(rng: random.Random, kind: pa.DataType, tidy: bool = False) -> Any:
    """A value that mostly fits a type; a ``tidy`` one has no members more, in the type's order, and short texts."""
    draw = rng.random()
    if draw < 0.05:
        return None
    if draw < 0.055:
        return anything(rng, 3)
    if pa.types.is_struct(kind):
        members = [(field.name, random_value(rng, field.type, tidy)) for field in kind if rng.random() < (0.97 if tidy else 0.9)]
        if rng.random() < 0.3 and not tidy:
            members.append((rng.choice(("more", "idx", *NAMES)), anything(rng, 4)))
        if rng.random() < 0.2 and not tidy:
            rng.shuffle(members)
        return dict(members)
    if pa.types.is_list(kind):
        return [random_value(rng, kind.value_type, tidy) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
    if pa.types.is_map(kind):
        return {rng.choice(NAMES): random_value(rng, kind.item_type, tidy) for _ in range(rng.choice((0, 1, 1, 2, 5)))}
    if kind == JSON_TEXT:
        return anything(rng, 2)
    if tidy and pa.types.is_string(kind) and rng.random() < 0.7:
        return "short"
    if pa.types.is_string(kind):
        return random_text(rng)
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_floating(kind):
        return random_float(rng)
    if pa.types.is_integer(kind):
        bits = kind.bit_width - (1 if pa.types.is_signed_integer(kind) else 0)
        found = rng.randrange(1 << rng.randrange(1, bits + 1)) if rng.random() < 0.9 else (1 << bits) - rng.randrange(2)
        if rng.random() < 0.01:
            return float(found)
        return found if pa.types.is_unsigned_integer(kind) and rng.random() < 0.98 else rng.choice((found, -found, -found - 1))
    if pa.types.is_decimal(kind):
        return random_decimal(rng, kind)
    text = base64.b64encode(rng.randbytes(rng.randrange(6))).decode() if pa.types.is_binary(kind) else random_time(rng, kind)
    return text if rng.random() < 0.98 else random_text(rng)


def random_decimal(rng: random.Random, kind: pa.DataType) -> float | int | str:
    """A number, or a text of one, which mostly fits."""
    whole, scale = kind.precision - kind.scale, kind.scale
    digits = rng.randrange(10 ** rng.randrange(whole + 1) if whole else 1)
    fraction = rng.randrange(10 ** min(scale, 5))
    draw = rng.random()
    if draw < 0.4:
        return float(f"{digits % 10**9}.{fraction % 100:02d}")
    if draw < 0.5:
        return digits
    end = rng.choice(("", "", "0", "000", "5", "e1", "E-2"))
    return f"{rng.choice(('', '', '-', '+'))}{digits}{rng.choice(('.', '.', ''))}{fraction:0{min(scale, 5)}d}{end}"


def random_time(rng: random.Random, kind: pa.DataType) -> str:
    """ISO 8601, mostly as its libraries write it."""
    day = (
        f"{rng.choice((2026, 2026, 2026, 1969, 1600, 3000, 2, 9998)):04d}-{rng.randrange(1, 13):02d}-{rng.choice((1, 15, 28, 29, 31)):02d}"
    )
    if rng.random() < 0.5:
        day = "2026-01-31"
    fraction = rng.choice(("", "", ".25", ".123456", ".1234567", ".123456789", ".500000000", ".12300", ".0000000001", ",5"))
    clock = f"{rng.choice(('12', '12', '12', '00', '23', '24'))}:30:{rng.choice(('01', '01', '01', '59', '60'))}"
    clock = rng.choice((clock + fraction, clock + fraction, clock, clock[:5], clock[:2]))
    if pa.types.is_time(kind):
        return clock
    if pa.types.is_date(kind):
        return day
    zone = (
        rng.choice(("Z", "Z", "+02:00", "-0330", "+14", "z", "", "+24:00", "-00:00")) if kind.tz is not None or rng.random() < 0.1 else ""
    )
    return rng.choice((f"{day}T{clock}{zone}", f"{day}T{clock}{zone}", f"{day} {clock}{zone}", f"{day}t{clock}{zone}", day))


def random_text(rng: random.Random) -> str:
    """Mostly ASCII, of any length around those of words."""
    size = rng.choice((0, 1, 3, 7, 8, 9, 15, 16, 17, 40))
    letters = "abc xyz" if rng.random() < 0.7 else _TEXT
    return "".join(rng.choice(letters) for _ in range(size))


def random_float(rng: random.Random) -> float | int:
    """Of any bits, or of few digits, or whole."""
    draw = rng.random()
    if draw < 0.3:
        return float(struct.unpack("<d", rng.randbytes(8))[0])
    if draw < 0.5:
        return float(struct.unpack("<f", rng.randbytes(4))[0])
    return round(rng.uniform(-1000, 1000), rng.randrange(5)) if draw < 0.9 else rng.randrange(-10, 1 << 40)


def anything(rng: random.Random, depth: int) -> Any:
    """A value of no certain type."""
    draw = rng.randrange(8 if depth else 5)
    if draw < 5:
        return (None, rng.random() < 0.5, rng.randrange(-(1 << rng.randrange(1, 70)), 1 << 20), random_float(rng), random_text(rng))[draw]
    if draw == 5:
        return [anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(NAMES): anything(rng, depth - 1) for _ in range(rng.randrange(4))}


def written(rng: random.Random, value: Any) -> bytes:
    """A value as text, with the separators and escapes of one serialiser or another."""
    separators = rng.choice(((",", ":"), (", ", ": "), (" ,\t", "\r\n: ")))
    text = json.dumps(value, separators=separators, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, None, None, 1)))
    if text.startswith('{"') and rng.random() < 0.05:
        # The first member twice, or a part of it.
        end = text.find(",", 0, -1)
        text = text[: end + 1] + text[1:] if end > 0 else text
    return text.encode("utf-8", "surrogatepass")


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Text with one to three changes."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, how = rng.randrange(len(made) + 1), rng.randrange(6)
        if how == 0:
            made[at : at + 1] = rng.randbytes(1)
        elif how == 1:
            del made[at : at + rng.choice((1, 1, 2, 5, 1000))]
        elif how == 2:
            other = rng.randrange(len(made) + 1)
            made[at:at] = made[other : other + rng.randrange(1, 12)]
        elif how == 3:
            made[at : at + rng.randrange(6)] = rng.choice(_PIECES)
        else:
            made[at:at] = rng.choice(_PIECES)
    return bytes(made)


def values_of(rng: random.Random, kind: pa.StructType, count: int, damage: float = 0.5) -> list[bytes]:
    """Objects of a type as text; some of them damaged."""
    made = [written(rng, random_value(rng, kind) if rng.random() < 0.97 else anything(rng, 3)) for _ in range(count)]
    return [damaged(rng, one) if rng.random() < damage else one for one in made]


def flat_type(rng: random.Random) -> pa.StructType:
    """A struct of six to ten fields, most of which have no others in them; some are lists of such structs."""
    names = rng.sample(PLAIN_NAMES if rng.random() < 0.8 else NAMES, rng.randrange(6, 11))
    inner = pa.struct([(name, rng.choice(LEAVES)) for name in rng.sample(PLAIN_NAMES, rng.randrange(1, 4))])
    kinds = [rng.choice(LEAVES) if k < 6 else rng.choice((pa.list_(inner), _any_type(rng, 2))) for k in range(len(names))]
    rng.shuffle(kinds)
    return pa.struct(list(zip(names, kinds, strict=True)))


def alike(rng: random.Random, kind: pa.StructType, count: int, damage: float) -> list[bytes]:
    """Objects of a type as one serialiser writes them: members in order, some of them missing; some objects are damaged."""
    separators, ascii = rng.choice(((",", ":"), (", ", ": "))), rng.random() < 0.5
    made = []
    for _ in range(count):
        value = {one.name: random_value(rng, one.type, tidy=True) for one in kind if rng.random() < 0.97}
        made.append(json.dumps(value, separators=separators, ensure_ascii=ascii).encode("utf-8", "surrogatepass"))
    return [damaged(rng, one) if rng.random() < damage else one for one in made]


def compared(kind: pa.DataType, values: Sequence[bytes | None], given: Bodies, unit: str | None = None) -> int:
    """Compare all values of a type with those of Python's json, by the loop and by the plain reader; returns how many are valid."""
    decoder, slow = JsonDecoder(kind, unit), JsonDecoder(kind, unit)
    slow._by_loop = False
    whole, valid = decoder.decode(given)
    column, paths = decoder.salvage(given)
    for array in (whole, column):
        array.validate(full=True)
        assert array.type == decoder.type
    by_plain, others = slow.salvage(given)
    assert paths == others
    for row, value in enumerate(values):
        wanted, lost = expected(value, decoder.type, unit is not None)
        found = plain(column[row])
        assert (set(paths[row]), len(paths[row])) == (lost, len(lost)), (kind, value)
        assert is_same(found, wanted), (kind, value, found, wanted)
        assert repr(plain(by_plain[row])) == repr(found), (kind, value, found)
        assert valid[row] == (value is not None and not lost)
        assert repr(plain(whole[row])) == repr(found if valid[row] else None)
    return int(valid.sum())
