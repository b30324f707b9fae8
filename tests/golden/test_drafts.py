"""Golden vectors of the drafts: files whose rows are known, and bytes written by hand with a comment for each field."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import kolumn

VECTORS = Path(__file__).parent.parent / "data" / "dialects"
COLUMNS = {
    "offset": "offset",
    "timestamp_ms": "timestampMs",
    "tombstone": "tombstone",
    "producer_id": "producerId",
    "producer_epoch": "producerEpoch",
    "is_transactional": "isTransactional",
    "timestamp_type": "timestampType",
    "sequence": "sequence",
}
DECODED = [*COLUMNS.values(), "key", "value", "headers"]


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
        assert {name: row[COLUMNS[name]] for name in COLUMNS if name in record} == {n: record[n] for n in COLUMNS if n in record}
        assert (row["key"], row["value"]) == (_bytes(record["key"]), _bytes(record["value"]))
        assert [(h["key"], h["value"]) for h in row["headers"]] == [(key, _bytes(value)) for key, value in record["headers"]]
    report = kolumn.verify(path, format=format)
    assert report.ok
    assert report.bytes == expected["bytes"]
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


def test_kip98_by_hand(tmp_path: Path) -> None:
    import zlib

    data = bytearray(KIP98)
    for start, end in ((46, 59), (64, 78)):
        data[end : end + 4] = zlib.crc32(data[start:end]).to_bytes(4, "big")
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    path = tmp_path / "a.log"
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
