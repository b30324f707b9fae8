"""Damaged segments of Redpanda: nothing intact is lost, nothing false is read, and errors say what was expected and found."""

import struct
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest

import kolumn
from kit import oracle, redpanda
from kit.asked import skipping
from kit.encoder import Record, batch, with_crc
from kit.outcome import raises
from kit.paths import GENERAL, without
from kolumn.core.errors import Code


def entry(number: int, value: bytes = b"", codec: int = 0) -> bytes:
    """A batch with three records."""
    base = 3 * number
    return redpanda.of_kafka(
        batch([Record(base + i, b"k%d" % i, value or b"value of %d" % (base + i), 1000 + i) for i in range(3)], codec=codec)
    )


ENTRIES = [entry(number) for number in range(5)]
SIZE = len(ENTRIES[0])
WHOLE = b"".join(ENTRIES)
assert {len(one) for one in ENTRIES[:3]} == {SIZE}


def of(*numbers: int) -> list[int]:
    """Offsets of the batches with these numbers."""
    return [offset for number in numbers for offset in range(3 * number, 3 * number + 3)]


def read(path: Path, data: bytes) -> tuple[list[int], list[kolumn.Damage]]:
    """Raw offsets of what is read, and what is left out; the general path has to say the same."""
    path.write_bytes(data)
    found, left = skipping(path, format="redpanda", columns=["rawOffset"])
    with without(GENERAL):
        again, again_left = skipping(path, format="redpanda", columns=["rawOffset"])
    assert (again, again_left.damage) == (found, left.damage)
    report = kolumn.verify(path, format="redpanda")
    assert report.damage["position"].to_pylist() == [one.position for one in left.damage]
    return found["rawOffset"].to_pylist(), left.damage


def flips(data: bytes, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    for at in range(low, high):
        yield at, data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


@pytest.mark.parametrize("number", [0, 2, 4])
def test_each_byte_of_a_header(number: int, path: Path) -> None:
    """In the first batch, in the middle and in the last one."""
    start = sum(map(len, ENTRIES[:number]))
    for at, data in flips(WHOLE, start, start + redpanda.HEADER):
        offsets, damage = read(path, data)
        assert offsets == of(*(one for one in range(5) if one != number)), at
        assert [(one.position, one.size) for one in damage] == [(start, len(ENTRIES[number]))], at
        error = raises(kolumn.CorruptBatchError, "", kolumn.read, path, format="redpanda")
        assert (error.position, error.code in (Code.HEADER_CRC, Code.BAD_LENGTH)) == (start, True), at
        if error.code == Code.HEADER_CRC:
            header = data[start : start + redpanda.HEADER]
            stored, computed = struct.unpack_from("<I", header)[0], crc32c.crc32c(header[4:])
            assert f"expected the stored checksum 0x{stored:08x}, found 0x{computed:08x} over bytes 4 to 61" in str(error)


@pytest.mark.parametrize("number", [0, 2, 4])
def test_each_byte_of_the_records(number: int, path: Path) -> None:
    start = sum(map(len, ENTRIES[:number]))
    for at, data in flips(WHOLE, start + redpanda.HEADER, start + len(ENTRIES[number])):
        offsets, damage = read(path, data)
        assert offsets == of(*(one for one in range(5) if one != number)), at
        first, last = 3 * number, 3 * number + 2
        lost = [(one.position, one.size, one.base_offset, one.last_offset, one.records_lost) for one in damage]
        assert lost == [(start, len(ENTRIES[number]), first, last, 3)], at
    stored = struct.unpack_from("<I", ENTRIES[number], 17)[0]
    error = raises(kolumn.CorruptBatchError, "fields of the header in big-endian", kolumn.read, path, format="redpanda")
    assert (error.position, error.code, error.base_offset) == (start, Code.BAD_CRC, 3 * number)
    kafka = redpanda.to_kafka(data[start : start + len(ENTRIES[number])])
    assert f"expected the stored checksum 0x{stored:08x}, found 0x{crc32c.crc32c(kafka[21:]):08x} over bytes 21 to" in str(error)


def test_the_crc_field_alone(path: Path) -> None:
    """With the header's checksum right again the records do not fit."""
    wrong = bytearray(ENTRIES[1])
    wrong[17] ^= 1
    data = ENTRIES[0] + redpanda.sealed(bytes(wrong[4 : redpanda.HEADER])) + bytes(wrong[redpanda.HEADER :]) + b"".join(ENTRIES[2:])
    offsets, damage = read(path, data)
    assert offsets == of(0, 2, 3, 4)
    assert [(one.base_offset, one.last_offset, one.error.code) for one in damage if one.error] == [(3, 5, Code.BAD_CRC)]
    # Unlike the header's, which says where the next batch is, that of the records can be left alone.
    assert kolumn.read(path, format="redpanda", check_crcs=False).num_rows == 15


def test_torn_tails(path: Path) -> None:
    """A log may end anywhere in its last batch."""
    for end in range(len(WHOLE) - len(ENTRIES[4]) + 1, len(WHOLE)):
        path.write_bytes(WHOLE[:end])
        assert kolumn.read(path, format="redpanda", columns=["rawOffset"])["rawOffset"].to_pylist() == of(0, 1, 2, 3), end
        report = kolumn.verify(path, format="redpanda")
        left = end - len(WHOLE) + len(ENTRIES[4])
        assert (report.ok, report.segments["tail"].to_pylist(), report.segments["tailBytes"].to_pylist()) == (True, ["truncated"], [left])


def test_a_torn_tail_of_a_rolled_segment_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    for left in (1, 30, 60, 61, 80):
        (folder / f"{0:020}.log").write_bytes(WHOLE[: len(WHOLE) - len(ENTRIES[4]) + left])
        (folder / f"{15:020}.log").write_bytes(entry(5))
        _, skipped = skipping(folder, format="redpanda")
        assert [(one.size, one.base_offset, one.last_offset) for one in skipped.damage] == [(left, 12, 14)]
        whole = f" of {len(ENTRIES[4])} bytes" if left >= redpanda.HEADER else r"\."
        raises(kolumn.CorruptBatchError, f"found the first {left} bytes?{whole}", kolumn.read, folder, format="redpanda")


@pytest.mark.parametrize("zeros", [1, 17, 18, 60, 61, 62, 200, 5000])
def test_zeros_at_the_end(zeros: int, path: Path) -> None:
    """Space that was allocated in advance; of a few bytes nobody knows."""
    offsets, damage = read(path, WHOLE + bytes(zeros))
    assert (offsets, damage) == (of(0, 1, 2, 3, 4), [])
    [tail] = kolumn.verify(path, format="redpanda").segments["tail"].to_pylist()
    assert tail == ("zeros" if zeros >= redpanda.HEADER else "truncated")


@pytest.mark.parametrize("zeros", [1, 8, 60, 61, 62, 500])
def test_zeros_in_the_middle(zeros: int, path: Path) -> None:
    for number in (0, 1, 3):
        start = sum(map(len, ENTRIES[:number]))
        offsets, damage = read(path, WHOLE[:start] + bytes(zeros) + WHOLE[start:])
        assert offsets == of(0, 1, 2, 3, 4)
        assert [(one.position, one.size) for one in damage] == [(start, zeros)]


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 1, 60, 61, SIZE - 1, SIZE + 1, 2 * SIZE, 3 * SIZE, 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize("sealed", [False, True])
def test_sizes(size: int, sealed: bool, path: Path) -> None:
    """The checksum of the records says where the batch ends."""
    for number in (0, 2, 4):
        wrong = ENTRIES[number][:4] + struct.pack("<i", size) + ENTRIES[number][8:]
        wrong = redpanda.sealed(wrong[4 : redpanda.HEADER]) + wrong[redpanda.HEADER :] if sealed else wrong
        offsets, damage = read(path, b"".join([*ENTRIES[:number], wrong, *ENTRIES[number + 1 :]]))
        assert offsets == of(*(one for one in range(5) if one != number)), number
        start = sum(map(len, ENTRIES[:number]))
        # The last one may as well have been torn.
        assert [(one.position, one.size) for one in damage] == [(start, len(ENTRIES[number]))] or (sealed and number == 4)


@pytest.mark.parametrize("gone", [1, 4, 12, 61, 100, SIZE - 61, SIZE, SIZE + 40])
def test_missing_bytes(gone: int, path: Path) -> None:
    for start in range(0, SIZE, 7):
        data = WHOLE[:start] + WHOLE[start + gone :]
        offsets, _ = read(path, data)
        intact = {row.offset for one in _intact(data) for row in one}
        assert intact <= set(offsets) <= set(of(0, 1, 2, 3, 4)), start
        assert sorted(offsets) == offsets


def _intact(data: bytes) -> list[list[oracle.Row]]:
    places = [data.find(one) for one in ENTRIES]
    return [redpanda.read_entry(one, at).rows for one, at in zip(ENTRIES, places, strict=True) if at >= 0]


def test_a_block_that_was_written_twice(path: Path) -> None:
    """Behind the damaged part comes what was there before it."""
    twice = WHOLE[: 3 * SIZE + 50] + WHOLE[2 * SIZE :]
    offsets, damage = read(path, twice)
    assert offsets == of(0, 1, 2, 3, 4) or offsets == of(0, 1, 2, 2, 3, 4)
    assert [(one.position, one.size) for one in damage] in ([(3 * SIZE, 50)], [(3 * SIZE, 50 + SIZE)])


@pytest.mark.parametrize("inner", ["redpanda", "kafka"])
@pytest.mark.parametrize("codec", [0, 1])
def test_batches_in_a_value(inner: str, codec: int, path: Path) -> None:
    """They are values, whatever is damaged around them."""
    for first in (0, 3, 4, 6, 100):
        kafkas = [batch([Record(first + i, b"inner", b"inner", 5)]) for i in range(3)]
        held = b"".join(map(redpanda.of_kafka, kafkas) if inner == "redpanda" else kafkas)
        outer = entry(1, held, codec)
        entries = [ENTRIES[0], outer, *ENTRIES[2:]]
        assert read(path, b"".join(entries)) == (of(0, 1, 2, 3, 4), [])
        for at, data in flips(outer, 0, redpanda.HEADER + 20):
            offsets, damage = read(path, b"".join([ENTRIES[0], data, *ENTRIES[2:]]))
            if first in (3, 4) and (23 <= at < 27 or 57 <= at < 61):
                # Both checksums are wrong, and the field that is says how many offsets there are: the batches inside fit those that are
                # missing, so nobody can tell.
                continue
            assert offsets == of(0, 2, 3, 4), (first, at)
            assert [(one.position, one.size) for one in damage] == [(SIZE, len(outer))]


def test_a_segment_of_the_other_broker(path: Path) -> None:
    kafka = b"".join(map(redpanda.to_kafka, ENTRIES))
    for data, form, other in ((kafka, "redpanda", "Kafka"), (WHOLE, "kafka", "Redpanda"), (entry(5), "kafka", "Redpanda")):
        path.write_bytes(data)
        told = rf"found a segment of {other} \({len(data)} bytes\)\. Read it with format='{other.lower()}'"
        error = raises(kolumn.FormatError, told, kolumn.read, path, format=form)
        assert error.expected == ("a log segment of Redpanda" if form == "redpanda" else "a Kafka log segment")
        rows, left = skipping(path, format=form)
        assert (rows.num_rows, [(one.position, one.size) for one in left.damage]) == (0, [(0, len(data))])


def test_wrong_records_under_right_checksums(path: Path) -> None:
    """One bad record costs one record."""
    kafka = bytearray(redpanda.to_kafka(ENTRIES[1]))
    place = kafka.index(b"value of 4") - 1
    kafka[place] = 0x7E
    wrong = redpanda.of_kafka(with_crc(bytes(kafka)))
    offsets, damage = read(path, ENTRIES[0] + wrong + b"".join(ENTRIES[2:]))
    assert offsets == [0, 1, 2, 3, 5, *of(2, 3, 4)]
    assert [(one.base_offset, one.last_offset, one.records_lost) for one in damage] == [(4, 4, 1)]
