"""Damage, and whole batches inside a record's value: all intact records are read, and nothing else."""

import os
import random
import struct

import crc32c
import pytest

import kolumn
from kit import encoder
from kit.pairs import pairs
from kolumn.damage.search import Search
from kolumn.formats import crc

BASE = 100


def batch(base: int, values: list[bytes]) -> bytes:
    """A format 2 batch, uncompressed, with null keys."""
    return encoder.batch([encoder.Record(base + i, None, value, 1000) for i, value in enumerate(values)])


def segment(nested: int | None, nested_batches: int, at: int) -> list[bytearray]:
    """Six batches of four records. A value of batch ``at`` contains whole batches with offsets from ``nested`` on."""
    rng, batches = random.Random(5), []
    for i in range(6):
        values = [rng.randbytes(30) for _ in range(4)]
        if i == at and nested is not None:
            inside = b"".join(batch(nested + 4 * k, [b"nested"] * 4) for k in range(nested_batches))
            values[1] = b"before" + inside + b"after"
        batches.append(bytearray(batch(BASE + 4 * i, values)))
    return batches


def length(value):
    return lambda batches, at: struct.pack_into(">i", batches[at], 8, value)


def flip(batches, at):
    batches[at][70] ^= 0x10


def flip_and_length(batches, at):
    flip(batches, at)
    struct.pack_into(">i", batches[at], 8, 60)


def two_in_a_row(batches, at):
    flip(batches, at)
    if at + 1 < len(batches):
        batches[at + 1][75] ^= 1


def crc_field(batches, at):
    batches[at][17] ^= 1


def magic(batches, at):
    batches[at][16] = 5


def off_by_some(batches, at):
    struct.pack_into(">i", batches[at], 8, len(batches[at]) - 12 + 7)


def bytes_missing(batches, at):
    del batches[at][64:80]


def flip_before_a_cut(batches, at):
    flip(batches, at)
    batches[-1] = batches[-1][:-20]


def flip_before_zeros(batches, at):
    flip(batches, at)
    batches.append(bytearray(500))


DAMAGE = {
    "payload": flip,
    "crc field": crc_field,
    "magic": magic,
    "length too small": length(60),
    "length below the smallest": length(3),
    "length huge": length(1 << 28),
    "length negative": length(-5),
    "length zero": length(0),
    "length a little too large": off_by_some,
    "payload and length": flip_and_length,
    "two in a row": two_in_a_row,
    "bytes missing": bytes_missing,
    "payload, and the last batch cut": flip_before_a_cut,
    "payload, and zeros after": flip_before_zeros,
}


NESTED = (None, 0, 96, 99, 112, 113, 114, 116, 118, 200)
"""The first offset of batches inside of a value."""
CASES = pairs(tuple(DAMAGE), NESTED, (1, 3), (0, 3, 5), more=28)


@pytest.mark.parametrize("kind", DAMAGE)
def test_all_that_is_intact_comes_back(tmp_path, kind):
    for _, nested, nested_batches, at in (case for case in CASES if case[0] == kind):
        check_damage(tmp_path, kind, nested, nested_batches, at)


def check_damage(tmp_path, kind, nested, nested_batches, at):
    batches = segment(nested, nested_batches, at)
    DAMAGE[kind](batches, at)
    lost = {at}
    if kind == "two in a row":
        lost.add(at + 1)
    if kind == "payload, and the last batch cut":
        lost.add(5)
    path = tmp_path / f"{BASE:020}.log"
    path.write_bytes(b"".join(batches))
    want = [BASE + 4 * i + k for i in range(6) if i not in lost for k in range(4)]

    found = kolumn.read(path, columns=["offset"], errors="skip")["offset"].to_pylist()
    assert found == want, (nested, nested_batches, at)

    report = kolumn.verify(path)
    assert report.records == len(want), (nested, nested_batches, at)
    start = sum(map(len, batches[:at]))
    cut_off = at == 5 and kind in ("bytes missing", "payload, and the last batch cut", "length huge", "length a little too large")
    if cut_off and report.ok:
        assert report.segments["tail"].to_pylist() == ["truncated"]
        return
    damage = report.damage.to_pylist()
    assert damage[0]["position"] == start
    with pytest.raises(kolumn.CorruptBatchError) as caught:
        kolumn.read(path)
    assert (caught.value.segment, caught.value.position) == (str(path), start)
    assert caught.value.base_offset == BASE + 4 * at


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("base", [BASE, 1 << 33])
def test_entries_between_two_damaged_places(tmp_path, base, at):
    rng = random.Random(at)
    batches = [batch(base + 4 * i, [rng.randbytes(30) for _ in range(4)]) for i in range(6)]
    path = tmp_path / f"{base:020}.log"
    path.write_bytes(b"".join(rng.randbytes(len(one)) if i in (at, 5) else one for i, one in enumerate(batches)))
    want = [base + 4 * i + k for i in range(5) if i != at for k in range(4)]
    assert kolumn.read(path, columns=["offset"], errors="skip")["offset"].to_pylist() == want


def test_nested_batches_of_an_intact_segment_are_data(tmp_path):
    path = tmp_path / f"{BASE:020}.log"
    path.write_bytes(b"".join(segment(200, 3, 3)))
    assert kolumn.verify(path).ok
    assert kolumn.read(path).num_rows == 24


def test_a_huge_length_in_mid_file_is_reported(tmp_path):
    """For Java such a length is the end of the file, and it drops the rest without an error."""
    batches = segment(None, 0, 2)
    struct.pack_into(">i", batches[2], 8, 1 << 30)
    path = tmp_path / f"{BASE:020}.log"
    path.write_bytes(b"".join(batches))
    with pytest.raises(kolumn.CorruptBatchError, match=f"position {len(batches[0]) + len(batches[1])}, base offset 108: batch length"):
        kolumn.read(path)
    (damage,) = kolumn.verify(path).damage.to_pylist()
    assert (damage["position"], damage["size"]) == (len(batches[0]) + len(batches[1]), len(batches[2]))


def test_error_text_says_all(tmp_path):
    batches = segment(None, 0, 1)
    flip(batches, 1)
    path = tmp_path / f"{BASE:020}.log"
    path.write_bytes(b"".join(batches))
    with pytest.raises(kolumn.CorruptBatchError) as caught:
        kolumn.read(path)
    text = str(caught.value)
    for part in (
        str(path),
        f"position {len(batches[0])}",
        "base offset 104",
        "crc: expected the stored checksum 0x",
        "found 0x",
        "errors='skip'",
    ):
        assert part in text


def test_a_record_is_named(tmp_path):
    """The checksum is right, but record 2 has key length 99."""
    good = batch(BASE, [b"a", b"b", b"c", b"d"])
    at = good.index(b"\x01\x02c", 61)
    path = tmp_path / f"{BASE:020}.log"
    path.write_bytes(encoder.with_crc(good[:at] + encoder.varint(99) + good[at + 2 :]))
    with pytest.raises(kolumn.CorruptBatchError) as caught:
        kolumn.read(path)
    assert (caught.value.record, caught.value.field) == (2, "key length")
    assert "found 99 at byte" in str(caught.value)
    (damage,) = kolumn.verify(path).damage.to_pylist()
    assert (damage["baseOffset"], damage["lastOffset"], damage["recordsLost"]) == (102, 102, 1)


def test_a_file_that_shrinks_gives_an_error(tmp_path, monkeypatch):
    path = tmp_path / f"{BASE:020}.log"
    path.write_bytes(b"".join(segment(None, 0, 0)))
    from kolumn.source.segment_file import SegmentFile
    from kolumn.source.segments import find_segments

    (found,) = find_segments(path)
    opened = SegmentFile(found)
    os.truncate(path, 50)
    with pytest.raises(kolumn.KolumnError, match="it was cut"), opened as file:
        file.read(0, found.size)
    with pytest.raises(kolumn.KolumnError, match="it was cut"):
        SegmentFile(found)


def test_the_checksum_of_a_damaged_batch_is_not_made_in_python(tmp_path, monkeypatch):
    """A batch may have a gigabyte, and the uncompiled functions of `kolumn.formats` read only some megabytes a second."""

    def never(*_):
        raise AssertionError("bytes are walked in Python")

    batches = segment(None, 0, 0)
    flip(batches, 2)
    path = tmp_path / f"{BASE:020}.log"
    path.write_bytes(b"".join(batches))
    monkeypatch.setattr(crc, "crc_bytes", never)
    (damage,) = kolumn.verify(path).damage.to_pylist()
    assert f"found 0x{crc32c.crc32c(bytes(batches[2][21:])):08x}" in damage["reason"]


def test_claims_of_entries_are_not_looked_at_one_by_one(tmp_path, monkeypatch):
    """After damage an entry could begin at any position. Compiled code rejects those with a wrong checksum, with any claimed length."""
    looked_at = []
    monkeypatch.setattr(Search, "_chain", lambda self, position, floor: looked_at.append(position))
    path = tmp_path / f"{BASE:020}.log"
    for claim in (b"\0\0\0\x20", b"\0\x01\0\0", b"\0\x50\0\0"):
        path.write_bytes((bytes(8) + claim) * 100_000)
        assert kolumn.read(path, errors="skip").num_rows == 0
    assert len(looked_at) < 1000
