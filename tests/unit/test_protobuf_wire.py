"""Protobuf's wire format: what upb takes and refuses; in plain Python and compiled, with nothing read after the end."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import empty_pb2
from google.protobuf.message import DecodeError
from numba import njit

import kolumn.cpu_fallback.values.protobuf  # noqa: F401
from kit.guarded import Guarded
from kit.protobuf_values import body, in_edition, message_class, mutants, plain, schema, varint
from kolumn.formats.machine_code.deferred import apply
from kolumn.formats.machine_code.words import address_of
from kolumn.values.memory import ColumnLayout, ColumnMemory
from kolumn.values.protobuf.decoder import finished, tables
from kolumn.values.protobuf.schema import file_of, shape
from kolumn.values.wire import columns, protobuf
from kolumn.values.wire import protobuf_wire as wire
from kolumn.values.wire.protobuf import FRAMES, GROUPS, ProtobufProgram

# Numba compiles functions of Kolumn here.
apply()

MALFORMED = wire.MALFORMED


@njit
def _compiled_uvarint(at: int, stop: int) -> Any:
    return wire.uvarint(at, stop)


@njit
def _compiled_tag(at: int, stop: int) -> Any:
    return wire.tag_at(at, stop)


@njit
def _compiled_number(at: int, stop: int, kind: int) -> Any:
    return wire.number_at(at, stop, kind)


@njit
def _compiled_after(at: int, stop: int, tag: int, depth: int, numbers: int) -> Any:
    return wire.after_field(at, stop, tag, depth, numbers)


@njit
def _compiled_lowest(bits: int) -> Any:
    return wire.lowest_bit(bits)


def both(plain_one: Callable[..., Any], compiled: Callable[..., Any], value: bytes, *more: int) -> Any:
    """The value and the position after it, relative to the first byte; 64-bit values without a sign."""
    guarded = Guarded([value])
    at = guarded.at[0]
    found = []
    for one in (plain_one, compiled):
        number, after = one(at, at + len(value), *more)
        found.append((int(number) & (2**64 - 1), after - at if after >= 0 else after))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**21 - 1, 2**35, 2**49 + 5, 2**56 - 1, 2**56, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("rest", [b"", b"\xff" * 12])
def test_varints(value: int, rest: bytes) -> None:
    size = len(varint(value))
    assert both(wire.uvarint, _compiled_uvarint, varint(value) + rest) == (value, size)
    for cut in range(size):
        assert both(wire.uvarint, _compiled_uvarint, varint(value)[:cut]) == (0, MALFORMED)
    for more in range(1, 11 - size):
        assert both(wire.uvarint, _compiled_uvarint, varint(value, more) + rest) == (value, size + more)
    assert both(wire.uvarint, _compiled_uvarint, varint(value, 11 - size) + rest) == (0, MALFORMED)


def test_the_tenth_byte_has_one_bit_and_tags_have_32_bits_and_five_bytes() -> None:
    assert both(wire.uvarint, _compiled_uvarint, b"\x80" * 9 + b"\x02") == (0, 10)
    assert both(wire.uvarint, _compiled_uvarint, b"\xff" * 9 + b"\x7f") == (2**64 - 1, 10)
    assert (both(wire.tag_at, _compiled_tag, varint(2**32 - 1)), both(wire.tag_at, _compiled_tag, varint(8, 4))) == ((2**32 - 1, 5), (8, 5))
    assert both(wire.tag_at, _compiled_tag, varint(8, 5)) == (0, MALFORMED)
    assert both(wire.tag_at, _compiled_tag, varint(2**32)) == (0, MALFORMED)


@pytest.mark.parametrize(
    ("kind", "value", "bits"),
    [(wire.VARINT4, varint(-1), 2**64 - 1), (wire.ZIGZAG4, varint(2**32 - 1), 2**64 - 2**31), (wire.ZIGZAG4, varint(2**40 + 3), 2**64 - 2),
     (wire.ZIGZAG8, varint(2**64 - 1), 2**63), (wire.BOOL, varint(2**40), 1), (wire.BOOL, b"\x80" * 9 + b"\x02", 0),
     (wire.ENUM, varint(-5), 2**64 - 5), (wire.ENUM, varint(2**32 + 5), 5), (wire.FIXED4, b"\1\2\3\xff", 0xFF030201),
     (wire.FIXED8, b"\1\0\0\0\0\0\0\xff", 0xFF00000000000001)],
)  # fmt: skip
def test_numbers(kind: int, value: bytes, bits: int) -> None:
    assert both(wire.number_at, _compiled_number, value, kind) == (bits, len(value))
    assert both(wire.number_at, _compiled_number, value[:-1], kind)[1] == MALFORMED


@pytest.mark.parametrize("bit", [0, 1, 5, 61])
def test_lowest_bit(bit: int) -> None:
    assert wire.lowest_bit(1 << bit) == wire.lowest_bit(1 << bit | 1 << 61) == bit == _compiled_lowest(1 << bit)


def test_unknown_fields_end_where_upb_ends_them() -> None:
    """The package protobuf keeps unknown fields of a message without fields, and refuses malformed ones."""
    rng = random.Random(7)
    kind = message_class(schema(rng))
    numbers = np.empty(wire.MOST_NESTED, np.int64)
    refused = 0
    for _ in range(60):
        value = body(rng, kind.DESCRIPTOR, 0.3)
        for one in [value, *mutants(rng, value, value, 5)]:
            guarded = Guarded([one])
            at, stop = guarded.at[0], guarded.at[0] + len(one)
            while MALFORMED < at < stop:
                tag, at = wire.tag_at(at, stop)
                if at > 0:
                    after = wire.after_field(at, stop, tag, 0, address_of(numbers))
                    assert after == _compiled_after(at, stop, tag, 0, address_of(numbers))
                    at = after
            try:
                empty_pb2.Empty.FromString(one)
                fine = True
            except DecodeError:
                fine = False
                refused += 1
            assert (at == stop) == fine
    assert refused > 20


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
    memory = np.empty(FRAMES // 8, np.int64), np.empty(GROUPS // 8, np.int64)
    program = ProtobufProgram(*(one.ctypes.data for one in (table.messages, table.fields, table.direct, table.symbols, *memory)))
    values = [body(rng, file.message("M0"), 0.2) for _ in range(6)]
    values += [one for value in values[:3] for one in mutants(rng, value, values[0], 2)]
    guarded = Guarded(values)
    arrays = [finished(parts, _written(one, layout, program, guarded, values)) for one in (protobuf.write_message, _compiled_message)]
    assert [plain(one) for one in arrays[0]] == [plain(one) for one in arrays[1]]


@njit
def _compiled_message(t: Any, p: Any, row: int, at: int, stop: int) -> int:
    return protobuf.write_message(t, p, row, at, stop)


def _written(write: Any, layout: ColumnLayout, program: ProtobufProgram, guarded: Guarded, values: list[bytes]) -> pa.Array:
    # Little room, so that every column and level has to grow.
    memory, row = ColumnMemory(layout, len(values), 1, 1), 0
    while row < len(values):
        target, at = memory.target, guarded.at[row]
        columns.restore(target, row)
        code = write(target, program, row, at, at + len(values[row]))
        if code > 0:
            columns.restore(target, row)
            memory.grow(code)
            continue
        if code < 0:
            columns.restore(target, row)
            protobuf.write_null(target, program, row)
        row += 1
    return memory.array(len(values))
