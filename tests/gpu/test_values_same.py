"""Are values of "csv" and "fixed" the same on the CPU as on a GPU?"""

import csv
import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.device_columns import parsed_between, resident, to_arrow
from kit.emulated import Emulated
from kolumn.kernels.machine.device import runtime
from kolumn.values.columns.typed import Typed

SEPARATED = {"n": "int64", "t": "string", "s": "int8", "f": "bool", "u": "uint16"}
FIXED = {"a": ">i8", "b": "<i2", "c": "bool", "d": ">f8", "e": "u1"}
Columns = dict[str, list[Any]]
_BYTES = b',"\n\r0195:+-x;te \\'


_NUMBERS = ["0", "+5", "-0", "007", "9223372036854775807", "-9223372036854775808", "0" * 30 + "4", "9223372036854775808", "x", "1.5"]
_FLAGS = ["true", "FALSE", "1", "0", "tRuE", "yes", "2"]
_NEAR = [b":,a,5,1,0", b"/,a,5,1,0", b'0,a,5,"""",0', b'0,a,5,"tru""",0', b'0,a,5,"fals""",0']
"""A byte beside the digits, and flags with a doubled quote in them."""


def some_line(rng: random.Random) -> bytes:
    fields = [
        rng.choice(["", "", *_NUMBERS]),
        rng.choice(["", "a", 'say "', "x,y", "line\nfeed", "naïve"]),
        rng.choice(["", "", "5", "127", "-128", "128", "+", "٣"]),
        rng.choice(["", "", *_FLAGS]),
        rng.choice(["", "", "65535", "00", "65536", "-1"]),
    ]
    out = io.StringIO()
    end = rng.choice(["", "\n", "\r\n", "\r", "\n\n"])
    csv.writer(out, quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), lineterminator=end).writerow(fields)
    line = bytearray(out.getvalue().encode())
    for _ in range(rng.choice([0, 0, 1, 3])):
        at = rng.randrange(len(line) + 1)
        line[at : at + rng.randint(0, 1)] = bytes(rng.choices(_BYTES, k=rng.randint(0, 2)))
    return bytes(line)


def on_both(
    path: Path, values: list[bytes | None], format: Any, schema: dict[str, str]
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), path)
    gpu: Columns = {}
    how: dict[str, Any] = {"columns": ["value", "valueValid"], "value_format": format, "value_schema": schema}
    for one in resident(path, "string", **how):
        for name, column in zip(one.names, one.columns, strict=True):
            found = to_arrow(column).to_pylist()
            gpu.setdefault(name, []).extend(one.decode() if isinstance(one, bytes) else one for one in found)
    cpu = kolumn.read(path, value_as="columns", **how)
    return cpu.to_pydict(), gpu


def test_separated_fields(tmp_path: Path, device: Emulated) -> None:
    rng = random.Random(8)
    values: list[bytes | None] = [None, b"", *_NEAR, *(some_line(rng) for _ in range(3000))]
    # Text that is not UTF-8 is text on a GPU, whose strings are not looked at.
    values = [value for value in values if value is None or value == value.decode("utf-8", "ignore").encode()]
    cpu, gpu = on_both(tmp_path / "a.log", values, "csv", SEPARATED)
    assert 200 < sum(gpu["valueValid"]) < len(values) - 200
    assert cpu == gpu


@pytest.mark.parametrize("emulated", ["ptx"], indirect=True)
def test_what_lies_around_a_value(emulated: Emulated) -> None:
    """Is no part of it, though it would end a quoted field, double a quote, or go on with a number, a word or a line."""
    values = [None, b"", b'"', b'""', b'"a', b'"a"', b'"a""', b'"a""b"', b",", b",1", b"a,", b"a,tru"]
    values += [b'"a",', b'"a",1', b'"a",-', b'"a,b",1']
    for schema in ({"t": "string"}, {"t": "string", "n": "int32"}, {"t": "string", "b": "bool"}):
        for around in (b'"', b",", b"\n", b"\r\n", b"1", b"e", b'"",'):
            parsed_between(runtime(), Typed("value", "csv", flat=True, reader=schema), values, around)


def test_one_separated_field(tmp_path: Path, device: Emulated) -> None:
    cpu, gpu = on_both(tmp_path / "a.log", [b"", b"\n", b"1", b",", b'""', b'"5"', None, b'"'], "csv", {"n": "int32"})
    assert cpu == gpu


def test_fixed_places(tmp_path: Path, device: Emulated) -> None:
    rng = random.Random(9)
    values: list[bytes | None] = [None, b"", *(rng.randbytes(rng.choice([20, 20, 19, 21])) for _ in range(300))]
    cpu, gpu = on_both(tmp_path / "a.log", values, "fixed", FIXED)
    assert sum(gpu["valueValid"]) > 100
    assert repr(cpu) == repr(gpu)
