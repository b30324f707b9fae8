"""Conditions of a query as choices of topic partitions, and as ranges of offsets and times within them.

A condition is a tree of lists, as the connector makes it of Spark's predicates: ``["AND", a, b]``, ``["NOT", a]``, ``[">=", "offset", 5]``,
``["IN", "topic", ["a", None]]``, ``["IS_NULL", "topic"]``, and ``["?"]`` for what it does not know. Timestamps are microseconds since 1970.
Topic and partition of all records of a partition are the same, so conditions on these two alone are decided here; of all others Spark
compares each row again, and wider is right.

What a scan decodes: the columns that Spark asked for, and their fields where validity does not depend on which.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, TypeVar, cast

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

from kolumn.spark_plugin.options.positions import Key
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.values.typed import Typed

Condition = list[Any]
_UNITS = {"offset": 1, "timestamp": 1000}
_NAMES = {"topic": 0, "partition": 1}
_LAST = 2**63 - 1
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_T = TypeVar("_T")


class Box(NamedTuple):
    """Records of a partition within ranges of offsets and of timestamps (ms); None is no bound."""

    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no record can be in it."""
        return any(low is not None and high is not None and low >= high for low, high in (self[:2], self[2:]))

    def and_(self, other: "Box") -> "Box":
        """What is in both."""
        return self._each(other, lambda pair: max(_known(pair), default=None), lambda pair: min(_known(pair), default=None))

    def or_(self, other: "Box") -> "Box":
        """The smallest that contains both."""
        return self._each(
            other,
            lambda pair: None if None in pair else min(_known(pair)),
            lambda pair: None if None in pair else max(_known(pair)),
        )

    def _each(self, other: "Box", low: "_Bound", high: "_Bound") -> "Box":
        start_offset, end_offset, start_timestamp, end_timestamp = zip(self, other, strict=True)
        return Box(low(start_offset), high(end_offset), low(start_timestamp), high(end_timestamp))


_Pair = tuple[int | None, int | None]
_Bound = Callable[[_Pair], int | None]
EVERYTHING = Box()


def _known(pair: _Pair) -> list[int]:
    return [one for one in pair if one is not None]


def boxes(conditions: Iterable[Condition], groups: Mapping[Key, object], columns: Iterable[str]) -> dict[Key, Box]:
    """The topic partitions that conditions leave, and where in them.

    Parameters
    ----------
    conditions : iterable of list
        All of them hold for a row that is wanted.
    groups : mapping
        Topic partitions.
    columns : iterable of str
        The record columns of the read: another column may have the name of one, as a field of a value.
    """
    known = frozenset(columns)
    found = {}
    for key in groups:
        box: Box | None = EVERYTHING
        for one in conditions:
            box = _both(box, _where(one, key, known, True))
        if box is not None:
            found[key] = box
    return found


def is_decided(condition: Condition, columns: Iterable[str]) -> bool:
    """Whether a condition is about topic and partition alone, so that it holds for all records of a partition or for none."""
    operator, *parts = condition
    if operator in ("AND", "OR", "NOT"):
        return all(is_decided(one, columns) for one in parts)
    return operator.startswith("ALWAYS_") or (operator in _TESTS and parts[0] in _NAMES and parts[0] in columns)


def is_useful(condition: Condition, columns: Iterable[str]) -> bool:
    """Whether a condition says anything about topics, partitions, offsets or times."""
    operator, *parts = condition
    if operator in ("AND", "OR", "NOT"):
        return any(is_useful(one, columns) for one in parts)
    return operator.startswith("ALWAYS_") or (operator != "?" and parts[0] in (_NAMES | _UNITS) and parts[0] in columns)


def _both(one: Box | None, other: Box | None) -> Box | None:
    found = None if one is None or other is None else one.and_(other)
    return None if found is None or found.is_empty else found


def _either(one: Box | None, other: Box | None) -> Box | None:
    return other if one is None else one if other is None else one.or_(other)


def _where(condition: Condition, key: Key, columns: frozenset[str], wanted: bool) -> Box | None:
    """Where in a partition a condition can be true, or false if that is ``wanted``; None for nowhere. Null is neither."""
    operator, *parts = condition
    if operator == "NOT":
        return _where(parts[0], key, columns, not wanted)
    if operator in ("AND", "OR"):
        found = [_where(one, key, columns, wanted) for one in parts]
        return reduce(_both if (operator == "AND") == wanted else _either, found)
    if operator.startswith("ALWAYS_"):
        return EVERYTHING if (operator == "ALWAYS_TRUE") == wanted else None
    if operator == "?" or parts[0] not in columns:
        return EVERYTHING
    if parts[0] in _NAMES and operator in _TESTS:
        return EVERYTHING if _TESTS[operator](key[_NAMES[parts[0]]], *parts[1:]) is wanted else None
    return _range(operator, parts[0], parts[1:], wanted) if parts[0] in _UNITS else EVERYTHING


def _range(operator: str, column: str, values: list[Any], wanted: bool) -> Box | None:
    """The range of a comparison of offsets or timestamps."""
    if operator == "IN" and wanted:
        low, high = "=", [one for one in values[0] if one is not None]
    else:
        low, high = (operator if wanted else _NEGATED.get(operator, "?")), values
    if low == "<=>" and values[0] is not None:
        low = "="
    if low not in _NEGATED or low == "<>":
        return EVERYTHING
    if not high or None in high:
        # Nothing is equal to null, nor less than it.
        return None
    found = _bounds(low, [int(one) for one in high], _UNITS[column])
    box = Box(*found) if column == "offset" else Box(None, None, *found)
    return None if box.is_empty else box


def _bounds(operator: str, values: list[int], unit: int) -> tuple[int | None, int | None]:
    """First and the one after the last, in units; None for no bound, and for one at the ends of the numbers."""
    low = stop = None
    if operator in (">", ">=", "="):
        low = min(values) // unit + (operator == ">" and unit == 1)
    if operator in ("<", "<=", "="):
        last = max(values)
        stop = last // unit + (not (operator == "<" and last % unit == 0))
    return (None if low is None or low <= 0 else min(low, _LAST)), (None if stop is None or stop > _LAST else max(stop, 0))


def _compared(test: Callable[[Any, Any], bool]) -> Callable[..., bool | None]:
    def found(own: Any, value: Any) -> bool | None:
        return None if own is None or value is None else test(_ordered(own), _ordered(value))

    return found


def _ordered(value: Any) -> Any:
    """Spark orders strings by their bytes."""
    return value.encode() if isinstance(value, str) else value


def _in(own: Any, values: list[Any]) -> bool | None:
    if own is None:
        return None
    return True if own in values else None if None in values else False


_TESTS: dict[str, Callable[..., bool | None]] = {
    "=": _compared(lambda own, value: own == value),
    "<>": _compared(lambda own, value: own != value),
    "<": _compared(lambda own, value: own < value),
    "<=": _compared(lambda own, value: own <= value),
    ">": _compared(lambda own, value: own > value),
    ">=": _compared(lambda own, value: own >= value),
    "<=>": lambda own, value: own == value,
    "IN": _in,
    "IS_NULL": lambda own: own is None,
    "IS_NOT_NULL": lambda own: own is not None,
    "STARTS_WITH": _compared(lambda own, value: own.startswith(value)),
    "ENDS_WITH": _compared(lambda own, value: own.endswith(value)),
    "CONTAINS": _compared(lambda own, value: value in own),
}


_WHOLE = ("avro", "protobuf", "fixed")
"""Formats whose values are valid or not as a whole. A JSON value is valid if its wanted members are: the optimizer must not decide that."""


def only_asked(options: LoadOptions, asked: StructType) -> LoadOptions:
    """The options of a scan with the record columns that it needs, and with the fields of typed ones.

    Parameters
    ----------
    options : LoadOptions
        With the types of its typed columns.
    asked : StructType
        The columns of the scan; with Spark's nested pruning a struct has some of its fields.
    """
    names, columns = set(asked.fieldNames()), options.decode.columns
    # Fields of a value may be columns of the scan.
    needed = options.only(tuple(one for one in columns if set(options.only((one,)).decode.schema.names) & names))
    whole = spark_schema(needed.decode.schema, needed.payload)
    return replace(needed, decode=replace(needed.decode, typed=tuple(_only(one, whole, asked) for one in needed.decode.typed)))


def _only(one: Typed, whole: StructType, asked: StructType) -> Typed:
    if one.kind not in _WHOLE or not pa.types.is_struct(one.type):
        return one
    kind = cast(pa.StructType, one.type)
    if one.flat:
        there, wanted = (StructType([field for field in some if kind.get_field_index(field.name) >= 0]) for some in (whole, asked))
    elif one.column in asked.fieldNames():
        there, wanted = (cast(StructType, some[one.column].dataType) for some in (whole, asked))
    else:
        return one
    names = tuple(_names(kind, wanted))
    # A dot in a name would be taken for a field of a struct.
    if not names or wanted == there or any("." in part for name in names for part in name):
        return one
    return replace(one, columns=tuple(".".join(name) for name in names))


def _names(kind: pa.DataType, wanted: DataType) -> Iterator[tuple[str, ...]]:
    """Paths of the fields that are wanted."""
    for field in cast(StructType, wanted):
        own, inner = kind.field(field.name).type, field.dataType
        if pa.types.is_list(own) and isinstance(inner, ArrayType):
            own, inner = own.value_type, inner.elementType
        if pa.types.is_struct(own) and isinstance(inner, StructType) and inner.fields:
            yield from ((field.name, *rest) for rest in _names(own, inner))
        else:
            yield (field.name,)
