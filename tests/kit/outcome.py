"""The result of a read: a table or an error."""

from typing import Any

import kolumn
from kolumn.core.schema import RECORD_COLUMNS

COLUMNS = [name for name in RECORD_COLUMNS if name != "transaction"]
"""Every column that can be read from one segment alone."""


def outcome(path: Any, **options: Any) -> Any:
    """The table, or the error as text."""
    try:
        return kolumn.read(path, **options).combine_chunks()
    except kolumn.KolumnError as error:
        return f"{type(error).__name__}: {error}"
