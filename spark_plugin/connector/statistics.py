"""How many rows and bytes a scan has, for Spark's planner: from a few headers, and from the records of a few batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa

from kolumn.decode.pipeline import scan_ranges
from kolumn.entries.headers import headers
from kolumn.errors import KolumnError
from kolumn.options import Options
from kolumn.source.segments import Range

_SAMPLES = 4
"""Places of the log that are looked at."""
_SAMPLE_BYTES = 1 << 18
"""Bytes of the log that are decoded at each place, at least one entry, for the width of rows with payloads."""
_WIDTHS = {"topic": 16}
"""Bytes of names in a row, which most rows share."""


@dataclass(frozen=True)
class Estimate:
    """Rows of a scan, and their bytes in Spark's memory."""

    rows: int
    bytes: int


def estimate(ranges: Sequence[Range], options: Options) -> Estimate:
    """Estimate what ranges have: the log's bytes divided by those of a record, times the width of a row.

    Compressed entries are what they are decompressed: too small a size would make Spark send a large table to every executor.
    """
    parts = [one for one in ranges if one.fault is None and one.end > one.start]
    size = sum(one.end - one.start for one in parts)
    records = seen = 0
    first: list[Range] = []
    for one in parts[:: max(1, len(parts) // _SAMPLES)][:_SAMPLES]:
        found = _look(one)
        if found is not None:
            records, seen = records + found[0], seen + found[1].end - found[1].start
            first.append(found[1])
    if not seen:
        return Estimate(0, size)
    rows = max(1, size * records // seen)
    width = _fixed_width(options)
    if width is None:
        width = _decoded_width(first, options)
    # Without any that can be decoded: the rows are as large as the log at least.
    return Estimate(rows, size if width is None else int(rows * width))


def _look(one: Range) -> tuple[int, Range] | None:
    """The number of records in the first entries of a range, and these entries; None where there is none."""
    for entries in islice(headers(one.segment, one.start, one.end), 1):
        counts = entries.count.clip(min=1)
        few = max(1, int((entries.end - one.start <= _SAMPLE_BYTES).sum()))
        return int(counts[:few].sum()), replace(one, end=min(one.end, entries[few - 1].end))
    return None


def _fixed_width(options: Options) -> float | None:
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


def _decoded_width(parts: Sequence[Range], options: Options) -> float | None:
    # Planned on the CPU: the driver must not open a GPU, even if the tasks use one.
    decode = replace(options, backend="cpu", isolation_level="read_uncommitted", start_offset=None, end_offset=None)
    decode = replace(decode, start_timestamp=None, end_timestamp=None, errors="skip")
    rows = size = 0
    try:
        for batch in scan_ranges([replace(one, first=None, behind=None, transactions=None) for one in parts], decode):
            rows, size = rows + batch.num_rows, size + batch.nbytes
    except KolumnError:
        # The tasks find it, and raise.
        return None
    return size / rows if rows else None
