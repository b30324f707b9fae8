"""The options of a read, checked once."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal, Unpack, get_args, get_origin

import pyarrow as pa

from kolumn.backend import choose
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import DEFAULTS, OPTIONS, PAYLOAD_DEFAULTS, Duration, PayloadFormat, ReadOptions, Time
from kolumn.core.moments import duration_ms, moment_ms, now_ms
from kolumn.core.schema import DEFAULT_COLUMNS, RECORD_COLUMNS, record_schema, resolve_columns
from kolumn.formats import layouts
from kolumn.source.segments import HIGHEST
from kolumn.source.tier_file import KeyFiles, key_files
from kolumn.values.typed import INTERNAL, Typed, schema_of, stored_columns, typed_of, watched_columns

MIB = 1 << 20
GPU_CHUNK_BYTES = 64 * MIB  # every chunk costs a GPU some waits and calls of the driver, whatever its size
AHEAD = 2  # chunks in progress for each thread
_SHARE = 8  # how many times ``chunk_bytes`` are decompressed in one thread, unless ``memory_bytes`` is given
_LEAST, _RECORD = 1 << 16, 1 << 10
"""Bytes that are read at a time for some records: at least, and for each of them."""
_LIMIT = "a number of records, 0 or more"
TIME = "a time such as 2026-01-31T12:00 (UTC unless it has a zone), 7d or 30m (ago), now, yesterday, last-tuesday, or ms since 1970"
_DURATION = "0 or more ms, or a duration such as 90s, 30m, 12h, 7d or 2w"
_MILLISECOND = timedelta(milliseconds=1)
_LITERALS = {name: get_args(option.type) for name, option in OPTIONS.items() if get_origin(option.type) is Literal}
# Formats registered for a trial are not in the type.
_CHOICES = {name: choices for name, choices in _LITERALS.items() if name not in PAYLOAD_DEFAULTS} | {"format": layouts.FORMAT_NAMES}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a call, checked; `of` makes them from parameters.

    Attributes are those of `kolumn.core.keywords.ReadOptions` with defaults filled in: ``columns`` are names, with ``headers`` if
    ``include_headers`` is true, timestamps are ms since 1970, ``chunk_bytes`` and ``threads`` are numbers. ``typed`` is what the options
    for values and keys ask for.
    """

    format: str = "kafka"
    columns: tuple[str, ...] = ()
    include_headers: bool = False
    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    isolation_level: str = "read_uncommitted"
    open_transactions: str = "stop"
    include_control: bool = False
    check_crcs: bool = True
    errors: str = "raise"
    replicas: str = "raise"
    backend: str = "auto"
    binary: str = "contiguous"
    chunk_bytes: int = 16 * MIB
    threads: int = 1
    memory_bytes: int | None = None
    topic: str | None = None
    partition: int | None = None
    max_batch_bytes: int = 2**31 - 1
    max_ratio: float = 1032.0
    trusted: bool = False
    on_progress: Callable[[int], None] | None = None
    private_keys: KeyFiles | None = None
    typed: tuple[Typed, ...] = ()
    include_snapshots: bool = False
    include_deleted_records: bool | None = None
    include_deleted_segments: bool = False
    start_delta: int | None = None
    remarks: bool = False

    def with_columns(self, columns: Iterable[str]) -> "Options":
        """The same read with other columns; raises `ArgumentError` for an unknown one."""
        names = resolve_columns(columns, include_headers=False, typed=[typed.column for typed in self.typed])
        return replace(self, columns=names, include_headers=False)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the record batches; types of values and keys are those of `kolumn.readers.types.with_types`."""
        return schema_of(self.columns, self.binary, self.typed) if self.typed else record_schema(self.columns, self.binary)

    @property
    def stored(self) -> "Options":
        """Options for record batches with payloads as they were stored, which have all that the typed columns need."""
        return self if not self.typed else replace(self, columns=stored_columns(self.columns, self.typed), typed=())

    @property
    def untyped(self) -> "Options":
        """Options for a read that looks at no value: with the record columns alone."""
        return replace(self, columns=tuple(name for name in self.columns if name in RECORD_COLUMNS), typed=())

    @property
    def watched(self) -> "Options":
        """Options with the columns by which an invalid value is found, where it is an error, and records in which none is expected."""
        if not self.typed:
            return self
        watched = replace(self, columns=watched_columns(self.columns, self.typed))
        return watched.with_added(("isControl",)) if self.include_control else watched

    @property
    def in_parts(self) -> bool:
        """Whether sound records of an entry with wrong ones are read; only a right checksum says that they were written so."""
        return self.errors == "skip" and self.check_crcs

    def with_added(self, names: Sequence[str]) -> "Options":
        """Options with these columns after the others, unless they are there."""
        return replace(self, columns=(*self.columns, *(name for name in names if name not in self.columns)))

    def within(self, start_offset: int | None, end_offset: int | None) -> "Options":
        """The options with their range of offsets narrowed to start_offset <= offset < end_offset."""
        start = max((offset for offset in (self.start_offset, start_offset) if offset is not None), default=None)
        end = min((offset for offset in (self.end_offset, end_offset) if offset is not None), default=None)
        return replace(self, start_offset=start, end_offset=end)

    def shared_by(self, readers: int) -> "Options":
        """The options of each of some reads at the same time: its share of the threads and of the memory."""
        memory = None if self.memory_bytes is None else max(1, self.memory_bytes // readers)
        return replace(self, threads=max(1, self.threads // readers), memory_bytes=memory)

    def for_rows(self, rows: int | None) -> "Options":
        """The options of a read that ends after so many records: few bytes at a time, in one thread, if that is less."""
        chunk = self.chunk_bytes if rows is None else max(_LEAST, rows * _RECORD)
        return self if chunk >= self.chunk_bytes else replace(self, threads=1, chunk_bytes=chunk)

    @cached_property
    def inflated_bytes(self) -> int:
        """Bytes to which one chunk in progress may be decompressed; a larger batch is decoded when no other chunk is in progress."""
        under_way = AHEAD * self.threads if self.threads > 1 else 1
        memory = self.memory_bytes or _SHARE * max(self.chunk_bytes, MIB) * self.threads
        return max(memory // under_way, 1)

    @classmethod
    def of(cls, **options: Unpack[ReadOptions]) -> "Options":
        """Options as callers give them, whose names `known_keywords` has checked; raises `ArgumentError` for an invalid value."""
        given: dict[str, Any] = {**DEFAULTS, **options}
        for name, choices in _CHOICES.items():
            if given[name] not in choices:
                of_values = f". The format of values is value_format={given[name]!r}" if given[name] in get_args(PayloadFormat) else ""
                raise ArgumentError(f"{name}={given[name]!r}: expected one of {', '.join(choices)}{of_values}")
        if given["open_transactions"] != "stop" and given["isolation_level"] != "read_committed":
            raise ArgumentError(
                f"open_transactions={given['open_transactions']!r}: expected isolation_level='read_committed' with it: other reads return "
                "the records of all transactions"
            )
        if not given["max_ratio"] > 0:
            raise ArgumentError(f"max_ratio={given['max_ratio']!r}: expected a positive number")
        for name, number in _NUMBERS.items():
            if given[name] is not DEFAULTS[name] and given[name] is not None:
                given[name] = number(name, given[name])
        given["chunk_bytes"] = given["chunk_bytes"] or (GPU_CHUNK_BYTES if choose(given["backend"]) == "gpu" else cls.chunk_bytes)
        given["threads"] = given["threads"] or len(os.sched_getaffinity(0))
        given["max_batch_bytes"] = given["max_batch_bytes"] or cls.max_batch_bytes
        if given["private_keys"] is not None:
            given["private_keys"] = key_files(given["private_keys"])
        typed: tuple[Typed, ...] = ()
        payloads = PAYLOAD_DEFAULTS
        if not PAYLOAD_DEFAULTS.keys().isdisjoint(options):
            payloads = {name: given[name] for name in PAYLOAD_DEFAULTS}
            typed = typed_of(payloads) if payloads != PAYLOAD_DEFAULTS else ()
        columns, names = given["columns"], list[str]()
        for payload in typed:
            names.append(payload.column)
            if columns is None and payload.format == INTERNAL:
                # Messages have no schema ids.
                columns = (*DEFAULT_COLUMNS, "keyValid", "valueValid")
        for name in payloads:
            del given[name]
        given["columns"] = resolve_columns([columns] if isinstance(columns, str) else columns, bool(given["include_headers"]), names)
        return cls(**given, typed=typed)

    def progress(self, done: int) -> None:
        """Report that ``done`` more bytes were read."""
        if self.on_progress is not None:
            self.on_progress(done)


def integer(name: str, value: Any, expected: str = "an integer") -> int:
    """A number of the parameter ``name``; raises `ArgumentError`."""
    try:
        number: int = value.__index__() if not isinstance(value, bool) else _refuse(name, value, expected)
    except AttributeError:
        return _refuse(name, value, expected)
    return number if -HIGHEST - 1 <= number <= HIGHEST else _refuse(name, number, f"a number of 64 bits, at most {HIGHEST}")


def _positive(name: str, value: Any) -> int:
    number: int = value if type(value) is int and value <= HIGHEST else integer(name, value)
    return number if number > 0 else _refuse(name, value, "a positive integer")


def row_limit(value: Any) -> int:
    """The parameter ``limit``; raises `ArgumentError` if it is below 0."""
    limit = integer("limit", value, _LIMIT)
    return limit if limit >= 0 else _refuse("limit", value, _LIMIT)


def milliseconds(name: str, value: object) -> int:
    """A time of the parameter ``name`` in ms since 1970; raises `ArgumentError`."""
    if isinstance(value, str):
        try:
            said: int | None = int(value)
        except ValueError:
            said = moment_ms(value, now_ms())
        if said is not None:
            return integer(name, said)
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return _refuse(name, value, TIME)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND
    return integer(name, value, TIME)


def moment_of(now: Time | None) -> int:
    """A parameter ``now`` in ms since 1970, by default the present; raises `ArgumentError`."""
    return now_ms() if now is None else milliseconds("now", now)


def duration(name: str, value: Duration) -> int:
    """A duration of the parameter ``name`` in ms; raises `ArgumentError`."""
    ms: object = value
    if isinstance(value, str):
        ms = int(value) if value.strip().isdecimal() else duration_ms(value)
    elif isinstance(value, timedelta):
        ms = value // _MILLISECOND
    number = -1 if ms is None else integer(name, ms, _DURATION)
    return number if number >= 0 else _refuse(name, value, _DURATION)


_NUMBERS: dict[str, Callable[[str, object], int]] = {
    **{name: integer for name, option in OPTIONS.items() if option.type in (int, int | None) and name not in PAYLOAD_DEFAULTS},
    **dict.fromkeys((name for name, option in OPTIONS.items() if option.type == Time | None), milliseconds),
    **dict.fromkeys(("threads", "chunk_bytes", "memory_bytes", "max_batch_bytes"), _positive),
}


def _refuse(name: str, value: object, expected: str) -> Any:
    raise ArgumentError(f"{name}={value!r}: expected {expected}")


def column_list(text: str | Iterable[str]) -> list[str]:
    """Names from a comma-separated list, the form on the command line and in Spark."""
    return [name.strip() for name in text.split(",") if name.strip()] if isinstance(text, str) else list(text)
