"""`scan_polars`: a source of Polars, with columns, predicates and numbers of rows pushed down.

Which ranges of offsets and times a predicate of Polars lets through.

Polars has no interface to the parts of an expression but its serialised form, which other versions may write in another way. What is
not understood here restricts nothing: Polars applies the whole predicate to what is read.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from kolumn.core import keywords
from kolumn.core.buffers import without_wide_decimals
from kolumn.core.errors import MissingPackageError
from kolumn.core.keywords import known_keywords
from kolumn.decode.pipeline import OnDamage
from kolumn.options import Options
from kolumn.readers.row_source import Bounds, FrameSource

if TYPE_CHECKING:
    import polars as pl


_UNITS = {"Nanoseconds": 1_000_000, "Microseconds": 1000, "Milliseconds": 1}
"""How many of them are a millisecond."""
_MIRRORED = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_CLOSED = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}


def bounds_of(predicate: "pl.Expr") -> Bounds:
    """Bounds of all records that a predicate may let through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = json.loads(predicate.meta.serialize(format="json"))
        except Exception:
            return Bounds()
    return _of(tree)


def _of(tree: dict[str, Any]) -> Bounds:
    try:
        return _understood(tree)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return Bounds()


def _understood(tree: dict[str, Any]) -> Bounds:
    if "BinaryExpr" in tree:
        one = tree["BinaryExpr"]
        left, operation, right = one["left"], one["op"], one["right"]
        if operation in ("And", "LogicalAnd"):
            return _of(left).within(_of(right))
        if operation in _MIRRORED:
            if "Column" in left:
                return _compared(left["Column"], operation, _literal(right))
            if "Column" in right:
                return _compared(right["Column"], _MIRRORED[operation], _literal(left))
    if "Function" in tree:
        inputs, function = tree["Function"]["input"], tree["Function"]["function"].get("Boolean")
        if isinstance(function, dict) and "Column" in inputs[0]:
            name = inputs[0]["Column"]
            if "IsBetween" in function:
                lower, upper = _CLOSED[function["IsBetween"]["closed"]]
                return _compared(name, lower, _literal(inputs[1])).within(_compared(name, upper, _literal(inputs[2])))
            if "IsIn" in function:
                return _among(name, _values(inputs[1]))
    return Bounds()


class _Time:
    """A moment as a number of units of which so many are a millisecond."""

    def __init__(self, number: int, unit: str) -> None:
        self._number, self._per_ms = number, _UNITS[unit]

    @property
    def from_ms(self) -> int:
        """The first millisecond that is not before the moment."""
        return -(-self._number // self._per_ms)

    @property
    def to_ms(self) -> int:
        """The first millisecond that is after the moment."""
        return self._number // self._per_ms + 1


def _literal(tree: dict[str, Any]) -> object:
    ((kind, value),) = tree["Literal"].items()
    if kind == "Scalar":
        ((kind, value),) = value.items()
        if kind == "Datetime":
            return _Time(value[0], value[1])
    elif kind == "Dyn":
        ((kind, value),) = value.items()
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    raise ValueError(kind)


def _values(tree: dict[str, Any]) -> list[Any]:
    import polars as pl

    found = pl.read_ipc_stream(BytesIO(bytes(tree["Literal"]["Scalar"]["List"])))
    return found.to_series(0).explode().to_list() if found.dtypes[0].is_nested() else found.to_series(0).to_list()


def _compared(name: str, operation: str, value: object) -> Bounds:
    return _KNOWN[name](operation, value) if name in _KNOWN else Bounds()


def _offset(operation: str, value: object) -> Bounds:
    if not isinstance(value, int):
        return Bounds()
    start = {"Eq": value, "GtEq": value, "Gt": value + 1}.get(operation)
    return Bounds(start_offset=start, end_offset={"Eq": value + 1, "LtEq": value + 1, "Lt": value}.get(operation))


def _timestamp(operation: str, value: object) -> Bounds:
    if not isinstance(value, _Time):
        return Bounds()
    start = {"Eq": value.from_ms, "GtEq": value.from_ms, "Gt": value.to_ms}.get(operation)
    return Bounds(start_ms=start, end_ms={"Eq": value.to_ms, "LtEq": value.to_ms, "Lt": value.from_ms}.get(operation))


def _topic(operation: str, value: object) -> Bounds:
    return Bounds(topics=frozenset([value])) if operation == "Eq" else Bounds()


def _partition(operation: str, value: object) -> Bounds:
    return Bounds(partitions=frozenset([value])) if operation == "Eq" else Bounds()


_KNOWN: dict[str, Callable[[str, object], Bounds]] = {
    "offset": _offset, "timestamp": _timestamp, "topic": _topic, "partition": _partition,
}  # fmt: skip


def _among(name: str, values: list[Any]) -> Bounds:
    known = frozenset(value for value in values if value is not None)
    if name == "topic":
        return Bounds(topics=known)
    if name == "partition":
        return Bounds(partitions=known)
    if name == "offset" and known:
        return Bounds(start_offset=min(known), end_offset=max(known) + 1)
    return Bounds()


@known_keywords()
def scan_polars(
    source: keywords.Source,
    *,
    on_damage: OnDamage | None = None,
    payload: keywords.Payload = "binary",
    **options: Unpack[keywords.ReadOptions],
) -> "pl.LazyFrame":
    """The records of Kafka log segments as a LazyFrame of Polars; parameters, columns and errors as `scan`.

    A query reads the columns that it names, and of predicates on ``offset``, ``timestamp``, ``topic`` and ``partition`` only the range of
    offsets, times and directories that they let through; Polars applies the predicate itself to what is read. ``head(n)`` reads the
    first chunks alone. Every ``collect`` reads the source anew; with the streaming engine in bounded memory.

    Returns
    -------
    polars.LazyFrame
        Its schema is known at once, from the directories and, for typed values, their schemas. Decimals of more than 38 digits, which
        Polars does not have, are text.

    Raises
    ------
    MissingError
        Polars is not installed.
    """
    return lazy_frame(FrameSource(source, Options.of(**options), on_damage, payload))


def lazy_frame(source: FrameSource) -> "pl.LazyFrame":
    """A LazyFrame over a source."""
    try:
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise MissingPackageError("this needs Polars: pip install 'kolumn[polars]'") from error

    def frames(
        columns: list[str] | None, predicate: "pl.Expr | None", rows: int | None, batch_rows: int | None
    ) -> "Iterator[pl.DataFrame]":
        # A number of rows counts rows before the predicate is applied, so that the predicate must not hold back any.
        bounds = Bounds() if predicate is None or rows is not None else bounds_of(predicate)
        wanted = None if columns is None else list(dict.fromkeys([*columns, *(() if predicate is None else predicate.meta.root_names())]))
        left = rows
        for batch in source.read(wanted, bounds, rows):
            frame = _frame(batch if left is None else batch.slice(0, left))
            if left is not None:
                left -= len(frame)
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if columns is None else frame.select(columns)
            if left == 0:
                return

    schema = _frame(pa.RecordBatch.from_pylist([], source.schema)).schema
    return register_io_source(frames, schema=schema, explain_name="kolumn")


def _frame(batch: pa.RecordBatch) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame(pl.from_arrow(pa.Table.from_batches([without_wide_decimals(batch)])))
