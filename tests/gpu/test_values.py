"""Values parsed on the device: typed columns, and rows that don't parse are marked and not lost."""

import csv
import io
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kolumn
from kit.device_columns import resident, to_arrow
from kit.emulated import Emulated
from kit.encoder import varint
from kolumn.kernels.machine.device import runtime
from kolumn.kernels.values.lines import MARKER, make_lines

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


@pytest.mark.parametrize("order", ["<", ">"])
def test_fixed(order: str, tmp_path: Path, device: Emulated) -> None:
    schema = {name: f"{order}{kind}" for name, kind in {"a": "i8", "b": "i2", "c": "u4", "d": "f8", "e": "f4", "f": "u1"}.items()}
    rng = np.random.default_rng(2)
    rows = np.frombuffer(rng.bytes(27 * 100), np.dtype(list(schema.items())))
    values: list[bytes | None] = [rows[i].tobytes() for i in range(100)]
    values[5], values[6], values[7] = None, b"short", values[7] + b"long"  # type: ignore[operator]
    found = columns(tmp_path / "a.log", values, format="fixed", schema=schema)
    assert [i for i, valid in enumerate(found["valueValid"]) if not valid] == [5, 6, 7]
    for name in schema:
        expected = rows[name].astype(rows[name].dtype.newbyteorder("="))
        kept = [i for i in range(100) if i not in (5, 6, 7)]
        got = np.array([found[name][i] for i in kept], expected.dtype)
        assert got.tobytes() == expected[kept].tobytes(), name
        assert [found[name][i] for i in (5, 6, 7)] == [None] * 3


def _csv_rows(rng: random.Random) -> tuple[list[list[Any]], list[bytes]]:
    """Rows of an integer, text, a small integer and a flag, and their lines as Python writes them."""
    rows = [
        [
            rng.choice([None, 0, 2**63 - 1, -(2**63), rng.getrandbits(30)]),
            rng.choice([None, "a", 'say ""', '"', "x,y", "line\nfeed", "naïve" * 9, ";"]),
            rng.choice([None, -128, 127, 5]),
            rng.choice([None, True, False]),
        ]
        for _ in range(200)
    ]
    lines = []
    for row in rows:
        out = io.StringIO()
        csv.writer(out, lineterminator=rng.choice(["", "\n", "\r\n"])).writerow(["" if one is None else one for one in row])
        lines.append(out.getvalue().encode())
    return rows, lines


def test_separated_fields(tmp_path: Path, device: Emulated) -> None:
    rows, lines = _csv_rows(random.Random(3))
    broken = {4: None, 5: b"", 6: b"1,2,3", 7: b"1,a,2,true,5", 8: b'1,"a,2,true', 9: b'1,"a"b,2,true'}
    values: list[bytes | None] = [broken.get(i, line) for i, line in enumerate(lines)]
    # One field of each is wrong; the others stay.
    values[20], values[21], values[22] = b"x,a,2,true", b"9223372036854775808,a,2,true", b"1,a,200,true"
    values[23], values[24], values[25] = b"-9223372036854775809,a,2,yes", b"+7,a,-0,TRUE", b'"12","",2,0'
    schema = {"n": "int64", "t": "string", "s": "int8", "f": "bool"}
    found = columns(tmp_path / "a.log", values, format="csv", schema=schema)
    got = [[found[name][i] for name in schema] for i in range(len(values))]
    got = [[one.decode() if isinstance(one, bytes) else one for one in row] for row in got]
    wrong = {20: [None, "a", 2, True], 21: [None, "a", 2, True], 22: [1, "a", None, True], 23: [None, "a", 2, None]}
    right = {24: [7, "a", 0, True], 25: [12, "", 2, False]}
    expected = [[None] * 4 if i in broken else {**wrong, **right}.get(i, row) for i, row in enumerate(rows)]
    assert got == expected
    assert [i for i, valid in enumerate(found["valueValid"]) if not valid] == sorted({*broken, *wrong})


def test_other_separators(tmp_path: Path, device: Emulated) -> None:
    values: list[bytes | None] = [b"1;2", b'"a;b";3', b";"]
    found = columns(tmp_path / "a.log", values, format="csv", schema={"a": "string", "b": "int32"}, separator=";")
    assert (found["a"], found["b"], found["valueValid"]) == ([b"1", b"a;b", None], [2, 3, None], [True] * 3)


def test_lines_of_json(tmp_path: Path, device: Emulated) -> None:
    values = [b'{"a": 1,\n "b": "x"}', b"{}", b" { } ", b"12", b"", None, b'\t{"a":\r\n2}', b"{", b'{"a": 1}\n{"a": 2}', b"   ", b'"{"']
    values += [space + b'{"a": 3}' for space in (b"\r", b"\n")] + [b"{\r}"]
    import pyarrow as pa

    path = tmp_path / "a.log"
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), path)
    (part,) = _values_of(path)
    text, size = make_lines(runtime(), part)
    lines = bytes(text.bytes[:size]).split(b"\n")  # type: ignore[attr-defined]
    assert lines.pop() == b""
    assert len(lines) == len(values)
    # Nothing inside of a line may be taken for its end.
    assert b"\r" not in text.bytes[:size].tobytes()  # type: ignore[attr-defined]
    for value, line in zip(values, lines, strict=True):
        try:
            read = json.loads(line)
        except ValueError:
            with pytest.raises(json.JSONDecodeError):
                json.loads(value or b"")
            continue
        if isinstance(read, dict) and MARKER in read:
            assert {name: one for name, one in read.items() if name != MARKER} == json.loads(value or b"")
        else:
            assert read == {}
            assert not (value or b"").strip().startswith(b"{")


def _values_of(path: Path) -> list[Any]:
    """Where the values of a segment are, on the device."""
    from kolumn.decode.device.chunk import DeviceChunk
    from kolumn.options import Options
    from kolumn.plan.chunks import chunks
    from kolumn.source.segment_file import SegmentFile
    from kolumn.source.segments import find_segments

    (segment,) = find_segments(str(path))
    with SegmentFile(segment) as file:
        (chunk,) = chunks(file, 0, file.size, 1 << 20)
        with DeviceChunk(file, chunk, Options.of()) as held:
            _held.append(held)
            return [part.records.value for _, part in held.parts(chunk.entries)]


_held: list[Any] = []
"""Chunks whose values are still looked at."""


def test_options_of_the_call(tmp_path: Path, device: Emulated) -> None:
    with pytest.raises(kolumn.ArgumentError, match="go with value_format"):
        kolumn.read_pylibcudf(tmp_path, value_schema={})
    with pytest.raises(kolumn.ArgumentError, match="payload='text'"):
        kolumn.read_pylibcudf(tmp_path, payload="text")
    (tmp_path / "00000000000000000000.log").touch()
    with pytest.raises(kolumn.ArgumentError, match="two columns would be called offset"):
        kolumn.read_pylibcudf(tmp_path, value_format="fixed", value_schema={"offset": "i8"})
