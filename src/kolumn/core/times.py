"""Times as text. A moment is RFC 3339 with its zone, ``2026-01-31T12:00:00.000Z``.

Python has no times of years that have not four digits, and pyarrow's text of them is wrong, or says that there is none. They are printed as
ISO 8601 and Java have them, with a sign in front of the year, ``+10000-01-01T00:00:00Z``.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Int64s

_FIRST_DAY, _END_DAY = -719_162, 2_932_897  # of the years 1 to 9999, in days since 1970; the end is exclusive
_DAY_S = 86_400
PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}  # by the unit
_LARGEST = 2**63 - 1


def time_numbers(column: pa.Array) -> pa.Int64Array:
    """The numbers of a column of dates, times of day, timestamps or durations, in their unit."""
    return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).cast(pa.int64())


def per_day(type: pa.DataType) -> int:
    """How much a day is in a type of dates, times of day or timestamps."""
    return 1 if pa.types.is_date32(type) else _DAY_S * PER_SECOND["ms" if pa.types.is_date64(type) else type.unit]


def far_times(column: pa.Array) -> pa.BooleanArray | None:
    """Which values of a column of dates, times of day or timestamps Python does not have; null for null. None if it has all."""
    day = per_day(column.type)
    low, end = (0, day) if pa.types.is_time(column.type) else (max(_FIRST_DAY * day, -_LARGEST), min(_END_DAY * day, _LARGEST))
    numbers = time_numbers(column)
    extremes = pc.min_max(numbers)
    least, most = extremes["min"], extremes["max"]
    if not least.is_valid or (least.as_py() >= low and most.as_py() < end):
        return None
    return pc.or_(pc.less(numbers, low), pc.greater_equal(numbers, end))


def as_text(column: pa.Array, marked: pa.BooleanArray) -> list[str]:
    """The text of those values that are marked, as by `far_times`."""
    type, numbers = column.type, time_numbers(column).filter(marked).to_numpy()
    if pa.types.is_date32(type):
        return _dates(numbers)
    unit = "ms" if pa.types.is_date64(type) else type.unit
    if pa.types.is_time(type):
        return ["-" * (number < 0) + _clock(abs(number), unit) for number in numbers.tolist()]
    zone = "Z" if pa.types.is_timestamp(type) and type.tz is not None else ""
    return [text + zone for text in iso_texts(numbers, unit)]


def iso_texts(numbers: Int64s, unit: str) -> list[str]:
    """Numbers of a unit since 1970 as dates and times of day, without a zone."""
    days, rest = np.divmod(numbers, _DAY_S * PER_SECOND[unit])
    return [f"{date}T{_clock(number, unit)}" for date, number in zip(_dates(days), rest.tolist(), strict=True)]


def moment(ms: int) -> str:
    """Milliseconds since 1970 as every command prints a time."""
    return f"{iso_texts(np.array([ms], np.int64), 'ms')[0]}Z"


def _clock(number: int, unit: str) -> str:
    seconds, rest = divmod(number, PER_SECOND[unit])
    fraction = f".{rest:0{len(str(PER_SECOND[unit])) - 1}d}" if unit != "s" else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def _dates(days: Int64s) -> list[str]:
    """Days since 1970 as dates of the proleptic Gregorian calendar: in years that begin with March, of 400 years each."""
    era, day = np.divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    year += 400 * era + (month >= 10)
    month += np.where(month < 10, 3, -9)
    rows = zip(year.tolist(), month.tolist(), (day + 1).tolist(), strict=True)
    return [f"{year:{'04' if 0 <= year <= 9999 else '+05'}d}-{month:02d}-{day:02d}" for year, month, day in rows]


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as `pyarrow.Table.to_pylist` has them, with text in the place of moments, dates and times of day."""
    columns = [_values(column) for column in table.columns]
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    type = column.type
    if not (pa.types.is_timestamp(type) or pa.types.is_date(type) or pa.types.is_time(type)):
        return column.to_pylist()
    return [value for chunk in column.chunks for value in _texts(chunk)]


def _texts(column: pa.Array) -> list[str | None]:
    there = column.is_valid()
    texts = iter(as_text(column, there))
    return [next(texts) if is_there else None for is_there in there.to_pylist()]
