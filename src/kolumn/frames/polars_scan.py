"""`scan_polars`: a source of Polars, with columns, predicates and numbers of rows pushed down."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from kolumn import keywords
from kolumn.arrow.wide_decimals import without_wide_decimals
from kolumn.decode.pipeline import OnDamage
from kolumn.errors import MissingPackageError
from kolumn.frames.predicates import bounds_of
from kolumn.frames.source import Bounds, FrameSource
from kolumn.keywords import known_keywords
from kolumn.options import Options

if TYPE_CHECKING:
    import polars as pl


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
