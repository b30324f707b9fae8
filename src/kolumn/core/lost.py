"""What was lost of typed keys and values, counted."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from kolumn.core.results import counted

WHOLE = "$"  # The path of a value as a whole.
ELEMENTS = f"{WHOLE}[]"  # The path of elements of a value that is itself a list or a map.
TOLD = 8  # Fields that an error or a warning names.


@dataclass
class LostValues:
    """What was lost of values. ``values`` counts those with a loss by their column; ``fields`` losses by column and dotted path of a field,
    "$" for the value as a whole.
    """

    values: Counter[str] = field(default_factory=Counter)
    fields: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, column: str, problems: pa.Array) -> None:
        """Count the rows of a column of problems; one of type null has none."""
        if pa.types.is_null(problems.type) or problems.null_count == len(problems):
            return
        self.values[column] += len(problems) - problems.null_count
        for entry in problems.flatten().value_counts().to_pylist():
            self.fields[column, entry["values"]] += entry["counts"]

    @property
    def fields_lost(self) -> int:
        """Lost fields of values that are not lost as a whole."""
        return sum(count for (_, path), count in self.fields.items() if path != WHOLE)

    @property
    def said(self) -> str:
        """A line that says what was lost, and where to look; "" if nothing was."""
        where = " and ".join(f"{column}Problems" for column in sorted(self.values))
        return f"{self}: see the column{'s' if len(self.values) > 1 else ''} {where}" if where else ""

    def update(self, other: "LostValues") -> None:
        self.values.update(other.values)
        self.fields.update(other.fields)

    def __str__(self) -> str:
        return "; ".join(text for column, count in self.values.items() for text in self._of(column, count))

    def _of(self, column: str, count: int) -> Iterator[str]:
        """What became of the values of a column that were lost as a whole, and of the others."""
        whole = self.fields[column, WHOLE]
        if whole:
            yield f"{counted(whole, column)} could not be decoded"
        found = [(path, number) for (owner, path), number in self.fields.most_common() if owner == column and path != WHOLE]
        if found:
            more = f" and {len(found) - TOLD} other fields" if len(found) > TOLD else ""
            told = ", ".join(f"{path} ({number})" for path, number in found[:TOLD])
            yield f"{counted(count - whole, column)} lost {told}{more}"
