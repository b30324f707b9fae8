"""A source that can be read again and again, each time with other columns and ranges."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from kolumn.backend import require
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.core.text import NAMED_BY, as_strings, check_payload, strings_of
from kolumn.decode.pipeline import OnDamage
from kolumn.options import Options
from kolumn.readers.plan import live_segments, plan_of, plan_read
from kolumn.source.segments import Segment, in_memory, named_parts
from kolumn.values.stage import payload_names


@dataclass(frozen=True)
class Bounds:
    """Ranges outside of which no record is wanted; None is no limit.

    Attributes
    ----------
    start_offset, end_offset, start_ms, end_ms : int, optional
        Start <= offset or timestamp < end.
    topics, partitions : frozenset, optional
    """

    start_offset: int | None = None
    end_offset: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    topics: frozenset[object] | None = None
    partitions: frozenset[object] | None = None

    def within(self, other: "Bounds") -> "Bounds":
        """The records that both let through."""
        return Bounds(
            _last(self.start_offset, other.start_offset), _first(self.end_offset, other.end_offset),
            _last(self.start_ms, other.start_ms), _first(self.end_ms, other.end_ms),
            _common(self.topics, other.topics), _common(self.partitions, other.partitions),
        )  # fmt: skip

    def has(self, segment: Segment) -> bool:
        """Whether a segment may have wanted records, by its topic and partition."""
        return (self.topics is None or segment.topic in self.topics) and (self.partitions is None or segment.partition in self.partitions)


def _last(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _first(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _common(one: frozenset[object] | None, other: frozenset[object] | None) -> frozenset[object] | None:
    return other if one is None else one if other is None else one & other


class FrameSource:
    """A source with the options of a read, checked.

    Attributes
    ----------
    schema : pa.Schema
        Columns and types.
    failed : KolumnError, optional
        The last error of a read. Libraries that call the read pass on its text alone.

    Raises
    ------
    Errors as `kolumn.scan`.
    """

    def __init__(self, source: keywords.Source, options: Options, on_damage: OnDamage | None, payload: str) -> None:
        check_payload(payload)
        require(options.backend)
        self._source = _kept(source)
        self._on_damage, self._payload = on_damage, payload
        self._options = plan_read(self._source, options).options
        self.schema = self._schema_of(self._options)
        self.failed: KolumnError | None = None

    def read(self, columns: list[str] | None, bounds: Bounds, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """The records within some bounds, at least these columns of them; few bytes at a time if only some rows are wanted.

        Memory is bounded as by `kolumn.scan`. Segments are looked for again, so that a second read finds what was appended.
        """
        options = self._narrowed(self._options, columns, bounds)
        if rows is not None:
            options = replace(options, threads=1, chunk_bytes=min(options.chunk_bytes, max(_LEAST, rows * _RECORD)))
        live = live_segments(self._source, self._options)
        live = replace(live, segments=[one for one in live.segments if bounds.has(one)])
        if not live.segments:
            return
        schema = self._schema_of(options)
        try:
            asked = options if self._payload == "binary" else options.with_added(NAMED_BY)
            found = plan_of(live, options).scan(asked, self._on_damage)
            yield from found if self._payload == "binary" else strings_of(found, schema)
        except KolumnError as error:
            # Its frames would keep the objects of the library that called.
            self.failed = error.with_traceback(None)
            raise

    def _schema_of(self, options: Options) -> pa.Schema:
        schema = options.schema
        return schema if self._payload == "binary" else as_strings(schema, payload_names(options.columns, options.typed))

    @staticmethod
    def _narrowed(options: Options, columns: list[str] | None, bounds: Bounds) -> Options:
        asked = Bounds(options.start_offset, options.end_offset, options.start_timestamp, options.end_timestamp).within(bounds)
        narrow = replace(
            options, start_offset=asked.start_offset, end_offset=asked.end_offset,
            start_timestamp=asked.start_ms, end_timestamp=asked.end_ms,
        )  # fmt: skip
        if columns is None:
            return narrow
        try:
            return narrow.with_columns(columns or ["offset"])
        except ArgumentError:
            # Fields of typed values that are columns by themselves cannot be named in a read.
            return narrow


def _kept(source: keywords.Source) -> keywords.Source:
    """A source that can be read more than once, which an iterator and a file object cannot."""
    held = in_memory(source)
    if held is not None:
        return held.memory
    return source if isinstance(source, str | os.PathLike) else named_parts(source)


_LEAST, _RECORD = 1 << 16, 1 << 10
"""Bytes that are read at a time for some rows: at least, and for each row."""
