"""What shells complete after an option: its allowed values, and names of columns."""

from collections.abc import Callable
from typing import Literal, get_args, get_origin


def among(kind: object) -> Callable[[str], list[str]] | None:
    """Completes the values of a type; None if it has no list of values."""
    known = [value for one in (kind, *get_args(kind)) if get_origin(one) is Literal for value in get_args(one)]
    return (lambda incomplete: [value for value in known if value.startswith(incomplete)]) if known else None


def column_names(incomplete: str) -> list[str]:
    """Completes the last one of comma-separated record columns."""
    from kolumn.core.schema import RECORD_COLUMNS

    before, comma, begun = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{name}" for name in RECORD_COLUMNS if name.startswith(begun) and name not in given]
