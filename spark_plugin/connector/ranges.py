"""Comparisons of a query as ranges of offsets and times, and as choices of topic partitions. Spark compares again, so wider is right."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from kolumn.options import Options
from kolumn.spark_plugin.options.positions import Key

Comparison = tuple[str, str, int | str | list[int] | list[str]]
"""Column, one of = < <= > >= in, and a value, or the values of "in"; timestamps in microseconds since 1970."""
_UNITS = {"offset": 1, "timestamp": 1000}
_NAMES = {"topic": 0, "partition": 1}
_LAST = 2**63 - 1
_T = TypeVar("_T")


def chosen(filters: Iterable[Comparison], groups: Mapping[Key, _T]) -> dict[Key, _T]:
    """The topic partitions that comparisons of topic and partition leave."""
    found = dict(groups)
    for column, operator, value in filters:
        if column in _NAMES and operator in ("=", "in"):
            wanted = value if isinstance(value, list) else [value]
            found = {key: group for key, group in found.items() if key[_NAMES[column]] in wanted}
    return found


def narrowed(filters: Iterable[Comparison], decode: Options) -> Options:
    """The options with their ranges of offsets and timestamps (ms) as narrow as the comparisons allow."""
    for column, operator, value in filters:
        if column in _UNITS and value != []:
            low, stop = _bounds(operator, [int(one) for one in (value if isinstance(value, list) else [value])], _UNITS[column])
            if column == "offset":
                decode = decode.within(low, stop)
            else:
                start = max((one for one in (decode.start_timestamp, low) if one is not None), default=None)
                end = min((one for one in (decode.end_timestamp, stop) if one is not None), default=None)
                decode = replace(decode, start_timestamp=start, end_timestamp=end)
    return decode


def _bounds(operator: str, values: list[int], unit: int) -> tuple[int | None, int | None]:
    """First and the one after the last, in units; None for no bound, and for one at the ends of the numbers."""
    low = stop = None
    if operator in (">", ">=", "=", "in"):
        low = min(values) // unit + (operator == ">" and unit == 1)
    if operator in ("<", "<=", "=", "in"):
        last = max(values)
        stop = last // unit + (not (operator == "<" and last % unit == 0))
    return (None if low is None or low <= 0 else min(low, _LAST)), (None if stop is None or stop > _LAST else max(stop, 0))
