"""Topics as tables of DuckDB."""

import re
from collections.abc import Iterator

import pyarrow as pa

from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, MissingPackageError, shown
from kolumn.decode.pipeline import OnDamage
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.readers.polars import lazy_frame
from kolumn.readers.row_source import FrameSource
from kolumn.source.storage import parent

_REFUSED = re.compile(
    r"disabled (by|through) configuration|configuration has been locked|Table with name \S*[./]\S* does not exist", re.IGNORECASE
)
"""Errors of DuckDB about files, extensions and settings; the name of a file in place of a table is no table."""
_NO_NAME = "records"
"""Table of segments whose directory names no topic."""


class Topics:
    """A view of DuckDB for each topic of a source, in a connection of its own.

    Views read the columns and the ranges that a query needs, as `kolumn.scan_polars` does, and read the source anew each time.

    Parameters
    ----------
    source, options, on_damage
        As in `kolumn.scan`.
    allow_files : bool
        Whether queries may use all of DuckDB: read and write files, load extensions, use the network. Otherwise they see the views alone.

    Attributes
    ----------
    names : list of str
        The views.

    Raises
    ------
    MissingError
        DuckDB or Polars is not installed.
    """

    def __init__(self, source: keywords.Source, options: Options, on_damage: OnDamage | None = None, allow_files: bool = False) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingPackageError("SQL needs DuckDB: pip install 'kolumn[sql]'") from error
        folders: dict[str, dict[str, None]] = {}
        for segment in live_segments(source, options).segments:
            name = _NO_NAME if segment.topic is None else shown(segment.topic)
            folders.setdefault(name, {})[segment.path if segment.topic is None else parent(segment.path)] = None
        self.names = list(folders)
        self._sources = {name: FrameSource(list(paths), options, on_damage, "binary") for name, paths in folders.items()}
        self._errors = duckdb.Error
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for name, found in self._sources.items():
            self._connection.register(name, lazy_frame(found))
        # Otherwise a name in a query that is no table is looked for among the variables of this program.
        self._connection.execute("SET python_enable_replacements = false")
        if not allow_files:
            self._connection.execute("SET enable_external_access = false")
            self._connection.execute("SET lock_configuration = true")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, query: str) -> Iterator[pa.RecordBatch]:
        """The rows that answer a query, one batch at a time; the first batch may have no rows, and has the columns.

        Raises
        ------
        ArgumentError
            The query is wrong, or a value does not fit it.
        KolumnError
            A read failed, as in `kolumn.scan`.
        """
        try:
            found = self._connection.sql(query)
            if found is None:
                raise ArgumentError("expected a query that returns rows, such as select")
            reader = pa.RecordBatchReader.from_stream(found)
            yield pa.RecordBatch.from_pylist([], reader.schema)
            yield from reader
        except (self._errors, pa.ArrowException, OSError, RuntimeError, ValueError) as error:
            failed = next((one.failed for one in self._sources.values() if one.failed is not None), None)
            raise (failed or ArgumentError(*self._said(error))).with_traceback(None) from None

    def _said(self, error: Exception) -> list[str]:
        text = re.sub(r"\n+", "\n", str(error)).strip()
        hint = ["a query sees topics alone, no files, network or settings; allow_files=True allows them"] if _REFUSED.search(text) else []
        return [*text.split("\n"), *hint, f"tables: {', '.join(self.names)}"]
