"""Values as lines of text, for readers of JSON lines: one line for each record, whatever its value is.

    value    {"a": 1,\\n "b": 2}        line    {"ok":1,"a": 1,  "b": 2}         line feeds become spaces
    value    {}                        line    {"ok":1}
    value    12, or nothing            line    {}

A reader that returns null for what it can't read then has a row for each value; if the marker is null, the value was not an object.

A thread finds the size of a line, and eight neighbours write it, a byte each in turns: what they write together is one access.

Bound: the values' bytes, read once and written once.
"""

from typing import NamedTuple

import numpy as np

from kolumn.formats import memory
from kolumn.kernels.fields.decoded import DevicePayloads
from kolumn.kernels.machine.kernel import thread_per_item, warp_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.machine_code.deferred import register_jitable
from kolumn.machine_code.words import load32, load64, store8, store32

MARKER = "kolumn.ok"
_MARK = f'{{"{MARKER}":1'.encode()
MARK_BYTES = len(_MARK)
NO_OBJECT_BYTES = len(b"{}\n")
"""Size of the line of a value that is no object; every other line is longer."""
_MARK_BYTES = MARK_BYTES
_OPENING, _CLOSING, _COMMA, _LINE_FEED, _RETURN, _SPACE, _TAB = 0x7B, 0x7D, 0x2C, 10, 13, 32, 9
_BREAKS, _SPACES = 1 << _LINE_FEED | 1 << _RETURN, 1 << _LINE_FEED | 1 << _RETURN | 1 << _SPACE | 1 << _TAB
"""Bits of bytes: compilers make a loop of a look into a tuple."""


def mark() -> bytes:
    """What each line of an object begins with."""
    return _MARK


class Lines(NamedTuple):
    """Arguments of `line_sizes` and `lines`; addresses.

    ``at`` (int64) and ``length`` (int32) say where values are, ``ends`` (int32 of n + 1) where their lines go in ``target``; ``mark`` is
    `mark`.
    """

    at: int
    length: int
    ends: int
    target: int
    mark: int


@register_jitable
def _object(buf: int, length: int) -> tuple[int, int]:
    """Where an object begins after white space, -1 if none does, and what follows its brace: position of the first other byte."""
    at = 0
    while at < length and _is_space(memory.load8(buf, at)):
        at += 1
    if at >= length or memory.load8(buf, at) != _OPENING:
        return -1, 0
    after = at + 1
    while after < length and _is_space(memory.load8(buf, after)):
        after += 1
    return at, after


@register_jitable
def _is_space(byte: int) -> bool:
    return byte <= _SPACE and (_SPACES >> byte) & 1 != 0


@thread_per_item(Lines)
def line_sizes(i: int, a: Lines) -> None:
    """Bytes of line ``i``, for a running sum."""
    buf, length = load64(a.at + 8 * i), load32(a.length + 4 * i)
    begin, after = _object(buf, length)
    size = NO_OBJECT_BYTES
    if begin >= 0:
        comma = 0 if after < length and memory.load8(buf, after) == _CLOSING else 1
        size = _MARK_BYTES + comma + length - begin
    store32(a.ends + 4 * (i + 1), size)


@warp_per_item(Lines, lanes=8)
def lines(i: int, lane: int, lanes: int, a: Lines) -> None:
    """Write line ``i``."""
    buf, length = load64(a.at + 8 * i), load32(a.length + 4 * i)
    to, stop = a.target + load32(a.ends + 4 * i), a.target + load32(a.ends + 4 * (i + 1)) - 1
    begin, after = _object(buf, length)
    if lane == 0:
        store8(stop, _LINE_FEED)
    if begin < 0:
        if lane == 0:
            store8(to, _OPENING)
            store8(to + 1, _CLOSING)
        return
    at = lane
    while at < _MARK_BYTES:
        store8(to + at, memory.load8(a.mark, at))
        at += lanes
    to += _MARK_BYTES
    if not (after < length and memory.load8(buf, after) == _CLOSING):
        if lane == 0:
            store8(to, _COMMA)
        to += 1
    at = begin + 1 + lane
    to += lane
    while at < length:
        byte = memory.load8(buf, at)
        store8(to, _SPACE if byte < _SPACE and (_BREAKS >> byte) & 1 != 0 else byte)
        at += lanes
        to += lanes


def make_lines(device: Runtime, values: DevicePayloads) -> tuple[Memory, int]:
    """Values as lines of JSON, one for each, and their bytes."""
    n = values.count
    ends, text = device.zeros(4 * (n + 1)), device.upload(np.frombuffer(mark(), np.uint8))
    device.launch(line_sizes, n, Lines(values.at.address, values.length.address, ends.address, 0, text.address))
    device.running_sum(ends, n + 1, 4)
    total = int(device.download(ends, 4, 4 * n).view(np.int32)[0])
    target = device.empty(total)
    device.launch(lines, n, Lines(values.at.address, values.length.address, ends.address, target.address, text.address))
    return target, total
