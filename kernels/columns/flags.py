"""Flags of single records, and names in place of numbers: a thread per row.

Bound: some 20 bytes read and 6 written for each row; for a name 12 written, before the names themselves are gathered.
"""

from typing import NamedTuple

from kolumn.formats import layouts, memory, table
from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.formats.machine_code.words import load32, load64, store8, store32, store64
from kolumn.kernels.machine.kernel import thread_per_item

_WRAP = 2**31


class Marks(NamedTuple):
    """Arguments of `marks`; addresses.

    Attributes
    ----------
    rows, owner, key, key_length, value_length, attributes : int
        As in `fields`.
    control, tombstone : int
        Out: uint8, 0 or 1.
    control_type : int
        Out: int32, a number of `layouts.CONTROL_NAMES`, -1 for data.
    """

    rows: int
    owner: int
    key: int
    key_length: int
    value_length: int
    attributes: int
    control: int
    tombstone: int
    control_type: int


@thread_per_item(Marks)
def marks(i: int, a: Marks) -> None:
    """Write the flags of row ``i``, as `kolumn.decode.host.record_batch` does."""
    row = a.rows + 8 * table.WIDTH * load32(a.owner + 4 * i)
    layout = load64(row + 8 * table.LAYOUT)
    attributes = memory.load8(a.attributes, i) if a.attributes != 0 else 0
    control = load64(row + 8 * table.CONTROL) != 0
    if attributes & layouts.control_bit(layout) != 0:
        control = True
    dead = load32(a.value_length + 4 * i) < 0 and not control
    if attributes & layouts.flagged_bit(layout) != 0:
        dead = attributes & layouts.tombstone_bit(layout) != 0
    store8(a.control + i, 1 if control else 0)
    store8(a.tombstone + i, 1 if dead else 0)
    kind = -1
    if control:
        if layouts.has_typed_control(layout):
            number = (attributes & 15) - layouts.control_bit(layout)
        else:
            number = _type_in_key(load64(a.key + 8 * i), load32(a.key_length + 4 * i))
        kind = layouts.control_name(layout, number)
    store32(a.control_type + 4 * i, kind)


@register_jitable
def _type_in_key(key: int, length: int) -> int:
    """The number in the key of a control record, -1 where there is none (``ControlRecordType.parseTypeId``)."""
    return -1 if length < 4 or memory.i8_at(key, 0) < 0 else memory.i16_at(key, 2)


class Sequence(NamedTuple):
    """Arguments of `sequence`: the batch table, owners and offsets; int32 out."""

    rows: int
    owner: int
    offset: int
    target: int


@thread_per_item(Sequence)
def sequence(i: int, a: Sequence) -> None:
    """Base sequence and offset delta, wrapping from 2^31 - 1 to 0 (``DefaultRecordBatch.incrementSequence``)."""
    row = a.rows + 8 * table.WIDTH * load32(a.owner + 4 * i)
    base = load64(row + 8 * table.BASE_SEQUENCE)
    delta = load64(a.offset + 8 * i) - load64(row + 8 * table.BASE_OFFSET)
    found = base + delta
    if delta < 0 or found >= _WRAP:
        found -= _WRAP
    store32(a.target + 4 * i, -1 if base < 0 else found)


class DraftTimes(NamedTuple):
    """Arguments of `draft_times`; int32 ``seconds_length`` and ``broker_length`` are -1 where the columns beside them are null."""

    rows: int
    owner: int
    timestamp: int
    attributes: int
    seconds: int
    to_seconds: int
    seconds_length: int
    to_broker: int
    broker_length: int


@thread_per_item(DraftTimes)
def draft_times(i: int, a: DraftTimes) -> None:
    """Write the two timestamps of an enriched message."""
    layout = load64(a.rows + 8 * (table.WIDTH * load32(a.owner + 4 * i) + table.LAYOUT))
    seconds = load64(a.seconds + 8 * i) if a.attributes != 0 else -1
    store32(a.to_seconds + 4 * i, seconds)
    store32(a.seconds_length + 4 * i, -1 if seconds == -1 else 0)
    given = a.attributes != 0 and memory.load8(a.attributes, i) & layouts.tagged_bit(layout) != 0
    store64(a.to_broker + 8 * i, load64(a.timestamp + 8 * i))
    store32(a.broker_length + 4 * i, 0 if given else -1)


class Label(NamedTuple):
    """Arguments of `label`: int32 ``number`` of each row, -1 for null; int64 addresses and int32 lengths of the names; the same of rows."""

    number: int
    name: int
    name_length: int
    to: int
    to_length: int


@thread_per_item(Label)
def label(i: int, a: Label) -> None:
    """Point row ``i`` at its name."""
    number = load32(a.number + 4 * i)
    store64(a.to + 8 * i, load64(a.name + 8 * max(number, 0)))
    store32(a.to_length + 4 * i, -1 if number < 0 else load32(a.name_length + 4 * number))
