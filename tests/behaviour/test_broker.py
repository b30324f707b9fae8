"""The broker assigns offsets to produced entries and converts entries for consumers: KIP-31's table, with calls of codecs counted."""

from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit import drafts
from kit.encoder import Record, batch, message, wrapper
from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import ArgumentError, CorruptBatchError
from kolumn.writers import compress

TIME = 1_700_000_000_000
RECORDS = [Record(i, b"k%d" % i, None if i == 1 else b"v%d" % i, TIME + i) for i in range(3)]


def rows(data: bytes, tmp_path: Path, format: str = "kafka") -> list[tuple[Any, ...]]:
    path = tmp_path / "read.log"
    path.write_bytes(data)
    columns = ["offset", "key", "value", "timestampMs", "timestampType", "magic"]
    return [tuple(row.values()) for row in kolumn.read(path, columns=columns, format=format).to_pylist()]


def expected(first: int, magic: int, time: bool = True) -> list[tuple[Any, ...]]:
    return [(first + r.offset, r.key, r.value, r.timestamp if time else -1, 0 if magic else -1, magic) for r in RECORDS]


@pytest.fixture
def compressions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codecs of the payloads that are compressed during the test, in order."""
    calls: list[int] = []
    real, real_all = compress.compress, compress.compress_all

    def counted(codec: int, *rest: Any) -> bytes:
        calls.append(codec)
        return real(codec, *rest)

    def all_counted(codec: int, source: Int64s, *rest: Any) -> tuple[Bytes, Int64s] | None:
        made = real_all(codec, source, *rest)
        calls.extend([codec] * len(source) if made is not None else [])
        return made

    monkeypatch.setattr("kolumn.writers.entries.compress", counted)
    monkeypatch.setattr("kolumn.writers.entries.compress_all", all_counted)
    return calls


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("offset", [0, 2], ids=["blank", "last"])
def test_a_wrapper_of_format_1_gets_eight_bytes(tmp_path: Path, compressions: list[int], codec: int, offset: int) -> None:
    sent = wrapper(1, RECORDS, codec, offset=offset, inner_base=0)
    done = kolumn.assign_offsets(sent, 5000, magic=1)
    assert done.data[8:] == sent[8:]
    assert (done.next_offset, done.in_place, done.compressions, compressions) == (5003, 1, 0, [])
    assert rows(done.data, tmp_path) == expected(5000, 1)


def test_gaps_are_closed_or_refused(tmp_path: Path, compressions: list[int]) -> None:
    holes = [Record(at, r.key, r.value, r.timestamp) for at, r in zip((0, 1, 7), RECORDS, strict=True)]
    sent = wrapper(1, holes, 1, offset=7, inner_base=0)
    done = kolumn.assign_offsets(sent, 5000)
    assert (done.next_offset, done.compressions, compressions) == (5003, 1, [1])
    assert rows(done.data, tmp_path) == expected(5000, 1)
    with pytest.raises(ArgumentError, match="inner offset 7 where 2 was expected"):
        kolumn.assign_offsets(sent, 5000, noncontiguous="reject")


def test_format_0_is_always_written_anew(tmp_path: Path, compressions: list[int]) -> None:
    done = kolumn.assign_offsets(wrapper(0, RECORDS, 1), 5000)
    assert (done.in_place, done.compressions, compressions) == (0, 1, [1])
    assert rows(done.data, tmp_path) == expected(5000, 0, time=False)


@pytest.mark.parametrize("flags", [0, drafts.HONOURED])
def test_enriched_wrappers_are_not_even_inflated(tmp_path: Path, flags: int) -> None:
    inner = [drafts.tagged(r, tags=drafts.time_tag(r.timestamp)) for r in RECORDS]
    sent = drafts.tagged_wrapper(0, inner, 1, flags=flags, tags=drafts.count_tag(3)) * 2
    done = kolumn.assign_offsets(sent, 5000, format="enriched")
    assert (done.next_offset, done.in_place, done.inflations, done.compressions) == (5006, 2, 0, 0)
    assert [row[0] for row in rows(done.data, tmp_path, "enriched")] == list(range(5000, 5006))


def test_mirrors(tmp_path: Path, compressions: list[int]) -> None:
    """Sets without keys are passed on unchanged, and their holes are closed; sets with keys are decompressed."""
    plain = [drafts.tagged(Record(at, None, b"v%d" % at, -1)) for at in (0, 3, 9)]
    keyed = [drafts.tagged(Record(at, b"k", b"v%d" % at, -1)) for at in (0, 3)]
    one = drafts.tagged_wrapper(100, plain, 1, flags=drafts.HONOURED | drafts.NON_KEYED, tags=drafts.count_tag(3))
    other = drafts.tagged_wrapper(200, keyed, 2, tags=drafts.count_tag(2))
    alone = drafts.tagged(Record(300, b"k", b"v", -1))
    done = kolumn.mirror(one + other + alone)
    assert (done.passed_on, done.inflations, done.compressions, compressions) == (1, 1, 1, [2])
    assert done.data[18 : len(one)] == one[18:]
    assert rows(one, tmp_path, "enriched")[-1][0] == 109
    arrived = kolumn.assign_offsets(done.data, 5000, format="enriched")
    assert arrived.inflations == 0
    assert [row[:3] for row in rows(arrived.data, tmp_path, "enriched")] == [
        (5000, None, b"v0"), (5001, None, b"v3"), (5002, None, b"v9"), (5003, b"k", b"v0"), (5004, b"k", b"v3"), (5005, b"k", b"v"),
    ]  # fmt: skip


def test_batches_get_a_base_offset(tmp_path: Path) -> None:
    bare = [drafts.bare_record(r, 0, TIME) for r in RECORDS]
    compact = drafts.compact_batch(0, bare, last_delta=4, base_timestamp=TIME, max_delta=2)
    done = kolumn.assign_offsets(compact + batch(RECORDS, codec=4), 100, format="v3-compact")
    assert (done.next_offset, done.in_place, done.inflations) == (108, 2, 0)
    assert [row[0] for row in rows(done.data, tmp_path, "v3-compact")] == [100, 101, 102, 105, 106, 107]


def _sent(magic: int, codec: int) -> bytes:
    if codec:
        return wrapper(magic, RECORDS, codec, offset=0, inner_base=0)
    return b"".join(message(magic, record) for record in RECORDS)


@pytest.mark.parametrize("codec", [0, 1, 3])
@pytest.mark.parametrize("disk", [0, 1])
@pytest.mark.parametrize("produced", [0, 1])
@pytest.mark.parametrize("fetched", [0, 1])
def test_produce_and_fetch(tmp_path: Path, codec: int, disk: int, produced: int, fetched: int) -> None:
    """The cases of KIP-31: phase 1 has format 0 on disk, phase 2 format 1."""
    written = kolumn.assign_offsets(_sent(produced, codec), 40, magic=disk)
    untouched = produced == disk and not (codec and disk == 0)
    assert written.in_place == ((1 if codec else 3) if untouched else 0)
    assert written.compressions == (0 if untouched or not codec else 1)
    timed = produced == 1 and disk == 1
    assert rows(written.data, tmp_path) == expected(40, disk, timed)
    sent = kolumn.for_fetch(written.data, fetched)
    assert sent.zero_copy == (disk <= fetched)
    assert (sent.data == written.data) == sent.zero_copy
    kept = min(disk, fetched)
    assert rows(sent.data, tmp_path) == expected(40, kept, timed and kept == 1)


def test_up_conversion_with_the_brokers_time(tmp_path: Path) -> None:
    done = kolumn.assign_offsets(_sent(0, 1), 0, magic=1, timestamp=TIME)
    assert [row[3:5] for row in rows(done.data, tmp_path)] == [(TIME, 1)] * 3
    done = kolumn.assign_offsets(_sent(0, 0), 0, magic=2, timestamp=TIME)
    assert [row[3:] for row in rows(done.data, tmp_path)] == [(TIME, 1, 2)] * 3


def test_mixed_entries_come_out_in_one_format(tmp_path: Path) -> None:
    sent = _sent(0, 0) + _sent(1, 2) + batch(RECORDS)
    done = kolumn.assign_offsets(sent, 7, magic=2)
    assert done.next_offset == 16
    assert [(row[0], row[5]) for row in rows(done.data, tmp_path)] == [(offset, 2) for offset in range(7, 16)]


def test_damage_gives_nobody_an_offset() -> None:
    sent = bytearray(_sent(1, 0))
    sent[-1] ^= 1
    with pytest.raises(CorruptBatchError, match=r"<entries>: position .*crc"):
        kolumn.assign_offsets(bytes(sent), 0)
    with pytest.raises(CorruptBatchError, match="bytes left"):
        kolumn.assign_offsets(bytes(sent[:-3]), 0)
    with pytest.raises(ArgumentError, match="noncontiguous='keep'"):
        kolumn.assign_offsets(b"", 0, noncontiguous="keep")
    assert kolumn.assign_offsets(b"", 9).next_offset == 9
