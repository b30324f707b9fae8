"""Segments for the benches: 64 MiB of v2 records in 16 KiB batches, with exactly the framing of the Java producer.

Keys are ``key%08d``, values are 100 bytes of words; the vocabulary is such that lz4 leaves 0.73 of a segment and zstd half of it.
Everything is deterministic, written once to ``build/bench`` and, but for values of any length, independent of Kolumn's own code.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import zstandard
from crc32c import crc32c

FOLDER = Path(__file__).parents[1] / "build" / "bench" / "data"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 64 << 20
BATCH_BYTES = 16 << 10
HEADER_BYTES = 61
VALUE_BYTES = 100
BASE_TIMESTAMP = 1_700_000_000_000
WORDS = 2000


def segment(codec: str, segment_bytes: int = SEGMENT_BYTES, batch_bytes: int = BATCH_BYTES) -> Path:
    """Path of the segment with ``codec`` and batches of a size; it is written if it does not exist yet."""
    usual = (segment_bytes, batch_bytes) == (SEGMENT_BYTES, BATCH_BYTES)
    path = FOLDER / (f"{codec}-0" if usual else f"{codec}-{segment_bytes}-{batch_bytes}-0") / f"{0:020d}.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.writelines(batches(codec, segment_bytes, batch_bytes))
        partial.rename(path)
    return path


def read_back(path: Path) -> None:
    """Make sure that the page cache has a file as it was read from disk, not as it was written."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass


def records(segment_bytes: bytes) -> int:
    """Number of records in a segment."""
    position, count = 0, 0
    while position < len(segment_bytes):
        count += struct.unpack_from(">i", segment_bytes, position + 57)[0]
        position += 12 + struct.unpack_from(">i", segment_bytes, position + 8)[0]
    return count


def rebase(segment_bytes: bytes, base_offset: int) -> bytearray:
    """A copy of a segment that begins at ``base_offset``; offsets are outside the CRC, so nothing else changes."""
    moved = bytearray(segment_bytes)
    position = 0
    while position < len(moved):
        offset, size = struct.unpack_from(">qi", moved, position)
        struct.pack_into(">q", moved, position, base_offset + offset)
        position += 12 + size
    return moved


def batches(codec: str, segment_bytes: int = SEGMENT_BYTES, batch_bytes: int = BATCH_BYTES) -> Iterator[bytes]:
    """Batches of a segment, whose payloads have the size that fits ``batch_bytes``; at least one."""
    template, key_at, value_at = _template(batch_bytes)
    count = len(key_at)
    how_many = max(segment_bytes // (HEADER_BYTES + len(template)), 1)
    letters = np.frombuffer(text(how_many * count * VALUE_BYTES), np.uint8).reshape(how_many, count, VALUE_BYTES)
    key_places = key_at[:, None] + np.arange(3, 11)
    value_places = value_at[:, None] + np.arange(VALUE_BYTES)
    powers = 10 ** np.arange(7, -1, -1)
    for batch in range(how_many):
        first = batch * count
        payload = template.copy()
        payload[key_places] = (first + np.arange(count))[:, None] // powers % 10 + ord("0")
        payload[value_places] = letters[batch]
        yield _batch(first, count, CODECS.index(codec), COMPRESS[codec](payload.tobytes()))


def write_any_lengths(path: Path, size: int, batch_bytes: int) -> None:
    """A segment of nearly ``size`` bytes, not compressed, whose values have 60 to 140 bytes; written by `kolumn.write`."""
    import kolumn

    lengths = np.random.default_rng(1).integers(60, 141, size // 123)
    words, begins = text(int(lengths.sum())), np.cumsum(lengths) - lengths
    values = [words[begin : begin + length] for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True)]
    keys = [b"key%08d" % number for number in range(len(values))]
    kolumn.write(pa.table({"key": keys, "value": values}), path, batch_bytes=batch_bytes)


def _batch(base_offset: int, count: int, attributes: int, payload: bytes) -> bytes:
    first, last = BASE_TIMESTAMP + base_offset, BASE_TIMESTAMP + base_offset + count - 1
    covered = struct.pack(">hiqqqhii", attributes, count - 1, first, last, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", base_offset, 9 + len(covered), 0, 2, crc32c(covered)) + covered


def _template(batch_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Payload of one full batch without digits and values, and where each key and value in it begins."""
    payload = bytearray()
    key_at: list[int] = []
    value_at: list[int] = []
    while True:
        delta = varint(len(key_at))
        start = b"\0" + delta + delta + varint(11)
        body = len(start) + 11 + len(varint(VALUE_BYTES)) + VALUE_BYTES + 1
        if HEADER_BYTES + len(payload) + len(varint(body)) + body > batch_bytes:
            return np.frombuffer(bytes(payload), np.uint8), np.array(key_at), np.array(value_at)
        payload += varint(body) + start
        key_at.append(len(payload))
        payload += b"key" + bytes(8) + varint(VALUE_BYTES)
        value_at.append(len(payload))
        payload += bytes(VALUE_BYTES) + b"\0"


def varint(value: int) -> bytes:
    """Zig-zag varint of a non-negative number."""
    raw, found = value << 1, bytearray()
    while raw > 0x7F:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*found, raw])


def text(size: int) -> bytes:
    random = np.random.default_rng(1)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    weights = 1 / np.arange(1, 27) ** 0.7
    words = [bytes(random.choice(letters, size=int(length), p=weights / weights.sum())) for length in random.integers(2, 10, WORDS)]
    chosen = random.integers(0, WORDS, size // 5)
    return b" ".join(map(words.__getitem__, chosen.tolist()))[:size]


def _gzip(payload: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(payload) + compressor.flush()


def _snappy(payload: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(payload))
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


def _lz4(payload: bytes) -> bytes:
    """A frame whose header says blocks of 64 KiB."""
    found = bytearray.fromhex("04224d18604082")
    for start in range(0, len(payload), 64 << 10):
        block = bytes(cramjam.lz4.compress_block(payload[start : start + (64 << 10)], store_size=False))
        found += struct.pack("<I", len(block)) + block
    return bytes(found) + bytes(4)


def _zstd(payload: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    return compressor.compress(payload) + compressor.flush()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {"none": bytes, "gzip": _gzip, "snappy": _snappy, "lz4": _lz4, "zstd": _zstd}


@cache
def _text() -> bytes:
    return text(20_000 * VALUE_BYTES)


def _words(random: np.random.Generator, i: int) -> bytes:
    return _text()[i * VALUE_BYTES : (i + 1) * VALUE_BYTES]


def _json(random: np.random.Generator, i: int) -> bytes:
    """An order, as a service would write it: about 180 bytes."""
    status, currency = ("created", "paid", "shipped")[i % 3], ("EUR", "USD", "GBP")[int(random.integers(3))]
    return (
        f'{{"id":{10_000_000 + i},"customer":"c-{random.integers(100_000):05d}","amount":{random.integers(1, 100_000) / 100},'
        f'"currency":"{currency}","status":"{status}","items":[{{"sku":"SKU-{random.integers(1000)}","quantity":{random.integers(1, 9)}}}],'
        f'"ts":{BASE_TIMESTAMP + i}}}'
    ).encode()


def _log_line(random: np.random.Generator, i: int) -> bytes:
    """A line of an access log: about 130 bytes."""
    path = ("api/v1/orders", "api/v1/customers", "static/app.js", "health")[int(random.integers(4))]
    return (
        f"10.{random.integers(8)}.{random.integers(256)}.{random.integers(256)} - - [14/Nov/2023:22:{i // 60 % 60:02d}:{i % 60:02d} +0000] "
        f'"GET /{path}/{random.integers(100_000)} HTTP/1.1" 200 {random.integers(200, 20_000)} "-" "client/2.{random.integers(9)} (linux)"'
    ).encode()


def _small(random: np.random.Generator, i: int) -> bytes:
    """A record of small binary fields: a number, a reading, a flag; 12 bytes."""
    return struct.pack(">IfHH", i, 20 + random.normal(), int(random.integers(64)), 1)


KINDS: dict[str, Callable[[np.random.Generator, int], bytes]] = {
    "words": _words,
    "json": _json,
    "log lines": _log_line,
    "small binary": _small,
    "random": lambda random, i: random.bytes(VALUE_BYTES),
}
"""Kinds of values, and how the i-th of each is made."""


def values(kind: str, size: int) -> list[bytes]:
    """Values of a kind, ``size`` bytes in all; 20,000 different ones, then the same again."""
    random, found = np.random.default_rng(1), list[bytes]()
    while size > 0 and len(found) < 20_000:
        found.append(KINDS[kind](random, len(found)))
        size -= len(found[-1])
    return found + [found[i % len(found)] for i in range(size * len(found) // sum(map(len, found)) + 1)] if size > 0 else found


def of_kind(kind: str, codec: str, size: int = SEGMENT_BYTES // 2) -> Path:
    """Path of a segment with values of a kind and 8-byte keys in batches of 16 KiB; `kolumn.write` writes it once."""
    import kolumn

    folder = FOLDER / f"{kind.replace(' ', '_')}_{codec}_{size}-0"
    if not folder.exists():
        some: Any = values(kind, size)
        how: Any = {"codec": codec, "batch_bytes": BATCH_BYTES}
        keys = [b"%08d" % i for i in range(len(some))]
        kolumn.write(pa.table({"key": keys, "value": some}), folder, **how)
    return next(folder.glob("*.log"))
