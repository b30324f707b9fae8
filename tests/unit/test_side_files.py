"""Files about transactions that brokers write next to segments, byte by byte."""

from pathlib import Path

import crc32c
import pytest

from kolumn.source.side_files import aborted_in, open_in
from kolumn.source.storage import read_bytes

ENTRY = bytes.fromhex(
    "0000"  # version 0
    "0000000000000007"  # producer id
    "0000000000000010"  # first offset of the transaction
    "0000000000000020"  # offset of its ABORT marker
    "0000000000000021"  # last stable offset at the time of writing
)

PRODUCERS = bytes.fromhex(
    "00000002"  # two producers
    # producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the open transaction
    "0000000000000007" "0003" "00000004" "0000000000000020" "00000001" "0000018000000000" "0000000b" "000000000000001f"
    "0000000000000008" "0000" "ffffffff" "ffffffffffffffff" "00000000" "0000018000000000" "ffffffff" "ffffffffffffffff"
)  # fmt: skip


def snapshot(version: int = 1, checksum: int = 0, producers: bytes = PRODUCERS) -> bytes:
    return version.to_bytes(2, "big") + (crc32c.crc32c(producers) ^ checksum).to_bytes(4, "big") + producers


def test_txnindex(tmp_path: Path) -> None:
    path = tmp_path / "0.txnindex"
    assert aborted_in(read_bytes(str(path))) is None
    for data, expected in [
        (b"", []),
        (ENTRY, [(7, 16, 32)]),
        (2 * ENTRY, 2 * [(7, 16, 32)]),
        (ENTRY + ENTRY[:33], [(7, 16, 32)]),
    ]:
        path.write_bytes(data)
        assert aborted_in(read_bytes(str(path))) == expected


@pytest.mark.parametrize(
    ("place", "byte"),
    [(1, 1), (10, 0x80), (17, 0x30), (18, 0x80)],
    ids=["version", "first offset below 0", "first offset after the marker", "marker below 0"],
)
def test_a_txnindex_that_is_not_sane(tmp_path: Path, place: int, byte: int) -> None:
    data = bytearray(2 * ENTRY)
    data[place] = byte
    path = tmp_path / "0.txnindex"
    path.write_bytes(data)
    assert aborted_in(read_bytes(str(path))) is None


def test_a_txnindex_out_of_order(tmp_path: Path) -> None:
    path = tmp_path / "0.txnindex"
    path.write_bytes(ENTRY + ENTRY[:25] + b"\x1f" + ENTRY[26:])
    assert aborted_in(read_bytes(str(path))) is None


def test_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "33.snapshot"
    assert open_in(read_bytes(str(path))) is None
    path.write_bytes(snapshot())
    assert open_in(read_bytes(str(path))) == {7: 31}
    path.write_bytes(snapshot(producers=bytes(4)))
    assert open_in(read_bytes(str(path))) == {}


@pytest.mark.parametrize(
    "data",
    [b"", snapshot()[:-1], snapshot() + b"\0", snapshot(version=2), snapshot(checksum=1), snapshot(producers=b"\xff\xff\xff\xff")],
    ids=["empty", "cut", "too long", "version", "checksum", "negative count"],
)
def test_a_snapshot_that_is_not_sane(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "33.snapshot"
    path.write_bytes(data)
    assert open_in(read_bytes(str(path))) is None
