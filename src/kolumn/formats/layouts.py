"""All formats and their layouts, and lookups of their facts by number for the stages. Facts of one layout are declared in its own file.

Bytes alone cannot distinguish the drafts, because three of them use a magic that Kafka later gave to another format: ``format=`` names one.

    format        entries by magic          file
    kafka         0, 1 message · 2 batch    legacy.py, v2.py
    enriched      0 message · 1 tagged      enriched.py
    kip98-draft   0, 1 message · 2 set      kip98_draft.py
    v3-compact    as kafka · 3 batch        v3_compact.py; its magic is after a varint, so the frame decides
    kip87         0, 1, 2 message           kip87.py
    redpanda      batch                     redpanda.py; no magic: the frame is its own

A draft can be tried without a change here: KOLUMN_FORMATS names modules, separated by commas, each with a ``FORMAT``. All processes that
read the draft need the same variable.
"""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import Code
from kolumn.formats import crc, enriched, kip87, kip98_draft, legacy, redpanda, table, v2, v3_compact
from kolumn.formats.entry import magic_at
from kolumn.formats.layout import Family, Format, Layout, chosen
from kolumn.formats.memory import Buffer, i64_at, load8, u32_at

_BAD_MAGIC, _BAD_LENGTH = int(Code.BAD_MAGIC), int(Code.BAD_LENGTH)
_MOST = 12
"""Number of layouts for which the packed numbers below have room."""
KAFKA_FORMAT = Format("kafka", {0: legacy.LAYOUT, 1: legacy.LAYOUT, 2: v2.LAYOUT}, v2.MAGIC, as_shipped=True)
EXTRA: tuple[ModuleType, ...] = tuple(map(import_module, filter(None, os.environ.get("KOLUMN_FORMATS", "").split(","))))
"""Modules of drafts that KOLUMN_FORMATS names."""
FILES: tuple[ModuleType, ...] = (legacy, v2, enriched, kip98_draft, v3_compact, kip87, redpanda, *EXTRA)
FORMATS: tuple[Format, ...] = (
    KAFKA_FORMAT, enriched.FORMAT, kip98_draft.FORMAT, v3_compact.FORMAT, kip87.FORMAT, redpanda.FORMAT,
    *(module.FORMAT for module in EXTRA)
)  # fmt: skip
FORMAT_NAMES = tuple(one.name for one in FORMATS)
KAFKA = FORMATS.index(KAFKA_FORMAT)
NO_LAYOUT = 7
"""Used as the layout's number of an entry with an unknown magic."""


def _numbered() -> dict[int, Layout]:
    found: dict[int, Layout] = {}
    for layout in (layout for one in FORMATS for layout in one.layouts):
        if found.setdefault(layout.number, layout) is not layout or layout.number == NO_LAYOUT or not 0 <= layout.number < _MOST:
            raise ValueError(f"{layout.name}: its number {layout.number} is another layout's, or not from 0 to {_MOST - 1}")
    return found


LAYOUTS: Mapping[int, Layout] = _numbered()
"""Layouts by number."""
BATCHES = tuple(number for number, layout in LAYOUTS.items() if layout.family == Family.RECORDS)
MESSAGES = tuple(number for number, layout in LAYOUTS.items() if layout.family == Family.MESSAGES)
TYPED_CONTROL = tuple(number for number, layout in LAYOUTS.items() if layout.typed_control)
STREAMED_LAYOUTS = tuple(number for number, layout in LAYOUTS.items() if layout.streamed)
SETS = tuple(number for number, layout in LAYOUTS.items() if layout.family == Family.SET)

# Compiled code cannot look into a table of objects, so a fact is packed into one number for it, with some bits for each layout.
CHOSEN: list[Callable[..., Any]] = []
"""Functions made by `chosen`, which the compilers have to know too."""


def _packed(bits: int, values: Mapping[int, int]) -> int:
    total = 0
    for number, value in values.items():
        assert 0 <= value < 1 << bits, value
        total |= value << (bits * number)
    assert total < 1 << 63
    return total


def _of_layouts(bits: int, fact: Callable[[Layout], int]) -> int:
    return _packed(bits, {number: int(fact(layout)) for number, layout in LAYOUTS.items()})


def _that_have(name: str) -> dict[int, Callable[..., Any]]:
    return {number: function for number, layout in LAYOUTS.items() if (function := getattr(layout, name)) is not None}


def _unknown_header(buf: Buffer, pos: int, size: int, row) -> int:  # type: ignore[no-untyped-def]
    row[table.BASE_OFFSET] = row[table.LAST_OFFSET] = i64_at(buf, pos)
    row[table.COUNT] = table.UNKNOWN
    return _BAD_MAGIC


def _no_frame(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    return _BAD_LENGTH, 0


def _no_crc(buf: Buffer, pos: int) -> int:
    return 0


def _usual(buf: Buffer, pos: int, size: int) -> int:
    return 0


CHOSEN += [_unknown_header, _no_frame, _no_crc, _usual]
header = chosen({**_that_have("header"), NO_LAYOUT: _unknown_header}, CHOSEN)
header_bytes = chosen({**_that_have("header_bytes"), NO_LAYOUT: _usual}, CHOSEN)
plausible = chosen(_that_have("plausible"), CHOSEN)
codec_code = chosen(_that_have("codec_code"), CHOSEN)
hop = chosen(_that_have("hop"), CHOSEN)
message = chosen(_that_have("message"), CHOSEN)
wrapped = chosen(_that_have("wrapped"), CHOSEN)
inner_codec = chosen(_that_have("inner_codec"), CHOSEN)
count = chosen(_that_have("count"), CHOSEN)
own_frame = chosen({i: one.own_frame or _no_frame for i, one in enumerate(FORMATS)}, CHOSEN)
own_crc_at = chosen({i: one.own_crc_at or _no_crc for i, one in enumerate(FORMATS)}, CHOSEN)
offset_at = chosen({i: one.own_offset or i64_at for i, one in enumerate(FORMATS)}, CHOSEN)
"""Functions of `Layout` and of `Format`, by the number of the layout or of the format."""
CONTROL_NAMES = (*dict.fromkeys(name for layout in LAYOUTS.values() for name in layout.control_types), "UNKNOWN")
"""Names of all control types; `control_name` returns indexes into it."""
_UNKNOWN_CONTROL = len(CONTROL_NAMES) - 1


def _namer(layout: Layout) -> Callable[[int], int]:
    known = len(layout.control_types)
    places = _packed(4, {number: CONTROL_NAMES.index(name) for number, name in enumerate(layout.control_types)})

    def name_of(number: int) -> int:
        return (places >> (4 * number)) & 15 if 0 <= number < known else _UNKNOWN_CONTROL

    CHOSEN.append(name_of)
    return name_of


control_name = chosen({number: _namer(layout) for number, layout in LAYOUTS.items() if layout.control_types}, CHOSEN)
"""``(layout, number)``: index into `CONTROL_NAMES` of the control type that has this number in the layout."""
_FAMILY = _packed(2, {NO_LAYOUT: 3}) | _of_layouts(2, lambda layout: layout.family)
_RECORDS, _MESSAGES, _SET = int(Family.RECORDS), int(Family.MESSAGES), int(Family.SET)
_OWN_FRAME = _packed(1, {i: one.own_frame is not None for i, one in enumerate(FORMATS)})
_OWN_ALONE = _packed(1, {i: not one.magics for i, one in enumerate(FORMATS)})
_OWN_LAYOUT = _packed(4, {i: one.own_layouts[0].number if one.own_layouts else 0 for i, one in enumerate(FORMATS)})
_OF_MAGIC_0, _OF_MAGIC_1, _OF_MAGIC_2 = (
    _packed(4, {i: one.magics[magic].number if magic in one.magics else NO_LAYOUT for i, one in enumerate(FORMATS)}) for magic in range(3)
)


def layout_of(format: int, magic: int) -> int:
    """Layout of an entry that has its magic at byte 16."""
    if magic == 2:
        return (_OF_MAGIC_2 >> (4 * format)) & 15
    if magic == 1:
        return (_OF_MAGIC_1 >> (4 * format)) & 15
    return (_OF_MAGIC_0 >> (4 * format)) & 15 if magic == 0 else NO_LAYOUT


def has_own_frame(format: int) -> bool:
    """Whether some entries of a format do not have their magic at byte 16."""
    return (_OWN_FRAME >> format) & 1 != 0


def has_no_magics(format: int) -> bool:
    """Whether all entries of a format have frames of their own."""
    return (_OWN_ALONE >> format) & 1 != 0


def own_layout(format: int) -> int:
    """Layout of an entry that does not have its magic at byte 16, used until its header has been read."""
    return (_OWN_LAYOUT >> (4 * format)) & 15


def holds_records(layout: int) -> bool:
    """Whether the entry is a record batch."""
    return (_FAMILY >> (2 * layout)) & 3 == _RECORDS


def holds_messages(layout: int) -> bool:
    """Whether the entry is a message or, with a codec, a wrapper around messages, as in formats 0 and 1."""
    return (_FAMILY >> (2 * layout)) & 3 == _MESSAGES


def is_set(layout: int) -> bool:
    return (_FAMILY >> (2 * layout)) & 3 == _SET


def _number(bits: int, fact: Callable[[Layout], int]) -> Callable[[int], int]:
    """A function of a layout that returns a number of so many bits."""
    packed, mask = _of_layouts(bits, fact), (1 << bits) - 1

    def number_of(layout: int) -> int:
        return (packed >> (bits * layout)) & mask

    return number_of


def _flag(fact: Callable[[Layout], bool]) -> Callable[[int], bool]:
    """A function of a layout that says whether it has a fact."""
    packed = _of_layouts(1, fact)

    def has(layout: int) -> bool:
        return (packed >> layout) & 1 != 0

    return has


def _bit(fact: Callable[[Layout], int]) -> Callable[[int], int]:
    """A function of a layout that returns the mask of a bit of attributes; bit 15, which no attributes have, if the layout has none."""
    packed = _of_layouts(4, lambda layout: (fact(layout) or 1 << 15).bit_length() - 1)

    def mask_of(layout: int) -> int:
        return 1 << ((packed >> (4 * layout)) & 15)

    return mask_of


STREAMED = tuple(i for i, one in enumerate(FORMATS) if one.as_shipped and all(layout.streamed for layout in one.own_layouts))
"""Formats, by number, in whose segments streamed batches are read as such."""
RAW = tuple(one.name for one in FORMATS if one.raw_offsets)
"""Names of the formats with raw offsets."""
is_streamed = _flag(lambda layout: layout.streamed)
"""Whether `kolumn.cpu_fallback.stream` decodes such entries."""
has_castagnoli = _flag(lambda layout: layout.castagnoli)
"""Whether the entry's checksum is CRC-32C, not CRC-32."""
crc_at, crc_from = _number(5, lambda layout: layout.crc_at), _number(5, lambda layout: layout.crc_from)
"""Position of the checksum, and of the first byte that it covers, in bytes from the entry's first."""
attribute_bytes, smallest_record = _number(1, lambda layout: layout.attribute_bytes), _number(4, lambda layout: layout.smallest_record)
"""Bytes of the attributes of a batch's records, and of its smallest record."""
begins_at_offset = _flag(lambda layout: layout.first_offset)
"""Whether a wrapper's offset is that of its first message, not of its last."""
lowest_inner_magic = _number(2, lambda layout: layout.lowest_inner_magic)
"""Lowest magic of the messages in a wrapper."""
has_typed_control = _flag(lambda layout: layout.typed_control)
"""Whether the type of a control message is in its attributes, not in its key."""
control_bit, tombstone_bit = _bit(lambda layout: layout.control_bit), _bit(lambda layout: layout.tombstone_bit)
"""Mask of the attribute bit of control messages, and of tombstones."""
flagged_bit, tagged_bit = _bit(lambda layout: layout.flagged_bit), _bit(lambda layout: layout.tagged_bit)
"""Mask of the attribute bit that is set if `tombstone_bit` decides whether a message is a tombstone; if the timestamp is the broker's."""


def highest_inner_magic(format: int, layout: int) -> int:
    """Highest magic of the messages in a wrapper: the highest one with the same layout in the format."""
    if layout_of(format, 2) == layout:
        return 2
    return 1 if layout_of(format, 1) == layout else 0


def same_layout(a: int, b: int) -> bool:
    """Whether two layouts are the same except for the attributes of their records."""
    return a == b or LAYOUTS[a].name == LAYOUTS[b].name


def among(layouts: Int64s, numbers: tuple[int, ...]) -> Flags:
    """Flags of the layouts in an int64 array that are among ``numbers``, for example `BATCHES`."""
    return np.isin(layouts, numbers)


def format_of(name: str) -> Format:
    return FORMATS[FORMAT_NAMES.index(name)]


_OK, _TRUNCATED, _INNER_MAGIC, _INNER_COMPRESSED = int(Code.OK), int(Code.TRUNCATED), int(Code.INNER_MAGIC), int(Code.INNER_COMPRESSED)
_INNER_CRC, _NO_INNER, _INNER_OFFSET, _TAG_COUNT = int(Code.INNER_CRC), int(Code.NO_INNER), int(Code.INNER_OFFSET), int(Code.TAG_COUNT)
_INNER_CRC_FROM = legacy.CRC_FROM


def inner_messages(buf: Buffer, end: int, layout: int, highest: int, check_crcs: bool) -> tuple[int, int, int, int]:
    """Hop through the inner messages: (count, offset field of the last one, code, where)."""
    at, count, last = 0, 0, 0
    while True:
        code, following = legacy.inner(buf, at, end)
        if code == _TRUNCATED:
            break
        if code != _OK:
            return count, last, code, following
        if magic_at(buf, at) > highest or magic_at(buf, at) < lowest_inner_magic(layout):
            return count, last, _INNER_MAGIC, at + 16
        if inner_codec(layout, load8(buf, at + 17)) != 0:
            return count, last, _INNER_COMPRESSED, at + 17
        if check_crcs and crc.crc32(buf, at + _INNER_CRC_FROM, following) != u32_at(buf, at + 12):
            return count, last, _INNER_CRC, at + 12
        last = i64_at(buf, at)
        count += 1
        at = following
    if count == 0:
        return 0, 0, _NO_INNER, -1
    return count, last, _OK, -1


def base_of(layout: int, magic: int, base_offset: int, last_offset: int, told: int, last: int, count: int) -> tuple[int, int]:
    """Base that is added to inner offsets (``DeepRecordsIterator`` of Kafka). It depends on the wrapper's magic, not on the inner ones.
    ``layout``, ``magic``, ``base_offset``, ``last_offset``, ``told``: of the wrapper; ``told`` is the number of messages in its header, or
    `table.UNKNOWN`. ``last``, ``count``: offset field of the last inner message, and the number of inner messages."""
    if begins_at_offset(layout):
        return _TAG_COUNT if told not in (table.UNKNOWN, count) else _OK, base_offset
    if magic == 0 or last_offset == 0:
        return _OK, 0
    if last_offset < last:
        return _INNER_OFFSET, 0
    return _OK, last_offset - last
