"""How many rows and bytes a scan has, for Spark's planner: from a few headers, and from the records of a few batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from kolumn.decode.pipeline import scan_ranges
from kolumn.entries.headers import headers
from kolumn.errors import KolumnError
from kolumn.options import Options
from kolumn.source.segments import Range

_SAMPLES = 4
"""Number of places of the log that are sampled."""
_SAMPLE_BYTES = 1 << 18
"""Bytes of the log that are decoded at each place, but at least one entry: they tell the width of rows with payloads."""
_HEADER_CHUNKS = 8
"""Chunks of headers that are read at each place: thousands of headers of a file, some hundred KiB of an object."""
_WIDTHS = {"topic": 16}
"""Bytes of names in a row, which most rows share."""


@dataclass(frozen=True)
class Estimate:
    """Rows of a scan, and their bytes in Spark's memory."""

    rows: int
    bytes: int


def estimate(ranges: Sequence[Range], options: Options) -> Estimate:
    """Estimate what ranges have: the log's bytes divided by those of a record, times the width of a row.

    Each place represents the range that it is in. Compressed entries count with their decompressed size: too small an estimate would
    make Spark send a large table to every executor.
    """
    parts = [one for one in ranges if one.fault is None and one.end > one.start]
    size = sum(one.end - one.start for one in parts)
    width = _fixed_width(options)
    looked = rows = taken = 0.0
    for one in parts[:: max(1, len(parts) // _SAMPLES)][:_SAMPLES]:
        found = _look(one)
        if found is not None:
            own = found.records * (one.end - one.start) / found.bytes
            looked, rows = looked + one.end - one.start, rows + own
            taken += own * (width if width is not None else _decoded_width(found.first, options))
    if not looked:
        return Estimate(0, size)
    # If nothing can be decoded, rows are as wide as in the log.
    return Estimate(max(1, round(rows * size / looked)), round(taken * size / looked) or size)


class _Seen(NamedTuple):
    """What some headers of a range say: records, bytes of their entries, and the first of them."""

    records: int
    bytes: int
    first: Range


def _look(one: Range) -> _Seen | None:
    """Sample the first headers of a range; None without one."""
    found: _Seen | None = None
    for entries in islice(headers(one.segment, one.start, one.end), _HEADER_CHUNKS):
        records, end = int(entries.count.clip(min=1).sum()), int(entries[-1].end)
        if found is None:
            few = max(1, int((entries.end - one.start <= _SAMPLE_BYTES).sum()))
            found = _Seen(0, 0, replace(one, end=min(one.end, entries[few - 1].end)))
        found = found._replace(records=found.records + records, bytes=end - one.start)
    return found


def _fixed_width(options: Options) -> int | None:
    """Bytes of a row whose columns all have a width."""
    total = 0
    for field in options.schema:
        if field.name in _WIDTHS:
            total += _WIDTHS[field.name]
        elif pa.types.is_primitive(field.type):
            total += -(-field.type.bit_width // 8)
        else:
            return None
    return total


def _decoded_width(one: Range, options: Options) -> float:
    """Bytes of a row; 0 if no record can be decoded, which its task finds out."""
    # Planned on the CPU: the driver must not open a GPU, even if the tasks use one.
    decode = replace(options, backend="cpu", isolation_level="read_uncommitted", start_offset=None, end_offset=None)
    decode = replace(decode, start_timestamp=None, end_timestamp=None, errors="skip")
    rows = size = 0
    try:
        for batch in scan_ranges([replace(one, start_offset=None, end_offset=None, transactions=None)], decode):
            rows, size = rows + batch.num_rows, size + batch.nbytes
    except KolumnError:
        return 0
    return size / rows if rows else 0
