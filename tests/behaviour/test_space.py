"""`kolumn.space` assigns every byte of every entry to one purpose, in every format."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.asked import watched
from kit.corpus import HERE as DATA
from kit.draft_segments import FORMATS, Maker
from kit.encoder import Record, batch, message
from kit.outcome import raises
from kolumn.copies.transactions import transactions_of_segment
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.host.aborted import Transactions
from kolumn.decode.host.chunks import Loaded, walk_entries
from kolumn.formats import layouts
from kolumn.formats.entries import Entries
from kolumn.log.pieces import Piece, piece_of, pieces
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Segment
from kolumn.tools.sizes import TARGETS, anatomy, draft_table, draw
from kolumn.writers.encoders import ENCODERS
from kolumn.writers.entries import codec_of
from kolumn.writers.regroup import Changes, Losses, regroup
from kolumn.writers.write import settings

TIME = 1_700_000_000_000


def test_numbers_of_the_kip98_draft_and_of_a_batch(path: Path) -> None:
    path.write_bytes(batch([Record(0, b"key", b"value", TIME, ((b"h", b"12"),)), Record(1, None, b"v" * 100, TIME + 100)]))
    first, *others = kolumn.space(path)
    assert first.bytes == path.stat().st_size == sum(first.parts.values())
    # lengths: batch length 4, record count 4, two record lengths 1 + 2, key 1 + 1, value 1 + 2, header counts 1 + 1, header key and value 2
    assert dict(first.parts) == {
        "keys": 3, "values": 105, "headers": 3, "offsets": 12 + 2, "timestamps": 16 + 1 + 2, "lengths": 20, "crc": 4, "producer": 14,
        "attributes": 7 + 2,
    }  # fmt: skip
    by_name = {(one.format, one.magic): one for one in others}
    assert (by_name["kafka", 2].bytes, by_name["kafka", 0].bytes) == (first.bytes, 2 * 26 + 108)
    assert by_name["kafka", 1].bytes == by_name["kip87", 2].bytes == 2 * 34 + 108
    assert by_name["kafka", 1].lost["headers"] == 1
    # The numbers of the document, computed from encoded bytes.
    assert [tuple(row.values()) for row in draft_table()] == [(1, 34, 62), (3, 102, 96), (10, 340, 215), (50, 1700, 895), (100, 3400, 1745)]


def encoded(piece: Piece, format: str, magic: int, transactions: Transactions, codec: int) -> Counter[str]:
    """Bytes by purpose of the entries that a conversion writes, read back."""
    how, found, lost = settings(format, magic, "none", None, 16384, None), Counter[str](), Losses()
    changes = Changes(how, None, transactions if layouts.holds_messages(how.layout) else None)
    for one in regroup(piece, changes, codec, lost):
        entries, source = Entries.room(len(one.entries)), np.append(one.data, np.zeros(PAD, np.uint8))
        walk_entries(Loaded.whole(source, len(one.data)), 0, len(one.data), how.format, entries, whole=True, decide=False)
        found.update(anatomy(piece_of(source, 0, entries, Segment("", None, None, None, len(one.data)), Options(format=format))))
    return found


@pytest.mark.sample
@pytest.mark.parametrize(
    ("source", "codec"),
    [
        # In `make test` two sources are compressed: how that is counted is the same for all.
        pytest.param(source, codec, marks=[pytest.mark.slow] if codec != "none" and source not in ("transactional", "enriched") else [])
        for source in ("transactional", "upgraded", "v1-append-time", "compacted", *FORMATS)
        for codec in ("none", "snappy")
    ],
)
def test_sizes_are_those_of_encoded_records(tmp_path: Path, source: str, codec: str) -> None:
    """Nothing is encoded for them, up to a MiB everything is compressed, and every byte has one purpose."""
    path, format = DATA / source, "kafka"
    if source in FORMATS:
        path, format = tmp_path / "a.log", source
        path.write_bytes(b"".join(entry.data for entry in Maker(format, random.Random(9)).segment(30)))
    found = kolumn.space(path, source_format=format, codec=codec)
    options = Options.of(format=format)
    told = [Counter[str]() for _ in found[1:]]
    for segment in live_segments(path, options).one_log():
        transactions = transactions_of_segment(segment, options)
        for piece in pieces(segment, options):
            for one, parts in zip(found[1:], told, strict=True):
                parts.update(encoded(piece, one.format, one.magic or 0, transactions, codec_of(codec)))
    assert [one.parts for one in found[1:]] == told
    assert [one.estimated for one in found] == [0] * len(found)
    assert found[0].bytes == sum(one.stat().st_size for one in ([path] if path.is_file() else path.rglob("*.log")))
    assert all(one.bytes == sum(one.parts.values()) for one in found)
    assert codec != "none" or not any(one.parts["compression"] for one in found[1:])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 MiB of lines, the later ones more alike."""
    words, path = random.Random(1), tmp_path_factory.mktemp("large") / "a.log"
    lines = [bytes(words.choices(b"abcdefghij     ", k=100)) for _ in range(2000)]
    values = [words.choice(lines[: 2000 - row // 100]) for row in range(120_000)]
    kolumn.write(pa.table({"key": [b"%d" % row for row in range(120_000)], "value": values}), path)
    return path


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_what_a_codec_saves_is_estimated(tmp_path: Path, large: Path, codec: str) -> None:
    found = kolumn.space(large, codec=codec)
    by_name = {(one.format, one.magic): one for one in found}
    for format, magic in (("kafka", 2), ("kafka", 1), ("v3-compact", 3)):
        one, target = by_name[format, magic], tmp_path / f"{format}{magic}.log"
        kolumn.convert(large, target, format=format, magic=magic, codec=one.codec)
        assert abs(one.bytes - target.stat().st_size) < 0.02 * target.stat().st_size
        assert one.bytes == sum(one.parts.values())
        assert 0.5 * one.bytes < one.estimated < one.bytes
    assert found[0].estimated == 0


@pytest.mark.parametrize(("codec", "share"), [("none", 0), ("gzip", 0.25)])
def test_little_is_encoded(large: Path, codec: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget: bytes that are encoded and compressed, of all formats together."""
    each = [watched(monkeypatch, encoder, "put") for encoder in set(ENCODERS.values())]
    kolumn.space(large, codec=codec)
    written = [int(groups.size.sum()) for calls in each for _, groups, *_ in calls]
    assert sum(written) <= share * len(TARGETS) * large.stat().st_size
    assert bool(written) == (codec != "none")


def test_pictures(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path.write_bytes(message(1, Record(0, b"a", b"b", TIME)))
    for name in ("a.svg", "a.png"):
        draw(kolumn.space(path), str(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 1000
    raises(kolumn.ArgumentError, r"ends in \.svg", draw, [], "a.txt")
