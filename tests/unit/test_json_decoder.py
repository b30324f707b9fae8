"""Which JSON values does the compiled loop decide, and are numbers those of Python?"""

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
from kit.json_oracle import expected
from kolumn.core.errors import ArgumentError
from kolumn.values.decoder import Bodies
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.framing import BareFramer
from kolumn.values.json import JsonDecoder, json_tables
from kolumn.values.json_plain import PlainType
from kolumn.values.json_types import nested_type
from kolumn.values.memory import ColumnMemory
from kolumn.values.wire import json as objects
from kolumn.values.wire.columns import DONE, restore
from kolumn.values.wire.json import FIELD, JsonProgram


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The values that the loop has left to the plain reader."""
    found: list[bytes] = []
    value = PlainType.value

    def counted(self, body):
        found.append(body)
        return value(self, body)

    monkeypatch.setattr(PlainType, "value", counted)
    return found


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
    fine += [b"[ ]", b"{ }", b"[1 , {} ,null]", b'"\\ud83d"', b'"\\ude00"', b"NaN"]
    wrong = [b"[" * 5 + b"]" * 4, b"[}", b"{]", b"[1,]", b'{"a":1,}', b'{"a"}', b"{1:1}", b"01", b"1.", b"-", b"1e", b"tru", b"nul", b"+1"]
    wrong += [b"[1 2]", b'"\\q"', b'"\x1f"', b'"\xff"', b'"\xed\xa0\x80"', b"", b"'a'", b'"a', b"\x00"]
    wrong += [b"[1,,2]", b'{"a":1 "b":2}', b'{,"a":1}']
    for other in (b'{"more":%s,"id":7}', b'{"id":7,"more":%s}', b'{"id":7,"more":[%s]}', b'{"id":7,"more":{"x":%s}}'):
        assert read(kind, [other % value for value in fine]).field("id").to_pylist() == [7] * len(fine)
        expected: list[int | None] = [None] * len(wrong)
        # An empty list.
        expected[wrong.index(b"")] = 7 if b"[" in other else None
        assert read(kind, [other % value for value in wrong]).field("id").to_pylist() == expected
    # What is too deep, halves of surrogates, NaN, and what is wrong.
    assert len(left) == 2 * (6 + len(wrong)) + 7 + len(wrong) - 1 + 7 + len(wrong)


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
    assert len(left) < len(texts) // 2


def test_floats_are_rounded_once(left) -> None:
    rng = random.Random(2)
    values = [struct.unpack("<f", rng.randbytes(4))[0] for _ in range(5_000)]
    texts = [repr(value) for value in values if np.isfinite(value)] + [repr(round(rng.uniform(-100, 100), 3)) for _ in range(2_000)]
    # Just below the middle between the largest float32 and the next one that there would be, which is the nearest float64.
    texts += ["3.4028235677973366e+38", "-3.4028235677973366e+38"]
    # Middles between two numbers, and what is as near to them as a float64.
    for value in values[:2_000]:
        if 1e-30 < abs(value) < 1e30:
            middle = (float(value) + float(np.nextafter(np.float32(value), np.float32(np.inf)))) / 2
            texts += [repr(middle), repr(np.nextafter(middle, 0.0).item()), repr(np.nextafter(middle, np.inf).item())]
    found, valid = JsonDecoder(nested_type({"x": "float32"})).decode(together(texts))
    assert valid.all()
    wanted = [expected(b'{"x":%s}' % text.encode(), found.type)[0]["x"] for text in texts]
    assert bits(found.field("x").to_pylist()) == bits(wanted)
    assert len(left) < len(texts) // 3


def test_ends_of_integers(left) -> None:
    kind = nested_type({"x": "int64"})
    texts = [str(sign * (2**63 - k)) for k in range(-2, 12) for sign in (1, -1)] + ["-0", "0", "99999999999999999999", "1" * 30]
    found = read(kind, [b'{"x":%s}' % text.encode() for text in texts]).field("x").to_pylist()
    assert found == [int(text) if -(2**63) <= int(text) < 2**63 else None for text in texts]
    # All but those from 2**63 on: a long one is certainly too large.
    assert len(left) == 7


def test_integers_written_as_other_numbers() -> None:
    fine = {
        "1" + ".0" + "0" * 5000: 1, "1.0": 1, "-1.000": -1, "1e3": 1000, "1.5E+1": 15, "1200e-2": 12, "0.0": 0, "-0.0": 0, "0e-99": 0,
        "0.000e999999999": 0, "9223372036854775807.0": 2**63 - 1, "-9.223372036854775808e18": -(2**63), "9007199254740993.0": 2**53 + 1,
    }  # fmt: skip
    lost = ["1.5", "1.50", "15e-2", "9223372036854775808.0", "9.3e18", "1e400", "1e999999999", "1e-999999999", "1e9999999999", "-1e400"]
    values = [b'{"x":%s,"y":[%s]}' % (text.encode(), text.encode()) for text in (*fine, *lost)]
    wanted = [({"x": number, "y": [number]}, ()) for number in fine.values()] + [({"x": None, "y": [None]}, ("x", "y"))] * len(lost)
    assert salvaged({"x": "int64", "y": ["int64"]}, values) == wanted
    small = [b'{"x":%s}' % text for text in (b"2.55e2", b"255.0", b"256.0", b"2.555e2", b"-1.0", b"1844674407370955161.5e1")]
    assert [one for one, _ in salvaged({"x": "uint8"}, small)] == [{"x": number} for number in (255, 255, None, None, None, None)]
    assert salvaged({"x": "uint64"}, small)[-1] == ({"x": 2**64 - 1}, ())


def test_the_functions_are_right_in_plain_python_too() -> None:
    """A backend may compile them with its own words, so their arithmetic has to be that of machine words."""
    rng = random.Random(3)
    for _ in range(25):
        kind = json_values.random_type(rng)
        values = [one.rjust(8) for one in json_values.values_of(rng, kind, 8, 0.3)]
        kind = _without_texts(kind)
        given = bodies(values)
        tables = json_tables(kind)
        count = len(tables.fields) // (FIELD // 8) + 1
        stamps, marks, lost, frames = (np.zeros(size, np.int64) for size in (count, count, 2 * count, tables.frames // 8))
        names = np.frombuffer(tables.names, np.uint8)
        program = JsonProgram(*(one.ctypes.data for one in (tables.fields, names, tables.numbers, stamps, frames, marks, lost)))
        for value, at in zip(values, given.address.tolist(), strict=True):
            memory = ColumnMemory(tables.layout, 1, 10_000, 10_000)
            restore(memory.target, 0)
            lost[:2], marks[0] = 0, marks[0] + 1
            if objects.decode(memory.target, program, at, at + len(value), 0) == DONE and not lost[0]:
                assert repr(memory.array(1).to_pylist()) == repr(read(kind, [value]).to_pylist())


def _without_texts(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_texts(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_texts(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _without_texts(kind.item_type))
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or pa.types.is_binary(kind) else kind


def salvaged(schema: object, values: list[bytes], unit: str | None = None) -> list[tuple[object, tuple[str, ...]]]:
    column, paths = JsonDecoder(nested_type(schema), unit).salvage(bodies(values))
    column.validate(full=True)
    return list(zip(column.to_pylist(), paths, strict=True))


MISFITS = {
    "int64": [b'"1"', b"1.5", b"-10.05", b"[1]", b'{"a":{}}', b"true", b"1" * 30, b"-" + b"1" * 30],
    "int8": [b"128", b"-129", b"1.1"], "uint16": [b"-1", b"65536", b"-0"], "float64": [b'"1"', b"false", b"[]", b"{}"],
    "bool": [b"1", b'"true"', b"{}"], "timestamp": [b"17", b"true", b"[]"], "decimal(5, 2)": [b"true", b"{}", b'"x"', b"1.234", b"12345"],
    "binary": [b"1", b'"a"', b'"a b="', b'"GwUe="', b'"GwUe===="', b'"YQ="', b'"YQ==YQ=="'],
    "list<int64>": [b"1", b"{}", b'"x"'], "map<string, int64>": [b"1", b"[]"],
    "struct<a: int64>": [b"1", b"[]", b'"x"'],
}  # fmt: skip


@pytest.mark.parametrize("kind", MISFITS)
def test_what_certainly_does_not_fit_needs_no_other_reader(left, kind) -> None:
    """A topic may have it in every row."""
    schema = {"id": "int64", "x": kind, "xs": [kind], "m": {"x": kind, "y": "string"}}
    text = b'{"more":[1],"m":{"x":%s,"y":"z"},"x":%s,"xs":[null,%s,%s],"id":7}'
    values = [text % (one, one, one, one) for one in MISFITS[kind]]
    found = salvaged(schema, values)
    assert found == [({"id": 7, "x": None, "xs": [None] * 3, "m": {"x": None, "y": "z"}}, ("x", "xs", "m.x"))] * len(values)
    assert left == []


def test_more_lost_fields_than_there_is_room_for() -> None:
    kind = {"a": "int64", "b": {"c": "bool", "d": ["int8"]}}
    values = [b'{"a":"x","b":{"c":1,"d":[300,"x",1]}}', b'{"a":1}', b'{"a":1,"b":{"d":[300]}}'] * 500
    rows = [
        ({"a": None, "b": {"c": None, "d": [None, None, 1]}}, ("a", "b.c", "b.d")), ({"a": 1, "b": None}, ()),
        ({"a": 1, "b": {"c": None, "d": [None]}}, ("b.d",)),
    ]  # fmt: skip
    given = pa.array(values, pa.binary())
    column, paths = JsonDecoder(nested_type(kind)).salvage(BareFramer().bodies(given)[0])
    assert list(zip(column.to_pylist(), paths, strict=True)) == rows * 500


def test_what_breaks_readers_is_decided_too() -> None:
    schema = {"i": "int64", "d": "decimal(5, 2)", "f": "float64", "s": "string", "j": "json", "t": "timestamp"}
    deep, long = b"[" * 200_000 + b"]" * 200_000, b"9" * 100_000
    values = [b'{"s":1,"x":%s}' % deep, b'{"j":%s}' % deep, b'{"i":%s,"d":%s,"f":%s}' % (long, long, long), b'{"d":1e999999999999}']
    values += [
        b'{"s":"\\ud800","i":1}',
        b'{"s":"\\u0000","t":"999999-01-01T00:00:00Z"}',
        b'{"s":"\xff"}',
        b"",
        b" ",
        b"\x00",
        b"[" * 100_000,
    ]
    found = salvaged(schema, values)
    none = dict.fromkeys(schema)
    assert found[0] == (none | {"s": "1"}, ())
    assert found[1] == (none | {"j": deep.decode()}, ())
    assert found[2:6] == [(none, ("i", "d", "f")), (none, ("d",)), (none | {"i": 1}, ("s",)), (none | {"s": "\0"}, ("t",))]
    assert found[6:] == [(None, ("$",))] * 5


def test_an_entry_of_a_map_whose_key_is_no_text() -> None:
    value = b'{"a":1,"\\ud800":2,"b":3,"\\udc00x":"?"}'
    assert salvaged("map<string, int64>", [value, b'{"\\ud800":1}']) == [([("a", 1), ("b", 3)], ("$[]",)), ([], ("$[]",))]
    found = salvaged({"m": "map<string, int64>", "i": "int8"}, [b'{"m":%s,"i":5}' % value])
    assert found == [({"m": [("a", 1), ("b", 3)], "i": 5}, ("m",))]


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("float32", b"1e-99999999999999999999", 0.0),
        ("decimal(10, 2)", b'"%sx"' % (b"1" * 1_000_000), None),
        ("decimal(10, 2)", b"1e-999999999", None),
        ("timestamp", b'"2026-01-31T12:00:00.%sx"' % (b"1" * 1_000_000), None),
        ("binary", b'"%s!"' % (b"A" * 1_000_000), None),
        ("float64", b"%se-2000000" % (b"1" * 1_000_000), 0.0),
    ],
)
def test_numbers_and_texts_that_are_made_to_take_long(kind: str, value: bytes, found: object) -> None:
    row, lost = PlainType.of(nested_type({"a": kind})).value(b'{"a": %s}' % value)
    assert (row, set(lost)) == ({"a": found}, set() if found is not None else {"a"})


def test_digits_of_times() -> None:
    """Kept exactly: what a unit does not have is lost, unless the unit is asked for."""
    texts = [
        "2026-01-31T12:30:01.123456789Z",
        "2026-01-31T14:30:01.123456000+0200",
        "1969-12-31 23:59:59.9999999z",
        "9999-12-31",
        "2026-02-30",
    ]
    values = [json.dumps({"t": text}).encode() for text in texts]

    def ticks(schema: str, unit: str | None = None) -> list[int | None]:
        column, _ = JsonDecoder(nested_type({"t": schema}), unit).salvage(bodies(values))
        return column.field("t").cast(pa.int64()).to_pylist()

    seconds = 1_769_862_601
    assert ticks("timestamp") == [None, seconds * 10**6 + 123456, None, 253_402_214_400 * 10**6, None]
    assert ticks("timestamp", "us") == [seconds * 10**6 + 123456, seconds * 10**6 + 123456, -1, 253_402_214_400 * 10**6, None]
    assert ticks("timestamp[ns]") == [seconds * 10**9 + 123456789, seconds * 10**9 + 123456000, -100, None, None]
    assert ticks("timestamp", "s") == [seconds, seconds, -1, 253_402_214_400, None]


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("timestamp[ms, Europe/Berlin]", pa.timestamp("ms", "Europe/Berlin")), ("timestamp[us, tz=UTC]", pa.timestamp("us", "UTC")),
        ("timestamp[ns]", pa.timestamp("ns", "UTC")), ("timestamp_ntz[ms]", pa.timestamp("ms")), ("time[ns]", pa.time64("ns")),
        ("decimal(10)", pa.decimal128(10, 0)), ("decimal256(76, 5)", pa.decimal256(76, 5)), ("extension<arrow.json>", JSON_TEXT),
        ("map<string, list<item: double>>", pa.map_(pa.string(), pa.list_(pa.float64()))), ("ARRAY<BIGINT>".lower(), pa.list_(pa.int64())),
        ("struct<a: int, `b:c`: struct<>, d e: decimal(3, 1)>",
         pa.struct([("a", pa.int32()), ("b:c", pa.struct([])), ("d e", pa.decimal128(3, 1))])),
    ],
)  # fmt: skip
def test_texts_of_types(text: str, type: pa.DataType) -> None:
    assert nested_type({"x": text}) == pa.struct([("x", type)])
    # Arrow's own texts, but for times without a zone, whose name is Spark's, and names with a colon.
    if "ntz" not in text and "`" not in text:
        assert nested_type({"x": str(type)}) == pa.struct([("x", type)])


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"x": "jsn"}, "field 'x': unknown type 'jsn'.*json"), ({"x": {"y": "list<>"}}, r"field 'x\.y'"),
        ({"x": "map<int64, string>"}, "field 'x'"), ({"x": "time64[s]"}, "field 'x'"),
        ({"x": "timestamp[ns, Mars/Olympus]"}, "field 'x': unknown type"), ({"x": "decimal(77, 1)"}, "expected 1 to 76 digits"),
        ({"x": "decimal(5, 6)"}, "1 to 76 digits"), ({"x": pa.large_binary()}, "JSON has no values of large_binary"),
        ({"x": ["int8", "int8"]}, "one type"), ({"x": "struct<a int>"}, "a name, a colon and a type"),
        ({"x": "struct<a: int, a: int>"}, r"'x\.a'.*twice"), ("string", "expected a mapping"), ("{", "not the JSON text"), ({}, "expected"),
        (pa.struct([("x", pa.struct([("a", pa.int8()), ("a", pa.int8())]))]), r"'x\.a'.*twice"), ("nothing", "unknown type 'nothing'"),
    ],
)  # fmt: skip
def test_types_that_json_does_not_have(schema: object, what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        nested_type(schema)
