"""What decoders of values are made of, in plain Python and compiled: Protobuf's wire format as upb reads it, copies, UTF-8 and ASCII."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf import empty_pb2
from google.protobuf.message import DecodeError
from numba import njit

import kolumn.cpu_fallback.values.protobuf
import kolumn.cpu_fallback.values.words
import kolumn.values.wire.compiled  # noqa: F401
from kit.guarded import Guarded, bodies
from kit.protobuf_values import body, in_edition, message_class, mutants, plain, schema, varint
from kolumn.core.deferred import apply
from kolumn.formats import words
from kolumn.formats.words import address_of
from kolumn.values.memory import ColumnLayout, ColumnMemory
from kolumn.values.protobuf import ProtobufDecoder, tables
from kolumn.values.protobuf_columns import finished
from kolumn.values.protobuf_schema import file_of, shape
from kolumn.values.wire import columns, protobuf
from kolumn.values.wire import protobuf_wire as wire
from kolumn.values.wire.protobuf import FRAMES, GROUPS, ProtobufProgram

# Numba compiles functions of Kolumn here.
apply()

MALFORMED = wire.MALFORMED
EMPTY, NUMBER = (ProtobufDecoder(f'syntax = "proto3"; message A {{ {field} }}') for field in ("", "uint64 x = 1;"))


def by_plain_python(function: Callable[..., Any], value: bytes, *more: int) -> Any:
    """The value and the position after it, relative to the first byte; 64-bit values without a sign."""
    guarded = Guarded([value])
    at = guarded.at[0]
    number, after = function(at, at + len(value), *more)
    return int(number) & (2**64 - 1), after - at if after >= 0 else after


def by_the_loop(decoder: ProtobufDecoder, *values: bytes) -> list[Any]:
    return [row and row.get("x") for row in decoder.decode(bodies(values))[0].to_pylist()]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**21 - 1, 2**35, 2**49 + 5, 2**56 - 1, 2**56, 2**63 - 1, 2**63, 2**64 - 1])
def test_varints(value: int) -> None:
    size = len(varint(value))
    fine = [varint(value, more) for more in range(11 - size)]
    wrong = [*(varint(value)[:cut] for cut in range(size)), varint(value, 11 - size)]
    for rest in (b"", b"\xff" * 12):
        assert [by_plain_python(wire.uvarint, one + rest) for one in fine] == [(value, len(one)) for one in fine]
        assert by_plain_python(wire.uvarint, wrong[-1] + rest) == (0, MALFORMED)
    assert [by_plain_python(wire.uvarint, one) for one in wrong] == [(0, MALFORMED)] * len(wrong)
    assert by_the_loop(NUMBER, *(b"\x08" + one for one in (*fine, *wrong))) == [value] * len(fine) + [None] * len(wrong)


def test_the_tenth_byte_has_one_bit_and_tags_have_32_bits_and_five_bytes() -> None:
    for number, tail in ((0, b"\x80" * 9 + b"\x02"), (2**64 - 1, b"\xff" * 9 + b"\x7f")):
        assert (by_plain_python(wire.uvarint, tail), by_the_loop(NUMBER, b"\x08" + tail)) == ((number, 10), [number])
    assert (by_plain_python(wire.tag_at, varint(2**32 - 1)), by_plain_python(wire.tag_at, varint(8, 4))) == ((2**32 - 1, 5), (8, 5))
    for wrong in (varint(8, 5), varint(2**32), varint(2**32 + 8)):
        assert by_plain_python(wire.tag_at, wrong) == (0, MALFORMED)
        assert by_the_loop(NUMBER, varint(8, 4) + b"\7", wrong + b"\7") == [7, None]


@pytest.mark.parametrize(
    ("kind", "name", "value", "bits", "row"),
    [(wire.VARINT4, "int32", varint(-1), 2**64 - 1, -1), (wire.ZIGZAG4, "sint32", varint(2**32 - 1), 2**64 - 2**31, -(2**31)),
     (wire.ZIGZAG4, "sint32", varint(2**40 + 3), 2**64 - 2, -2), (wire.ZIGZAG8, "sint64", varint(2**64 - 1), 2**63, -(2**63)),
     (wire.BOOL, "bool", varint(2**40), 1, True), (wire.BOOL, "bool", b"\x80" * 9 + b"\x02", 0, False),
     (wire.ENUM, "E", varint(-5), 2**64 - 5, "F"), (wire.ENUM, "E", varint(2**32 + 5), 5, "G"),
     (wire.FIXED4, "fixed32", b"\1\2\3\xff", 0xFF030201, 0xFF030201),
     (wire.FIXED8, "fixed64", b"\1\0\0\0\0\0\0\xff", 0xFF00000000000001, 0xFF00000000000001)],
)  # fmt: skip
def test_numbers(kind: int, name: str, value: bytes, bits: int, row: Any) -> None:
    assert by_plain_python(wire.number_at, value, kind) == (bits, len(value))
    assert by_plain_python(wire.number_at, value[:-1], kind)[1] == MALFORMED
    decoder = ProtobufDecoder(f'syntax = "proto3"; enum E {{ D = 0; F = -5; G = 5; }} message A {{ {name} x = 1; }}')
    tag = {wire.FIXED4: b"\x0d", wire.FIXED8: b"\x09"}.get(kind, b"\x08")
    assert by_the_loop(decoder, tag + value, tag + value[:-1]) == [row, None]


@njit
def _compiled_lowest(bits: int) -> Any:
    return wire.lowest_bit(bits)


@pytest.mark.parametrize("bit", [0, 1, 5, 61])
def test_lowest_bit(bit: int) -> None:
    assert wire.lowest_bit(1 << bit) == wire.lowest_bit(1 << bit | 1 << 61) == bit == _compiled_lowest(1 << bit)


def test_unknown_fields_end_where_upb_ends_them() -> None:
    """The package protobuf keeps unknown fields of a message without fields, and refuses malformed ones."""
    rng = random.Random(7)
    kind = message_class(schema(rng))
    numbers = np.empty(wire.MOST_NESTED, np.int64)
    values = [body(rng, kind.DESCRIPTOR, 0.3) for _ in range(60)]
    values += [one for value in values for one in mutants(rng, value, value, 5)]
    valid = EMPTY.decode(bodies(values))[1].tolist()
    for value, is_valid in zip(values, valid, strict=True):
        guarded = Guarded([value])
        at, stop = guarded.at[0], guarded.at[0] + len(value)
        while MALFORMED < at < stop:
            tag, at = wire.tag_at(at, stop)
            at = wire.after_field(at, stop, tag, 0, address_of(numbers)) if at > 0 else at
        try:
            empty_pb2.Empty.FromString(value)
            fine = True
        except DecodeError:
            fine = False
        assert (at == stop) == is_valid == fine
    assert valid.count(False) > 20


@pytest.mark.parametrize(("depth", "groups", "fine"), [(0, 100, True), (0, 101, False), (1, 99, True), (1, 100, False), (99, 1, True)])
def test_groups_are_nested_up_to_a_hundred_deep(depth: int, groups: int, fine: bool) -> None:
    value = b"\x7b" * (groups - 1) + b"\x7c" * groups
    guarded, numbers = Guarded([value]), np.full(wire.MOST_NESTED + 1, -7, np.int64)
    at = guarded.at[0]
    assert (wire.after_field(at, at + len(value), 0x7B, depth, address_of(numbers)) == at + len(value), numbers[-1]) == (fine, -7)


@pytest.mark.parametrize(
    ("path", "value", "after"),
    [((0,), "00", 1), ((0,), "0200", 2), ((0,), "0202", MALFORMED), ((1,), "0202", 2), ((1,), "00", MALFORMED), ((1, 0), "040200", 3),
     ((1, 0), "0402", MALFORMED), ((1, 0), "0202", MALFORMED), ((1, 0), "040202", MALFORMED), ((0,), "", MALFORMED),
     ((0,), "01", MALFORMED), ((70,), "028c01", 3)],
)  # fmt: skip
def test_message_indexes(path: tuple[int, ...], value: str, after: int) -> None:
    data, numbers = bytes.fromhex(value), np.array(path, np.int64)
    guarded = Guarded([data])
    at = guarded.at[0]
    found = wire.after_indexes(at, at + len(data), address_of(numbers), len(path))
    assert (found - at if found > 0 else found) == after


@pytest.mark.parametrize("seed", range(6))
def test_the_interpreter_in_plain_python_writes_what_the_loop_writes(seed: int) -> None:
    rng = random.Random(seed)
    made = in_edition(schema(rng))
    file = file_of(made)
    parts = shape(file.message("M0"))
    layout = ColumnLayout.of(parts.raw)
    table = tables(parts, layout)
    frames = np.empty(FRAMES // 8, np.int64), np.empty(GROUPS // 8, np.int64)
    program = ProtobufProgram(*(one.ctypes.data for one in (table.messages, table.fields, table.direct, table.symbols, *frames)))
    values = [body(rng, file.message("M0"), 0.2) for _ in range(6)]
    values += [one for value in values[:3] for one in mutants(rng, value, values[0], 2)]
    guarded = Guarded(values)
    # Little room, so that every column and level has to grow.
    memory, row = ColumnMemory(layout, len(values), 1, 1), 0
    while row < len(values):
        target, at = memory.target, guarded.at[row]
        columns.restore(target, row)
        code = protobuf.write_message(target, program, row, at, at + len(values[row]))
        if code > 0:
            columns.restore(target, row)
            memory.grow(code)
            continue
        if code < 0:
            columns.restore(target, row)
            protobuf.write_null(target, program, row)
        row += 1
    found, wrong, _ = finished(parts, memory.array(len(values)), {})
    assert [None if wrong[number] else plain(one) for number, one in enumerate(found)] == [
        plain(one) for one in ProtobufDecoder(made, "M0").decode(bodies(values))[0]
    ]


@njit
def _moved(source: int, target: int) -> Any:
    words.store64(target, words.load64(source))
    words.store32(target + 8, words.load32(source))
    words.store16(target + 12, words.loadu32(source))
    words.store8(target + 14, words.load32(source))
    return words.load32(source), words.loadu32(source)


def test_words() -> None:
    source, (plain_one, compiled) = np.array([-(2**40) - 5]), np.zeros((2, 2), np.int64)
    assert _moved.py_func(source.ctypes.data, plain_one.ctypes.data) == _moved(source.ctypes.data, compiled.ctypes.data) == (-5, 2**32 - 5)
    assert plain_one.tolist() == compiled.tolist() == [source[0], 0x00FBFFFBFFFFFFFB]


@njit
def _compiled_copy(target: Any, source: Any, size: int) -> None:
    columns.copy(address_of(target), address_of(source), size)


@njit
def _compiled_ascii(target: Any, source: Any, size: int) -> int:
    return columns.copy_ascii(address_of(target), address_of(source), size)


@njit
def _compiled_utf8(source: Any, size: int) -> bool:
    return columns.is_utf8(address_of(source), size)


@njit
def _compiled_is_ascii(source: Any, size: int) -> bool:
    return columns.is_ascii(address_of(source), size)


@pytest.mark.parametrize("compiled", [_compiled_copy, _compiled_ascii], ids=["copy", "copy_ascii"])
def test_copies_touch_nothing_else(compiled: Callable[..., Any]) -> None:
    for size in range(130):
        source = np.arange(size + 1, dtype=np.uint8)
        target = np.full(size + 64, 0xEE, np.uint8)
        bits = compiled(target, source[:size].copy() if size else source, size)
        assert target[:size].tolist() == source[:size].tolist()
        assert (target[size:] == 0xEE).all()
        if compiled is _compiled_ascii:
            assert (bits >= 0x80) == (size > 0x80)


def test_text_is_what_python_takes_for_utf8() -> None:
    random = np.random.default_rng(3)
    pieces = [
        b"a", "é".encode(), "€".encode(), "😀".encode(), b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xe2\x82", b"\xf5",
    ]  # fmt: skip
    for _ in range(2000):
        data = b"".join(pieces[k] for k in random.choice(len(pieces), 4, p=[0.3, 0.2, 0.15, 0.11, *6 * [0.04]]))
        try:
            data.decode()
            fine = True
        except UnicodeDecodeError:
            fine = False
        array = np.frombuffer(data, np.uint8)
        assert columns.is_utf8(array.ctypes.data, len(data)) == _compiled_utf8(array, len(data)) == fine


def test_ascii_by_words() -> None:
    """Of strings anywhere in words; the bytes around them are not looked at."""
    words = np.full(6, -1, np.int64)
    memory = words.view(np.uint8)
    for begin in range(8, 17):
        for size in range(25):
            memory[:] = 0xFF
            memory[begin : begin + size] = 0x7F
            own = memory[begin:]
            assert columns.is_ascii(own.ctypes.data, size) == _compiled_is_ascii(own, size) == 1
            for at in range(begin, begin + size):
                memory[at] = 0x80
                assert columns.is_ascii(own.ctypes.data, size) == _compiled_is_ascii(own, size) == 0
                memory[at] = 0x7F
