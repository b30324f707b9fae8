"""Consumer groups of a source that has `__consumer_offsets`: how far each is, and what it has not read yet."""

from dataclasses import dataclass, field
from typing import Any

from kolumn import keywords
from kolumn.errors import KolumnError
from kolumn.internal_topics.groups import TOPIC, groups

__all__ = ["TOPIC", "Lag", "lag_of"]


@dataclass
class Lag:
    """Rows of `kolumn.groups` with a committed offset, most behind first; ``failed`` says why there are none."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""

    def by_group(self) -> dict[str, int]:
        """Records that each group has not read, in the logs that are there; the largest number first."""
        found: dict[str, int] = {}
        for row in self.rows:
            found[row["group"]] = found.get(row["group"], 0) + (row["lag"] or 0)
        return dict(sorted(found.items(), key=lambda one: -one[1]))


def lag_of(source: keywords.Source) -> Lag:
    """The groups of a source; their damage is reported with that of the topic's records."""
    try:
        rows = groups(source, errors="skip").to_pylist()
    except KolumnError as error:
        return Lag(failed=str(error))
    rows = [row for row in rows if row["committedOffset"] is not None]
    return Lag(sorted(rows, key=lambda row: -(row["lag"] or 0)))
