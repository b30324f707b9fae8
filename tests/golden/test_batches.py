"""Golden bytes of format 2, field by field."""

from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.encoder import with_crc

T = 1_600_000_000_000
NOBODY = "ffffffffffffffff ffff ffffffff # producer id, epoch and base sequence: none"

PLAIN = """
    0000000000000064 # base offset 100
    00000042         # 66 bytes follow
    00000003         # leader epoch 3
    02               # magic 2
    728602eb         # CRC-32C from the attributes on
    0000             # attributes: no codec, CreateTime
    00000001         # last offset is 1 more than the base
    00000174876e8000 # base timestamp 1600000000000
    00000174876e8005 # largest timestamp
    0000000000000fa0 # producer 4000
    0002             # producer epoch 2
    00000009         # base sequence 9
    00000002         # 2 records
      10 00          # 8 bytes, attributes
      00 00          # timestamp + 0, offset + 0
      02 6b          # key "k"
      02 76          # value "v"
      00             # no headers
      0e 00          # 7 bytes, attributes
      0a 02          # timestamp + 5, offset + 1
      01             # key null
      02 77 00       # value "w", no headers
"""
HEADERS = f"""
    0000000000000064 00000041 00000000 02 8f40f33e # base offset, length, leader epoch 0, magic, CRC
    0000 00000000 00000174876e8000 00000174876e8000 # attributes, last delta, timestamps
    {NOBODY}
    00000001         # 1 record
      1e 00 00 00    # 15 bytes, attributes, deltas
      00             # key empty
      00             # value empty
      06             # 3 headers:
      02 68 01       # "h": null
      00 00          # "": empty
      02 68 02 ff    # "h" again: ff
"""
ABORT = """
    0000000000000032 00000042 00000000 02 e6a50225 # base offset 50, 66 bytes follow: 78 in all
    0030             # attributes: transactional, control
    00000000 00000174876e8000 00000174876e8000 # last delta, timestamps
    00000000000003e8 0001 # producer 1000, epoch 1
    ffffffff         # markers have no sequence
    00000001         # 1 record
      20 00 00 00    # 16 bytes, attributes, deltas
      08 0000 0000   # key: version 0, type 0 is ABORT
      0c 0000 0000000b # value: version 0, coordinator epoch 11
      00             # no headers
"""
EMPTY = """
    000000000000001e 00000031 00000003 02 c107bf2f # base offset 30, 49 bytes follow: a header alone
    0000             # no codec, whatever the topic's is
    00000009         # last offset 39 stays
    ffffffffffffffff # base timestamp: none
    00000174876e8000 # the largest one stays
    0000000000000fa0 0002 00000009 # producer 4000, epoch 2, base sequence 9 stay
    00000000         # no records
"""
HORIZON = f"""
    000000000000003a 0000003c 00000000 02 9f8e9898 # base offset 58, 60 bytes follow
    0040             # attributes: delete horizon
    00000004         # last offset 62
    000001748c94dc00 # the horizon in place of the base timestamp: a day later
    00000174876e8000 # largest timestamp
    {NOBODY}
    00000001         # 1 record
      14 00          # 10 bytes, attributes
      ffefb252       # timestamp - 86400000
      04             # offset + 2
      02 6b 01 00    # key "k", value null: a tombstone
"""
OVERLONG = f"""
    0000000000000046 00000042 00000001 02 a79c3493 # base offset 70
    0000 00000000 00000174876e8000 00000174876e8000
    {NOBODY}
    00000001         # 1 record
      9e00           # 15 bytes, in two groups where one would do
      00             # attributes
      808000         # timestamp + 0, in three groups
      8080808070     # offset + 0: the bits of the fifth group that don't fit into 32 are dropped
      0d             # key length -7: null, like every negative length
      828000 7a      # value "z", its length in three groups
      00             # no headers
"""


def unhex(text: str) -> bytes:
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def records(path: Path, text: str, *columns: str, **options: Any) -> list[tuple]:
    path.write_bytes(unhex(text))
    return [tuple(row.values()) for row in kolumn.read(path, columns=columns, **options).to_pylist()]


def test_plain(path: Path) -> None:
    columns = (
        "offset",
        "key",
        "value",
        "timestampMs",
        "timestampType",
        "producerId",
        "producerEpoch",
        "sequence",
        "leaderEpoch",
        "headers",
    )
    assert records(path, PLAIN, *columns) == [
        (100, b"k", b"v", T, 0, 4000, 2, 9, 3, []),
        (101, None, b"w", T + 5, 0, 4000, 2, 10, 3, []),
    ]
    (row,) = kolumn.batches(path).to_pylist()
    assert row == {
        "segment": str(path), "position": 0, "size": 78, "baseOffset": 100, "lastOffset": 101, "count": 2, "magic": 2, "codec": "none",
        "crc": 0x728602EB, "crcValid": True, "timestampType": 0, "baseTimestampMs": T, "maxTimestampMs": T + 5, "producerId": 4000,
        "producerEpoch": 2, "baseSequence": 9, "leaderEpoch": 3, "isTransactional": False, "isControl": False, "deleteHorizonMs": None,
    }  # fmt: skip


def test_headers(path: Path) -> None:
    (row,) = records(path, HEADERS, "key", "value", "headers")
    assert row == (b"", b"", [{"key": "h", "value": None}, {"key": "", "value": b""}, {"key": "h", "value": b"\xff"}])


def test_abort_marker(path: Path) -> None:
    assert len(unhex(ABORT)) == 78
    assert records(path, ABORT, "offset") == []
    columns = ("offset", "key", "value", "controlType", "isControl", "isTransactional", "producerId", "producerEpoch", "sequence")
    assert records(path, ABORT, *columns, include_control=True) == [
        (50, bytes(4), bytes.fromhex("00000000000b"), "ABORT", True, True, 1000, 1, -1)
    ]


def test_empty_batch(path: Path) -> None:
    assert records(path, EMPTY, "offset") == []
    (row,) = kolumn.batches(path).to_pylist()
    assert (row["size"], row["baseOffset"], row["lastOffset"], row["count"], row["baseSequence"]) == (61, 30, 39, 0, 9)
    assert (row["baseTimestampMs"], row["maxTimestampMs"]) == (-1, T)


def test_delete_horizon(path: Path) -> None:
    assert records(path, HORIZON, "offset", "timestampMs", "key", "tombstone") == [(60, T, b"k", True)]
    (row,) = kolumn.batches(path).to_pylist()
    assert (row["deleteHorizonMs"], row["lastOffset"]) == (T + 86_400_000, 62)


def test_overlong_varints(path: Path) -> None:
    """Java accepts them; some other clients do not."""
    assert records(path, OVERLONG, "offset", "timestampMs", "key", "value") == [(70, T, None, b"z")]


@pytest.mark.parametrize(
    ("at", "damage", "field", "record", "left"),
    [
        (57, "00000000", "record count", 0, [100, 101]),
        (57, "00000001", "record count", None, [100, 101]),
        (57, "00000003", "record", None, [100, 101]),
        (57, "ffffffff", "record count", None, [100, 101]),
        (57, "7fffffff", "record count", None, [100, 101]),
        (61, "12", "record length", 0, []),
        (61, "0e", "header count", 0, []),
        (61, "00", "record length", 0, []),
        (65, "7e", "key length", 0, [101]),
        (67, "7e", "value length", 0, [101]),
        (69, "01", "header count", 0, [101]),
        (69, "7e", "header count", 0, [101]),
        (70, "0c", "header count", 1, [100]),
        (64, "04", "offset delta", 0, [101]),
        (64, "01", "offset delta", 0, [101]),
        (73, "04", "offset delta", 1, [100]),
        (23, "00000000", "offset delta", 1, [100]),
        (23, "ffffffff", "offset delta", 0, []),
        (22, "05", "attributes", None, []),
    ],
)
def test_wrong_field_under_a_right_checksum(path: Path, at: int, damage: str, field: str, record: int | None, left: list[int]) -> None:
    """A strict read names the record, and the others are read where their lengths lead on."""
    good, bad = unhex(PLAIN), bytes.fromhex(damage)
    path.write_bytes(with_crc(good[:at] + bad + good[at + len(bad) :]))
    with pytest.raises(kolumn.CorruptBatchError) as caught:
        kolumn.read(path)
    error = caught.value
    assert (error.segment, error.position, error.base_offset) == (str(path), 0, 100)
    assert field in error.field
    assert record is None or error.record == record
    for options in ({}, {"binary": "view"}, {"columns": ["offset", "headers"]}):
        assert kolumn.read(path, errors="skip", **options)["offset"].to_pylist() == left
    assert kolumn.read(path, errors="skip", check_crcs=False).num_rows == 0


def test_what_is_lost_beside_what_is_read(path: Path) -> None:
    good, skipped = unhex(PLAIN), kolumn.Skipped()
    path.write_bytes(with_crc(good[:73] + b"\x04" + good[74:]))
    assert kolumn.read(path, columns=["offset"], errors="skip", on_damage=skipped).num_rows == 1
    (damage,) = skipped.damage
    assert (damage.position, damage.size, damage.base_offset, damage.last_offset, damage.records_lost) == (0, 78, 101, 101, 1)
    assert damage.reason == (
        "record 1: offset delta: expected 0 to the last offset delta in the header of the batch, found 2 at byte 12 of 17; "
        "left out: record 1 (offset 102); 1 other record is read"
    )


def test_an_empty_stream_is_no_record(path: Path) -> None:
    """A batch with a count of 0 whose codec made a stream of nothing; Java reads only the count."""
    stream = bytes.fromhex("1f8b08000000000000030300 0000000000000000".replace(" ", ""))
    good = unhex(EMPTY)
    size = (len(good) - 12 + len(stream)).to_bytes(4, "big")
    path.write_bytes(with_crc(good[:8] + size + good[12:22] + b"\x01" + good[23:] + stream))
    assert kolumn.read(path).num_rows == 0
    assert kolumn.verify(path).ok
