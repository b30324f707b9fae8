"""Which fields of typed keys and values were lost, how often, and where first: for `kolumn.verify` and reports."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.schema import LOST_VALUES_SCHEMA
from kolumn.core.text import in_column
from kolumn.damage.findings import rows_table
from kolumn.options import Options
from kolumn.values.typed import Typed


class ValueLosses:
    """Counts of what batches lost. ``values`` are those that are there, by their column."""

    def __init__(self, typed: Sequence[Typed]) -> None:
        self.values = {owner.column: 0 for owner in typed}
        self._lost: dict[tuple[str, str], int] = {}
        self._first: dict[tuple[str, str], tuple[int | None, str]] = {}

    def asked(self, options: Options, typed: Sequence[Typed]) -> Options:
        """The options of a read with the columns that are needed too, and with payloads as they were stored; a value that is not valid is
        never an error.
        """
        own = [owner.column for owner in typed]
        columns = tuple(f"{name}Raw" if name in own else name for name in options.columns)
        names = [name for column in own for name in (f"{column}Valid", f"{column}Problems")]
        added = [name for name in ("offset", "segment", "isControl", *names) if name not in columns]
        strict = tuple(replace(owner, errors="null-field" if owner.errors == "raise" else owner.errors) for owner in typed)
        return replace(options, columns=(*columns, *added), typed=strict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count what the records of a batch lost; nothing is expected of control records."""
        there = [column for column in self.values if f"{column}Problems" in batch.schema.names]
        if not there:
            return
        if batch["isControl"].true_count:
            batch = batch.filter(pc.invert(batch["isControl"]))
        for column in there:
            problems = batch[f"{column}Problems"]
            self.values[column] += batch[f"{column}Valid"].true_count + len(problems) - problems.null_count
            if problems.null_count < len(problems):
                self._add(column, batch, problems)

    def _add(self, column: str, batch: pa.RecordBatch, problems: pa.ListArray) -> None:
        rows, paths = pc.list_parent_indices(problems), pc.list_flatten(problems)
        for entry in paths.value_counts().to_pylist():
            key = column, entry["values"]
            self._lost[key] = self._lost.get(key, 0) + entry["counts"]
            if key not in self._first:
                row = rows[pc.index(paths, entry["values"]).as_py()].as_py()
                self._first[key] = batch["offset"][row].as_py(), batch["segment"][row].as_py()

    def table(self) -> pa.Table:
        """Columns of `kolumn.schema.LOST_VALUES_SCHEMA`, keys after values, and what was lost most often first."""
        ordered = sorted(self._lost.items(), key=lambda item: (item[0][0] == "key", -item[1], item[0]))
        rows = (
            (column, path, count, self.values[column], self._first[column, path][0], in_column(self._first[column, path][1]))
            for (column, path), count in ordered
        )
        return rows_table(rows, LOST_VALUES_SCHEMA)
