"""Batches of format 2 become messages of formats 0 and 1 without a codec, without becoming columns, as far as that loses nothing else."""

from collections.abc import Generator

import numpy as np

from kolumn.core.arrays import Bytes
from kolumn.core.paths import DOWN_CONVERSION, is_on
from kolumn.core.recycle import take
from kolumn.cpu_fallback.encode.down_convert import down_convert
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.host.run import Payloads
from kolumn.formats import layout, legacy, table, v2
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries
from kolumn.log.pieces import payloads_of_batches
from kolumn.options import Options
from kolumn.writers.conversion import losses
from kolumn.writers.conversion.losses import Losses
from kolumn.writers.conversion.retarget import Changes
from kolumn.writers.entries import Encoded, EntrySettings
from kolumn.writers.table import ABSENT

_MESSAGES = 4096
"""Messages that are written at a time: their table has to stay in the CPU's cache."""


def down_converted(
    source: Bytes, origin: int, entries: Entries, changes: Changes, codec: int | None, options: Options, lost: Losses
) -> Generator[Encoded, None, int]:
    """Write the first ones of some entries with right checksums as messages; the other parameters are those of `regroup.regrouped`.

    Returns how many entries became messages. What follows is another conversion, is damaged, or has contents that are lost one by one.
    """
    how, done = changes.how, 0
    if not is_on(DOWN_CONVERSION):
        return 0
    if how.layout != legacy.LAYOUT.number or changes.timestamp is not None or changes.transactions is not None or codec not in (None, NONE):
        return 0
    packed = entries.codec != NONE if codec is None else np.zeros(len(entries), bool)
    other = (entries.layout != v2.LAYOUT.number) | (entries.timestamp_type != table.CREATE_TIME) | packed
    other |= (entries.transactional | entries.control) != 0
    most = int(np.argmax(other)) if other.any() else len(entries)
    for left, payloads, good in payloads_of_batches(source, origin, entries[:most], options):
        stop = len(left) if good.all() else int(np.argmin(good))
        start, ends = 0, np.cumsum(left.count[:stop])
        while start < stop:
            before = int(ends[start - 1]) if start else 0
            end = max(int(np.searchsorted(ends, before + _MESSAGES, side="right")), start + 1)
            some = Payloads(*(column[start:end] for column in payloads))
            made, encoded = _messages(left[start:end], some, how, lost)
            if len(encoded.entries):
                yield encoded
            start, done = start + made, done + made
            if start < end:
                return done
        if stop < len(left):
            break
    return done


def _messages(entries: Entries, payloads: Payloads, how: EntrySettings, lost: Losses) -> tuple[int, Encoded]:
    """Write batches as messages, up to one that has to become columns: how many batches, and the messages."""
    own, records = Entries.zeros(1), int(entries.count.sum())
    own.magic, own.layout, own.codec, own.count = how.magic, how.layout, NONE, 1
    for column, name in _ABSENT.items():
        own.array[0, column] = ABSENT[name]
    room, _ = take(int(payloads.size.sum()) + legacy.message_size(how.magic, 0, 0) * records + PAD)
    data, out = np.frombuffer(room, np.uint8), Entries.room(records)
    done, count, size, timed = down_convert(
        entries.array, payloads.address, payloads.size, how.magic, own.array[0], out.array, data.ctypes.data
    )
    _note(entries[:done], timed, how, lost)
    return done, Encoded(data[:size], out[:count])


_ABSENT = {
    table.PRODUCER_ID: "producerId",
    table.PRODUCER_EPOCH: "producerEpoch",
    table.BASE_SEQUENCE: "sequence",
    table.LEADER_EPOCH: "leaderEpoch",
}
"""Columns of the batch table of which messages have nothing, and those of records with the same contents."""


def _note(entries: Entries, timed: int, how: EntrySettings, lost: Losses) -> None:
    """Count what plain records of format 2 lose."""
    counts = entries.count
    for what, count in (
        (layout.HORIZONS, entries.delete_horizon.sum()),
        (layout.EMPTY, (counts == 0).sum()),
        (layout.LEADER_EPOCHS, counts[entries.leader_epoch != -1].sum()),
        (layout.PRODUCERS, counts[entries.producer_id != -1].sum()),
        (layout.TIMESTAMPS, timed),
    ):
        if what not in losses.holds(how.layout, how.magic):
            lost.note(what, int(count))
