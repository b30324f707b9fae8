"""What `kolumn.append` and the engines' adapters, `kolumn.tools.iceberg` and `kolumn.tools.delta`, say to each other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyarrow import fs

from kolumn.core.errors import KolumnError

STATE, RUN = "kolumn.offsets", "kolumn.run"
"""Names under which a commit has the state, and the run that made it."""
Key = tuple[str, int]


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


class TableTarget(Protocol):
    """A table of one of the engines. ``in_names`` are columns that its data files do not have, because the commit says their values."""

    name: str
    files: fs.FileSystem
    root: str
    by_day: bool
    in_names: tuple[str, ...]

    def prepare(self, schema: pa.Schema, make_by_day: bool) -> None:
        """Open the table with what others have committed; make it if there is none. Raises `ArgumentError` if it can't have the schema."""

    def state(self, keys: Iterable[Key], ids: Mapping[str, str], settings: str) -> TableState | None:
        """The state as of `prepare`; None if the table has none."""

    def has_rows(self) -> bool:
        """Whether the table has rows, of whomever."""

    def commit(self, added: list[DataFile], state: TableState, notes: Mapping[str, str]) -> None:
        """Add files and the state to the table as of `prepare`.

        Raises `OvertakenError` if another commit is in the way, and `ArgumentError` if it can't have the files, before anything is sent.
        """

    def has_run(self, run: str) -> bool:
        """Whether the table as of now, or an older version of it that can still be read, may have files of a run."""
