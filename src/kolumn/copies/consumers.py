"""Consumer offsets for single raw offsets of a log: where it begins and ends, where a transaction begins."""

from dataclasses import replace

import numpy as np

from kolumn.copies.ranges import whole_ranges
from kolumn.copies.raw_offsets import RawOffsets
from kolumn.decode.host.headers import headers
from kolumn.formats import layouts
from kolumn.options import Options
from kolumn.source.segments import Segment


def consumers_offset(segments: list[Segment], options: Options, raw: int) -> int | None:
    """The offset that consumers have for an offset by which the log is stored. They are equal but for Redpanda's; None if it is not known.

    The options say what becomes of copies, and ``start_delta``. Headers before the offset are read.
    """
    if not segments or segments[0].format not in layouts.RAW:
        return raw
    parts = [part for part in whole_ranges(segments, options) if part.fault is None]
    before = [part for part in parts if (part.segment.lowest or 0) <= raw] or parts[:1]
    if not before:
        return None
    part = before[-1]
    places = (entries.position[np.flatnonzero(entries.base_offset >= raw)[:1]] for entries in headers(part.segment, part.start, part.end))
    position = next((int(found[0]) for found in places if len(found)), part.end)
    delta = RawOffsets(parts, options.start_delta, segments).before(replace(part, start=position))
    return None if delta is None else raw - delta
