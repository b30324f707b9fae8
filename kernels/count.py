"""How many records each batch has: a thread per batch.

A record batch has the number in its header, which is compared with the payload's size; a wrapper or a set is hopped through:

    thread b   | i64 offset | i32 size | ........ | i64 offset | i32 size | ........       reads 17 bytes of each message
               and all of them where the checksums of inner messages are compared

Bound: a sector of 32 bytes for each message of a wrapper, or the bytes of the messages; nothing for record batches.
"""

from kolumn.core.errors import Code
from kolumn.formats import layouts, table
from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.formats.machine_code.words import load64, store32, store64
from kolumn.kernels.machine.kernel import Arguments, Batches, arguments, field, thread_per_item

_OK = int(Code.OK)


Count = arguments(__name__, "Count", Batches, "check_crcs")
"""Arguments of `count`: those of `Batches`, of which ``first`` and ``base`` are written, and whether to compare inner checksums.

``first`` has n + 1 int64: the number of rows of batch b goes to ``first[b + 1]``, and a running sum makes row numbers of them.
"""


@thread_per_item(Count)
def count(b: int, a: Arguments) -> None:
    """Count the rows of batch ``b``."""
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    layout = field(a, b, table.LAYOUT)
    base = 0
    if layouts.is_set(layout):
        base = field(a, b, table.BASE_OFFSET)
        code, records, _ = layouts.count(layout, buf, end, a.check_crcs != 0)
    elif layouts.holds_records(layout):
        records = field(a, b, table.COUNT)
        code = _in_record_batch(records, end, layout)
    elif field(a, b, table.CODEC) == 0:
        code, records = _OK, 1
    else:
        highest = layouts.highest_inner_magic(a.format, layout)
        records, last, code, _ = layouts.inner_messages(buf, end, layout, highest, a.check_crcs != 0)
        if code == _OK:
            code, base = layouts.base_of(
                layout,
                field(a, b, table.MAGIC),
                field(a, b, table.BASE_OFFSET),
                field(a, b, table.LAST_OFFSET),
                field(a, b, table.COUNT),
                last,
                records,
            )
    store64(a.first + 8 * (b + 1), records if code == _OK else 0)
    store64(a.base + 8 * b, base)
    if code != _OK:
        store32(a.bad + 4 * b, 1)


@register_jitable
def _in_record_batch(records: int, size: int, layout: int) -> int:
    return _OK if 0 <= records <= size // layouts.smallest_record(layout) else 1
