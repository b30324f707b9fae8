"""Splits of a log that is being written: without the incomplete last batch, and only from the files that were planned."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kolumn.entries.headers import headers
from kolumn.errors import KolumnError
from kolumn.source.segments import Range
from kolumn.source.storage import current
from kolumn.spark_plugin.options.positions import Key
from kolumn.spark_plugin.read.bounds import Bounds
from kolumn.spark_plugin.read.splits import Split


def clip(split: Split, limits: Mapping[Key, Bounds]) -> Iterator[Range]:
    """The ranges of a split, cut before the first entry past the limit: entries after the limit may be incomplete."""
    for one in split.ranges:
        stop = limits[one.segment.topic, one.segment.partition][1]
        clipped = one if stop is None else replace(one, end=min(one.end, _position_of(one, stop)))
        if clipped.end > clipped.start or not one.segment.size:
            yield clipped


def _position_of(one: Range, stop: int) -> int:
    for entries in headers(one.segment):
        columns = entries.position, entries.end, entries.base_offset, entries.last_offset
        for position, end, base, last in zip(*(column.tolist() for column in columns), strict=True):
            if position >= one.start and base >= stop:
                return int(position)
            if position >= one.start and last >= stop - 1:
                return int(end)
    return one.end


def check_planned(split: Split) -> None:
    """Compare the files of a split with those it was planned from.

    Raises
    ------
    KolumnError
        A file is gone, or is another file of the same name. Positions in it are invalid then, and records could be lost without
        notice. The query fails; when it is started again, it plans the same offsets again from its checkpoint.
    """
    for segment in dict.fromkeys(one.segment for one in split.ranges):
        path, now = segment.path, current(segment.path)
        if now is None or (segment.identity is not None and segment.identity.is_another(now)):
            what = "is gone" if now is None else "has been replaced"
            raise KolumnError(f"{path}: {what} since this micro-batch was planned. Start the query again: it goes on from its checkpoint")
