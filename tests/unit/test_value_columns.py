"""Columns of values: layout, rows written and taken back, growth, Arrow arrays; the same in plain Python and compiled."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numba import njit

import kolumn.cpu_fallback.values.words
import kolumn.values.wire.compiled  # noqa: F401
from kolumn.core.deferred import apply
from kolumn.formats.words import address_of
from kolumn.values.memory import ColumnLayout, ColumnMemory, LayoutNode, nodes, word_width
from kolumn.values.wire import columns
from kolumn.values.wire.columns import DONE, INVALID, full_column, full_level

# Numba compiles functions of Kolumn here.
apply()

TYPE = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("color", pa.dictionary(pa.int32(), pa.string())),
        pa.field("at", pa.struct([pa.field("x", pa.float64(), nullable=False), pa.field("on", pa.bool_())])),
        pa.field("counts", pa.map_(pa.string(), pa.list_(pa.int16()))),
    ]
)


def child(layout: ColumnLayout, name: str) -> LayoutNode:
    return next(node for node in layout.root.children if node.name == name)


def test_layout() -> None:
    layout = ColumnLayout.of(TYPE, {("color",): ["red", "green"]})
    found = {one.name or str(one.type): (one.level, one.column, one.child_level) for one in nodes(layout.root) if one.name}
    assert found == {"id": (0, 3, -1), "tags": (0, 4, 1), "color": (0, 5, -1), "at": (0, 6, -1), "x": (0, 7, -1), "on": (0, 8, -1),
                     "counts": (0, 9, 2)}  # fmt: skip
    assert (layout.levels[1:], layout.bytes_columns) == ([(4, 0), (9, 0), (10, 2)], 2)
    # Everything of the record is filled at level 0, and nothing of its elements.
    assert {layout.columns[column].level for _, column, _ in layout.fills[layout.root.first_fill :][: layout.root.fills]} == {0}
    assert child(layout, "color").symbols == ("red", "green")


@pytest.mark.parametrize(
    ("kind", "width"),
    [(pa.bool_(), 1), (pa.int16(), 2), (pa.date32(), 4), (pa.timestamp("us"), 8), (pa.decimal128(9, 2), 16), (pa.decimal256(50, 2), 32),
     (pa.binary(7), 7), (pa.month_day_nano_interval(), 16), (pa.dictionary(pa.int32(), pa.string()), 4)],
)  # fmt: skip
def test_widths(kind: pa.DataType, width: int) -> None:
    assert word_width(kind) == width


def test_rows_growth_and_what_is_taken_back() -> None:
    """Rows are written again after growth, bad ones leave nothing."""
    layout = ColumnLayout.of(TYPE, {("color",): ["red"]})
    memory = ColumnMemory(layout, 5, 1, 3)
    codes, row = [], 0
    given = [(b"a", 1), (b"\xff", 3), (b"long text", 4), (b"", 2), (b"\xed\xa0\x80", 1)]
    while row < len(given):
        target = memory.target
        code = _write_row(target, layout, row, *given[row])
        if code == INVALID:
            columns.restore(target, row)
            columns.put_nulls(target, layout.root.first_fill, layout.root.fills, row)
        elif code != DONE:
            codes.append(code)
            columns.restore(target, row)
            memory.grow(code)
            continue
        row += 1
    made = memory.array(5)
    made.validate(full=True)
    assert made.type == TYPE
    assert [None if one is None else (one["id"], one["tags"]) for one in made.to_pylist()] == [
        (0, ["a"]), None, (2, 4 * ["long text"]), (3, ["", ""]), None
    ]  # fmt: skip
    assert {full_level(1), full_column(0)} == set(codes)


def _write_row(target: columns.ColumnTables, layout: ColumnLayout, row: int, tag: bytes, tags: int) -> int:
    code = _record(target, row, tag, tags)
    if code == DONE:
        for name in ("color", "at", "counts"):
            columns.put_nulls(target, child(layout, name).first_fill, child(layout, name).fills, row)
    return code


def _record(target: columns.ColumnTables, row: int, tag: bytes, tags: int) -> int:
    columns.set_valid(target, 2, row, 1)
    columns.put_word(target, 3, row, row, 8)
    columns.begin_list(target, 4, row, 1)
    source = np.frombuffer(tag + b"\0", np.uint8)
    for _ in range(tags):
        element = columns.next_row(target, 1)
        if element < 0:
            return -element
        code = columns.put_text(target, 0, element, source.ctypes.data, len(tag))
        if code != DONE:
            return code
    columns.end_list(target, 4, row, 1)
    return DONE


@njit
def _compiled_copy(target: Any, source: Any, size: int) -> None:
    columns.copy(address_of(target), address_of(source), size)


@njit
def _compiled_ascii(target: Any, source: Any, size: int) -> int:
    return columns.copy_ascii(address_of(target), address_of(source), size)


@njit
def _compiled_utf8(source: Any, size: int) -> bool:
    return columns.is_utf8(address_of(source), size)


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


@njit
def _compiled_is_ascii(source: Any, size: int) -> bool:
    return columns.is_ascii(address_of(source), size)


def test_ascii_by_words() -> None:
    """Of strings anywhere in words; the bytes around them are not looked at."""
    words = np.full(6, -1, np.int64)
    memory = words.view(np.uint8)
    for begin in range(8, 17):
        for size in range(25):
            memory[:] = 0xFF
            memory[begin : begin + size] = 0x7F
            own = memory[begin:]
            assert columns.is_ascii(own.ctypes.data, size)
            assert _compiled_is_ascii(own, size)
            for at in range(begin, begin + size):
                memory[at] = 0x80
                assert not columns.is_ascii(own.ctypes.data, size)
                assert not _compiled_is_ascii(own, size)
                memory[at] = 0x7F
