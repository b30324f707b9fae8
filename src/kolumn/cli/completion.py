"""What shells complete after an option: its allowed values, and names of columns."""

from collections.abc import Callable
from typing import get_args


def among(name: str) -> Callable[[str], list[str]]:
    """Completes the values of a type in `kolumn.keywords`."""

    def values(incomplete: str) -> list[str]:
        # The module imports Arrow, which no command needs that only prints its help.
        from kolumn import keywords

        return [value for value in get_args(getattr(keywords, name)) if value.startswith(incomplete)]

    return values


def column_names(incomplete: str) -> list[str]:
    """Completes the last one of comma-separated record columns."""
    from kolumn.schema import RECORD_COLUMNS

    before, comma, begun = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{name}" for name in RECORD_COLUMNS if name.startswith(begun) and name not in given]
