"""What `kolumn.append` and the engines' adapters, `kolumn.tools.iceberg` and `kolumn.tools.delta`, say to each other.

Both adapters have the same methods and attributes:

    prepare   opens the table with what others have committed, or makes it; `ArgumentError` if it can't have the schema
    state     the state as of `prepare`; None if the table has none
    has_rows  whether the table has rows, of whomever
    open      a stream for a file at a URL, by its path below the table's folder
    commit    adds files and the state to the table as of `prepare`: `OvertakenError` if another commit is in the way
    has_run   whether the table as of now may have files of a run
    in_names  columns that data files do not have, because the commit says their values
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import get_args

from kolumn.core.errors import KolumnError
from kolumn.core.keywords import IsolationLevel

STATE, RUN = "kolumn.offsets", "kolumn.run"
"""Names under which a commit has the state, and the run that made it."""
Key = tuple[str, int]


def settings_of(isolation_level: str, include_control: bool) -> str:
    """The options that choose rows, as a table keeps them."""
    return f"isolation_level={isolation_level}, include_control={include_control}"


def for_people(settings: str) -> str:
    """Settings with what a message about them has to say."""
    return settings.replace(", include_control=False", "")


EVERY_SETTING = [settings_of(*own) for own in product(get_args(IsolationLevel), (False, True))]
"""Delta tables keep a number for the settings."""


class OvertakenError(KolumnError):
    """Somebody else has committed meanwhile, and this commit is not in the table."""


@dataclass(frozen=True)
class TableState:
    """What a table knows: the next offset of each topic-partition, ids of topics, and by which options its rows were chosen."""

    next: Mapping[Key, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""


@dataclass(frozen=True)
class DataFile:
    """A complete file: its path below the table's folder, and what is in it. ``times`` are the earliest and the latest timestamp, in us."""

    path: str
    topic: str
    partition: int
    size: int
    rows: int
    first: int
    last: int
    times: tuple[int, int] | None
