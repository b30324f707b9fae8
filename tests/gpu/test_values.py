"""Values parsed on the device: typed columns, and rows that don't parse are marked and not lost."""

import io
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.device_columns import resident, to_arrow
from kit.emulated import Emulated
from kit.encoder import varint

SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "int"]},
        {"name": "name", "type": ["string", "null"]},
        {"name": "ok", "type": "boolean"},
        {"name": "f", "type": {"type": "float"}},
        {"name": "d", "type": "double"},
        {"name": "raw", "type": "bytes"},
    ],
}
NAMES = [field["name"] for field in SCHEMA["fields"]]  # type: ignore[index]


def avro(row: dict[str, Any]) -> bytes:
    """The record in Avro's binary encoding, from its specification; its integers are varints as Kafka's are."""
    out = io.BytesIO()
    out.write(varint(row["id"]))
    out.write(b"\0" if row["small"] is None else b"\2" + varint(row["small"]))
    out.write(b"\2" if row["name"] is None else b"\0" + varint(len(row["name"].encode())) + row["name"].encode())
    out.write(bytes([row["ok"]]) + struct.pack("<fd", row["f"], row["d"]) + varint(len(row["raw"])) + row["raw"])
    return out.getvalue()


def some_row(rng: random.Random) -> dict[str, Any]:
    return {
        "id": rng.choice([0, -1, 2**63 - 1, -(2**63), rng.getrandbits(40)]),
        "small": rng.choice([None, 0, -(2**31), 2**31 - 1, 7]),
        "name": rng.choice([None, "", "naïve", "x" * 50]),
        "ok": rng.random() < 0.5,
        "f": rng.choice([0.0, -1.5, 2.0**100]),
        "d": rng.choice([0.0, -1.5e300, 0.1]),
        "raw": rng.randbytes(rng.randint(0, 9)),
    }


def columns(path: Path, values: list[bytes | None], **options: Any) -> dict[str, list[Any]]:
    """What comes of records with these values, row by row."""
    table = {"key": [b"k"] * len(values), "value": values}
    import pyarrow as pa

    kolumn.write(pa.table(table, schema=pa.schema([("key", pa.binary()), ("value", pa.binary())])), path, codec="lz4")
    found: dict[str, list[Any]] = {}
    how = {f"value_{name}": value for name, value in options.items()}
    for one in resident(path, "string", columns=["offset", "value", "valueValid"], **how):
        for name, column in zip(one.names, one.columns, strict=True):
            found.setdefault(name, []).extend(to_arrow(column).to_pylist())
    assert found.pop("offset") == list(range(len(values)))
    return found


@pytest.mark.parametrize("skipped", [0, 5])
def test_avro(skipped: int, tmp_path: Path, device: Emulated) -> None:
    rng = random.Random(1)
    rows = [some_row(rng) for _ in range(200)]
    values: list[bytes | None] = [bytes(skipped) + avro(row) for row in rows]
    broken = {3: None, 7: b"", 20: values[20][:-1], 21: values[21] + b"\0", 40: rng.randbytes(30)}  # type: ignore[index, operator]
    # One more than an int has, on either side.
    broken |= {at: bytes(skipped) + avro(rows[at] | {"small": beyond}) for at, beyond in ((41, 2**31), (42, -(2**31) - 1))}
    values = [broken.get(i, value) for i, value in enumerate(values)]
    found = columns(tmp_path / "a.log", values, format="avro", schema=json.dumps(SCHEMA), skip=skipped)
    assert [i for i, valid in enumerate(found["valueValid"]) if not valid] == sorted(broken)
    for name in NAMES:
        expected = [None if i in broken else row[name] for i, row in enumerate(rows)]
        got = [bytes(value) if name == "raw" and value is not None else value for value in found[name]]
        got = [value.decode() if name == "name" and value is not None else value for value in got]
        assert got == expected, name


def test_options_of_the_call(tmp_path: Path, device: Emulated) -> None:
    with pytest.raises(kolumn.ArgumentError, match="go with value_format"):
        kolumn.read_pylibcudf(tmp_path, value_schema={})
    with pytest.raises(kolumn.ArgumentError, match="payload='text'"):
        kolumn.read_pylibcudf(tmp_path, payload="text")
    (tmp_path / "00000000000000000000.log").touch()
    with pytest.raises(kolumn.ArgumentError, match="two columns would be called offset"):
        kolumn.read_pylibcudf(tmp_path, value_format="fixed", value_schema={"offset": "i8"})
