"""Types of transaction markers, and which batches are intact: many batches are read in one pass."""

from collections.abc import Iterator

import numpy as np

from kolumn.arrays import Bytes
from kolumn.arrow.recycle import take
from kolumn.cpu_fallback.check.checksums import check
from kolumn.cpu_fallback.check.gather import gather
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.host.run import Run, decode_run
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile

_TOGETHER = 1 << 20
"""Bytes of batches that are read together, unless one alone is larger. A marker has less than 100."""
_KEY = 4
"""Bytes of a marker's key: version and type, each an i16."""


def marker_types(file: SegmentFile, markers: Entries) -> list[int | None]:
    """Type of the control record in each of some control batches; None if a batch has no control record, or is damaged."""
    found: dict[int, int | None] = {}
    for positions, good, source in _intact(file, markers):
        options = Options(columns=("key",), include_control=True, errors="skip", format=file.segment.format)
        run = decode_run(source, 0, good, options, need_key=True) if len(good) else None
        found |= zip(positions, _first_types(run, len(good)), strict=True)
    return [found.get(position) for position in markers.position.tolist()]


def intact_positions(file: SegmentFile, entries: Entries) -> set[int]:
    """Positions of those entries whose checksums are right."""
    return {position for positions, _, _ in _intact(file, entries) for position in positions}


def _intact(file: SegmentFile, entries: Entries) -> Iterator[tuple[list[int], Entries, Bytes]]:
    """The intact entries, some at a time: their positions in the file, and their rows and bytes in memory of their own."""
    for some in _cut(entries[entries.end <= file.size]):
        here = some.copy()
        window, view = take(int(here.size.sum()) + PAD)
        if file.is_local:
            here = here[: gather(file.descriptor, here.array, window.address)]
        else:
            # Small reads are served from larger ones there.
            parts = [file.read(row.position, row.end)[: row.size].data for row in here]
            view[: sum(map(len, parts))] = b"".join(parts)
        positions, here.position, here.code = here.position.copy(), np.cumsum(here.size) - here.size, 0
        check(window.address, 0, here.array)
        intact = here.is_intact
        yield positions[intact].tolist(), here[intact], np.frombuffer(window, np.uint8)


def _cut(entries: Entries) -> Iterator[Entries]:
    ends, first = np.cumsum(entries.size), 0
    while first < len(entries):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + _TOGETHER, side="right")))
        yield entries[first:stop]
        first = stop


def _first_types(run: Run | None, count: int) -> list[int | None]:
    """Type of the first record of each of ``count`` batches, as `v2.control_type` reads it from a key."""
    if run is None or not run.rows:
        return [None] * count
    key = run.columns.key
    assert key.ends is not None
    assert key.data is not None
    ends = np.frombuffer(memoryview(key.ends), np.int32, run.rows + 1).astype(np.int64)
    data = np.frombuffer(memoryview(key.data), np.uint8)
    first = np.minimum(np.cumsum(run.records) - run.records, run.rows - 1)
    typed = np.flatnonzero((run.records > 0) & (ends[first + 1] - ends[first] >= _KEY))
    typed = typed[data[ends[first[typed]]] < 128]
    at = ends[first[typed]]
    found = np.full(count, None)
    found[typed] = (data[at + 2].astype(np.int8).astype(np.int64) << 8) | data[at + 3]
    return list(found.tolist())
