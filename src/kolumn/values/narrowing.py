"""What becomes of types that the next tool does not have, so that one wide column does not make a topic unreadable. Nothing is lost but
digits of times below the unit that is there, and times that its range has not, which are null and counted.

    type                        Polars, DuckDB        Spark                 Parquet               Iceberg, Delta
    JSON text (arrow.json)      text                  text                  as it is              text
    uuid (arrow.uuid)           text                  text                  text                  text
    decimal of over 38 digits   text                  text                  text                  text
    decimal of negative scale   with scale 0          with scale 0          with scale 0          with scale 0
    interval of months          struct                struct                struct                struct
    record without fields       text "{}"             text "{}"             text "{}"             text "{}"
    null                        as it is              as it is              text                  text
    time of day                 as it is              number of its unit    as it is              number of its unit
    duration                    s becomes ms          microseconds          as it is              number of its unit
    timestamp                   s becomes ms          microseconds          s becomes ms          microseconds
    unsigned number             as it is              next wider            as it is              next wider
    dictionary                  as it is              its values            as it is              its values
    bytes of one length         as it is              bytes                 as it is              as it is
    half float                  float                 float                 float                 float
    view                        as it is              usual                 usual                 usual
    large, 64-bit date          as it is              usual                 as it is              usual

Types of Parquet are those that its readers have: Polars and Spark have no decimals of over 38 digits, DuckDB makes doubles of them, and
Spark reads no UUIDs. It reads no times of day and no nanoseconds either, which stay, since text or other digits would help nobody else.
DuckDB gets what Polars has.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.times import PER_SECOND, per_day, time_numbers
from kolumn.values.extensions import JSON_TEXT, stored_type

logger = logging.getLogger("kolumn.values")
Tool = Literal["Polars", "Spark", "Parquet", "Iceberg and Delta"]
INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
_INTERVAL_LAYOUT = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_STORED_AS = b"kolumn.type"  # Metadata of a field in Parquet: the type that it had.
_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_MOST_DIGITS = 38
_NOTHING, _HALF = {pa.null(): pa.string()}, {pa.float16(): pa.float32()}
_USUAL = {
    **_UNSIGNED, **_HALF, pa.date64(): pa.date32(), pa.large_string(): pa.string(), pa.large_binary(): pa.binary(),
    **_VIEWS,
}  # fmt: skip
_TO_MS = {"s": "ms"}
_PLAIN: dict[Tool, dict[pa.DataType, pa.DataType]] = {
    "Polars": _HALF, "Spark": _USUAL, "Parquet": _VIEWS | _NOTHING | _HALF,
    "Iceberg and Delta": _USUAL | _NOTHING,
}  # fmt: skip
_UNITS: dict[Tool, dict[str, str]] = {
    "Polars": _TO_MS, "Spark": dict.fromkeys(("s", "ms", "ns"), "us"), "Parquet": _TO_MS,
    "Iceberg and Delta": dict.fromkeys(("s", "ms", "ns"), "us"),
}  # fmt: skip
"""Units of timestamps that become another one."""
_NAMED: dict[Tool, str] = {"Parquet": "Parquet, or what reads it,", "Polars": "Polars, or DuckDB,"}
_IN_SQL: tuple[Tool, ...] = ("Spark", "Iceberg and Delta")


def narrowed_type(type: pa.DataType, tool: Tool) -> pa.DataType:
    """The type that a tool has for a type, at any depth; the same object if it is the same."""
    if isinstance(type, pa.BaseExtensionType):
        return _of_extension(type, tool)
    if pa.types.is_struct(type) and type.num_fields:
        return _again(type, pa.struct([part.with_type(narrowed_type(part.type, tool)) for part in type]))
    if pa.types.is_map(type):
        return _again(type, pa.map_(narrowed_type(type.key_type, tool), narrowed_type(type.item_type, tool)))
    if pa.types.is_list(type) or (tool in _IN_SQL and (pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type))):
        return _again(type, pa.list_(type.value_field.with_type(narrowed_type(type.value_type, tool))))
    return _narrowed(type, tool)


def _again(type: pa.DataType, made: pa.DataType) -> pa.DataType:
    return type if made == type else made


def _of_extension(type: pa.BaseExtensionType, tool: Tool) -> pa.DataType:
    if type == pa.uuid():
        return pa.string()
    if type == JSON_TEXT:
        return type if tool == "Parquet" else pa.string()
    return narrowed_type(type.storage_type, tool)


def _narrowed(type: pa.DataType, tool: Tool) -> pa.DataType:
    if pa.types.is_decimal128(type) and type.scale < 0:
        digits = type.precision - type.scale
        return pa.decimal128(digits, 0) if digits <= _MOST_DIGITS else pa.string()
    if pa.types.is_decimal256(type) or pa.types.is_struct(type):
        return pa.string()
    if type == pa.month_day_nano_interval():
        return INTERVAL
    if pa.types.is_timestamp(type):
        unit = _UNITS[tool].get(type.unit, type.unit)
        return _again(type, pa.timestamp(unit, "UTC" if tool == "Spark" and type.tz is not None else type.tz))
    if tool in _IN_SQL:
        if pa.types.is_dictionary(type):
            return narrowed_type(type.value_type, tool)
        if pa.types.is_time(type) or (pa.types.is_duration(type) and tool != "Spark"):
            return pa.int64()
        if pa.types.is_fixed_size_binary(type) and tool == "Spark":
            return pa.binary()
    if pa.types.is_duration(type):
        return pa.duration("us") if tool == "Spark" else pa.duration(_UNITS[tool].get(type.unit, type.unit))
    return _PLAIN[tool].get(type, type)


def narrowed_schema(schema: pa.Schema, tool: Tool) -> pa.Schema:
    """The columns as a tool has them. Text in Parquet says in the metadata of its field what it was."""
    if tool == "Parquet":
        return pa.schema([_noted(column) for column in schema])
    return pa.schema([column.with_type(narrowed_type(column.type, tool)) for column in schema])


def _noted(column: pa.Field) -> pa.Field:
    type = column.type
    made = narrowed_type(type, "Parquet")
    if made == type:
        return column
    if pa.types.is_struct(type) and type.num_fields:
        return column.with_type(pa.struct(map(_noted, type)))
    if pa.types.is_list(type):
        return column.with_type(pa.list_(_noted(type.value_field)))
    return column.with_type(made) if pa.types.is_map(type) else column.with_type(made).with_metadata({_STORED_AS: str(type)})


def say_narrowed(schema: pa.Schema, tool: Tool) -> None:
    """Log one line that names the columns of which a tool does not have the kind of values, by their dotted paths, and what they are
    there: nothing for other widths of the same.
    """
    said = [f"{path} of {own} is {becomes}" for column in schema for path, own, becomes in _changes(column.name, column.type, tool)]
    if said:
        logger.warning("%s does not have all types of these columns: %s", _NAMED.get(tool, tool), "; ".join(dict.fromkeys(said)))


def _changes(path: str, type: pa.DataType, tool: Tool) -> Iterator[tuple[str, str, str]]:
    made = narrowed_type(type, tool)
    if made == type:
        return
    if pa.types.is_nested(type) and type.num_fields:
        for number in range(type.num_fields):
            part = type.field(number)
            yield from _changes(f"{path}.{part.name}" if pa.types.is_struct(type) else path, part.type, tool)
    elif pa.types.is_timestamp(type) and type.unit == "ns" and made.unit != "ns":
        yield path, "nanoseconds", "cut to microseconds"
    elif pa.types.is_time(type) or pa.types.is_duration(type):
        if pa.types.is_integer(made):
            yield path, str(type), "a number of its unit"
    elif pa.types.is_struct(type):
        yield path, "a record without fields", 'the text "{}"'
    elif type == pa.month_day_nano_interval():
        yield path, str(type), "a struct of months, days and nanoseconds"
    elif pa.types.is_string(made) and not pa.types.is_string(type) and type not in _USUAL and not pa.types.is_dictionary(type):
        yield path, "JSON" if type == JSON_TEXT else "uuid" if type == pa.uuid() else str(type), "text"


@dataclass
class Narrowed:
    """Puts batches into a schema that a tool has. ``out_of_range`` counts times that are null there, since they are out of the range of
    their type, by the path of the column. With ``in_polars`` that is the range of what Polars prints: other years end the program.
    """

    schema: pa.Schema
    in_polars: bool = False
    out_of_range: Counter[str] = field(default_factory=Counter)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that the schema names, in its order and its types. Columns that have their type already share the buffers."""
        if batch.schema.equals(self.schema) and not self.in_polars:
            return batch
        columns = [self.column(batch.column(column.name), column.type, column.name) for column in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def say(self) -> None:
        """Log one line of the times that are null, if there are any."""
        if self.out_of_range:
            told = ", ".join(f"{path} ({count})" for path, count in self.out_of_range.most_common(8))
            logger.warning("times out of the range of their type here are null: %s", told)
            self.out_of_range.clear()

    def column(self, column: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
        """A column in the type that is wanted, which `narrowed_type` says but for names of members; it may have some of a struct's."""
        own = column.type
        if own == wanted and not (self.in_polars and _has_times(own)):
            return column
        if isinstance(own, pa.BaseExtensionType):
            return uuid_text(column) if own == pa.uuid() else self.column(column.storage, stored_type(wanted), path)
        if own == pa.month_day_nano_interval():
            return self.column(_interval(column), wanted, path)
        if pa.types.is_struct(own):
            return self._struct(column, wanted, path)
        if pa.types.is_dictionary(own):
            return self.column(column.dictionary_decode(), wanted, path)
        if pa.types.is_map(own):
            names = ((column.keys, wanted.key_type), (column.items, wanted.item_type))
            values = pa.StructArray.from_arrays(
                [self.column(part, type, path) for part, type in names], fields=[wanted.key_field, wanted.item_field]
            )
        elif pa.types.is_list(own):
            values = self.column(column.values, wanted.value_type, path)
        elif pa.types.is_binary(own) and pa.types.is_string(wanted):
            # The same bytes, valid UTF-8 or not.
            return pa.Array.from_buffers(wanted, len(column), column.buffers(), column.null_count, column.offset)
        elif (pa.types.is_timestamp(own) or pa.types.is_duration(own)) and pa.types.is_temporal(wanted):
            return self._printable(self._time(column, wanted, path), path)
        elif pa.types.is_date(own) and own == wanted:
            return self._printable(column, path)
        else:
            column = column.cast(pa.int32()) if pa.types.is_time32(own) else column
            if pa.types.is_decimal128(own) and own.scale < 0 and pa.types.is_string(wanted) and own.precision - own.scale <= 76:
                # All digits: Arrow's text of such a decimal has an exponent.
                column = column.cast(pa.decimal256(own.precision - own.scale, 0))
            return column.cast(wanted, safe=not pa.types.is_temporal(own))
        return pa.Array.from_buffers(wanted, len(column), column.buffers()[:2], column.null_count, column.offset, [values])

    def _struct(self, column: pa.StructArray, wanted: pa.DataType, path: str) -> pa.Array:
        own = column.type
        if not pa.types.is_struct(wanted):
            return pc.if_else(column.is_valid(), pa.scalar("{}", wanted), pa.scalar(None, wanted))
        names = [part.name for part in own]
        positions = range(len(names)) if len(names) == wanted.num_fields else [names.index(part.name) for part in wanted]
        members = [self.column(column.field(i), part.type, f"{path}.{part.name}") for i, part in zip(positions, wanted, strict=True)]
        return pa.StructArray.from_arrays(members, fields=list(wanted), mask=column.is_null() if column.null_count else None)

    def _time(self, column: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
        """In another unit. Arrow's cast would raise an error for all, or return other times, where one does not fit."""
        per = PER_SECOND[wanted.unit] // PER_SECOND[column.type.unit]
        if per > 1:
            column = self._within(column, -_LARGEST // per + 1, _LARGEST // per, path)
        if per or column.type.unit == wanted.unit:
            return column if column.type == wanted else column.cast(wanted)
        # Arrow's cast cuts toward 1970, which adds to times before it.
        numbers = column.cast(pa.int64()).fill_null(0).to_numpy() // (PER_SECOND[column.type.unit] // PER_SECOND[wanted.unit])
        mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        return pa.array(numbers, pa.int64(), mask=mask).cast(wanted)

    def _printable(self, column: pa.Array, path: str) -> pa.Array:
        type = column.type
        if not self.in_polars or pa.types.is_duration(type):
            return column
        low, high = (max(-_LARGEST - 1, min(_LARGEST, day * per_day(type))) for day in _DAYS_OF_POLARS)
        return self._within(column, low, high, path)

    def _within(self, column: pa.Array, low: int, high: int, path: str) -> pa.Array:
        """The same with nulls in the place of numbers out of a range."""
        numbers = time_numbers(column)
        extremes = pc.min_max(numbers)
        least, most = extremes["min"].as_py(), extremes["max"].as_py()
        if least is None or (least >= low and most <= high):
            return column
        fits = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
        self.out_of_range[path] += fits.false_count
        return pc.if_else(fits, column, pa.scalar(None, column.type))


@lru_cache(maxsize=64)
def _has_times(type: pa.DataType) -> bool:
    if pa.types.is_timestamp(type) or pa.types.is_date(type):
        return True
    return any(_has_times(type.field(number).type) for number in range(type.num_fields))


_LARGEST = 2**63 - 1
_DAYS_OF_POLARS = -96_465_292, 95_026_236  # from the year -262143 to 262142


def _interval(column: pa.Array) -> pa.StructArray:
    """The interval's three numbers, which Arrow keeps one after the other."""
    rows = np.frombuffer(column.buffers()[1], _INTERVAL_LAYOUT)[column.offset : column.offset + len(column)]
    members = [pa.array(np.ascontiguousarray(rows[name])) for name in _INTERVAL_LAYOUT.names or ()]
    return pa.StructArray.from_arrays(members, fields=list(INTERVAL), mask=column.is_null() if column.null_count else None)


_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_PLACES = [place for place in range(36) if place not in (8, 13, 18, 23)]  # of the digits; hyphens are between them


def uuid_text(column: pa.ExtensionArray) -> pa.StringArray:
    """As `str` of Python's `uuid.UUID` has it."""
    stored, n = column.storage, len(column)
    data = np.frombuffer(stored.buffers()[1] or b"", np.uint8)[16 * stored.offset : 16 * (stored.offset + n)].reshape(n, 16)
    text = np.full((n, 36), ord("-"), np.uint8)
    text[:, _PLACES] = _DIGITS[np.stack((data >> 4, data & 15), 2).reshape(n, 32)]
    ends = pa.py_buffer(np.arange(0, 36 * (n + 1), 36, dtype=np.int32))
    made = pa.Array.from_buffers(pa.string(), n, [None, ends, pa.py_buffer(text)])
    return pc.if_else(stored.is_valid(), made, pa.scalar(None, pa.string())) if stored.null_count else made
