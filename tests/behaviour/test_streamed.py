"""The streamed path with batches of all sizes and codecs, which fill its window, its columns and its arena, or do not."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.encoder import Record, batch
from kit.paths import GENERAL, without
from kit.streams import STYLES
from kolumn.core.errors import Code
from kolumn.cpu_fallback.inflate.libraries import Decoder, Decoders
from kolumn.decode.chunk import decode_chunk
from kolumn.decode.host import streamed as tiles
from kolumn.log.chunks import Reached, chunks
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import find_segments

KIB, MIB = 1 << 10, 1 << 20
COLUMNS = ["key", "value", "offset", "timestamp", "codec", "position"]


def value(rng: random.Random, size: int) -> bytes:
    """Bytes that compress badly, well, or very well."""
    kind = rng.randrange(3)
    if kind == 0:
        return rng.randbytes(size)
    word = rng.randbytes(rng.randrange(20, 200) if kind == 1 else 1)
    return (word * (size // len(word) + 1))[:size]


def segment(seed: int, sizes: list[int], codecs: tuple[int, ...]) -> tuple[bytes, list[tuple[bytes | None, bytes | None, int]]]:
    """A segment with a batch of approximately each size, and the key, value and offset of its records."""
    rng, offset = random.Random(seed), 0
    data, expected = [], []
    for size in sizes:
        count = 0 if not size else rng.choice((1, 3, max(1, size // 200)))
        records = [
            Record(offset + i, rng.choice((None, b"", b"key %d" % i)), value(rng, size // count), 1_700_000_000_000 + i)
            for i in range(count)
        ]
        codec = rng.choice(codecs)
        style = rng.choice(STYLES[codec])
        data.append(batch(records, codec=codec, style=style if codec else "", base_offset=offset, last_offset=offset + max(count, 1) - 1))
        expected += [(record.key, record.value, record.offset) for record in records]
        offset += max(count, 1)
    return b"".join(data), expected


SIZES = {
    "growing": [100, 16 * KIB, 300 * KIB, 70 * KIB, 1100 * KIB, 0, 5 * MIB, 40, 600 * KIB],
    "small": [random.Random(7).randrange(3000) for _ in range(300)],
    "sparse": [0, 0, 10, 0, 2 * MIB, 0, 10, 0],
    "large": [2 * MIB, 17 * MIB, 10],
}
CODECS = {"none": (0,), "lz4": (3,), "snappy": (2,), "zstd": (4,), "gzip": (1,), "compiled": (0, 2, 3), "any": (0, 1, 2, 3, 4)}
ALONE = ("lz4", "snappy", "zstd", "gzip")


@pytest.mark.sample
@pytest.mark.parametrize("codecs", [pytest.param(one, marks=[pytest.mark.slow] if one in ALONE else []) for one in CODECS])
@pytest.mark.parametrize("sizes", SIZES)
def test_sizes_and_codecs(sizes: str, codecs: str, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    data, expected = segment(hash_of(sizes + codecs), SIZES[sizes], CODECS[codecs])
    path.write_bytes(data)
    with without(GENERAL):
        general = kolumn.read(path, columns=COLUMNS, threads=1)
    assert rows(general) == expected
    ways: list[dict[str, Any]] = [{}, {"chunk_bytes": 1}, {"chunk_bytes": 200_000}, {"chunk_bytes": 2 * MIB}]
    for way in ways:
        for threads in (1, 2):
            for binary in ("contiguous", "view"):
                found = kolumn.read(path, columns=COLUMNS, threads=threads, binary=binary, **way)
                same = all(found[name].cast(general[name].type).equals(general[name]) for name in COLUMNS)
                assert same, (way, threads, binary)


def test_without_libraries_to_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a library cannot be called directly, its Python package is used."""
    path = tmp_path / "00000000000000000000.log"
    data, expected = segment(1, SIZES["growing"], (0, 1, 3, 4))
    path.write_bytes(data)
    monkeypatch.setattr(tiles, "decoders", lambda _: Decoders(Decoder(0, 0), Decoder(0, 0), Decoder(0, 0), 0))
    for binary in ("contiguous", "view"):
        assert rows(kolumn.read(path, columns=COLUMNS, threads=1, binary=binary)) == expected


def test_batches_are_not_cut_small(tmp_path: Path) -> None:
    """Columns have room for a chunk: record batches have some megabytes, with each codec."""
    for codec in CODECS["any"]:
        path = tmp_path / f"{codec}.log"
        data, expected = segment(codec, [16 * KIB] * 500, (codec,))
        path.write_bytes(data)
        with kolumn.scan(path, columns=COLUMNS, threads=1) as reader:
            batches = list(reader)
        assert sum(one.num_rows for one in batches) == len(expected)
        assert len(batches) <= 4, codec


def test_max_batch_bytes_holds(tmp_path: Path) -> None:
    for codec in (1, 2, 3, 4):
        path = tmp_path / f"{codec}.log"
        path.write_bytes(batch([Record(0, None, bytes(100_000))], codec=codec))
        assert kolumn.read(path, columns=COLUMNS).num_rows == 1
        with pytest.raises(kolumn.LimitError, match="max_batch_bytes"):
            kolumn.read(path, columns=COLUMNS, max_batch_bytes=50_000)


def rows(table: pa.Table) -> list[tuple[bytes | None, bytes | None, int]]:
    return list(zip(*(table[name].to_pylist() for name in ("key", "value", "offset")), strict=True))


def hash_of(text: str) -> int:
    return sum(ord(letter) << index for index, letter in enumerate(text))


def test_the_plan_goes_on_where_the_decoder_got_to(tmp_path: Path) -> None:
    """The decoder finds the entries after the first one itself, does not modify its arguments, and returns how far it got."""
    path = tmp_path / "00000000000000000000.log"
    batches = [batch([Record(k, b"key", bytes(40 * KIB), 0)]) for k in range(6)]
    path.write_bytes(b"".join(batches))
    size, (found,) = len(batches[0]), find_segments(path)
    options = Options.of(threads=1)
    with SegmentFile(found) as file:
        plan = chunks(file, 0, file.size, options.chunk_bytes, streamed=True, ahead=False)
        first = next(plan)
        assert (first.is_unread, len(first.entries), first.end) == (True, 1, size)
        decoded = decode_chunk(file, first, options, -1, alone=True)
        assert (decoded.reached.position, decoded.records, decoded.rest, len(first.entries)) == (file.size, 6, None, 1)
        # The plan also follows a decoder that stopped earlier.
        second = plan.send(Reached(4 * size))
        assert (second.origin, second.end) == (4 * size, 5 * size)
        with pytest.raises(StopIteration) as end:
            plan.send(decode_chunk(file, second, options, 3, alone=True).reached)
        assert (end.value.value.position, end.value.value.code) == (file.size, Code.OK)
    # The decoder of a chunk that is smaller than the segment has the first header of the next one.
    with SegmentFile(found) as file:
        plan = chunks(file, 0, file.size, 2 * size, streamed=True, ahead=False)
        decoded = decode_chunk(file, next(plan), options, -1, alone=True)
        assert (decoded.reached.position, decoded.records) == (2 * size, 2)
        assert decoded.reached.following is not None
        second = plan.send(decoded.reached)
        assert (second.origin, len(second.entries), second.end) == (2 * size, 1, 3 * size)
        assert second.entries is decoded.reached.following
    # If the plan reads headers first, it knows all entries.
    with SegmentFile(found) as file:
        (whole,) = chunks(file, 0, file.size, options.chunk_bytes, streamed=True)
        assert (len(whole.entries), whole.end) == (6, file.size)
        left = whole.after(2)
        assert (left.origin, len(left.entries), left.end) == (2 * size, 4, file.size)
        assert decode_chunk(file, left, options, 1, alone=True).records == 4
