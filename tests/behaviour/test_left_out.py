"""Conversion, compaction and accounting leave out the damage that `verify` finds, and they read each byte once."""

import struct
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.encoder import Record, batch, with_crc
from kolumn.source.segment_file import SegmentFile

TIME = 1_700_000_000_000


def _damaged(folder: Path) -> Path:
    """Seven batches of which three are damaged: a checksum, a length, and a wrong record with a right checksum."""
    batches = [batch([Record(4 * i + k, b"k%d" % k, b"v" * 20, TIME) for k in range(4)]) for i in range(7)]
    flipped, longer = bytearray(batches[1]), bytearray(batches[3])
    flipped[-1] ^= 1
    struct.pack_into(">i", longer, 8, 1 << 20)
    longer[70] ^= 1
    wrong = batch([Record(20, b"k", b"v", TIME)])
    wrong = with_crc(wrong[:57] + struct.pack(">i", 2) + wrong[61:])
    path = folder / "orders-0" / f"{0:020}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join([batches[0], bytes(flipped), batches[2], bytes(longer), batches[4], wrong, batches[6]]))
    return path


def _stretches(skipped: kolumn.Skipped) -> list[tuple[Any, ...]]:
    return [(d.position, d.size, d.base_offset, d.last_offset, d.reason, d.records_lost) for d in skipped.damage]


@pytest.mark.parametrize("way", ["convert", "compact"])
def test_the_same_stretches_as_verify(tmp_path: Path, way: str) -> None:
    path = _damaged(tmp_path)
    if way == "convert":
        done: Any = kolumn.convert(path.parent, tmp_path / "out", errors="skip")
    else:
        done = kolumn.compact(path.parent, tmp_path / "out", errors="skip", include_active=True)
    names = ("position", "size", "baseOffset", "lastOffset", "reason", "recordsLost")
    found = [tuple(row[name] for name in names) for row in kolumn.verify(path).damage.to_pylist()]
    assert len(found) == 3
    assert _stretches(done.skipped) == found
    assert [(error.position, error.field) for error in done.damage] == [(row[0], row[4].partition(":")[0]) for row in _named(found)]
    assert done.records == kolumn.read(path, errors="skip").num_rows


def _named(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The stretches, with reasons that do not begin with a record's number."""
    return [
        (*row[:4], row[4].partition(": ")[2] if row[4].startswith("record ") and row[4][7].isdigit() else row[4], row[5]) for row in found
    ]


def test_the_checksum_of_a_damaged_batch_covers_its_bytes_alone(tmp_path: Path) -> None:
    path = _damaged(tmp_path)
    with pytest.raises(kolumn.CorruptBatchError) as strict:
        kolumn.read(path)
    with pytest.raises(kolumn.CorruptBatchError) as converted:
        kolumn.convert(path, tmp_path / "out.log")
    assert str(converted.value) == str(strict.value)


@pytest.mark.parametrize("check_crcs", [True, False])
@pytest.mark.parametrize("way", ["convert", "compact", "space"])
def test_each_byte_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, check_crcs: bool) -> None:
    source = tmp_path / "orders-0" / f"{0:020}.log"
    source.parent.mkdir()
    # Batches larger than the windows in which headers are read.
    source.write_bytes(b"".join(batch([Record(10 * i + k, b"k%d" % k, bytes(20_000), TIME) for k in range(10)]) for i in range(20)))
    real, read = SegmentFile.read, [0]

    def counted(self: SegmentFile, start: int, end: int) -> Any:
        read[0] += end - start
        return real(self, start, end)

    monkeypatch.setattr(SegmentFile, "read", counted)
    size, passes = source.stat().st_size, 1
    if way == "convert":
        kolumn.convert(source.parent, tmp_path / "out", magic=1, check_crcs=check_crcs)
    elif way == "compact":
        kolumn.compact(source.parent, tmp_path / "out", include_active=True, check_crcs=check_crcs)
        # Loops read all of it for the last offset of each key, and then nothing is read of batches of which no record stays.
        passes = 0
    else:
        kolumn.space(source.parent, check_crcs=check_crcs)
    # Walks along the headers are read in addition.
    assert passes * size <= read[0] < (passes + 0.9) * size
