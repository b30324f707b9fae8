"""The options of `read`, `scan`, `batches` and `verify`, checked once."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kolumn.backend import choose
from kolumn.errors import ArgumentError
from kolumn.formats import layouts
from kolumn.schema import resolve_columns, unknown

MIB = 1 << 20
GPU_CHUNK_BYTES = 24 * MIB
ALONE_CHUNK_BYTES = 16 * MIB
"""For one thread, which needs no pieces to share: every chunk costs some Python."""
AHEAD = 2
"""Chunks under way for each thread."""
_SHARE = 8
"""How many times its bytes a chunk may inflate to, unless ``memory_bytes`` says how much."""
_TIME = "ms since 1970 as an int, a datetime, or ISO 8601 text such as '2026-01-31T12:00'"
_MILLISECOND = timedelta(milliseconds=1)
_CHOICES = {
    "format": layouts.FORMAT_NAMES,
    "isolation_level": ("read_uncommitted", "read_committed"),
    "errors": ("raise", "skip"),
    "backend": ("auto", "cpu", "gpu"),
    "binary": ("contiguous", "view"),
    "replicas": ("raise", "first", "merge"),
}


@dataclass(frozen=True)
class Options:
    """What a call asks for.

    Attributes
    ----------
    format : str
        "kafka": the shipped formats 0, 1 and 2, told apart entry by entry. "enriched", "kip98-draft", "v3-compact" or "kip87": a
        draft, mixed with shipped formats as its document has it.
    columns : tuple of str
        Record columns, in order. Default: those of Spark's Kafka source.
    include_headers : bool
        Add ``headers`` to the columns.
    start_offset, end_offset : int, optional
        Keep start <= offset < end.
    start_timestamp, end_timestamp : int, optional
        Keep start <= timestamp < end, in ms; a record without a timestamp is outside of every range. Given as int, datetime, or ISO 8601
        text; UTC where no time zone is said.
    isolation_level : str
        "read_uncommitted"; "read_committed" leaves out aborted transactions, and all from the first one on that is still open.
    include_control : bool
        Give the records of control batches too.
    check_crcs : bool
        Compare checksums before a batch is looked into.
    errors : str
        "raise" stops at the first damage, "skip" goes on after it.
    replicas : str
        What to do where several directories of the source have the same offsets of a topic-partition. "raise": an error; "first": read
        the directory that comes first in the source alone; "merge": read each offset once, whatever copy has it intact. A merge reads
        all copies twice, and compares checksums whatever ``check_crcs`` says.
    backend : str
        "auto", "cpu" or "gpu".
    binary : str
        "contiguous", or "view" for binary_view columns that point into the segment's bytes.
    chunk_bytes : int
        Bytes of a segment that are read and decoded at a time; by default 8 MiB, 16 MiB in one thread, 24 MiB on a GPU.
    threads : int
        Chunks that are decoded at a time. Default: the cores of the machine.
    memory_bytes : int, optional
        Inflated bytes that are under way at a time, all threads together, and beside them one batch, if it alone is larger than the
        share of a chunk. A thread has two chunks under way. Default: for each of them 8 times ``chunk_bytes``.
    topic, partition : optional
        In place of what the directory's name says.
    max_batch_bytes : int
        Largest inflated size of one batch.
    max_ratio : float
        Largest ratio of inflated to compressed size of a batch that inflates to more than 64 MiB.
    trusted : bool
        On a GPU, whether its library may inflate batches whose checksum is right. What it does with bytes that are broken all the same,
        or made to break it, is not defined; with False the CPU's codecs inflate.
    on_progress : callable, optional
        Is given the bytes of the entries that were read since it was called last. It is called in any thread.
    """

    format: str = "kafka"
    columns: tuple[str, ...] = ()
    include_headers: bool = False
    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    isolation_level: str = "read_uncommitted"
    include_control: bool = False
    check_crcs: bool = True
    errors: str = "raise"
    replicas: str = "raise"
    backend: str = "auto"
    binary: str = "contiguous"
    chunk_bytes: int = 8 * MIB
    threads: int = 1
    memory_bytes: int | None = None
    topic: str | None = None
    partition: int | None = None
    max_batch_bytes: int = 2**31 - 1
    max_ratio: float = 1032.0
    trusted: bool = True
    on_progress: Callable[[int], None] | None = None

    def within(self, first: int | None, behind: int | None) -> "Options":
        """The options, with the narrower of their own range of offsets and first <= offset < behind."""
        start = max((offset for offset in (self.start_offset, first) if offset is not None), default=None)
        end = min((offset for offset in (self.end_offset, behind) if offset is not None), default=None)
        return replace(self, start_offset=start, end_offset=end)

    @property
    def inflated_bytes(self) -> int:
        """What one chunk under way may inflate to; where the next batch is larger, it is decoded when nothing else is."""
        under_way = AHEAD * self.threads if self.threads > 1 else 1
        return max(self.memory_bytes // under_way, 1) if self.memory_bytes else _SHARE * max(self.chunk_bytes, MIB)

    @classmethod
    def of(cls, **given: Any) -> "Options":
        """Options from keyword arguments; `ArgumentError` says what is wrong with one and names the nearest known one."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ArgumentError(unknown("option", name, known))
        for name, choices in _CHOICES.items():
            if name in given and given[name] not in choices:
                raise ArgumentError(f"{name}={given[name]!r}: expected one of {', '.join(choices)}")
        columns = given.get("columns")
        if isinstance(columns, str):
            columns = [columns]
        resolved = resolve_columns(columns, bool(given.get("include_headers")))
        values = dict(given, columns=resolved)
        for name in ("start_timestamp", "end_timestamp"):
            values[name] = _milliseconds(name, given.get(name))
        for name in ("start_offset", "end_offset", "partition"):
            values[name] = _integer(name, given.get(name))
        values["threads"] = _positive("threads", given.get("threads")) or len(os.sched_getaffinity(0))
        chunk_bytes = ALONE_CHUNK_BYTES if values["threads"] == 1 else cls.chunk_bytes
        if choose(values.get("backend", "auto")) == "gpu":
            chunk_bytes = GPU_CHUNK_BYTES
        for name, otherwise in (("chunk_bytes", chunk_bytes), ("max_batch_bytes", cls.max_batch_bytes)):
            values[name] = _positive(name, given.get(name)) or otherwise
        values["memory_bytes"] = _positive("memory_bytes", given.get("memory_bytes"))
        if not given.get("max_ratio", 1) > 0:
            raise ArgumentError(f"max_ratio={given['max_ratio']!r}: expected a positive number")
        return cls(**values)

    def progress(self, done: int) -> None:
        """Say that so many bytes more were read."""
        if self.on_progress is not None:
            self.on_progress(done)


def _integer(name: str, value: Any, expected: str = "an integer") -> int | None:
    if value is None:
        return None
    try:
        return value.__index__() if not isinstance(value, bool) else _refuse(name, value, expected)
    except AttributeError:
        return _refuse(name, value, expected)


def _positive(name: str, value: Any) -> int | None:
    number = _integer(name, value)
    return number if number is None or number > 0 else _refuse(name, value, "a positive integer")


def _milliseconds(name: str, value: Any) -> int | None:
    if isinstance(value, str):
        value = _moment(name, value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND
    return _integer(name, value, _TIME)


def _moment(name: str, text: str) -> int | datetime:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return _refuse(name, text, _TIME)


def _refuse(name: str, value: Any, expected: str) -> Any:
    raise ArgumentError(f"{name}={value!r}: expected {expected}")


def column_list(text: str | Iterable[str]) -> list[str]:
    """Names from a comma-separated list, as the command line and Spark give them."""
    return [name.strip() for name in text.split(",") if name.strip()] if isinstance(text, str) else list(text)
