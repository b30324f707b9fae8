"""An entry of which only some offsets are kept is encoded again, with the header fields that it had."""

import numpy as np
import pyarrow as pa

from kolumn.arrays import Bytes
from kolumn.encode.encoders import encoder
from kolumn.encode.entries import Encoded, EntrySettings
from kolumn.encode.table import stored_columns, take_apart
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries
from kolumn.log.pieces import piece_of
from kolumn.options import Options
from kolumn.salvage.runs import KeptRun

_LARGEST = 2**31 - 1


def cut_out(source: Bytes, origin: int, entry: Entries, run: KeptRun, options: Options) -> Encoded:
    """The entry with the records at the offsets of a run alone; ``source`` has the bytes of the segment from ``origin`` on, padded."""
    piece = piece_of(source, origin, entry, run.segment, options)
    offsets = piece.records["offset"].to_numpy()
    kept = np.flatnonzero((offsets >= run.low) & (offsets <= run.high))
    records, made, own = piece.records.take(pa.array(kept)), entry.copy(), entry[0]
    how = EntrySettings(layouts.KAFKA, own.layout, own.magic, own.codec, None, _LARGEST, _LARGEST)
    given = take_apart(pa.Table.from_batches([stored_columns(records, own.layout)]), 0)
    given.from_log = True
    first = int(given.offset[0])
    if own.base_sequence >= 0:
        # A producer's sequence grows with the offset, and begins again at 0 after the largest number.
        made.base_sequence[0] = (own.base_sequence + first - own.base_offset) % (_LARGEST + 1)
    made.base_offset[0], made.last_offset[0], made.count[0] = first, int(given.offset[-1]), len(kept)
    if own.timestamp_type != table.LOG_APPEND_TIME:
        made.max_timestamp[0] = given.timestamp.max()
    file = encoder(own.layout)
    return file.put(given, file.regroup(given, np.zeros(1, np.int64), made, how), how)


def with_inner_offsets(source: Bytes, origin: int, entries: Entries, run: KeptRun, options: Options) -> tuple[Bytes, Entries]:
    """The bytes of entries, and their rows: a wrapper of format 0 whose offset is damaged gets that of its last message.

    No checksum covers an entry's offset in that format, and its messages have their own. Such an offset lies above those of the run, or
    not below the next one; a broker rolls segments by it. Parameters are those of `cut_out`.
    """
    start, last = entries[0].position, entries.last_offset
    data = source[start - origin : entries[-1].end - origin]
    above = last > np.append(np.minimum(run.high, last[1:] - 1), run.high)
    wrong = np.flatnonzero(above & layouts.among(entries.layout, layouts.MESSAGES) & (entries.magic == 0) & (entries.codec != 0))
    if len(wrong):
        data, entries = data.copy(), entries.copy()
        for i in wrong.tolist():
            at = entries[i].position - start
            offsets = piece_of(source, origin, entries[i : i + 1], run.segment, options).records["offset"].to_numpy()
            entries.last_offset[i] = offsets.max()
            data[at : at + 8] = np.frombuffer(int(offsets.max()).to_bytes(8, "big"), np.uint8)
    return data, entries
