"""Which JSON values does the compiled loop decide, are they Arrow's, and are numbers those of Python?"""

import json
import math
import random
import struct
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from kit import json_values
from kit.guarded import bodies
from kolumn.values.decoder import Bodies, nested_type
from kolumn.values.framing import BareFramer
from kolumn.values.json import JsonDecoder, LinesDecoder, json_tables
from kolumn.values.memory import ColumnMemory
from kolumn.values.wire import json as objects
from kolumn.values.wire.columns import DONE, restore
from kolumn.values.wire.json import FIELD, JsonProgram


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of rows that the loop has left to Arrow's reader, call by call."""
    counts: list[int] = []
    decode = LinesDecoder.decode

    def counted(self, given):
        counts.append(len(given))
        return decode(self, given)

    monkeypatch.setattr(LinesDecoder, "decode", counted)
    return counts


def read(kind: pa.StructType, values: list[bytes]) -> pa.Array:
    found, valid = JsonDecoder(kind).decode(bodies(values))
    found.validate(full=True)
    assert found.is_valid().to_pylist() == valid.tolist()
    return found


ORDER = nested_type(
    {
        "id": "int64", "customer": "string", "amount": "float64", "flags": ["bool"],
        "items": [{"sku": "string", "qty": "int32", "price": "float32"}], "address": {"street": "string", "since": "date32"},
        "ts": "timestamp", "u": "uint64",
    }
)  # fmt: skip


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n")])
@pytest.mark.parametrize("ascii", [True, False])
def test_what_serialisers_write_needs_no_other_reader(left, separators, ascii) -> None:
    rows = [
        {
            "id": 2**63 - 1 - row, "customer": 'größe "quoted" \\ / \b\f\n\r\t 😀 \x7f' * (row % 4), "amount": row / 7,
            "flags": [True, None, False][: row % 4], "ignored": {"a": [1.5e-7, {"b": None}, [], {}, "\n😀", -0.0], "": True},
            "items": [{"sku": "s" * k, "qty": -k, "price": k + 0.5} for k in range(row % 5)],
            "address": None if row % 3 else {"street": "a street of more than sixteen bytes", "since": "2026-01-31"}, "u": row,
        }
        for row in range(50)
    ]  # fmt: skip
    found = read(ORDER, [json.dumps(row, separators=separators, ensure_ascii=ascii).encode() for row in rows])
    assert (left, found.field("customer").to_pylist()) == ([], [row["customer"] for row in rows])
    assert found.field("amount").to_pylist() == [row["amount"] for row in rows]
    assert found.field("items").to_pylist() == [row["items"] for row in rows]
    assert found.field("address").is_null().to_pylist() == [row["address"] is None for row in rows]
    assert (found.field("id").to_pylist(), found.field("ts").null_count) == ([row["id"] for row in rows], 50)


def test_columns_grow(left) -> None:
    kind = nested_type(dict.fromkeys("abcdefghijklmnopqrst", "string") | {"list": [["string"]]})
    rows = [{"a": "x" * 70_000}, {"list": [["y" * k for k in range(100)]] * 20}, {"t": "z" * 9_000, "list": []}]
    found = read(kind, [json.dumps(row).encode() for row in rows])
    assert (left, [{name: value for name, value in row.items() if value is not None} for row in found.to_pylist()]) == ([], rows)


def test_what_is_passed_over_is_checked_whole(left) -> None:
    kind = nested_type({"id": "int64"})
    fine = [b"[" * depth + b"]" * depth for depth in (1, 61, 62, 63, 64, 200)]
    fine += [b'{"a":' * 30 + b"1" + b"}" * 30, b"1e99", b"-0.5E-07", b"1" * 40, b'"\\u00e9\\ud83d\\ude00\xc3\xa9"']
    fine += [b"[ ]", b"{ }", b"[1 , {} ,null]"]
    wrong = [b"[" * 5 + b"]" * 4, b"[}", b"{]", b"[1,]", b'{"a":1,}', b'{"a"}', b"{1:1}", b"01", b"1.", b"-", b"1e", b"tru", b"nul", b"+1"]
    wrong += [b"[1 2]", b'"\\ud83d"', b'"\\ude00"', b'"\\q"', b'"\x1f"', b'"\xff"', b'"\xed\xa0\x80"', b"", b"'a'", b'"a', b"\x00"]
    wrong += [b"[1,,2]", b'{"a":1 "b":2}', b'{,"a":1}']
    for other in (b'{"more":%s,"id":7}', b'{"id":7,"more":%s}', b'{"id":7,"more":[%s]}', b'{"id":7,"more":{"x":%s}}'):
        assert read(kind, [other % value for value in fine]).field("id").to_pylist() == [7] * len(fine)
        expected: list[int | None] = [None] * len(wrong)
        # An empty list.
        expected[wrong.index(b"")] = 7 if b"[" in other else None
        assert read(kind, [other % value for value in wrong]).field("id").to_pylist() == expected
    # What is too deep, and what is wrong.
    assert left == [3, len(wrong)] * 2 + [4, len(wrong) - 1] + [4, len(wrong)]


def together(texts: list[str]) -> Bodies:
    """Objects with one member each, without a page for each of them."""
    return BareFramer().bodies(pa.array([b'{"x":%s}' % text.encode() for text in texts], pa.binary()))[0]


def doubles(texts: list[str]) -> list[float]:
    found, valid = JsonDecoder(nested_type({"x": "float64"})).decode(together(texts))
    assert valid.all()
    return found.field("x").to_pylist()


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_numbers_that_no_float_holds(kind: str) -> None:
    """However they are written, and whatever else is infinite."""
    type = nested_type({"x": kind, "more": [{"y": kind}]})
    wrong = ["1e400", "1" + "0" * 400, "-1" + "0" * 400, "1" + "0" * 5000, "1.8e308", "9" * 320 + ".5"]
    fine = ["Infinity", "-Infinity", "1e-400", "0." + "0" * 400 + "1", "null"]
    texts = ['{"x":%s}', '{"x":Infinity,"more":[null,{"y":1},{"y":%s}]}', '{"more":[],"x":%s}']
    values = [(text % number).encode() for number in (*wrong, *fine) for text in texts]
    found, valid = JsonDecoder(type).decode(bodies(values))
    assert valid.tolist() == [False] * len(wrong) * len(texts) + [True] * len(fine) * len(texts)
    assert found.is_valid().to_pylist() == valid.tolist()
    assert found.field("x").to_pylist()[-len(fine) * len(texts) :: 3][:2] == [math.inf, -math.inf]


def bits(numbers: list[float]) -> list[bytes]:
    return [struct.pack("<d", number) for number in numbers]


def test_doubles_are_rounded_as_python_rounds(left) -> None:
    rng = random.Random(0)
    numbers = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(20_000)]
    texts = [repr(number) for number in numbers if number == number and abs(number) >= 2.3e-308]
    texts += [repr(round(rng.uniform(-1e6, 1e6), rng.randrange(8))) for _ in range(2_000)]
    signs = ("e", "E", "e+", "E+", "e-", "E-")
    texts += [f"{rng.randrange(10 ** rng.randrange(1, 19))}{rng.choice(signs)}{rng.randrange(280)}" for _ in range(9_000)]
    texts += [f"{rng.randrange(1000)}.{rng.randrange(10**15):015d}" for _ in range(2_000)]
    assert (bits(doubles(texts)), left) == (bits([float(text) for text in texts]), [])


def test_doubles_between_two_others(left) -> None:
    rng = random.Random(1)
    texts = []
    for _ in range(3_000):
        # A number, and the middle between it and the next one, in all digits: what is decided has at most 19 of them.
        mantissa, exponent = rng.randrange(1 << 52, 1 << 53), rng.choice((0, 1, 2, 3, 5, 9, -1, -2, -3, rng.randrange(-1000, 900)))
        middle = Fraction(2 * mantissa + 1, 2) * Fraction(2) ** exponent
        digits = middle.numerator * 10 ** (middle.denominator.bit_length() - 1) // middle.denominator
        scale = -(middle.denominator.bit_length() - 1)
        for change in (-1, 0, 1):
            text = str(digits + change)
            texts += [f"{text}e{scale}"] if len(text) + scale < 300 and scale > -300 else []
            texts.append(f"{text[:19]}e{max(scale + len(text) - 19, -290)}")
    texts += [str(2**k + 2 ** (k - 53) + change) for k in range(54, 64) for change in (-1, 0, 1)]
    texts = [text for text in texts if abs(float(text)) < 1e308]
    assert bits(doubles(texts)) == bits([float(text) for text in texts])
    assert left[0] < len(texts) // 2


def test_floats_are_arrows(left) -> None:
    rng = random.Random(2)
    values = [struct.unpack("<f", rng.randbytes(4))[0] for _ in range(5_000)]
    texts = [repr(value) for value in values if np.isfinite(value)] + [repr(round(rng.uniform(-100, 100), 3)) for _ in range(2_000)]
    # Middles between two numbers, and what is as near to them as a float64.
    for value in values[:2_000]:
        if 1e-30 < abs(value) < 1e30:
            middle = (float(value) + float(np.nextafter(np.float32(value), np.float32(np.inf)))) / 2
            texts += [repr(middle), repr(np.nextafter(middle, 0.0).item()), repr(np.nextafter(middle, np.inf).item())]
    given, kind = together(texts), nested_type({"x": "float32"})
    found, _ = JsonDecoder(kind).decode(given)
    expected, _ = LinesDecoder(kind).decode(given)
    assert found.equals(expected)
    assert left[0] < len(texts) // 3


def test_ends_of_integers(left) -> None:
    kind = nested_type({"x": "int64"})
    texts = [str(sign * (2**63 - k)) for k in range(-2, 12) for sign in (1, -1)] + ["-0", "0", "99999999999999999999", "1" * 30]
    found = read(kind, [b'{"x":%s}' % text.encode() for text in texts]).field("x").to_pylist()
    assert found == [int(text) if -(2**63) <= int(text) < 2**63 else None for text in texts]
    # All but those from 2**63 on, and the long ones.
    assert left == [8]


def test_the_functions_are_right_in_plain_python_too() -> None:
    """A backend may compile them with its own words, so their arithmetic has to be that of machine words."""
    rng = random.Random(3)
    for _ in range(25):
        kind = json_values.random_type(rng)
        values = [one.rjust(8) for one in json_values.values_of(rng, kind, 8, 0.3)]
        kind = _without_times(kind)
        given = bodies(values)
        tables = json_tables(kind)
        assert tables is not None
        stamps, frames = np.zeros(len(tables.fields) // (FIELD // 8) + 1, np.int64), np.zeros(tables.frames // 8, np.int64)
        names = np.frombuffer(tables.names, np.uint8)
        program = JsonProgram(*(one.ctypes.data for one in (tables.fields, names, tables.numbers, stamps, frames)))
        for value, at in zip(values, given.address.tolist(), strict=True):
            memory = ColumnMemory(tables.layout, 1, 10_000, 10_000)
            restore(memory.target, 0)
            if objects.decode(memory.target, program, at, at + len(value), 0) == DONE:
                assert repr(memory.array(1).to_pylist()) == repr(read(kind, [value]).to_pylist())


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind
