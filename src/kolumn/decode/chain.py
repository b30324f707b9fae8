"""The chain of entries in a chunk: which damaged entries leave it whole, and where it is lost."""

from typing import Any

import numpy as np

from kolumn.damage.explain import header_error
from kolumn.damage.findings import Trouble, damage_of
from kolumn.decode.result import Decoded
from kolumn.errors import Code
from kolumn.formats import table
from kolumn.options import Options
from kolumn.plan.chunks import Chunk
from kolumn.recovery.resync import Search
from kolumn.source.segment_file import SegmentFile


def before_trouble(file: SegmentFile, chunk: Chunk, rows: Any, options: Options, start: int | None, result: Decoded) -> Any:
    """Rows up to where the chain of entries is lost; damaged entries inside the chain are noted."""
    intact = np.flatnonzero(rows[:, table.CODE] == Code.OK)
    for i in np.flatnonzero(rows[:, table.CODE]):
        row = rows[i]
        before = rows[intact[: np.searchsorted(intact, i)][-1:]]
        if not len(before) and start is None and options.errors == "skip":
            result.undecided = True
            return rows[:0]
        floor = table.last_offset(before, -1 if start is None else start)
        position, size = int(row[table.POSITION]), int(row[table.SIZE])
        source, origin = chunk.bytes_of(file, row)
        error = header_error(file.path, row, source[position - origin :][:size])
        resume, alone = None, True
        if options.errors == "skip":
            search = Search(file)
            resume = search.true_end(position, position + size - 1, floor)
            following = rows[i + 1] if i + 1 < len(rows) and rows[i + 1, table.CODE] == Code.OK else None
            if resume is None and (on := search.after(row, floor, following)) is not None:
                resume, alone = on
                if resume == position + size:
                    result.damage.append(damage_of(row, error, size, floor))
                    continue
        result.trouble = Trouble(position, floor, error, resume, row, alone=alone)
        return rows[:i]
    return rows
