"""Batches of all sizes and codecs, streamed or cut into pieces by several threads: as by the general path and one thread."""

import random
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.asked import offsets, watched
from kit.counted import counted
from kit.encoder import LOG_APPEND_TIME, Record, batch, message, wrapper
from kit.outcome import outcome, raises
from kit.paths import GENERAL, without
from kit.streams import STYLES
from kolumn.core.errors import Code, CorruptBatchError
from kolumn.core.paths import MESSAGES
from kolumn.cpu_fallback.inflate.libraries import Decoder, Decoders
from kolumn.cpu_fallback.stream_messages import STRETCHES
from kolumn.decode import pipeline
from kolumn.decode.chunk import decode_chunk
from kolumn.decode.host import streamed as tiles
from kolumn.decode.host.chunks import Reached, chunks
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
def test_sizes_and_codecs(sizes: str, codecs: str, path: Path) -> None:
    data, expected = segment(sum(ord(letter) << index for index, letter in enumerate(sizes + codecs)), SIZES[sizes], CODECS[codecs])
    path.write_bytes(data)
    with without(GENERAL):
        general = kolumn.read(path, columns=COLUMNS, threads=1)
    assert rows(general) == expected
    for way in [{}, {"chunk_bytes": 1}, {"chunk_bytes": 200_000}, {"chunk_bytes": 2 * MIB}]:
        for threads in (1, 2):
            for binary in ("contiguous", "view"):
                found = kolumn.read(path, columns=COLUMNS, threads=threads, binary=binary, **way)
                same = all(found[name].cast(general[name].type).equals(general[name]) for name in COLUMNS)
                assert same, (way, threads, binary)


def test_without_libraries_to_call(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a library cannot be called directly, its Python package is used."""
    data, expected = segment(1, SIZES["growing"], (0, 1, 3, 4))
    path.write_bytes(data)
    monkeypatch.setattr(tiles, "decoders", lambda _: Decoders(Decoder(0, 0), Decoder(0, 0), Decoder(0, 0), 0))
    for binary in ("contiguous", "view"):
        assert rows(kolumn.read(path, columns=COLUMNS, threads=1, binary=binary)) == expected


def test_batches_are_not_cut_small(tmp_path: Path) -> None:
    """Columns have room for a chunk: record batches have some megabytes, with each codec; and ``max_batch_bytes`` holds."""
    path = tmp_path / "segment.log"
    for codec in CODECS["any"]:
        data, expected = segment(codec, [16 * KIB] * 500, (codec,))
        path.write_bytes(data)
        with kolumn.scan(path, columns=COLUMNS, threads=1) as reader:
            counts = [batch.num_rows for batch in reader]
        assert sum(counts) == len(expected)
        assert len(counts) <= 4, codec
        path.write_bytes(batch([Record(0, None, bytes(100_000))], codec=codec))
        assert kolumn.read(path, columns=COLUMNS).num_rows == 1
        with pytest.raises(kolumn.LimitError, match="max_batch_bytes") if codec else nullcontext():
            kolumn.read(path, columns=COLUMNS, max_batch_bytes=50_000)


def rows(table: pa.Table) -> list[tuple[bytes | None, bytes | None, int]]:
    return list(zip(*(table[name].to_pylist() for name in ("key", "value", "offset")), strict=True))


def test_the_plan_goes_on_where_the_decoder_got_to(path: Path) -> None:
    """The decoder finds the entries after the first one itself, does not modify its arguments, and returns how far it got."""
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
        end = raises(StopIteration, "", plan.send, decode_chunk(file, second, options, 3, alone=True).reached)
        assert (end.value.position, end.value.code) == (file.size, Code.OK)
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


MESSAGE_COLUMNS = ["offset", "timestamp", "timestampType", "key", "value", "magic", "codec", "sequence", "tombstone"]


def result(path: Path, **options: Any) -> Any:
    damage: list[Any] = []
    return outcome(path, on_damage=damage.append, **{"columns": MESSAGE_COLUMNS, **options}), damage


def same(path: Path, **options: Any) -> Any:
    """Compare both paths; returns the result."""
    streamed = result(path, **options)
    with without(MESSAGES):
        assert result(path, **options) == streamed, options
    return streamed


def payload(rng: random.Random, limit: int) -> bytes | None:
    return rng.choice((None, *(rng.randbytes(rng.randrange(limit)) for _ in range(3))))


def messages(rng: random.Random, entries: int, value: int, codecs: tuple[int, ...] = (0, 0, 1, 2, 3)) -> list[bytes]:
    """Messages and wrappers in runs of the same kind, as a broker has them, with increasing offsets."""
    found, offset, magic, codec, attributes = [], rng.choice((0, 5)), 1, 0, 0
    for _ in range(entries):
        if rng.random() < 0.2:
            magic, codec = rng.choice((0, 1)), rng.choice(codecs)
            attributes = LOG_APPEND_TIME if magic and rng.random() < 0.3 else 0
        count = 1 if codec == 0 else rng.randrange(1, 6)
        records = [Record(offset + i, payload(rng, 12), payload(rng, value), 1_700_000_000_000 + rng.randrange(1000)) for i in range(count)]
        found.append(wrapper(magic, records, codec, flags=attributes) if codec else message(magic, records[0], attributes))
        offset = records[-1].offset + rng.choice((1, 1, 1, 4))
    return found


WAYS: list[dict[str, Any]] = [
    {"threads": 1},
    {"threads": 1, "binary": "view"},
    {"threads": 2, "chunk_bytes": 2000},
    {"threads": 2, "chunk_bytes": 2000, "binary": "view", "errors": "skip"},
    {"threads": 1, "errors": "skip"},
    {"threads": 1, "chunk_bytes": 1, "errors": "skip", "check_crcs": False},
    {"threads": 1, "memory_bytes": 500, "errors": "skip", "binary": "view"},
    {"threads": 2, "memory_bytes": 500, "check_crcs": False},
    {"threads": 1, "columns": [*MESSAGE_COLUMNS, "position"], "errors": "skip"},
    {"threads": 1, "start_offset": 7, "end_offset": 40, "errors": "skip"},
]


@pytest.mark.parametrize("seed", range(12))
def test_segments(seed: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are so small that entries are cut by them, and larger than them."""
    rng = random.Random(seed)
    path.write_bytes(b"".join(messages(rng, 80, 3000 if seed % 2 else 100)))
    if seed % 3:
        monkeypatch.setattr(tiles, "BLOCK", rng.choice((100, 700, 4 * KIB)))
        monkeypatch.setattr(tiles, "SLACK", 0)
    for way in WAYS:
        rows, damage = same(path, **way)
        assert rows.num_rows
        assert not damage


def test_a_chunk_costs_a_few_calls_and_a_few_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python and no row of the batch table for each message."""
    one = message(1, Record(0, b"key", b"value", 1_700_000_000_000))
    path.write_bytes(b"".join(k.to_bytes(8, "big") + one[8:] for k in range(20_000)))
    calls = watched(monkeypatch, tiles, "stream_messages")
    assert offsets(path, threads=1) == list(range(20_000))
    assert [int(slots[STRETCHES]) for *_, slots, _, _ in calls] == [1]


def test_other_formats_between(path: Path) -> None:
    rng = random.Random(1)
    records = [Record(offset, b"key", rng.randbytes(3000), 1_700_000_000_000) for offset in range(180)]
    path.write_bytes(b"".join(batch([record]) if record.offset // 30 % 2 else message(1, record) for record in records))
    for way in WAYS[:6]:
        assert same(path, **way)[0]["offset"].to_pylist() == list(range(180))


PIECE_COLUMNS = ["offset", "timestamp", "key", "value", "position"]
CHUNK = 40_000


def batches(first: int, count: int, value: Any, codec: int = 0) -> bytes:
    """Batches of ten records each; ``value`` is called with the offset."""
    records = [Record(offset, b"key%d" % offset, value(offset), 1_700_000_000_000 + offset) for offset in range(first, first + 10 * count)]
    return b"".join(batch(records[i : i + 10], codec=codec) for i in range(0, 10 * count, 10))


def words(offset: int) -> bytes:
    return random.Random(offset).randbytes(40) + bytes(40)


def log(offset: int) -> bytes:
    """A value that is a piece of a log itself, with later offsets, so that it looks as a part of the segment that holds it."""
    return batches(offset + 5, 3, words)


SEGMENTS = {
    "none": batches(0, 400, words),
    "lz4": batches(0, 400, words, codec=3),
    "logs in values": batches(0, 60, log),
    "logs, then words": batches(0, 30, log) + batches(300, 300, words) + batches(3300, 30, log),
    "large batches": batches(0, 20, lambda offset: random.Random(offset).randbytes(9000)),
    "large batches, lz4": batches(0, 20, lambda offset: random.Random(offset).randbytes(4500) + bytes(4500), codec=3),
    "formats": batches(0, 150, words) + b"".join(message(1, Record(n, b"k", words(n), 1_700_000_000_000)) for n in range(1500, 2500))
    + batches(2500, 150, words),
}  # fmt: skip


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces were dropped, each time that some were."""
    found, drop = list[int](), pipeline._drop
    monkeypatch.setattr(pipeline, "_drop", lambda pending: found.extend([len(pending)] if pending else []) or drop(pending))
    return found


@pytest.mark.parametrize("name", SEGMENTS)
def test_as_one_thread(name: str, path: Path, ends: list[int]) -> None:
    path.write_bytes(SEGMENTS[name])
    more = {"columns": [*PIECE_COLUMNS, "timestampMs"]}
    for options in ({}, {"binary": "view"}, {"errors": "skip"}, more, {"start_timestamp": 1_700_000_000_050}):
        asked: dict[str, Any] = {"columns": PIECE_COLUMNS, **options}
        alone = kolumn.read(path, threads=1, **asked)
        assert "start_timestamp" in options or len(alone) == alone["offset"][-1].as_py() + 1
        for source in (path, path.read_bytes()):
            found = kolumn.read(source, threads=3, chunk_bytes=CHUNK, **asked)
            assert found.num_columns == alone.num_columns
            assert found.equals(alone) or ("binary" in options and found.to_pydict() == alone.to_pydict())
            assert found["offset"].num_chunks > 2 or "start_timestamp" in options
    # Only a segment whose values look as its own entries misleads the guesses.
    assert bool(ends) == ("logs" in name)
    # Pieces of a batch each, the last one cut.
    path.write_bytes(SEGMENTS[name][:200_000])
    alone = kolumn.read(path, threads=1, errors="skip")
    assert kolumn.read(path, threads=2, chunk_bytes=1, errors="skip").equals(alone)


@pytest.mark.parametrize("name", ["none", "logs in values", "formats"])
def test_damage_as_one_thread(name: str, path: Path) -> None:
    for share in (0.02, 0.3, 0.6, 0.97):
        data = bytearray(SEGMENTS[name])
        data[int(share * len(data))] ^= 0x55
        path.write_bytes(data)
        outcomes = []
        for threads in (1, 3):
            how: dict[str, Any] = {"columns": PIECE_COLUMNS, "threads": threads, "chunk_bytes": CHUNK}
            counts, damage = list[int](), list[Any]()
            caught = raises(CorruptBatchError, "", kolumn.read, path, **how)
            with pytest.raises(CorruptBatchError):
                counts.extend(len(batch) for batch in kolumn.scan(path, **how))
            left = kolumn.read(path, errors="skip", on_damage=damage.append, **how).to_pydict()
            outcomes.append((str(caught), left, [(one.position, one.size) for one in damage], sum(counts)))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", ["none", "lz4"])
@pytest.mark.parametrize("threads", [2, 3])
def test_pieces_are_equal(name: str, threads: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread gets as many as the others, so that none waits at the end for another one."""
    path.write_bytes(SEGMENTS[name])
    calls = watched(monkeypatch, pipeline, "next_border")
    kolumn.read(path, threads=threads, chunk_bytes=CHUNK)
    sizes = [border - start for _, start, *_, border in calls]
    assert len(sizes) % threads == 0
    assert max(sizes) < 1.1 * min(sizes)


def test_calls_of_the_system(path: Path) -> None:
    path.write_bytes(SEGMENTS["none"])
    calls = [counted(partial(kolumn.read, path, columns=PIECE_COLUMNS, threads=threads, chunk_bytes=100_000))[2] for threads in (1, 2)]
    # A walk over headers makes 400 calls.
    assert calls[1] < calls[0] + 40
