"""Moves the sound records of an entry together where a record is wrong, so that the stages decode them as they decode any entry.

    payload   | sound | sound | wrong | sound | wrong | sound |
    becomes   | sound | sound | sound | sound |

The lengths of records are the only way from one to the next, and a wrong length leads into the middle of a record, where bytes may look
like another one. So after a wrong record nothing counts unless the lengths of all records lead to the end of the payload.
"""

from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.cpu_fallback.machine.address import load8, store8
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import layouts, memory, table, v2

INDEX, OFFSET = 0, 1
"""Columns of what is noted of a wrong record; its offset is `table.UNKNOWN` where that cannot be read."""
_OK = int(Code.OK)


@compiled
def sound_records(
    row: Int64s, payload: int, size: int, to: int, format: int, check_crcs: bool, wrong: Table
) -> tuple[int, int, int, int, int, int, int]:
    """Move the sound records of an entry to an address, which may be that of the payload.

    ``row``: int64 array of `table.WIDTH`, of an entry with a right checksum. Its count becomes that of the records that stay; the last
        offset of a wrapper becomes that of the last message that stays, since offsets of messages count from there.
    ``payload``, ``size``: address and bytes of the decompressed records or messages.
    ``format``: index into `layouts.FORMATS`.
    ``check_crcs``: whether to compare the checksums of messages.
    ``wrong``: int64 array of shape (m, 2); out: the first wrong records, `INDEX` and `OFFSET`.
    Returns ``kept``, ``bytes``: records that stay; 0 if nothing of the entry can be read.
    ``bad``, ``framed``: wrong records, and how many have a length that leads on.
    ``broken``: position from which on nobody can tell where records begin, -1 if all lengths lead on to the end.
    ``before``, ``after``: offset of the last record before the first wrong one, and of the first one after the last wrong one; else
        `table.UNKNOWN`.
    """
    layout = row[table.LAYOUT]
    framed, last, broken = _framed(layout, payload, size, row[table.CODEC])
    base = _base(row, payload, framed, last, broken)
    kept, bytes, bad, at, last = 0, 0, 0, 0, 0
    before, after = table.UNKNOWN, table.UNKNOWN
    if base == table.UNKNOWN:
        return 0, 0, 0, framed, broken, before, after
    highest = layouts.highest_inner_magic(format, layout)
    for number in range(framed):
        _, stop = layouts.hop(layout, payload, at, size, row[table.CODEC])
        code, offset = _judged(row, payload, at, stop, base, number, highest, check_crcs)
        if code != _OK:
            if bad < wrong.shape[0]:
                wrong[bad, INDEX], wrong[bad, OFFSET] = number, offset
            bad += 1
            after = table.UNKNOWN
            if broken >= 0:
                broken = at
                break
        else:
            _move(to + bytes, payload + at, stop - at)
            last = bytes
            kept += 1
            bytes += stop - at
            if bad == 0:
                before = offset
            elif after == table.UNKNOWN:
                after = offset
        at = stop
    if kept > 0:
        if layouts.holds_records(layout):
            row[table.COUNT] = kept
        elif layouts.holds_messages(layout) and row[table.MAGIC] >= 1 and row[table.LAST_OFFSET] != 0:
            row[table.LAST_OFFSET] = base + memory.i64_at(to, last)
            if row[table.LAST_OFFSET] == 0 and base != 0:
                # Read as no offset at all.
                kept = 0
    return kept, bytes, bad, framed, broken, before, after


@register_jitable
def _framed(layout: int, buf: int, end: int, wrapped: int) -> tuple[int, int, int]:
    """How many records have a length that leads on, where the last one begins, and where the lengths end; -1 if that is the end."""
    count, last, at = 0, 0, 0
    while at < end:
        code, stop = layouts.hop(layout, buf, at, end, wrapped)
        # A record of no bytes is not one: zeros would be a chain of them.
        if code != _OK or stop - at <= 1:
            return count, last, at
        count, last, at = count + 1, at, stop
    return count, last, -1


@register_jitable
def _base(row: Int64s, buf: int, framed: int, last: int, broken: int) -> int:
    """What the offsets of records count from; `table.UNKNOWN` if that cannot be told."""
    layout = row[table.LAYOUT]
    if not layouts.holds_messages(layout):
        return row[table.BASE_OFFSET]
    # Messages that are numbered from the first one on would get other numbers.
    if row[table.CODEC] == 0 or framed == 0 or layouts.begins_at_offset(layout):
        return table.UNKNOWN
    if broken >= 0 and row[table.MAGIC] >= 1 and row[table.LAST_OFFSET] != 0:
        return table.UNKNOWN
    code, base = layouts.base_of(
        layout, row[table.MAGIC], row[table.BASE_OFFSET], row[table.LAST_OFFSET], row[table.COUNT], memory.i64_at(buf, last), framed
    )
    return base if code == _OK else table.UNKNOWN


@register_jitable
def _judged(row: Int64s, buf: int, at: int, stop: int, base: int, number: int, highest: int, check_crcs: bool) -> tuple[int, int]:
    """Code of the record between two positions, and its offset."""
    layout = row[table.LAYOUT]
    if layouts.holds_records(layout):
        skip = layouts.attribute_bytes(layout)
        delta, where = v2.offset_delta(buf, at, stop, skip)
        return v2.whole(buf, at, stop, skip, row[table.LAST_OFFSET] - base), base + delta if where >= 0 else table.UNKNOWN
    if layouts.is_set(layout):
        code, _, _ = layouts.count(layout, buf + at, stop - at, check_crcs)
    else:
        _, _, code, _ = layouts.inner_messages(buf + at, stop - at, layout, highest, check_crcs)
    message = layouts.message(layout, buf, at, stop, row[table.CODEC], row[table.ATTRIBUTES], base, number)
    return message.code if code == _OK else code, message.offset if message.code == _OK else table.UNKNOWN


@register_jitable
def _move(to: int, source: int, size: int) -> None:
    """Copy bytes to where they are, or to a lower address, byte by byte: what follows is still to be read."""
    if to != source:
        for i in range(size):
            store8(to + i, load8(source + i))
