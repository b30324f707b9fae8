"""Golden bytes of formats 0 and 1, field by field."""

from pathlib import Path

import pytest

import kolumn
from kit.encoder import with_crc

T = 1_600_000_000_000
COLUMNS = ["offset", "key", "value", "timestampMs", "timestampType", "magic", "codec", "tombstone"]

V0 = """
    0000000000000005 # offset 5
    00000012         # 18 bytes follow
    316a1df0         # CRC-32 from the magic on
    00               # magic 0
    00               # attributes: no codec
    00000001 6b      # key "k"
    00000003 76616c  # value "val"
"""
V0_TOMBSTONE = """
    0000000000000006 # offset 6
    0000000f         # 15 bytes follow
    908204f6         # CRC-32
    00 00            # magic 0, no codec
    00000001 6b      # key "k"
    ffffffff         # value null
"""
V1_APPEND_TIME = """
    0000000000000007 # offset 7
    00000019         # 25 bytes follow
    130d26ef         # CRC-32
    01               # magic 1
    08               # attributes: no codec, LogAppendTime
    00000174876e8000 # timestamp 1600000000000
    ffffffff         # key null
    00000003 76616c  # value "val"
"""
V1_WRAPPER = """
    000000000000000c # offset 12: of the last message inside
    0000005f         # 95 bytes follow
    7ad95baa         # CRC-32 over the compressed bytes
    01               # magic 1: offsets inside are relative
    02               # attributes: snappy
    00000174876e8001 # timestamp: the largest inside
    ffffffff         # key null
    00000049         # 73 bytes of one raw snappy block, without xerial's header, as librdkafka writes it
    46 f045          # it makes 70 bytes, all of them literal:
      0000000000000000 00000018 4789e5b5 # offset 0, 24 bytes follow, CRC-32
      01 00 00000174876e8000 # magic 1, no codec, timestamp 1600000000000
      00000001 61 00000001 41 # key "a", value "A"
      0000000000000002 00000016 1255884d # offset 2: there is a hole, 11 was cleaned away
      01 00 00000174876e8001 # timestamp 1600000000001
      ffffffff 00000000 # key null, value empty
"""
V0_WRAPPER = """
    0000000000000015 # offset 21: of the last message inside
    00000053         # 83 bytes follow
    d04e6864         # CRC-32
    00 03            # magic 0: offsets inside are absolute; lz4
    ffffffff         # key null
    00000045         # 69 bytes of lz4 frame
    04224d18 60 40   # its magic, version 1 with independent blocks, blocks of at most 64 KiB
    1a               # header checksum over the magic too (KAFKA-3160); 82 would be right
    36000080         # 54 bytes, stored
      0000000000000014 0000000f 35b492f2 00 00 ffffffff 00000001 78 # offset 20, key null, value "x"
      0000000000000015 0000000f 42b3a264 00 00 ffffffff 00000001 79 # offset 21, key null, value "y"
    00000000         # end mark
"""


def unhex(text: str) -> bytes:
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


def rows(path: Path, data: bytes) -> list[tuple]:
    path.write_bytes(data)
    table = kolumn.read(path, columns=COLUMNS)
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (V0, [(5, b"k", b"val", -1, -1, 0, "none", False)]),
        (V0_TOMBSTONE, [(6, b"k", None, -1, -1, 0, "none", True)]),
        (V1_APPEND_TIME, [(7, None, b"val", T, 1, 1, "none", False)]),
        (V1_WRAPPER, [(10, b"a", b"A", T, 0, 1, "snappy", False), (12, None, b"", T + 1, 0, 1, "snappy", False)]),
        (V0_WRAPPER, [(20, None, b"x", -1, -1, 0, "lz4", False), (21, None, b"y", -1, -1, 0, "lz4", False)]),
    ],
    ids=["v0", "v0 tombstone", "v1 append time", "v1 wrapper", "v0 wrapper"],
)
def test_golden(path: Path, text: str, expected: list[tuple]) -> None:
    assert rows(path, unhex(text)) == expected


def test_formats_mix_in_one_segment(path: Path) -> None:
    data = b"".join(map(unhex, (V0, V0_TOMBSTONE, V1_APPEND_TIME, V1_WRAPPER, V0_WRAPPER)))
    assert [row[0] for row in rows(path, data)] == [5, 6, 7, 10, 12, 20, 21]


def test_batches_know_no_base_offset_of_wrappers(path: Path) -> None:
    path.write_bytes(unhex(V1_WRAPPER))
    (row,) = kolumn.batches(path).to_pylist()
    assert (row["baseOffset"], row["count"], row["lastOffset"]) == (None, None, 12)
    assert (row["crc"], row["crcValid"], row["maxTimestampMs"], row["size"]) == (0x7AD95BAA, True, T + 1, 107)


def test_wrong_inner_checksum(path: Path) -> None:
    """The wrapper's own checksum is right although a message was damaged before the wrapper was compressed."""
    data = unhex(V0_WRAPPER).replace(bytes.fromhex("35b492f2"), bytes.fromhex("35b492f3"))
    path.write_bytes(with_crc(data))
    with pytest.raises(kolumn.CorruptBatchError, match="inner crc"):
        kolumn.read(path)
    assert kolumn.read(path, check_crcs=False, columns=["offset"])["offset"].to_pylist() == [20, 21]
