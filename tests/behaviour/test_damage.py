"""Damaged entries whose lengths lead too far, and whole batches inside of values: all intact records are read, and nothing else."""

import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import crc32c
import pytest

import kolumn
from kit import asked
from kit.draft_segments import FORMATS, Maker
from kit.encoder import Record, batch, control_batch, message, varint, with_crc, wrapper
from kit.fuzz import pairs
from kit.outcome import raises
from kolumn.damage.search import Search
from kolumn.formats import crc

TIME = 1_700_000_000_000


def records(offset: int, count: int, size: int = 40, value: bytes | None = None) -> list[Record]:
    rng = random.Random(offset)
    return [Record(offset + i, b"key-%d" % i, value or rng.randbytes(size), TIME + i) for i in range(count)]


def entry(kind: str, offset: int, count: int, size: int = 40, value: bytes | None = None) -> bytes:
    """An entry of format 2, or of formats 0 and 1: a message for one record, a wrapper for all of them."""
    made = records(offset, count, size, value)
    if kind == "v2":
        return batch(made)
    if kind == "v2 gzip":
        return batch(made, codec=1)
    if kind.endswith("wrapper"):
        return wrapper(int(kind[1]), made, 1)
    return message(int(kind[1]), made[0])


KINDS = ["v2", "v2 gzip", "v0", "v1", "v0 wrapper", "v1 wrapper"]
offsets = partial(asked.offsets, errors="skip", include_control=True)


def chain(kind: str, counts: list[int], sizes: list[int], first: int = 100) -> list[bytes]:
    counts = [1 if kind in ("v0", "v1") else count for count in counts]
    return [entry(kind, first + sum(counts[:i]), count, size) for i, (count, size) in enumerate(zip(counts, sizes, strict=True))]


def spoiled(entry: bytes, position: int = -1) -> bytes:
    data = bytearray(entry)
    data[position] ^= 1
    return bytes(data)


def without(entries: list[bytes], i: int, j: int) -> bytes:
    """Entry ``i`` lacks as many bytes as the entries after it up to ``j`` have together, so its length leads to the end of ``j``."""
    gone = sum(map(len, entries[i + 1 : j + 1]))
    assert gone < len(entries[i]) - 70
    cut = [*entries]
    cut[i] = cut[i][: len(cut[i]) - gone - 5] + cut[i][-5:]
    return b"".join(cut)


def check(path: Path, data: bytes, want: list[int], damage: list[tuple[int, int]], **options: Any) -> None:
    path.write_bytes(data)
    for how in ({"threads": 1}, {"threads": 3}, {"threads": 1, "chunk_bytes": 200}, {"threads": 3, "chunk_bytes": 100}):
        assert offsets(path, **how, **options) == want, how
    report = kolumn.verify(path, **options)
    assert [(row["position"], row["size"]) for row in report.damage.to_pylist()] == damage
    assert report.records == len(want)
    listed = kolumn.batches(path, errors="skip", **options)
    sizes = listed.filter(listed["crcValid"])["size"].to_pylist()
    assert sum(sizes) + sum(size for _, size in damage) + report.segments["tailBytes"][0].as_py() == len(data)
    caught = raises(kolumn.CorruptBatchError, "", kolumn.read, path, **options)
    assert caught.position == damage[0][0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{100:020}.log"


def test_the_last_mutant(path: Path) -> None:
    """A batch lacks 1,103 bytes, a batch of 1,025 and a marker of 78 follow it, and its length leads to the end of the marker."""
    first, long, followed, marker = batch(records(100, 3)), batch(records(103, 4, 500)), batch(records(107, 1, 950)), control_batch(108, 1)
    assert (len(followed), len(marker)) == (1025, 78)
    data = first + long[:200] + long[200 + 1103 :] + followed + marker + batch(records(109, 5))
    check(path, data, [100, 101, 102, 107, 108, *range(109, 114)], [(len(first), len(long) - 1103)])


@pytest.mark.sample
@pytest.mark.parametrize("ending", ["an entry", "the end", "zeros", "a cut entry"])
@pytest.mark.parametrize("inside", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_entries_that_a_length_swallows(path: Path, kind: str, inside: int, ending: str) -> None:
    counts = [1] * 5 if kind in ("v0", "v1") else [2, 3, 2, 2, 2]
    entries = chain(kind, counts, [40, 700, 30, 30, 40])[: 2 + inside if ending in ("the end", "zeros") else 5]
    data = without(entries, 1, 1 + inside) + bytes(300 * (ending == "zeros"))
    size = len(entries[1]) - sum(map(len, entries[2 : 2 + inside]))
    kept = [0, *range(2, len(entries))]
    if ending == "a cut entry":
        data = data[:-20]
        kept.remove(4)
    bounds = [100 + sum(counts[:k]) for k in range(6)]
    check(path, data, [offset for k in kept for offset in range(bounds[k], bounds[k + 1])], [(len(entries[0]), size)])


@pytest.mark.parametrize("format", FORMATS)
def test_drafts(path: Path, format: str) -> None:
    """In the drafts: the length of an entry leads over the next two, and its own bytes are damaged."""
    for seed in range(40):
        made = Maker(format, random.Random(f"{format} {seed}")).segment(6)
        entries = [entry.data for entry in made]
        if any(len(entries[2][:12]) < 12 or entries[2][16] > 2 or not entry.rows for entry in made):
            continue
        damaged = entries[2][:8] + struct.pack(">i", sum(map(len, entries[2:5])) - 12) + spoiled(entries[2])[12:]
        path.write_bytes(b"".join([*entries[:2], damaged, *entries[3:]]))
        rows = [row.offset for k in (0, 1, 3, 4, 5) for row in made[k].rows]
        assert offsets(path, format=format, threads=1) == offsets(path, format=format, threads=3, chunk_bytes=100) == rows, seed


@pytest.mark.parametrize("kind", ["v2", "v1"])
@pytest.mark.parametrize("copied", [100, 103, 104, 105, 106, 108, 112, 200])
def test_copies_in_a_value_come_back_only_where_offsets_are_missing(path: Path, kind: str, copied: int) -> None:
    """The damaged entry claims offset 104, and 108 follows it: a copy of a batch in its value counts only with offsets 105 to 107."""
    copy = b"before" + batch(records(copied, 2)) + b"after"
    entries = [entry(kind, offset, 1, value=value) for offset, value in ((103, None), (104, copy), (108, None), (109, None))]
    path.write_bytes(b"".join([entries[0], spoiled(entries[1]), *entries[2:]]))
    fits = [copied, copied + 1] if copied > 104 and copied + 1 < 108 else []
    assert offsets(path) == [103, *fits, 108, 109]


@pytest.mark.parametrize("copied", [103, 105, 106, 200])
def test_copies_in_the_value_of_the_last_record_are_data(path: Path, copied: int) -> None:
    copies = batch(records(copied, 2)) + batch(records(copied + 2, 2))
    path.write_bytes(entry("v2", 103, 1) + spoiled(entry("v2", 104, 1, value=copies), 63))
    assert offsets(path) == [103]
    assert kolumn.verify(path).damage.num_rows == 1


def test_a_gap_that_compaction_left_holds_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry("v2", offset, 2) for offset in (100, 110, 120)]
    data = entries[0] + spoiled(entries[1]) + entries[2]
    check(path, data, [100, 101, 120, 121], [(len(entries[0]), len(entries[1]))])
    # A batch that claims all offsets between its neighbours leaves no gap, so it is not searched.
    monkeypatch.setattr(Search, "_best", Mock(side_effect=AssertionError("searched")))
    entries = [entry("v2", 100 + 2 * i, 2) for i in range(4)]
    path.write_bytes(b"".join([entries[0], spoiled(entries[1]), *entries[2:]]))
    assert offsets(path) == [100, 101, 104, 105, 106, 107]


def test_a_block_that_was_written_twice_and_entries_that_share_bytes(path: Path) -> None:
    """The second copy of a block begins in the middle of an entry. The entry that was cut there is whole after it."""
    entries = chain("v2", [2, 2, 2, 2, 2], [60] * 5)
    size, data = len(entries[0]), b"".join(entries)
    high = 3 * size + 90
    path.write_bytes(data[:high] + data[high - 200 : high] + data[high:])
    assert sorted(set(offsets(path))) == list(range(100, 110))
    # The last bytes of an entry are missing, and they equal the zeros at the beginning of the next offset: both entries are intact.
    entries = [batch(records(100, 1, value=b"ends with zeros" + bytes(4))), *(batch(records(offset, 2)) for offset in (101, 103))]
    path.write_bytes(entries[0][:-3] + entries[1] + entries[2])
    assert offsets(path) == [100, 101, 102, 103, 104]
    (damage,) = kolumn.verify(path).damage.to_pylist()
    assert (damage["position"], damage["size"]) == (len(entries[0]), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_that_was_written_twice_hides_no_entry_behind_damage(path: Path, kind: str) -> None:
    """Whole, or from the middle of an entry on; before other entries and at the end; also a block from before the damage."""
    entries = chain(kind, [2] * 7, [40] * 7)
    each = 1 if kind in ("v0", "v1") else 2
    whole = {100 + at for at in range(7 * each) if at // each != 1}
    for again, cut in (([3], 0), ([2, 3], 0), ([0], 0), ([0, 3], 0), ([2, 3], 9), ([2, 3, 4], 9)):
        for until in (5, 7):
            block = b"".join(entries[at] for at in again)[cut:]
            path.write_bytes(entries[0] + entries[1][8:-3] + b"".join(entries[2:until]) + block + b"".join(entries[until:]))
            assert set(offsets(path)) >= whole, (again, cut, until)


def test_a_log_that_was_cut_inside_a_header(path: Path) -> None:
    """The rest of the last header is too short to be read: the entries between it and the damage are read all the same."""
    entries = chain("v2", [2, 2, 2, 2], [60] * 4)
    for left in (3, 8, 12, 17, 30, 60):
        path.write_bytes(b"".join([entries[0][:100], entries[0][130:], *entries[1:3], entries[3][:left]]))
        assert offsets(path) == [102, 103, 104, 105], left


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_a_damaged_wrapper_are_no_entries(path: Path, magic: int) -> None:
    """Messages in a stored block are uncompressed: inside a wrapper whose length is wrong they have right checksums."""
    wrappers = [wrapper(magic, records(offset, 2), 3, style="stored") for offset in (0, 2, 4)]
    damaged = wrappers[0][:8] + struct.pack(">i", 13) + spoiled(wrappers[0], 12)[12:]
    path = path.with_name(f"{0:020}.log")
    path.write_bytes(damaged + wrappers[1] + wrappers[2])
    assert offsets(path) == [2, 3, 4, 5]
    # The head of a segment is missing, and with it the header of a format 1 wrapper, to whose base its messages' offsets are relative.
    wrappers = [wrapper(1, records(offset, 2), 2) for offset in (50, 52, 54)]
    # A snappy stream may end with an uncompressed message.
    path.write_bytes(wrappers[0][60:] + message(1, Record(1, b"k", b"v", TIME)) + wrappers[1] + wrappers[2])
    assert offsets(path) == [52, 53, 54, 55]


BASE = 100


def plain_batch(base: int, values: list[bytes]) -> bytes:
    return batch([Record(base + i, None, value, 1000) for i, value in enumerate(values)])


def segment(nested: int | None, nested_batches: int, at: int) -> list[bytearray]:
    """Six batches of four records. A value of batch ``at`` contains whole batches with offsets from ``nested`` on."""
    rng, batches = random.Random(5), []
    for i in range(6):
        values = [rng.randbytes(30) for _ in range(4)]
        if i == at and nested is not None:
            inside = b"".join(plain_batch(nested + 4 * k, [b"nested"] * 4) for k in range(nested_batches))
            values[1] = b"before" + inside + b"after"
        batches.append(bytearray(plain_batch(BASE + 4 * i, values)))
    return batches


Batches = list[bytearray]
Damaging = Callable[[Batches, int], object]


def length(value: int) -> Damaging:
    return lambda batches, i: struct.pack_into(">i", batches[i], 8, value)


def turned(position: int, bits: int = 1, number: int = 0) -> Damaging:
    def turn(batches: Batches, i: int) -> None:
        if i + number < len(batches):
            batches[i + number][position] ^= bits

    return turn


def both(*ways: Damaging) -> Damaging:
    return lambda batches, i: [damage(batches, i) for damage in ways]


flip = turned(70, 0x10)


DAMAGE = {
    "payload": flip,
    "crc field": turned(17),
    "magic": turned(16, 7),
    "length too small": length(60),
    "length below the smallest": length(3),
    "length huge": length(1 << 28),
    "length negative": length(-5),
    "length zero": length(0),
    "length a little too large": lambda batches, i: length(len(batches[i]) - 12 + 7)(batches, i),
    "payload and length": both(flip, length(60)),
    "two in a row": both(flip, turned(75, 1, 1)),
    "bytes missing": lambda batches, i: batches[i].__delitem__(slice(64, 80)),
    "payload, and the last batch cut": both(flip, lambda batches, i: batches[-1].__delitem__(slice(-20, None))),
    "payload, and zeros after": both(flip, lambda batches, i: batches.append(bytearray(500))),
}


NESTED = (None, 0, 96, 99, 112, 113, 114, 116, 118, 200)
"""The first offset of batches inside of a value."""
CASES = pairs(tuple(DAMAGE), NESTED, (1, 3), (0, 3, 5), more=28)


@pytest.mark.parametrize("kind", DAMAGE)
def test_all_that_is_intact_comes_back(path: Path, kind: str) -> None:
    for _, nested, nested_batches, damaged in (case for case in CASES if case[0] == kind):
        batches = segment(nested, nested_batches, damaged)
        DAMAGE[kind](batches, damaged)
        lost = {damaged} | {"two in a row": {damaged + 1}, "payload, and the last batch cut": {5}}.get(kind, set())
        path.write_bytes(b"".join(batches))
        want = [BASE + 4 * i + k for i in range(6) if i not in lost for k in range(4)]
        found, report = kolumn.read(path, columns=["offset"], errors="skip")["offset"].to_pylist(), kolumn.verify(path)
        assert (found, report.records) == (want, len(want)), (nested, nested_batches, damaged)
        start = sum(map(len, batches[:damaged]))
        cut_off = damaged == 5 and kind in ("bytes missing", "payload, and the last batch cut", "length huge", "length a little too large")
        if cut_off and report.ok:
            assert report.segments["tail"].to_pylist() == ["truncated"]
            continue
        assert report.damage["position"][0].as_py() == start
        caught = raises(kolumn.CorruptBatchError, "", kolumn.read, path)
        assert (caught.segment, caught.position, caught.base_offset) == (str(path), start, BASE + 4 * damaged)


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("base", [BASE, 1 << 33])
def test_entries_between_two_damaged_places(tmp_path, base, at):
    rng = random.Random(at)
    batches = [plain_batch(base + 4 * i, [rng.randbytes(30) for _ in range(4)]) for i in range(6)]
    path = tmp_path / f"{base:020}.log"
    path.write_bytes(b"".join(rng.randbytes(len(one)) if i in (at, 5) else one for i, one in enumerate(batches)))
    want = [base + 4 * i + k for i in range(5) if i != at for k in range(4)]
    assert kolumn.read(path, columns=["offset"], errors="skip")["offset"].to_pylist() == want


def test_nested_batches_are_data_and_a_huge_length_is_damage(path: Path) -> None:
    path.write_bytes(b"".join(segment(200, 3, 3)))
    assert (kolumn.verify(path).ok, kolumn.read(path).num_rows) == (True, 24)
    # For Java such a length is the end of the file, and it drops the rest without an error.
    batches = segment(None, 0, 2)
    length(1 << 30)(batches, 2)
    path.write_bytes(b"".join(batches))
    position = len(batches[0]) + len(batches[1])
    raises(kolumn.CorruptBatchError, f"position {position}, base offset 108: batch length", kolumn.read, path)
    (damage,) = kolumn.verify(path).damage.to_pylist()
    assert (damage["position"], damage["size"]) == (position, len(batches[2]))


def test_error_text_says_all(path: Path) -> None:
    """A record is named if the checksum is right, but record 2 has key length 99."""
    batches = segment(None, 0, 1)
    flip(batches, 1)
    path.write_bytes(b"".join(batches))
    words = rf"{path}.*position {len(batches[0])}.*base offset 104.*crc: expected the stored checksum 0x.*found 0x.*errors='skip'"
    raises(kolumn.CorruptBatchError, words, kolumn.read, path)
    good = plain_batch(BASE, [b"a", b"b", b"c", b"d"])
    position = good.index(b"\x01\x02c", 61)
    path.write_bytes(with_crc(good[:position] + varint(99) + good[position + 2 :]))
    caught = raises(kolumn.CorruptBatchError, "found 99 at byte", kolumn.read, path)
    assert (caught.record, caught.field) == (2, "key length")
    (damage,) = kolumn.verify(path).damage.to_pylist()
    assert (damage["baseOffset"], damage["lastOffset"], damage["recordsLost"]) == (102, 102, 1)


def test_bytes_of_damaged_segments_are_not_walked_in_python(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may have a gigabyte, and the uncompiled functions of `kolumn.formats` read only some megabytes a second."""
    batches = segment(None, 0, 0)
    flip(batches, 2)
    path.write_bytes(b"".join(batches))
    monkeypatch.setattr(crc, "crc_bytes", Mock(side_effect=AssertionError("bytes are walked in Python")))
    (damage,) = kolumn.verify(path).damage.to_pylist()
    assert f"found 0x{crc32c.crc32c(bytes(batches[2][21:])):08x}" in damage["reason"]
    # After damage an entry could begin at any position. Compiled code rejects those with a wrong checksum, with any claimed length.
    looked_at: list[int] = []
    monkeypatch.setattr(Search, "_chain", lambda self, position, floor: looked_at.append(position))
    for claim in (b"\0\0\0\x20", b"\0\x01\0\0", b"\0\x50\0\0"):
        path.write_bytes((bytes(8) + claim) * 100_000)
        assert kolumn.read(path, errors="skip").num_rows == 0
    assert len(looked_at) < 1000


def test_a_damaged_batch_with_a_time_far_from_now_at_the_end(tmp_path: Path) -> None:
    """Its header is looked at where others' times are told not to fit, and it has no records."""
    far = 1 << 61
    damaged = batch([Record(1, b"key", b"value", TIME)], flags=5, max_timestamp=far)
    (tmp_path / "0.log").write_bytes(batch([Record(0, b"key", b"value", far)]) + damaged)
    assert kolumn.read(tmp_path / "0.log", errors="skip")["offset"].to_pylist() == [0]
    raises(kolumn.FormatError, "attributes: expected codec", kolumn.read, tmp_path / "0.log")
