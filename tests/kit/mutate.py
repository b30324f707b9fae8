"""Damage to segments: reproducible from a seed, and aimed at what a parser trusts."""

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kit.encoder import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, control_batch, message, varint, with_crc, wrapper
from kit.inflate import inflate
from kit.streams import STYLES, compress

HOSTILE = (0, 1, -1, 2, 7, 13, 14, 48, 49, 61, 127, 128, 255, 32767, 65536, 1 << 20, 1 << 24, 1 << 28, (1 << 31) - 1, -(1 << 31), -5)


@dataclass(frozen=True)
class Mutant:
    data: bytes
    kind: str  # what was done
    untouched: tuple[tuple[int, int], ...] = ()  # position and original index of each entry that is whole and as it was, in order
    ordered: bool = True  # whether what remains is in the original order without repeats, so that nothing of it may be given up


def make_segment(rng: random.Random) -> list[bytes]:
    """A few entries of any format and codec, offsets increasing, as a segment of some kilobytes at most."""
    offset = rng.choice((0, 1, 100, 1 << 33))
    return [entry for _, entry in entries_from(rng, offset, rng.randint(2, 6))]


def entries_from(rng: random.Random, offset: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Entries with the offsets at which they begin, which may have holes between them."""
    for _ in range(count):
        records = make_records(rng, offset, rng.randint(1, 6))
        yield offset, make_entry(rng, records)
        offset = records[-1].offset + rng.choice((1, 1, 1, 5))


def make_records(rng: random.Random, offset: int, count: int) -> list[Record]:
    records = []
    for _ in range(count):
        headers = tuple((rng.randbytes(2).hex().encode(), _bytes(rng, 8)) for _ in range(rng.choice((0, 0, 1, 3))))
        records.append(Record(offset, _bytes(rng, 12), _bytes(rng, 80), 1_700_000_000_000 + rng.randint(-5000, 5000), headers))
        offset += rng.choice((1, 1, 1, 3))
    return records


def _bytes(rng: random.Random, limit: int) -> bytes | None:
    if rng.random() < 0.1:
        return None
    return rng.randbytes(rng.randrange(limit)) if rng.random() < 0.5 else bytes([rng.randrange(256)]) * rng.randrange(limit)


def make_entry(rng: random.Random, records: list[Record]) -> bytes:
    """One entry that holds the records, or as many of them as its kind can."""
    kind, codec = rng.random(), rng.randint(0, 4)
    style = rng.choice(STYLES[codec])
    if kind < 0.7:
        flags = rng.choice((0, 0, LOG_APPEND_TIME, TRANSACTIONAL))
        return batch(
            records, codec=codec, style=style, flags=flags, producer_id=rng.choice((-1, 9)), base_sequence=rng.choice((-1, 0, 2147483645))
        )
    if kind < 0.74:
        return control_batch(records[0].offset, rng.randint(0, 1))
    if kind < 0.77:
        return batch([], base_offset=records[0].offset, last_offset=records[-1].offset, flags=rng.choice((0, CONTROL)))
    magic = rng.randint(0, 1)
    records = [replace(record, headers=()) for record in records]
    if codec in (0, 4):
        return message(magic, records[0], rng.choice((0, LOG_APPEND_TIME)) * magic)
    return wrapper(magic, records, codec, style=style, flags=rng.choice((0, LOG_APPEND_TIME)) * magic)


def mutate(rng: random.Random, entries: list[bytes]) -> Mutant:
    """Damage a segment in one way, or in two."""
    name = rng.choice([*ANYWHERE, "rearrange"] + list(INSIDE) * 2)
    return _inside(rng, entries, name) if name in INSIDE else anywhere(rng, entries, name)


def anywhere(rng: random.Random, entries: list[bytes], name: str) -> Mutant:
    """Damage at any place, which no checksum hides."""
    data = _rearranged(rng, entries) if name == "rearrange" else ANYWHERE[name](rng, b"".join(entries))
    return _found(data, entries, name, ordered=name not in ("splice", "rearrange"))


def _found(data: bytes, entries: list[bytes], kind: str, ordered: bool = True) -> Mutant:
    places = [(data.find(entry), index) for index, entry in enumerate(entries)]
    return Mutant(data, kind, tuple(sorted(place for place in places if place[0] >= 0)), ordered)


def _flip(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        data = flipped(rng, data)
    return data


def flipped(rng: random.Random, data: bytes, low: int = 0) -> bytes:
    """One bit is another one."""
    at = rng.randrange(low, len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _zero_tail(rng: random.Random, data: bytes) -> bytes:
    return _truncate(rng, data) + bytes(rng.choice((1, 12, 17, 18, 40, 500)))


def _delete(rng: random.Random, data: bytes) -> bytes:
    low = rng.randrange(len(data))
    return data[:low] + data[low + rng.choice((1, 4, 12, 40, 200)) :]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.choice((rng.randbytes, bytes))(rng.choice((1, 8, 12, 18, 61, 100))) + data[at:]


def _overwrite(rng: random.Random, data: bytes) -> bytes:
    low = rng.randrange(len(data))
    junk = rng.choice((rng.randbytes, bytes))(rng.choice((2, 4, 8, 20, 100)))[: len(data) - low]
    return data[:low] + junk + data[low + len(junk) :]


def _splice(rng: random.Random, data: bytes) -> bytes:
    low, high = sorted(rng.sample(range(len(data) + 1), 2))
    at = rng.randrange(len(data))
    return data[:at] + data[low:high] + data[at:]


def _rearranged(rng: random.Random, entries: list[bytes]) -> bytes:
    return b"".join(entries[rng.randrange(len(entries))] for _ in range(rng.randint(1, 8)))


ANYWHERE: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "flip": _flip, "truncate": _truncate, "zero tail": _zero_tail, "delete": _delete, "insert": _insert, "overwrite": _overwrite,
    "splice": _splice,
}  # fmt: skip


def _inside(rng: random.Random, entries: list[bytes], name: str) -> Mutant:
    """Damage inside one entry; mostly with its checksum right again, so that the parser sees it."""
    index = rng.randrange(len(entries))
    damaged = INSIDE[name](rng, entries[index])
    if rng.random() < 0.9 and len(damaged) > 22:
        damaged = with_crc(damaged)
    return _found(b"".join([*entries[:index], damaged, *entries[index + 1 :]]), entries, name)


def _header_field(rng: random.Random, entry: bytes) -> bytes:
    at, form = rng.choice(
        ((8, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"), (53, ">i"), (57, ">i"), (57, ">i"))
        if entry[16] == 2
        else ((8, ">i"), (16, ">b"), (17, ">b"), (0, ">q"), (18, ">i"), (26, ">i"))
    )
    size = struct.calcsize(form)
    if at + size > len(entry):
        return entry
    number = rng.choice((rng.choice(HOSTILE), struct.unpack_from(form, entry, at)[0] + rng.choice((-2, -1, 1, 2))))
    number = (number + (1 << 8 * size - 1)) % (1 << 8 * size) - (1 << 8 * size - 1)
    return entry[:at] + struct.pack(form, number) + entry[at + size :]


def _payload_byte(rng: random.Random, entry: bytes) -> bytes:
    return _tamper(rng, entry, rng.randrange(min(61 if entry[16] == 2 else 18, len(entry) - 1), len(entry)))


def _tamper(rng: random.Random, data: bytes, at: int) -> bytes:
    """Bytes at ``at`` replaced by a hostile varint, one byte, or nothing."""
    choice = rng.random()
    if choice < 0.4:
        return data[:at] + varint(rng.choice(HOSTILE)) + data[at + 1 :]
    if choice < 0.5:
        return data[:at] + b"\x80" * rng.choice((1, 4, 5, 9, 10)) + data[at:]
    if choice < 0.6:
        return data[:at] + b"\xff\xff\xff\xff" + bytes([rng.choice((0x0F, 0x1F, 0x7F, 0x8F))]) + data[at + 1 :]
    if choice < 0.7:
        return data[:at] + data[at + 1 :]
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _resized(entry: bytes) -> bytes:
    """The same entry with a length that says how long it is, and for messages a value length that fills it."""
    return entry[:8] + struct.pack(">i", len(entry) - 12) + entry[12:]


def _payload_resized(rng: random.Random, entry: bytes) -> bytes:
    return _resized(_payload_byte(rng, entry))


def _recompressed(rng: random.Random, entry: bytes) -> bytes:
    """Damage before compression: the stream is right and what it holds is not."""
    magic, codec = entry[16], (entry[22] if entry[16] == 2 else entry[17]) & 7
    if not codec:
        return _payload_resized(rng, entry)
    start = 61 if magic == 2 else 26 if magic == 0 else 34
    inner = inflate(codec, entry[start:], magic) if len(entry) > start else b""
    if not inner:
        return _header_field(rng, entry)
    for _ in range(rng.choice((1, 1, 2))):
        inner = _tamper(rng, inner, rng.randrange(len(inner))) or b"\0"
    if rng.random() < 0.3:
        inner = inner + rng.randbytes(rng.choice((1, 5, 11, 12, 13, 40)))
    elif rng.random() < 0.2:
        inner = inner[: rng.randrange(len(inner)) or 1]
    stream = compress(codec, inner, rng.choice(STYLES[codec]), magic)
    size = b"" if magic == 2 else struct.pack(">i", len(stream))
    return _resized(entry[: start - len(size)] + size + stream)


def _stream(rng: random.Random, entry: bytes) -> bytes:
    """Damage to the compressed stream: its framing, its end, or what follows it."""
    start = 61 if entry[16] == 2 else 26 if entry[16] == 0 else 34
    stream = bytearray(entry[start:])
    if not stream:
        return entry
    choice = rng.random()
    if choice < 0.4:
        stream[rng.randrange(min(len(stream), 24))] ^= 1 << rng.randrange(8)
    elif choice < 0.6:
        stream = stream[: rng.randrange(len(stream))]
    elif choice < 0.8:
        stream += rng.choice((rng.randbytes, bytes))(rng.choice((1, 3, 4, 8, 20, 40)))
    else:
        stream[rng.randrange(len(stream))] = rng.randrange(256)
    size = b"" if entry[16] == 2 else struct.pack(">i", len(stream))
    return _resized(entry[: start - len(size)] + size + bytes(stream))


INSIDE: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "header field": _header_field, "payload": _payload_byte, "payload resized": _payload_resized, "recompressed": _recompressed,
    "stream": _stream,
}  # fmt: skip
