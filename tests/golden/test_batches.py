"""Golden bytes of formats 0, 1 and 2, of the drafts and of Avro values, field by field."""

import base64
import json
import zlib
from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.avro_values import registered
from kit.encoder import with_crc
from kit.guarded import bodies
from kit.outcome import raises
from kolumn.core.schema import HEADERS
from kolumn.values.avro import AvroDecoder

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
OF_REDPANDA = """
    c9a3433f         # CRC-32C of the rest of the header: 3f43a3c9
    4e000000         # 78 bytes, these too
    6400000000000000 # raw offset 100
    01               # type 1: records of clients
    eb028672         # CRC-32C 728602eb: that of the same batch in Kafka's format
    0000             # attributes: no codec, CreateTime
    01000000         # last offset is 1 more than the base
    00806e8774010000 # first timestamp 1600000000000
    05806e8774010000 # largest timestamp
    a00f000000000000 # producer 4000
    0200             # producer epoch 2
    09000000         # base sequence 9
    02000000         # 2 records
      10 00 00 00 02 6b 02 76 00 # "k", "v", as Kafka has them
      0e 00 0a 02 01 02 77 00    # null, "w"
"""
WITH_HEADERS = f"""
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


def records(path: Path, text: str, *columns: str, **options: Any) -> list[tuple]:
    path.write_bytes(unhex(text))
    return [tuple(row.values()) for row in kolumn.read(path, columns=columns, **options).to_pylist()]


def test_plain(path: Path) -> None:
    columns = "offset key value timestampMs timestampType producerId producerEpoch sequence leaderEpoch headers"
    assert records(path, PLAIN, *columns.split()) == [
        (100, b"k", b"v", T, 0, 4000, 2, 9, 3, []),
        (101, None, b"w", T + 5, 0, 4000, 2, 10, 3, []),
    ]
    (row,) = kolumn.batches(path).to_pylist()
    assert row == {
        "segment": str(path), "position": 0, "size": 78, "baseOffset": 100, "lastOffset": 101, "count": 2, "magic": 2, "codec": "none",
        "crc": 0x728602EB, "crcValid": True, "timestampType": 0, "baseTimestampMs": T, "maxTimestampMs": T + 5, "producerId": 4000,
        "producerEpoch": 2, "baseSequence": 9, "leaderEpoch": 3, "isTransactional": False, "isControl": False, "deleteHorizonMs": None,
        "batchType": None,
    }  # fmt: skip


def test_redpanda(path: Path) -> None:
    columns = "offset rawOffset batchType key value timestampMs timestampType producerId producerEpoch sequence leaderEpoch magic headers"
    assert records(path, OF_REDPANDA, *columns.split(), format="redpanda") == [
        (100, 100, 1, b"k", b"v", T, 0, 4000, 2, 9, -1, 2, []),
        (101, 101, 1, None, b"w", T + 5, 0, 4000, 2, 10, -1, 2, []),
    ]
    (row,) = kolumn.batches(path, format="redpanda").to_pylist()
    assert (row["size"], row["baseOffset"], row["lastOffset"], row["crc"], row["crcValid"]) == (78, 100, 101, 0x728602EB, True)
    assert (row["batchType"], row["baseTimestampMs"], row["maxTimestampMs"], row["deleteHorizonMs"]) == (1, T, T + 5, None)


def test_headers_and_overlong_varints(path: Path) -> None:
    (row,) = records(path, WITH_HEADERS, "key", "value", "headers")
    assert row == (b"", b"", [{"key": "h", "value": None}, {"key": "", "value": b""}, {"key": "h", "value": b"\xff"}])
    # Java accepts them; some other clients do not.
    assert records(path, OVERLONG, "offset", "timestampMs", "key", "value") == [(70, T, None, b"z")]


def test_abort_marker(path: Path) -> None:
    assert len(unhex(ABORT)) == 78
    assert records(path, ABORT, "offset") == []
    columns = ("offset", "key", "value", "controlType", "isControl", "isTransactional", "producerId", "producerEpoch", "sequence")
    assert records(path, ABORT, *columns, include_control=True) == [
        (50, bytes(4), bytes.fromhex("00000000000b"), "ABORT", True, True, 1000, 1, -1)
    ]


def test_empty_batches_and_delete_horizons(path: Path) -> None:
    assert records(path, EMPTY, "offset") == []
    (row,) = kolumn.batches(path).to_pylist()
    assert (row["size"], row["baseOffset"], row["lastOffset"], row["count"], row["baseSequence"]) == (61, 30, 39, 0, 9)
    assert (row["baseTimestampMs"], row["maxTimestampMs"]) == (-1, T)
    assert records(path, HORIZON, "offset", "timestampMs", "key", "tombstone") == [(60, T, b"k", True)]
    (row,) = kolumn.batches(path).to_pylist()
    assert (row["deleteHorizonMs"], row["lastOffset"]) == (T + 86_400_000, 62)


@pytest.mark.parametrize(
    ("at", "damage", "field", "record", "left"),
    [
        (57, "00000000", "record count", 0, [100, 101]), (57, "00000003", "record", None, [100, 101]),
        *((57, count, "record count", None, [100, 101]) for count in ("00000001", "ffffffff", "7fffffff")),
        (61, "12", "record length", 0, []), (61, "0e", "header count", 0, []), (61, "00", "record length", 0, []),
        (65, "7e", "key length", 0, [101]), (67, "7e", "value length", 0, [101]),
        (69, "01", "header count", 0, [101]), (69, "7e", "header count", 0, [101]), (70, "0c", "header count", 1, [100]),
        (64, "04", "offset delta", 0, [101]), (64, "01", "offset delta", 0, [101]), (73, "04", "offset delta", 1, [100]),
        (23, "00000000", "offset delta", 1, [100]), (23, "ffffffff", "offset delta", 0, []), (22, "05", "attributes", None, []),
    ],
)  # fmt: skip
def test_wrong_field_under_a_right_checksum(path: Path, at: int, damage: str, field: str, record: int | None, left: list[int]) -> None:
    """A strict read names the record, and the others are read where their lengths lead on."""
    good, bad = unhex(PLAIN), bytes.fromhex(damage)
    path.write_bytes(with_crc(good[:at] + bad + good[at + len(bad) :]))
    error = raises(kolumn.CorruptBatchError, "", kolumn.read, path)
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
    reason = "record 1: offset delta: expected 0 to the last offset delta in the header of the batch, found 2 at byte 12 of 17"
    assert damage.reason == f"{reason}; left out: record 1 (offset 102); 1 other record is read"


def test_an_empty_stream_is_no_record(path: Path) -> None:
    """A batch with a count of 0 whose codec made a stream of nothing; Java reads only the count."""
    stream = bytes.fromhex("1f8b08000000000000030300 0000000000000000".replace(" ", ""))
    good = unhex(EMPTY)
    size = (len(good) - 12 + len(stream)).to_bytes(4, "big")
    path.write_bytes(with_crc(good[:8] + size + good[12:22] + b"\x01" + good[23:] + stream))
    assert kolumn.read(path).num_rows == 0
    assert kolumn.verify(path).ok


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
    assert records(path, text, *COLUMNS) == expected


def test_formats_mix_and_wrappers_have_no_base_offset(path: Path) -> None:
    found = records(path, V0 + V0_TOMBSTONE + V1_APPEND_TIME + V1_WRAPPER + V0_WRAPPER, "offset")
    assert [row[0] for row in found] == [5, 6, 7, 10, 12, 20, 21]
    path.write_bytes(unhex(V1_WRAPPER))
    (row,) = kolumn.batches(path).to_pylist()
    assert (row["baseOffset"], row["count"], row["lastOffset"]) == (None, None, 12)
    assert (row["crc"], row["crcValid"], row["maxTimestampMs"], row["size"]) == (0x7AD95BAA, True, T + 1, 107)


def test_wrong_inner_checksum(path: Path) -> None:
    """The wrapper's own checksum is right although a message was damaged before the wrapper was compressed."""
    path.write_bytes(with_crc(unhex(V0_WRAPPER).replace(bytes.fromhex("35b492f2"), bytes.fromhex("35b492f3"))))
    raises(kolumn.CorruptBatchError, "inner crc", kolumn.read, path)
    assert kolumn.read(path, check_crcs=False, columns=["offset"])["offset"].to_pylist() == [20, 21]


VECTORS = Path(__file__).parent.parent / "data" / "dialects"
DRAFT_COLUMNS = {
    "offset": "offset", "timestamp_ms": "timestampMs", "tombstone": "tombstone", "producer_id": "producerId", "sequence": "sequence",
    "producer_epoch": "producerEpoch", "is_transactional": "isTransactional", "timestamp_type": "timestampType",
}  # fmt: skip
DECODED = [*DRAFT_COLUMNS.values(), "key", "value", "headers"]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("name", sorted(path.stem for path in VECTORS.glob("*.json")))
@pytest.mark.parametrize("options", [{}, {"threads": 1, "chunk_bytes": 100}, {"binary": "view"}, {"errors": "skip"}, {"check_crcs": False}])
def test_vectors(name: str, options: dict[str, Any]) -> None:
    expected: Any = json.loads((VECTORS / f"{name}.json").read_text())
    path, format = VECTORS / f"{name}.bin", expected["format"]
    found = kolumn.read(path, format=format, columns=DECODED, **options).to_pylist()
    assert len(found) == len(expected["records"])
    for row, record in zip(found, expected["records"], strict=True):
        assert {name: row[DRAFT_COLUMNS[name]] for name in DRAFT_COLUMNS if name in record} == {
            n: record[n] for n in DRAFT_COLUMNS if n in record
        }
        assert (row["key"], row["value"]) == (_bytes(record["key"]), _bytes(record["value"]))
        assert [(h["key"], h["value"]) for h in row["headers"]] == [(key, _bytes(value)) for key, value in record["headers"]]
    report = kolumn.verify(path, format=format)
    assert (report.ok, report.bytes) == (True, expected["bytes"])
    assert kolumn.batches(path, format=format)["crcValid"].to_pylist() == [True] * report.batches


KIP98 = bytes.fromhex(
    "0000000000000064"  # offset 100
    "0000004b"  # length: 75 bytes follow
    "00000000"  # crc, set below
    "02"  # magic
    "0010"  # attributes: transactional
    "00000005"  # offset delta: the set spans 100 to 104
    "0000018bcfe56800"  # max timestamp
    "0000000000000007"  # pid
    "0003"  # epoch
    "7ffffffe"  # sequence, two below the largest
    # message 0
    "11"  # length 17
    "00"  # attributes: key and value
    "0000018bcfe56800"  # timestamp
    "00"  # offset delta 0
    "01" "6b"  # key "k"
    "76"  # value "v", the remaining bytes
    "00000000"
    # message 1, a control message: COMMIT is 0 here
    "12"  # length 18
    "06"  # attributes: null value, control
    "0000018bcfe56800"
    "04"  # offset delta 4
    "0000" "0000"  # key, the remaining bytes: version, type
    "00000000"
)  # fmt: skip


def test_kip98_by_hand(path: Path) -> None:
    data = bytearray(KIP98)
    for start, end in ((46, 59), (64, 78)):
        data[end : end + 4] = zlib.crc32(data[start:end]).to_bytes(4, "big")
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    path.write_bytes(data)
    columns = ["offset", "sequence", "key", "value", "isControl", "controlType", "isTransactional", "timestampMs"]
    found = kolumn.read(path, format="kip98-draft", columns=columns, include_control=True).to_pylist()
    time = 0x18BCFE56800
    assert [tuple(row.values()) for row in found] == [
        (100, 2**31 - 2, b"k", b"v", False, None, True, time),
        (104, 2, bytes(4), None, True, "COMMIT", True, time),
    ]
    assert kolumn.read(path, format="kip98-draft", columns=["offset"])["offset"].to_pylist() == [100]
    [batch] = kolumn.batches(path, format="kip98-draft").to_pylist()
    assert (batch["baseOffset"], batch["lastOffset"], batch["count"], batch["maxTimestampMs"]) == (100, 104, None, time)


ABSENT = "absent"
LONGS = {"type": "array", "items": "long"}


def one(schema: Any, text: str) -> Any:
    """The value of bytes in hexadecimal digits, or `ABSENT` for a row that is not valid."""
    column, valid = AvroDecoder(registered(schema)).decode(bodies([bytes.fromhex(text)]))
    column.validate(full=True)
    return column[0].as_py() if valid[0] else ABSENT


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        # The specification's table of variable-length numbers.
        ("int", "00", 0), ("int", "01", -1), ("int", "02", 1), ("int", "7f", -64), ("int", "80 01", 64),
        ("int", "fe ff ff ff 0f", 2**31 - 1), ("int", "ff ff ff ff 0f", -(2**31)),
        ("int", "80 80 80 80 10", ABSENT),  # 2**31
        ("long", "80 80 80 80 10", 2**31),
        ("long", "ff ff ff ff ff ff ff ff ff 01", -(2**63)),
        ("long", "80 80 80 80 80 80 80 80 80 00", 0),  # overlong
        ("long", "80 80 80 80 80 80 80 80 80 80 00", ABSENT),  # eleven bytes
        ("long", "80", ABSENT), ("long", "", ABSENT), ("long", "02 02", ABSENT),  # a byte too many
        ("null", "", None), ("boolean", "01", True), ("boolean", "00", False), ("boolean", "02", ABSENT),
        ("float", "00 00 80 3f", 1.0), ("double", "00 00 00 00 00 00 f0 bf", -1.0), ("double", "00 00 00 00 00 00 f0", ABSENT),
        ("float", "00 00 80 ff", -inf), ("double", "00 00 00 00 00 00 f0 7f", inf), ("double", "9c 75 00 88 3c e4 37 7e", 1e300),
        ("string", "06 66 6f 6f", "foo"), ("string", "02 ff", ABSENT), ("string", "01 66", ABSENT),  # the specification's "foo"; -1 bytes
        ("bytes", "04 ff 00", b"\xff\x00"), ("bytes", "06 ff 00", ABSENT),
        # An array [3, 27], in one block, in one with its size, and with a wrong size.
        *((LONGS, text, [3, 27]) for text in ("04 06 36 00", "03 04 06 36 00", "02 06 01 02 36 00")),
        (LONGS, "03 06 06 36 00", ABSENT), (LONGS, "04 06 36", ABSENT),
        ({"type": "map", "values": "int"}, "02 02 61 54 00", [("a", 42)]),
        # The specification's union of null and string.
        (["null", "string"], "00", None), (["null", "string"], "02 02 61", "a"), (["null", "string"], "04 02 61", ABSENT),
        (["string", "null"], "02", None), (["int", "long"], "02 80 80 80 80 10", 2**31), (["float", "double"], "00 00 00 80 3f", 1.0),
        (["null", "int", "string"], "04 02 61", {"int": None, "string": "a"}),
        (["null", "int", "string"], "02 02", {"int": 1, "string": None}),
        (["null", "int", "string"], "00", None),
        (["int"], "00 04", 2),
        *(({"type": "enum", "name": "E", "symbols": ["A", "B"]}, *case) for case in (("02", "B"), ("04", ABSENT), ("01", ABSENT))),
        ({"type": "fixed", "name": "F", "size": 2}, "01 02", b"\x01\x02"),
        # Logical types.
        (logical("bytes", "decimal", precision=4, scale=2), "04 ff 38", Decimal("-2.00")),
        (logical("bytes", "decimal", precision=4, scale=2), "06 00 27 0f", Decimal("99.99")),
        (logical("bytes", "decimal", precision=4, scale=2), "04 27 10", ABSENT),  # 10000 has five digits
        (logical("bytes", "decimal", precision=4, scale=2), "00", ABSENT),
        (logical("bytes", "decimal", precision=38, scale=0), "22 01" + 16 * "00", ABSENT),  # 2**128
        (logical("bytes", "decimal", precision=40, scale=0), "22 01" + 16 * "00", Decimal(2**128)),
        (logical("bytes", "decimal", precision=38, scale=0), "28" + 19 * "ff" + "fe", Decimal(-2)),
        (logical("int", "date"), "02", date(1970, 1, 2)),
        (logical("int", "time-millis"), "d0 0f", time(0, 0, 1)),
        (logical("int", "time-millis"), "01", ABSENT),
        (logical("long", "time-micros"), "fe ff ba dd 83 05", time(23, 59, 59, 999_999)),
        (logical("long", "time-micros"), "80 80 bb dd 83 05", ABSENT),  # the end of the day, 86_400_000_000
        (logical("long", "timestamp-millis"), "d0 0f", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (logical("long", "local-timestamp-micros"), "02", datetime(1970, 1, 1, 0, 0, 0, 1)),
        (logical("fixed", "duration", name="D", size=12), "01 00 00 00 02 00 00 00 03 00 00 00", pa.MonthDayNano([1, 2, 3_000_000])),
        (logical("fixed", "duration", name="D", size=12), "00 00 00 80 02 00 00 00 03 00 00 00", ABSENT),
        (logical("string", "uuid"), "02 61", "a"),
        # Not valid, so it is what it would be without the logical type.
        (logical("bytes", "decimal", precision=2, scale=3), "02 01", b"\x01"),
        (logical("fixed", "decimal", name="D", size=1, precision=3, scale=0), "01", b"\x01"),
        (logical("int", "timestamp-millis"), "02", 1),
        (logical("fixed", "duration", name="D", size=2), "01 02", b"\x01\x02"),
        (logical("long", "unknown"), "02", 1),
    ],
    ids=str,
)  # fmt: skip
def test_values(schema: Any, text: str, value: Any) -> None:
    assert one(schema, text) == value


def test_records_of_the_specification_and_of_confluents_serializer() -> None:
    schema = {"type": "record", "name": "test", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    assert one(schema, "36 06 66 6f 6f") == {"a": 27, "b": "foo"}
    # Written by confluent-kafka 2.16.0, after its prefix of five bytes.
    schema = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, {"name": "c", "type": ["null", "string"]}]}
    assert one(schema, "0a 02 06 68 c3 a9") == {"id": 5, "c": "hé"}
    assert one(schema, "0a 00") == {"id": 5, "c": None}


DATA = Path(__file__).parents[1] / "data" / "serializers"
WRITTEN: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "values.jsonl").read_text().splitlines()]
SCHEMAS = {
    "protobuf": (DATA / "shop.proto").read_text(),
    "avro": (DATA / "o.avsc").read_text(),
    "json": '{"type": "object", "properties": {"id": {"type": "integer"}, "c": {"type": "string"}}}',
}
LINE = {"sku": "s1", "count": 3}
ROWS: dict[str, dict[str, Any]] = {
    "Order": {"id": 5, "note": "hé", "lines": [LINE]}, "Refund": {"id": 6, "note": "no", "why": None},
    "Order.Line": LINE, "Line": LINE, "O": {"id": 5, "c": "hé"},
}  # fmt: skip


def message_of(one: dict[str, Any]) -> str | None:
    """The message that a value says to be; None if it does not say one that is there."""
    mode = one["mode"]
    if not one["serializer"].startswith("io.apicurio"):
        return str(one["message"])
    if mode == "no ref" or mode.endswith("JSON"):
        return None
    if one["message"] != "Order.Line":
        return str(one["message"])
    # The name is written without what the message is in, which means another one of the file; the indexes mean this one.
    return "Line" if "indexes" not in mode else "Order.Line" if mode == "indexes" else None


def read(folder: Path, written: list[dict[str, Any]], column: str, **how: Any) -> tuple[list[Any], list[bool]]:
    payloads = pa.array([bytes.fromhex(one["value"]) for one in written], pa.binary())
    headers = pa.array([[{"key": key, "value": bytes.fromhex(value)} for key, value in one["headers"]] for one in written], HEADERS)
    kolumn.write(pa.table({column: payloads, "headers": headers}), folder)
    found = kolumn.read(folder, **{f"{column}_{name}": value for name, value in how.items()}, columns=[column, f"{column}Valid"])
    return found[column].to_pylist(), found[f"{column}Valid"].to_pylist()


@pytest.mark.parametrize(
    ("column", "format", "message"),
    [
        ("value", "avro", "O"), ("key", "avro", "O"), ("value", "json", "O"), ("value", "protobuf", "Order"), ("key", "protobuf", "Order"),
        ("value", "protobuf", "Refund"), ("value", "protobuf", "Order.Line"), ("value", "protobuf", "Line"),
    ],
)  # fmt: skip
def test_values_of_a_registry(tmp_path: Path, column: str, format: str, message: str) -> None:
    written = [one for one in WRITTEN if one["format"] == format and one["key"] == (column == "key")]
    named, text = {"message": message} if format == "protobuf" else {}, SCHEMAS[format]
    values, valid = read(tmp_path / "t-0", written, column, format=format, schema=text, schemas=lambda _: text, **named)
    expected = [message_of(one) == message for one in written]
    wrong = [one for one, is_valid, should in zip(written, valid, expected, strict=True) if is_valid != should]
    assert [(one["serializer"], one["mode"], one["message"]) for one in wrong] == []
    assert values == [ROWS[message] if should else None for should in expected]


def test_headers_of_one_schema(tmp_path: Path) -> None:
    """Without a registry, a header that names another message counts where ``value_framing`` names that header."""
    values = [one for one in WRITTEN if one["headers"] and one["format"] == "protobuf" and not one["key"]]
    for name, framing in (("io.apicurio", "apicurio-header"), ("confluent", "confluent-header")):
        written = [one for one in values if one["serializer"].startswith(name)]
        for message in ("Order", "Refund"):
            how = {"format": "protobuf", "schema": SCHEMAS["protobuf"], "message": message, "framing": framing}
            rows, valid = read(tmp_path / f"{name}-{message}-0", written, "value", **how)
            assert valid == [message_of(one) == message for one in written]
            assert rows == [ROWS[message] if is_valid else None for is_valid in valid]


def test_what_stands_before_a_message_is_left_out_without_a_registry(tmp_path: Path) -> None:
    written = [one for one in WRITTEN if one["format"] == "protobuf" and one["message"] == "Order" and message_of(one) and not one["key"]]
    # Indexes beside headers are recognised by the headers alone.
    written = [one for one in written if one["mode"] != "headers, indexes"]
    how = {"format": "protobuf", "schema": SCHEMAS["protobuf"], "message": "Order"}
    assert read(tmp_path / "t-0", written, "value", **how) == ([ROWS["Order"]] * len(written), [True] * len(written))
