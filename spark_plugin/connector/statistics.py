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
    width = _fixed_width(options)
    looked = rows = taken = 0.0
    for one in parts[:: max(1, len(parts) // _SAMPLES)][:_SAMPLES]:
        found = _look(one)
        if found is not None:
            whole = one.end - one.start
            share = whole / (found[1].end - found[1].start)
            looked, rows = looked + whole, rows + share * found[0]
            taken += share * (found[0] * width if width is not None else _decoded_bytes(found[1], options))
    if not looked:
        return Estimate(0, size)
    return Estimate(max(1, round(rows * size / looked)), round(taken * size / looked))


def _look(one: Range) -> tuple[int, Range] | None:
    """The number of records in the first entries of a range, and these entries; None where there is none."""
    for entries in islice(headers(one.segment, one.start, one.end), 1):
        few = max(1, int((entries.end - one.start <= _SAMPLE_BYTES).sum()))
        return int(entries.count[:few].clip(min=1).sum()), replace(one, end=min(one.end, entries[few - 1].end))
    return None


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


def _decoded_bytes(one: Range, options: Options) -> float:
    """Bytes of the columns of a range; those of the log if it cannot be decoded, which its task finds out."""
    # Planned on the CPU: the driver must not open a GPU, even if the tasks use one.
    decode = replace(options, backend="cpu", isolation_level="read_uncommitted", start_offset=None, end_offset=None)
    decode = replace(decode, start_timestamp=None, end_timestamp=None, errors="skip")
    try:
        whole = replace(one, first=None, behind=None, transactions=None)
        return sum(batch.nbytes for batch in scan_ranges([whole], decode))
    except KolumnError:
        return one.end - one.start
