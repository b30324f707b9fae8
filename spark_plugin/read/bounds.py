"""Where the log of a topic partition begins and ends now, and whether the requested offsets still exist."""

import logging

from kolumn.errors import KolumnError
from kolumn.options import Options
from kolumn.replicas.log_end import log_end
from kolumn.source.segments import Segment
from kolumn.spark_plugin.options.positions import EARLIEST, LATEST, Key, Position

logger = logging.getLogger(__name__)

Bounds = tuple[int | None, int | None]
"""First offset and the one after the last; None for no bound."""


def resolve(position: Position | None, groups: dict[Key, list[Segment]], decode: Options) -> dict[Key, int]:
    """Offsets of a position that may not have been given."""
    return {} if position is None else position.resolve(groups, decode)


def log_start(segments: list[Segment]) -> int | None:
    """The earliest offset, from the first segment's name; None if that is not a base offset."""
    return min((s.base_offset for s in segments if s.base_offset is not None), default=None)


def bounds(starts: dict[Key, int], ends: dict[Key, int], groups: dict[Key, list[Segment]], fail: bool) -> dict[Key, Bounds]:
    """The bounds of each partition, compared with the offsets of its log.

    Raises
    ------
    KolumnError
        An offset is outside of the log, if ``fail``; otherwise a warning is logged, and the offsets that exist are read.
    """
    found: dict[Key, Bounds] = {}
    for key, segments in groups.items():
        start, end = starts.get(key, EARLIEST), ends.get(key, LATEST)
        if start == LATEST or end == EARLIEST:
            # The read starts at the end or ends at the beginning: nothing is read.
            found[key] = (0, 0)
            continue
        if max(start, end) >= 0:
            _compare(key, start, end, segments, fail)
        found[key] = (None if start < 0 else start, None if end < 0 else end)
    return found


def _compare(key: Key, start: int, end: int, segments: list[Segment], fail: bool) -> None:
    first, stop = log_start(segments), log_end(segments)
    if start >= 0 and first is not None and start < first:
        lost(f"{key[0]}-{key[1]}: offset {start} was asked for, and the log begins at {first}", fail)
    for offset in (start, end):
        if offset > stop:
            lost(f"{key[0]}-{key[1]}: offset {offset} was asked for, and the log ends at {stop}", fail)


def lost(what: str, fail: bool, option: str = "failOnDataLoss=false") -> None:
    """Raise an error or log a warning: offsets are missing, because they were deleted by retention, truncated, or never written."""
    if fail:
        raise KolumnError(f"{what}. Data may have been lost; {option} reads what is there")
    logger.warning("%s. Continuing with what is there, as %s says", what, option)
