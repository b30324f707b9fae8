"""Where a segment ends."""

from kolumn.entries.headers import headers
from kolumn.errors import KolumnError
from kolumn.plan.seek import OFFSET_INDEX, read_index
from kolumn.replicas.copies import span
from kolumn.source.segments import Segment


def last_offset(segment: Segment) -> int:
    """Last offset of a segment, from its last headers; from all headers where the chain of entries does not lead to its end.

    -1 if it has no intact entry.
    """
    index = read_index(segment, ".index", OFFSET_INDEX)
    starts = [0] if index is None or not 0 < index["position"][-1] < segment.size else [int(index["position"][-1]), 0]
    for start in starts:
        last, end = -1, start
        try:
            for entries in headers(segment, start):
                if len(entries):
                    last, end = max(last, int(entries.last_offset.max())), entries[-1].end
        except KolumnError:
            continue
        if end == segment.size and last >= (segment.base_offset or 0):
            return last
    found = span(segment, None)
    return -1 if found is None else found[1]
