"""The batch table of a segment as an Arrow table."""

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.chunk import Decoded, before_trouble
from kolumn.codecs import NAMES
from kolumn.cpu_fallback.walk import check
from kolumn.damage import Tally, Trouble
from kolumn.decode import at_stop
from kolumn.errors import Code
from kolumn.formats import table
from kolumn.options import Options
from kolumn.plan import HEADER_WINDOW, chunks
from kolumn.resync import Search
from kolumn.schema import BATCH_SCHEMA
from kolumn.segment_file import SegmentFile
from kolumn.source import Range, Segment

_COLUMNS = {
    "position": table.POSITION,
    "size": table.SIZE,
    "baseOffset": table.BASE_OFFSET,
    "lastOffset": table.LAST_OFFSET,
    "count": table.COUNT,
    "magic": table.MAGIC,
    "crc": table.CRC,
    "timestampType": table.TIMESTAMP_TYPE,
    "baseTimestampMs": table.BASE_TIMESTAMP,
    "maxTimestampMs": table.MAX_TIMESTAMP,
    "producerId": table.PRODUCER_ID,
    "producerEpoch": table.PRODUCER_EPOCH,
    "baseSequence": table.BASE_SEQUENCE,
    "leaderEpoch": table.LEADER_EPOCH,
    "isTransactional": table.TRANSACTIONAL,
    "isControl": table.CONTROL,
}


def batch_tables(segment: Segment, options: Options) -> Iterator[pa.Table]:
    """Entries of a segment in file order, some thousands at a time."""
    with SegmentFile(segment) as file:
        for rows in entry_rows(file, options):
            yield _arrow(rows, file.path, options.check_crcs)


def entry_rows(file: SegmentFile, options: Options) -> Iterator[Any]:
    """The same as rows of the batch table: int64, shape (n, `table.WIDTH`)."""
    position, floor = 0, Range.whole(file.segment).floor
    while position < file.size:
        trouble = yield from _until_trouble(file, position, floor, options)
        if trouble is None:
            return
        if options.errors == "raise":
            raise trouble.error
        following, floor = trouble.resume, trouble.floor
        if following is None:
            following = Search(file).next_entry(trouble.position, floor)
        position = file.size if following is None else following


def _until_trouble(file: SegmentFile, position: int, floor: int, options: Options) -> Generator[Any, None, Trouble | None]:
    """Entries up to the end or to where the chain of entries is lost; a length that leads astray is found out by checksums alone."""
    window = options.chunk_bytes if options.check_crcs else HEADER_WINDOW
    walk = chunks(file, position, file.size, window, options.check_crcs, check_crcs=options.check_crcs)
    while True:
        try:
            chunk = next(walk)
        except StopIteration as end:
            return at_stop(file, end.value, floor, Tally())
        rows, found = chunk.rows, Decoded()
        if options.check_crcs:
            check(chunk.source.ctypes.data, chunk.origin, rows)
            if options.errors == "skip":
                rows = rows[: len(before_trouble(file, chunk, rows, options, floor, found)) + (found.trouble is not None)]
        yield rows
        if found.trouble is not None:
            return found.trouble
        floor = table.last_offset(rows[rows[:, table.CODE] == Code.OK], floor)


def _arrow(rows: Any, path: str, checked: bool) -> pa.Table:
    arrays = {name: _column(rows, column, BATCH_SCHEMA.field(name).type) for name, column in _COLUMNS.items()}
    arrays["segment"] = pa.repeat(pa.scalar(path), len(rows))
    codec = pa.DictionaryArray.from_arrays(pa.array(rows[:, table.CODEC], pa.int8(), mask=rows[:, table.CODEC] >= len(NAMES)), list(NAMES))
    arrays["codec"] = codec.cast(pa.string())
    arrays["crcValid"] = pa.array(rows[:, table.CODE] == Code.OK) if checked else pa.nulls(len(rows), pa.bool_())
    arrays["deleteHorizonMs"] = pa.array(rows[:, table.BASE_TIMESTAMP], mask=rows[:, table.DELETE_HORIZON] == 0)
    return pa.table([arrays[field.name] for field in BATCH_SCHEMA], schema=BATCH_SCHEMA)


def _column(rows: Any, column: int, kind: pa.DataType) -> pa.Array:
    values = np.ascontiguousarray(rows[:, column])
    return pa.array(values, mask=values == table.UNKNOWN).cast(kind, safe=False)
