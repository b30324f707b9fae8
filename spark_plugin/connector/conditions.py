"""Conditions of a query as choices of topic partitions, and as ranges of offsets and times within them.

A condition is a tree of lists, as the connector makes it of Spark's predicates: ``["AND", a, b]``, ``["NOT", a]``, ``[">=", "offset", 5]``,
``["IN", "topic", ["a", None]]``, ``["IS_NULL", "topic"]``, and ``["?"]`` for what it does not know. Timestamps are microseconds since 1970.
Topic and partition of all records of a partition are the same, so conditions on these two alone are decided here; of all others Spark
compares each row again, and wider is right. `only_asked` is what a scan decodes: the columns that Spark asked for, and their fields where
validity does not depend on which.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

from kolumn.spark_plugin.read.options import Key, LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.values.typed import Typed

Condition = list[Any]
_UNITS = {"offset": 1, "timestamp": 1000}
NAMES = {"topic": 0, "partition": 1}
_LAST = 2**63 - 1
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


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
        pairs = [[bound for bound in pair if bound is not None] for pair in zip(self, other, strict=True)]
        return Box(*(most(pair, default=None) for most, pair in zip((max, min, max, min), pairs, strict=True)))

    def or_(self, other: "Box") -> "Box":
        """The smallest that contains both."""
        pairs = zip((min, max, min, max), self, other, strict=True)
        return Box(*(None if a is None or b is None else most(a, b) for most, a, b in pairs))


EVERYTHING = Box()


def boxes(conditions: Iterable[Condition], groups: Mapping[Key, object], columns: Iterable[str]) -> dict[Key, Box]:
    """The topic partitions that conditions leave, and where in them. All of the conditions hold for a row that is wanted.

    ``columns`` are the record columns of the read: another column may have the name of one, as a field of a value.
    """
    known = frozenset(columns)
    found = {key: _where(["AND", ["ALWAYS_TRUE"], *conditions], key, known, True) for key in groups}
    return {key: box for key, box in found.items() if box is not None}


def is_decided(condition: Condition, columns: Iterable[str]) -> bool:
    """Whether a condition is about topic and partition alone, so that it holds for all records of a partition or for none."""
    operator, *parts = condition
    if operator in ("AND", "OR", "NOT"):
        return all(is_decided(part, columns) for part in parts)
    return operator.startswith("ALWAYS_") or (operator in _TESTS and parts[0] in NAMES and parts[0] in columns)


def is_useful(condition: Condition, columns: Iterable[str]) -> bool:
    """Whether a condition says anything about topics, partitions, offsets or times."""
    operator, *parts = condition
    if operator in ("AND", "OR", "NOT"):
        return any(is_useful(part, columns) for part in parts)
    return operator.startswith("ALWAYS_") or (operator != "?" and parts[0] in (NAMES | _UNITS) and parts[0] in columns)


def _both(a: Box | None, b: Box | None) -> Box | None:
    box = None if a is None or b is None else a.and_(b)
    return None if box is None or box.is_empty else box


def _either(a: Box | None, b: Box | None) -> Box | None:
    return b if a is None else a if b is None else a.or_(b)


def _where(condition: Condition, key: Key, columns: frozenset[str], wanted: bool) -> Box | None:
    """The records of a partition for which a condition can be ``wanted``, true or false; None for none. A null result is neither."""
    operator, *parts = condition
    if operator == "NOT":
        return _where(parts[0], key, columns, not wanted)
    if operator in ("AND", "OR"):
        return reduce(_both if (operator == "AND") == wanted else _either, (_where(part, key, columns, wanted) for part in parts))
    if operator.startswith("ALWAYS_"):
        return EVERYTHING if (operator == "ALWAYS_TRUE") == wanted else None
    if operator == "?" or parts[0] not in columns:
        return EVERYTHING
    if parts[0] in NAMES and operator in _TESTS:
        return EVERYTHING if _TESTS[operator](key[NAMES[parts[0]]], *parts[1:]) is wanted else None
    return _range(operator, parts[0], parts[1:], wanted) if parts[0] in _UNITS else EVERYTHING


def _range(operator: str, column: str, values: list[Any], wanted: bool) -> Box | None:
    """The range of a comparison of offsets or timestamps."""
    if operator == "IN" and wanted:
        operator, values = "=", [value for value in values[0] if value is not None]
    elif not wanted:
        operator = _NEGATED.get(operator, "?")
    if operator == "<=>" and values[0] is not None:
        operator = "="
    if operator not in _NEGATED or operator == "<>":
        return EVERYTHING
    if not values or None in values:
        # Nothing is equal to null, nor less than it.
        return None
    bounds = _bounds(operator, [int(value) for value in values], _UNITS[column])
    box = Box(*bounds) if column == "offset" else Box(None, None, *bounds)
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
    def compared(*values: Any) -> bool | None:
        # Spark orders strings by their bytes.
        own, value = (value.encode() if isinstance(value, str) else value for value in values)
        return None if own is None or value is None else test(own, value)

    return compared


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
    """The options of a scan, with types, with the record columns that it needs, and with the fields of typed ones.

    ``asked`` are the columns of the scan; with Spark's nested pruning a struct has some of its fields.
    """
    names, columns = set(asked.fieldNames()), options.decode.columns
    # Fields of a value may be columns of the scan.
    needed = options.only(tuple(column for column in columns if set(options.only((column,)).decode.schema.names) & names))
    whole = spark_schema(needed.decode.schema, needed.payload)
    return replace(needed, decode=replace(needed.decode, typed=tuple(_only(typed, whole, asked) for typed in needed.decode.typed)))


def _only(typed: Typed, whole: StructType, asked: StructType) -> Typed:
    if typed.kind not in _WHOLE or not pa.types.is_struct(typed.type):
        return typed
    own = cast(pa.StructType, typed.type)
    if typed.flat:
        there, wanted = (StructType([field for field in some if own.get_field_index(field.name) >= 0]) for some in (whole, asked))
    elif typed.column in asked.fieldNames():
        there, wanted = (cast(StructType, some[typed.column].dataType) for some in (whole, asked))
    else:
        return typed
    names = tuple(_names(own, wanted))
    # A dot in a name would be taken for a field of a struct.
    if not names or wanted == there or any("." in part for name in names for part in name):
        return typed
    return replace(typed, columns=tuple(".".join(name) for name in names))


def _names(type_: pa.DataType, wanted: DataType) -> Iterator[tuple[str, ...]]:
    """Paths of the fields that are wanted."""
    for field in cast(StructType, wanted):
        own, inner = type_.field(field.name).type, field.dataType
        if pa.types.is_list(own) and isinstance(inner, ArrayType):
            own, inner = own.value_type, inner.elementType
        if pa.types.is_struct(own) and isinstance(inner, StructType) and inner.fields:
            yield from ((field.name, *rest) for rest in _names(own, inner))
        else:
            yield (field.name,)
