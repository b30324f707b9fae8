"""Flags of single records, names in place of numbers, and the rows that the options keep, before any payload is moved: a thread per row.

    kept   | 0 | 1 | 1 | 0 | 1 |         numbers   | 0 | 0 | 1 | 2 | 2 | 3 |         row 4 becomes row 2

Bound: some 20 bytes read and 6 written for each row, for each kept one 60 bytes more; for a name 12 written, before names are gathered."""

from typing import NamedTuple

import numpy as np

from kolumn.core.arrays import Flags
from kolumn.formats import layouts, memory, table
from kolumn.formats.words import load32, load64, store8, store32, store64
from kolumn.kernels.fields.records import DeviceRecords, empty_records
from kolumn.kernels.machine.kernel import Arguments, arguments, thread_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime

_WRAP = 2**31
Marks = arguments(__name__, "Marks", "rows owner key key_length value_length attributes control tombstone control_type")
"""Arguments of `marks`; addresses.

``rows``, ``owner``, ``key``, ``key_length``, ``value_length``, ``attributes``: as in `fields`.
``control``, ``tombstone``: out: uint8, 0 or 1.
``control_type``: out: int32, a number of `layouts.CONTROL_NAMES`, -1 for data.
"""


@thread_per_item(Marks)
def marks(i: int, a: Arguments) -> None:
    """Write the flags of row ``i``, as `kolumn.decode.host.record_batch` does."""
    row = a.rows + 8 * table.WIDTH * load32(a.owner + 4 * i)
    layout = load64(row + 8 * table.LAYOUT)
    attributes = memory.load8(a.attributes, i) if a.attributes != 0 else 0
    control = load64(row + 8 * table.CONTROL) != 0 or attributes & layouts.control_bit(layout) != 0
    dead = load32(a.value_length + 4 * i) < 0 and not control
    if attributes & layouts.flagged_bit(layout) != 0:
        dead = attributes & layouts.tombstone_bit(layout) != 0
    store8(a.control + i, 1 if control else 0)
    store8(a.tombstone + i, 1 if dead else 0)
    name = -1
    if control:
        # The number in the key of a control record is -1 where there is none (``ControlRecordType.parseTypeId``).
        key, number = load64(a.key + 8 * i), -1
        if layouts.has_typed_control(layout):
            number = (attributes & 15) - layouts.control_bit(layout)
        elif load32(a.key_length + 4 * i) >= 4 and memory.i8_at(key, 0) >= 0:
            number = memory.i16_at(key, 2)
        name = layouts.control_name(layout, number)
    store32(a.control_type + 4 * i, name)


Sequence = arguments(__name__, "Sequence", "rows owner offset target")
"""Arguments of `sequence`: the batch table, owners and offsets; int32 out."""


@thread_per_item(Sequence)
def sequence(i: int, a: Arguments) -> None:
    """Base sequence and offset delta, wrapping from 2^31 - 1 to 0 (``DefaultRecordBatch.incrementSequence``)."""
    row = a.rows + 8 * table.WIDTH * load32(a.owner + 4 * i)
    base = load64(row + 8 * table.BASE_SEQUENCE)
    delta = load64(a.offset + 8 * i) - load64(row + 8 * table.BASE_OFFSET)
    found = base + delta
    if delta < 0 or found >= _WRAP:
        found -= _WRAP
    store32(a.target + 4 * i, -1 if base < 0 else found)


DraftTimes = arguments(__name__, "DraftTimes", "rows owner timestamp attributes seconds to_seconds seconds_length to_broker broker_length")
"""Arguments of `draft_times`; int32 ``seconds_length`` and ``broker_length`` are -1 where the columns beside them are null."""


@thread_per_item(DraftTimes)
def draft_times(i: int, a: Arguments) -> None:
    """Write the two timestamps of an enriched message."""
    layout = load64(a.rows + 8 * (table.WIDTH * load32(a.owner + 4 * i) + table.LAYOUT))
    seconds = load64(a.seconds + 8 * i) if a.attributes != 0 else -1
    store32(a.to_seconds + 4 * i, seconds)
    store32(a.seconds_length + 4 * i, -1 if seconds == -1 else 0)
    given = a.attributes != 0 and memory.load8(a.attributes, i) & layouts.tagged_bit(layout) != 0
    store64(a.to_broker + 8 * i, load64(a.timestamp + 8 * i))
    store32(a.broker_length + 4 * i, 0 if given else -1)


Label = arguments(__name__, "Label", "number name name_length to to_length")
"""Arguments of `label`: int32 ``number`` of each row, -1 for null; int64 addresses and int32 lengths of the names; the same of rows."""


@thread_per_item(Label)
def label(i: int, a: Arguments) -> None:
    """Point row ``i`` at its name."""
    number = load32(a.number + 4 * i)
    store64(a.to + 8 * i, load64(a.name + 8 * max(number, 0)))
    store32(a.to_length + 4 * i, -1 if number < 0 else load32(a.name_length + 4 * number))


_NONE = -1
LOWEST, HIGHEST = -(2**63), 2**63 - 1


class RowLimits(NamedTuple):
    """The limits of kept rows; `LOWEST` and `HIGHEST` where there is no limit. Ends are exclusive, except `HIGHEST`."""

    start_offset: int = LOWEST
    end_offset: int = HIGHEST
    start_timestamp: int = LOWEST
    end_timestamp: int = HIGHEST
    include_control: int = 0


EVERY_ROW = RowLimits(include_control=1)
Keep = arguments(
    __name__, "Keep",
    "owner offset timestamp control start_offset end_offset start_timestamp end_timestamp include_control dropped numbers",
)  # fmt: skip
"""Arguments of `keep_row`; addresses, but for the limits. Columns of `DeviceRecords`, the uint8 flags of control records, `RowLimits`,
int64 of each batch ``dropped``, 1 if it has no rows (0 in place of the address: no batch is dropped), and ``numbers``, int32 of n + 1."""


@thread_per_item(Keep)
def keep_row(i: int, a: Arguments) -> None:
    """Note whether row ``i`` is kept."""
    if i == 0:
        store32(a.numbers, 0)
    offset, timestamp = load64(a.offset + 8 * i), load64(a.timestamp + 8 * i)
    kept = a.start_offset <= offset and (offset < a.end_offset or a.end_offset == HIGHEST)
    if a.start_timestamp != LOWEST or a.end_timestamp != HIGHEST:
        within = a.start_timestamp <= timestamp and (timestamp < a.end_timestamp or a.end_timestamp == HIGHEST)
        kept = kept and within and timestamp != _NONE
    if a.dropped != 0 and load64(a.dropped + 8 * load32(a.owner + 4 * i)) != 0:
        kept = False
    if a.include_control == 0 and memory.load8(a.control, i) != 0:
        kept = False
    store32(a.numbers + 4 * (i + 1), 1 if kept else 0)


Pack = arguments(
    __name__, "Pack",
    "numbers owner offset timestamp key key_length value value_length header headers attributes seconds to_owner to_offset to_timestamp "
    "to_key to_key_length to_value to_value_length to_header to_headers to_attributes to_seconds",
)  # fmt: skip
"""Arguments of `pack_row`: ``numbers`` after the running sum, and each column before and after; 0 where there is none."""


@thread_per_item(Pack)
def pack_row(i: int, a: Arguments) -> None:
    """Move row ``i`` to its place, if it is kept."""
    to = load32(a.numbers + 4 * i)
    if load32(a.numbers + 4 * (i + 1)) == to:
        return
    store32(a.to_owner + 4 * to, load32(a.owner + 4 * i))
    store64(a.to_offset + 8 * to, load64(a.offset + 8 * i))
    store64(a.to_timestamp + 8 * to, load64(a.timestamp + 8 * i))
    store64(a.to_key + 8 * to, load64(a.key + 8 * i))
    store32(a.to_key_length + 4 * to, load32(a.key_length + 4 * i))
    store64(a.to_value + 8 * to, load64(a.value + 8 * i))
    store32(a.to_value_length + 4 * to, load32(a.value_length + 4 * i))
    store64(a.to_header + 8 * to, load64(a.header + 8 * i))
    store32(a.to_headers + 4 * to, load32(a.headers + 4 * i))
    if a.attributes != 0:
        store8(a.to_attributes + to, memory.load8(a.attributes, i))
        store64(a.to_seconds + 8 * to, load64(a.seconds + 8 * i))


def keep(device: Runtime, records: DeviceRecords, control: Memory, limits: RowLimits, dropped: Flags | None = None) -> DeviceRecords:
    """The records within limits, without those of batches that are ``dropped`` (flags); the same object if all are kept."""
    n = records.rows
    numbers = device.empty(4 * (n + 1)) if n else device.zeros(4)
    gone = device.upload(np.ascontiguousarray(dropped, np.int64)) if dropped is not None else None
    device.launch(keep_row, n, Keep(records.owner, records.offset, records.timestamp, control, *limits, gone, numbers))
    device.running_sum(numbers, n + 1, 4)
    rows = int(device.download(numbers, 4, 4 * n).view(np.int32)[0])
    if rows == n:
        return records
    kept = empty_records(device, rows, records.batches, records.first, records.attributes is not None)
    device.launch(pack_row, n, Pack(numbers, *_columns(records), *_columns(kept)))
    return kept


def _columns(of: DeviceRecords) -> list[Memory | None]:
    return [
        of.owner, of.offset, of.timestamp, of.key.at, of.key.length, of.value.at, of.value.length, of.header, of.headers,
        of.attributes, of.seconds,
    ]  # fmt: skip
