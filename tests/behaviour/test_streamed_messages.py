"""Formats 0 and 1 by both paths: do the streamed loop and the general path return the same rows, errors and damage?"""

import random
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit import corpus
from kit.encoder import LOG_APPEND_TIME, Record, batch, message, wrapper
from kit.fuzz import FIRST, MUTANTS
from kit.mutate import mutate
from kit.paths import without
from kolumn.core.paths import MESSAGES
from kolumn.cpu_fallback.stream import UNPACKED
from kolumn.decode.host import streamed_messages

COLUMNS = ["offset", "timestamp", "timestampType", "key", "value", "magic", "codec", "sequence", "tombstone"]
KIB = 1 << 10
OLD = ("v0", "v1", "upgraded", "compacted-old", "unclean", "delete-records")
"""Folders of the corpus in which some segments have formats 0 and 1."""


def result(path: Path, **options: Any) -> Any:
    """Rows, or the error as text; damage as it was reported; what `verify` says."""
    damage: list[Any] = []
    try:
        with kolumn.scan(path, on_damage=damage.append, **options) as reader:
            rows = reader.read_all()
        found = rows.combine_chunks()
    except kolumn.KolumnError as error:
        found = f"{type(error).__name__}: {error}"
    return found, damage


def same(path: Path, **options: Any) -> Any:
    """Compare both paths; returns the result."""
    streamed = result(path, **options)
    with without(MESSAGES):
        general = result(path, **options)
    assert type(streamed[0]) is type(general[0]), (options, streamed[0], general[0])
    equal = streamed[0] == general[0] if isinstance(general[0], str) else streamed[0].equals(general[0])
    assert equal, (options, streamed[0], general[0])
    assert streamed[1] == general[1], options
    return streamed


def payload(rng: random.Random, limit: int) -> bytes | None:
    """Null in one of four, else fewer bytes than ``limit``."""
    return rng.choice((None, *(rng.randbytes(rng.randrange(limit)) for _ in range(3))))


def segment(rng: random.Random, entries: int, value: int, codecs: tuple[int, ...] = (0, 0, 1, 2, 3)) -> list[bytes]:
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
    {"threads": 1, "columns": [*COLUMNS, "position"], "errors": "skip"},
    {"threads": 1, "start_offset": 7, "end_offset": 40, "errors": "skip"},
]


@pytest.mark.parametrize("seed", range(12))
def test_segments(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are so small that entries are cut by them, and larger than them."""
    path, rng = tmp_path / "00000000000000000000.log", random.Random(seed)
    path.write_bytes(b"".join(segment(rng, 80, 3000 if seed % 2 else 100)))
    if seed % 3:
        monkeypatch.setattr(streamed_messages, "BLOCK", rng.choice((100, 700, 4 * KIB)))
        monkeypatch.setattr(streamed_messages, "SLACK", 0)
    for way in WAYS:
        rows, damage = same(path, **{"columns": COLUMNS, **way})
        assert rows.num_rows
        assert not damage


def test_mutants(tmp_path: Path) -> None:
    """Damage of every kind: the same rows, the same error text, the same damage."""
    errors = damaged = 0
    for seed in range(FIRST, FIRST + max(MUTANTS // 10, 1)):
        rng = random.Random(seed)
        entries = segment(rng, rng.randrange(3, 25), 60)
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(mutate(rng, entries).data)
        rows, damage = same(path, **{"columns": COLUMNS, **rng.choice(WAYS)})
        errors, damaged = errors + isinstance(rows, str), damaged + bool(damage)
    assert errors
    assert damaged


@pytest.mark.sample
@pytest.mark.parametrize("case", [case for case in corpus.cases() if str(case).startswith(OLD)], ids=str)
def test_corpus(case: corpus.Case) -> None:
    for path in case.segments:
        for way in (WAYS[0], WAYS[1], WAYS[4], WAYS[8]):
            same(Path(path), **{"columns": COLUMNS, "include_control": True, **way})


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_payloads_are_decompressed_once(codec: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are full, windows that end, an arena that grows: nothing is decompressed for them again."""
    path, rng = tmp_path / "00000000000000000000.log", random.Random(codec)
    data, plain, offset = [], 0, 0
    for size in (100, 40 * KIB, 300 * KIB, 1000, 90 * KIB, 300 * KIB):
        records = [Record(offset + i, b"key", rng.randbytes(size // 8) + bytes(size // 8), 1_700_000_000_000) for i in range(4)]
        data.append(wrapper(1, records, codec))
        plain, offset = plain + sum(len(message(1, record)) for record in records), offset + 4
    path.write_bytes(b"".join(data))
    loop, written, calls = streamed_messages.stream_messages, [0], [0]

    def counted(*arguments: Any) -> Any:
        slots = arguments[-2]
        before = int(slots[UNPACKED])
        found = loop(*arguments)
        written[0] += int(slots[UNPACKED]) - before
        calls[0] += 1
        return found

    monkeypatch.setattr(streamed_messages, "stream_messages", counted)
    for options in ({}, {"binary": "view"}, {"chunk_bytes": 50_000}, {"memory_bytes": 1000}):
        written[0] = 0
        assert kolumn.read(path, columns=COLUMNS, threads=1, **options).num_rows == 24
        assert written[0] == plain, options


def test_a_chunk_costs_a_few_calls_and_a_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python and no row of the batch table for each message."""
    path = tmp_path / "00000000000000000000.log"
    one = message(1, Record(0, b"key", b"value", 1_700_000_000_000))
    path.write_bytes(b"".join(k.to_bytes(8, "big") + one[8:] for k in range(20_000)))
    loop, rows = streamed_messages.stream_messages, list[int]()

    def counted(*arguments: Any) -> Any:
        found = loop(*arguments)
        rows.append(int(arguments[-2][streamed_messages.STRETCHES]))
        return found

    monkeypatch.setattr(streamed_messages, "stream_messages", counted)
    table = kolumn.read(path, columns=COLUMNS, threads=1)
    assert table["offset"].to_pylist() == list(range(20_000))
    assert rows == [1]


def test_other_formats_between(tmp_path: Path) -> None:
    path, rng = tmp_path / "00000000000000000000.log", random.Random(1)
    parts, offset = [], 0
    for turn in range(6):
        for _ in range(30):
            record = Record(offset, b"key", rng.randbytes(3000), 1_700_000_000_000)
            parts.append(batch([record], base_offset=offset) if turn % 2 else message(1, record))
            offset += 1
    path.write_bytes(b"".join(parts))
    for way in WAYS[:6]:
        rows, _ = same(path, **{"columns": COLUMNS, **way})
        assert rows["offset"].to_pylist() == list(range(offset))
