"""`scan_polars`: a source of Polars, with columns, predicates and numbers of rows pushed down; and topics as tables of DuckDB.

Polars has no interface to the parts of an expression but its serialised form, which other versions may write in another way. What is
not understood of a predicate restricts nothing: Polars applies the whole predicate to what is read.
"""

import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from kolumn.backend import require
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, KolumnError, shown, unknown
from kolumn.core.keywords import known_keywords
from kolumn.core.packages import missing_package
from kolumn.core.schema import DEFAULT_COLUMNS, RECORD_COLUMNS
from kolumn.core.text import NAMED_BY, as_strings, check_payload, strings_of
from kolumn.damage.findings import OnDamage
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.readers.plan import live_segments, plan_of, plan_read
from kolumn.readers.topics import plan_topics
from kolumn.source.segments import Segment, in_memory, named_parts
from kolumn.source.storage import parent
from kolumn.values.narrowing import Narrowed, narrowed_schema, say_narrowed
from kolumn.values.typed import payload_names

if TYPE_CHECKING:
    import polars as pl

_UNITS = {"Nanoseconds": 1_000_000, "Microseconds": 1000, "Milliseconds": 1}
"""How many of them are a millisecond."""
_MIRRORED = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_CLOSED = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}
_HINTS = [
    # The name of a file in place of a table is no table.
    (
        re.compile(r"disabled (by|through) configuration|configuration has been locked|Table with name \S*[./]\S* does not exist", re.I),
        "a query can read only the topics; allow_files=True lifts this",
    ),
    (
        re.compile(r'"+(value|key)"+(\.\*"*)? because it is not a struct'),
        r"\1 is bytes: \1_format makes it a struct, such as \1_format='json' or \1_format='registry'",
    ),
    (re.compile(r'syntax error at or near "(offset)"', re.I), r'\1 is a keyword of SQL: write "\1"'),
    (
        re.compile(rf'column "({"|".join(name for name in RECORD_COLUMNS if name not in DEFAULT_COLUMNS)})" not found'),
        r"\1 is not among the columns of the tables: name all that the query needs, such as columns='offset,\1'",
    ),
    (re.compile(r"No function matches.*\(.*BLOB"), "keys and values are bytes: decode(key) is text"),
]
"""Errors of DuckDB, and what to do about them."""
_UNNAMED = "'a topic is a table where the query has its name as it is'"
"""What the view of a topic says that is not opened: a query may put names together."""
_NO_NAME = "records"
"""Table of segments whose directory names no topic."""


@dataclass(frozen=True)
class Bounds:
    """Ranges outside of which no record is wanted, start <= offset or timestamp (ms) < end; None is no limit."""

    start_offset: int | None = None
    end_offset: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    topics: frozenset[object] | None = None
    partitions: frozenset[object] | None = None

    def within(self, other: "Bounds") -> "Bounds":
        """The records that both let through."""
        bounds: dict[str, Any] = {}
        for name, own in vars(self).items():
            its = getattr(other, name)
            if own is None or its is None:
                bounds[name] = its if own is None else own
            else:
                bounds[name] = max(own, its) if name.startswith("start") else min(own, its) if name.startswith("end") else own & its
        return Bounds(**bounds)

    def has(self, segment: Segment) -> bool:
        """Whether a segment may have wanted records, by its topic and partition."""
        return (self.topics is None or segment.topic in self.topics) and (self.partitions is None or segment.partition in self.partitions)


def bounds_of(predicate: "pl.Expr") -> Bounds:
    """Bounds of all records that a predicate may let through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = json.loads(predicate.meta.serialize(format="json"))
        except Exception:
            return Bounds()
    return _of(tree)


def _of(tree: dict[str, Any]) -> Bounds:
    try:
        return _understood(tree)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return Bounds()


def _understood(tree: dict[str, Any]) -> Bounds:
    if "BinaryExpr" in tree:
        left, operation, right = (tree["BinaryExpr"][part] for part in ("left", "op", "right"))
        if operation in ("And", "LogicalAnd"):
            return _of(left).within(_of(right))
        if operation in _MIRRORED and "Column" in left:
            return _compared(left["Column"], operation, _literal(right))
        if operation in _MIRRORED and "Column" in right:
            return _compared(right["Column"], _MIRRORED[operation], _literal(left))
    if "Function" in tree:
        inputs, function = tree["Function"]["input"], tree["Function"]["function"].get("Boolean")
        if isinstance(function, dict) and "Column" in inputs[0]:
            name = inputs[0]["Column"]
            if "IsBetween" in function:
                lower, upper = _CLOSED[function["IsBetween"]["closed"]]
                return _compared(name, lower, _literal(inputs[1])).within(_compared(name, upper, _literal(inputs[2])))
            if "IsIn" in function:
                return _among(name, _values(inputs[1]))
    return Bounds()


class _Time:
    """A moment as the first millisecond that is not before it, and the first one that is after it."""

    def __init__(self, number: int, unit: str) -> None:
        per_ms = _UNITS[unit]
        self.from_ms, self.to_ms = -(-number // per_ms), number // per_ms + 1


def _literal(tree: dict[str, Any]) -> object:
    ((kind, value),) = tree["Literal"].items()
    if kind == "Scalar":
        ((kind, value),) = value.items()
        if kind == "Datetime":
            return _Time(value[0], value[1])
    elif kind == "Dyn":
        ((kind, value),) = value.items()
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    raise ValueError(kind)


def _values(tree: dict[str, Any]) -> list[Any]:
    import polars as pl

    frame = pl.read_ipc_stream(BytesIO(bytes(tree["Literal"]["Scalar"]["List"])))
    column = frame.to_series(0)
    return column.explode().to_list() if frame.dtypes[0].is_nested() else column.to_list()


def _compared(name: str, operation: str, value: object) -> Bounds:
    if name == "offset" and isinstance(value, int):
        start = {"Eq": value, "GtEq": value, "Gt": value + 1}.get(operation)
        return Bounds(start_offset=start, end_offset={"Eq": value + 1, "LtEq": value + 1, "Lt": value}.get(operation))
    if name == "timestamp" and isinstance(value, _Time):
        start = {"Eq": value.from_ms, "GtEq": value.from_ms, "Gt": value.to_ms}.get(operation)
        return Bounds(start_ms=start, end_ms={"Eq": value.to_ms, "LtEq": value.to_ms, "Lt": value.from_ms}.get(operation))
    return _among(name, [value]) if operation == "Eq" and name in ("topic", "partition") else Bounds()


def _among(name: str, values: list[Any]) -> Bounds:
    known = frozenset(value for value in values if value is not None)
    if name == "topic":
        return Bounds(topics=known)
    if name == "partition":
        return Bounds(partitions=known)
    if name == "offset" and known:
        return Bounds(start_offset=min(known), end_offset=max(known) + 1)
    return Bounds()


class FrameSource:
    """A source with the options of a read, checked: it can be read again and again, each time with other columns and ranges.

    ``schema`` has the columns and types; ``failed`` is the last error of a read, of which libraries that call the read pass on the text
    alone. Errors as `kolumn.scan`. The source may be a topic of ``several``, a larger source: a type that it does not have is no error.
    """

    def __init__(
        self, source: keywords.Source, options: Options, on_damage: OnDamage | None, payload: str, several: keywords.Source | None = None
    ) -> None:
        check_payload(payload)
        require(options.backend)
        self._source = _lasting(source)
        self._on_damage, self._payload = on_damage, payload
        plan = plan_read(self._source, options) if several is None else plan_topics(self._source, options, True, several)[0]
        self._options = plan.options
        self.schema = self._schema_of(self._options)
        self.failed: KolumnError | None = None
        self._said = False

    def read(self, columns: list[str] | None, bounds: Bounds, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """The records within some bounds, at least these columns of them; the first ``rows`` alone, for which few bytes are read.

        Memory is bounded as by `kolumn.scan`. Segments are looked for again, so that a second read finds what was appended.
        """
        options = self._narrowed(self._options, columns, bounds).for_rows(rows)
        live = live_segments(self._source, self._options)
        live = replace(live, segments=[segment for segment in live.segments if bounds.has(segment)])
        if not live.segments:
            return
        narrowed = Narrowed(self._schema_of(options), in_polars=True)
        if not self._said:
            self._said = True
            say_narrowed(options.schema, "Polars")
        try:
            asked = options if self._payload == "binary" else options.with_added(NAMED_BY)
            batches = scan_ranges(plan_of(live, options).ranges, asked, self._on_damage, limit=rows)
            yield from map(narrowed.batch, batches if self._payload == "binary" else strings_of(batches, self._strings_of(options)))
        except KolumnError as error:
            # Its frames would keep the objects of the library that called.
            self.failed = error.with_traceback(None)
            raise
        finally:
            narrowed.say()

    def _schema_of(self, options: Options) -> pa.Schema:
        return narrowed_schema(self._strings_of(options), "Polars")

    def _strings_of(self, options: Options) -> pa.Schema:
        schema = options.schema
        return schema if self._payload == "binary" else as_strings(schema, payload_names(options.columns, options.typed))

    @staticmethod
    def _narrowed(options: Options, columns: list[str] | None, bounds: Bounds) -> Options:
        asked = Bounds(options.start_offset, options.end_offset, options.start_timestamp, options.end_timestamp).within(bounds)
        offsets, times = (asked.start_offset, asked.end_offset), (asked.start_ms, asked.end_ms)
        narrow = replace(options, start_offset=offsets[0], end_offset=offsets[1], start_timestamp=times[0], end_timestamp=times[1])
        if columns is None:
            return narrow
        try:
            return narrow.with_columns(columns or ["offset"])
        except ArgumentError:
            # Fields of typed values that are columns by themselves cannot be named in a read.
            return narrow


@known_keywords({"limit": "option 'limit': the frame has it: scan_polars(…).head(n) reads the first records alone"})
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
        Its schema is known at once, from the directories and, for typed values, their schemas. Types that Polars does not have are
        narrowed, which one line of the log says: decimals of more than 38 digits, JSON and UUIDs are text.

    Raises
    ------
    MissingError
        Polars is not installed.
    """
    return _lazy_frame(FrameSource(source, Options.of(**options), on_damage, payload))


def _lazy_frame(source: FrameSource) -> "pl.LazyFrame":
    try:
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise missing_package("this needs Polars", "polars") from error

    def frames(
        columns: list[str] | None, predicate: "pl.Expr | None", rows: int | None, batch_rows: int | None
    ) -> "Iterator[pl.DataFrame]":
        # A number of rows counts rows before the predicate is applied, so that the predicate must not hold back any.
        bounds = Bounds() if predicate is None or rows is not None else bounds_of(predicate)
        wanted = None if columns is None else list(dict.fromkeys([*columns, *(() if predicate is None else predicate.meta.root_names())]))
        for batch in source.read(wanted, bounds, rows):
            frame = _frame(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if columns is None else frame.select(columns)

    schema = _frame(pa.RecordBatch.from_pylist([], source.schema)).schema
    return register_io_source(frames, schema=schema, explain_name="kolumn")


class TopicFrames(Mapping[str, "pl.LazyFrame"]):
    """The topics of a source by their names, in its order: each is a LazyFrame that is made when it is asked for, with types of its own.

    ``sources`` are what the frames that were made read.
    """

    def __init__(self, source: keywords.Source, options: Options, on_damage: OnDamage | None = None, payload: str = "binary") -> None:
        self._source, self._options, self._on_damage, self._payload = _lasting(source), options, on_damage, payload
        self._folders: dict[str, dict[str, None]] = {}
        for segment in live_segments(self._source, options).segments:
            name = _NO_NAME if segment.topic is None else shown(segment.topic)
            self._folders.setdefault(name, {})[segment.path if segment.topic is None else parent(segment.path)] = None
        self.sources: dict[str, FrameSource] = {}

    def __getitem__(self, name: str) -> "pl.LazyFrame":
        if name not in self._folders:
            raise KeyError(unknown("topic", str(name), self._folders))
        folders = list(self._folders[name])
        if name not in self.sources:
            own, several = (folders, self._source) if len(self._folders) > 1 else (self._source, None)
            self.sources[name] = FrameSource(own, self._options, self._on_damage, self._payload, several)
        return _lazy_frame(self.sources[name])

    def __contains__(self, name: object) -> bool:
        return name in self._folders

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)

    def __repr__(self) -> str:
        """The names: a frame is made when it is asked for."""
        return f"kolumn.topics: {', '.join(self) or 'none'}"


@known_keywords()
def topics(
    source: keywords.Source,
    *,
    on_damage: OnDamage | None = None,
    payload: keywords.Payload = "binary",
    **options: Unpack[keywords.ReadOptions],
) -> "Mapping[str, pl.LazyFrame]":
    """Each topic of a source as a LazyFrame of Polars; parameters, columns and errors as `scan_polars`.

    Topics may have values of different types, which are no one table. A frame is made when its topic is first asked for, with the type of
    that topic: by its own schemas, or inferred from its own values. If the source has several topics, keys and values of one without a
    schema stay bytes, and one line of the log says so.

    Returns
    -------
    Mapping of str to polars.LazyFrame
        By the names of topics, in the order of the source. ``dict(kolumn.topics(…))`` makes all frames at once.

    Raises
    ------
    MissingError
        Polars is not installed.

    Examples
    --------
    >>> frames = kolumn.topics("dead-broker", value_format="registry")
    >>> frames["orders"].select("value").head(5).collect()
    """
    return TopicFrames(source, Options.of(**options), on_damage, payload)


def _lasting(source: keywords.Source) -> keywords.Source:
    """A source that can be read again: an iterator and a file object can be read only once."""
    held = in_memory(source)
    return held.memory if held is not None else source if isinstance(source, str | os.PathLike) else named_parts(source)


def _frame(batch: pa.RecordBatch) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame(pl.from_arrow(pa.Table.from_batches([batch])))


class Topics:
    """A view of DuckDB for each topic of a source, in a connection of its own; ``names`` are the views.

    Only the topics whose names are in a query are opened for it, so that others need not fit the options. Their views read the columns and
    the ranges that a query needs, as `kolumn.scan_polars` does, and read the source anew each time. Queries may use all of DuckDB with
    ``allow_files``: read and write files, load extensions, use the network. Otherwise they see the views alone. Raises `MissingError` if
    DuckDB or Polars is not installed.
    """

    def __init__(self, source: keywords.Source, options: Options, on_damage: OnDamage | None = None, allow_files: bool = False) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise missing_package("SQL needs DuckDB and Polars", "duckdb", "polars") from error
        self._frames = TopicFrames(source, options, on_damage)
        self.names = list(self._frames)
        self._unfit: dict[str, KolumnError] = {}
        self._errors = duckdb.Error
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for name in self.names:
            # The list of tables has it.
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {_in_quotes(name)} AS SELECT error({_UNNAMED}) AS unnamed")
        # Otherwise a name in a query that is no table is looked for among the variables of this program.
        self._connection.execute("SET python_enable_replacements = false")
        if not allow_files:
            # DuckDB 1.4 fetches extensions also where access is disabled.
            self._connection.execute("SET autoinstall_known_extensions = false")
            self._connection.execute("SET enable_external_access = false")
            self._connection.execute("SET lock_configuration = true")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, query: str) -> Iterator[pa.RecordBatch]:
        """The rows that answer a query, one batch at a time; the first batch may have no rows, and has the columns.

        Raises `ArgumentError` if the query is wrong, a topic in it does not fit the options, or a value does not fit it, and `KolumnError`
        if a read fails, as `kolumn.scan`.
        """
        try:
            self._open(query)
            found = self._connection.sql(query)
            if found is None:
                raise ArgumentError("expected a query that returns rows, such as select")
            reader = pa.RecordBatchReader.from_stream(found)
            yield pa.RecordBatch.from_pylist([], reader.schema)
            yield from reader
        except (self._errors, pa.ArrowException, OSError, RuntimeError, ValueError) as error:
            failed = next((frames.failed for frames in self._frames.sources.values() if frames.failed is not None), None)
            raise (failed or self._unfit_in(str(error)) or ArgumentError(*self._said(error))).with_traceback(None) from None

    def _open(self, query: str) -> None:
        """Make views of the topics whose names are in a query. One that does not fit the options gets none: in the query its name may be
        that of something else.
        """
        text = query.replace('""', '"').casefold()
        found = [name for name in self.names if name.casefold() in text]
        named = [name for name in found if re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", text)]
        for name in named:
            same = [other for other in named if other.casefold() == name.casefold()]
            if len(same) > 1:
                raise ArgumentError(f"the topics {' and '.join(same)} have one name in SQL: give the folders of one of them alone")
            if name in self._frames.sources:
                continue
            self._connection.execute(f"DROP VIEW IF EXISTS {_in_quotes(name)}")
            try:
                frame = self._frames[name]
            except KolumnError as error:
                self._unfit[name] = error
            else:
                self._connection.register(name, frame)

    def _unfit_in(self, text: str) -> KolumnError | None:
        """Why a topic has no view, if that is what an error of DuckDB is about."""
        name = next((name for name in self._unfit if f"with name {name} does not exist".casefold() in text.casefold()), None)
        if name is None or not isinstance(error := self._unfit[name], ArgumentError):
            return None if name is None else self._unfit[name]
        why = str(error) if str(error).startswith(f"topic {name}: ") else f"topic {name}: {error}"
        return ArgumentError(f"{why}. The options apply to every topic in the query; query this topic separately")

    def _said(self, error: Exception) -> list[str]:
        text = re.sub(r"\n+", "\n", str(error)).strip()
        found = ((pattern.search(text), hint) for pattern, hint in _HINTS)
        hints = [match.expand(hint) for match, hint in found if match is not None]
        return [*text.split("\n"), *hints, f"tables: {', '.join(self.names)}"]


def _in_quotes(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
