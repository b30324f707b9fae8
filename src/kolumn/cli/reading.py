"""Commands that read records: ``kolumn cat``, ``kolumn sql``, and ``kolumn explain``, which shows what a read would do."""

import base64
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kolumn.cli import arguments
from kolumn.cli.arguments import (
    PAYLOADS,
    SELECTION,
    TRANSLATED,
    JsonInPipes,
    OptionValue,
    Sources,
    or_standard_input,
    with_read_options,
)
from kolumn.cli.common import is_json, note, print_json, say, say_none, short_name, size_of
from kolumn.cli.ending import OK, command, progress, quoted
from kolumn.cli.help import SELECT, VALUES
from kolumn.cli.tables import print_rows, print_table
from kolumn.core.errors import ArgumentError, shown
from kolumn.core.keywords import DEFAULTS

if TYPE_CHECKING:
    import pyarrow as pa

    from kolumn.damage.findings import Damage, Skipped
    from kolumn.source.segments import InMemory

_AHEAD = 2  # blocks that are queued for each thread
_MOST_ROWS = 1000
_BASE64 = "base64:"
_QUERY = "select * from orders limit 5"


@command
@with_read_options(
    *SELECTION, *TRANSLATED, "private_keys", "include_snapshots", "include_deleted_records", "include_deleted_segments", *PAYLOADS
)
def cat(
    sources: arguments.Segments,
    json: JsonInPipes = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, rich_help_panel=SELECT, help="Stop after so many records.")] = None,
    key: Annotated[
        str | None, typer.Option(rich_help_panel=SELECT, help="Only records with this key: text, or bytes after `hex:` or `base64:`.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option(rich_help_panel=SELECT, help="Only records with this regular expression (RE2) in key or value.")
    ] = None,
    template: Annotated[
        str | None, typer.Option("--template", "-t", help="As kcat's -f: %t %p %o %k %s %T %h %K %S %R, with \\n, \\t, \\x41.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Then print what is appended, until Ctrl-C; new segments and partitions too.")
    ] = False,
    start: Annotated[
        str | None,
        typer.Option(
            help="With --follow: 'latest' prints only what is appended from now on.",
            autocompletion=arguments.among(Literal["earliest", "latest"]),
        ),
    ] = None,
    decode: Annotated[
        arguments.DecodeName | None,
        typer.Option(rich_help_panel=VALUES, help="'internal': keys and values of internal topics and control records, as JSON."),
    ] = None,
    **options: OptionValue,
) -> int:
    """Print records: as text on a terminal, and as JSON lines in a pipe.

    Keys, values and header values are shown as UTF-8 if they are valid UTF-8, otherwise as base64. The output shows which: JSON has
    `valueEncoding` next to `value`, and base64 in text begins with `base64:`. A null stays a null. With `--value-format`, values are
    decoded by the schema of their topic and shown as JSON; bytes in them are base64. If a topic has no schema, its values stay bytes,
    unless it is the only topic. With `--decode internal` they are the messages of a cluster's own topics.

    With `--follow` it continues with what is appended, until Ctrl-C. Warnings say what retention or a truncation has removed. All topics
    have one type of values then, as in one table: JSON values have the fields of all of them.

    Example: `kolumn cat --since 2026-01-31T12:00 --json orders-3 | jq .value`
    """
    from kolumn.cli.lines import blocks, data_of
    from kolumn.core.buffers import first_rows
    from kolumn.damage.findings import Skipped
    from kolumn.options import Options, row_limit
    from kolumn.readers.api import each_topic

    if follow and template is None:
        sources, template, follow = _by_its_old_name(sources)
    if start is not None and not follow:
        raise ArgumentError("--start goes with --follow; --start-offset and --since say where a read begins")
    chosen = RecordFilter(key, grep, [name for name in ("key", "value") if f"{name}_format" in options])
    lines_of, printed = _lines_of(json, template, chosen, options)
    read = None if printed is None else [*printed, *(name for name in chosen.columns if name not in printed)]
    skipped, given, unknown = _telling() if follow else Skipped(), or_standard_input(sources), Counter[str]()
    # On a terminal a bar would overwrite the records.
    with progress("printing", lambda: size_of(given)) if not sys.stdout.isatty() and not follow else nullcontext() as advance:
        options |= {"columns": read, "include_headers": options["include_headers"] and template is None, "decode": decode}
        if follow:
            records = chosen.of(_followed(given, start or "earliest", skipped, options), printed)
        else:
            every = each_topic(given, Options.of(on_progress=advance, **options), skipped, None if chosen.columns else limit)
            records = chosen.of(every, printed)
        if decode is not None:
            records = _counting_unknown(records, unknown)
        work = (block for batch in first_rows(records, limit and row_limit(limit)) for block in blocks(batch))
        has_any = _print(work, lambda block: data_of(lines_of(block), block.num_rows), follow)
    if not (has_any or follow or limit == 0):
        say_none(given, skipped, options)
    for name, count in sorted(unknown.items()):
        note(f"not decoded, kept as bytes: {count} of {name}")
    return say(skipped)


def _lines_of(
    json: bool | None, template: str | None, chosen: "RecordFilter", options: dict[str, Any]
) -> tuple[Callable[..., Any], list[str] | None]:
    """What makes lines of records, and the columns that it needs; None for the default ones."""
    from kolumn.cli.lines import Template, json_lines, text_lines
    from kolumn.options import Options

    if template is None:
        # With a typed key or value, its stored bytes are no default column.
        printed = list(Options.of(**options).columns) if chosen.columns else options.get("columns")
        return json_lines if is_json(json) else text_lines, printed
    if json or "columns" in options:
        raise ArgumentError("--template says what is printed: it does not go with --json or --columns")
    made = Template(template)
    return made, made.columns or ["offset"]


def _followed(given: "list[str] | InMemory", start: str, skipped: "Skipped", options: dict[str, Any]) -> "Iterator[pa.RecordBatch]":
    import kolumn

    asked = {name: value for name, value in {"start": start, **options}.items() if value != DEFAULTS.get(name)}
    return kolumn.follow(given, on_damage=skipped, **asked)


def _print(work: "Generator[pa.RecordBatch]", text_of: Callable[..., Any], at_once: bool) -> bool:
    """Print blocks of records; returns whether there were any."""
    from kolumn.core.threads import CAT, workers

    has_any = False
    if at_once:
        for block in work:
            has_any = True
            sys.stdout.buffer.write(text_of(block))
            sys.stdout.flush()
        return has_any
    threads = len(os.sched_getaffinity(0))
    # To convert columns to text releases the GIL. Records before damage are printed before the damage is reported.
    with workers(CAT, threads) as pool:
        for text in pool.ahead(text_of, work, _AHEAD * threads):
            sys.stdout.buffer.write(text)
            has_any = has_any or len(text) > 0
    return has_any


def _by_its_old_name(sources: list[str]) -> tuple[list[str], str | None, bool]:
    """The sources, a template and whether to follow: ``-f`` was the short name of ``--template`` in version 0.1, which had its value after
    it. A warning tells."""
    found = [word for word in sources if ("%" in word or "\\" in word) and "://" not in word and not os.path.lexists(word)]
    if len(found) != 1:
        return sources, None, True
    note("warning: -f is --follow now, and a template is --template or -t; this is read as a template once more")
    return [word for word in sources if word not in found], found[0], False


def _telling() -> "Skipped":
    """Collects what is left out, and prints each place at once."""
    from kolumn.damage.findings import Skipped

    class Telling(Skipped):
        def __call__(self, piece: "Damage") -> None:
            super().__call__(piece)
            note(f"left out: {short_name(piece.segment)}: position {piece.position}: {piece.reason}")

    return Telling()


class RecordFilter:
    """Chooses records by their stored key and value, whatever is printed of them.

    ``key`` is what `kolumn.readers.selection.bytes_of` takes. ``grep`` is a regular expression (RE2) that is searched in
    keys and values, as bytes. ``typed`` says which of "key" and "value" are decoded, so that their stored bytes are in another column.
    Raises `ArgumentError` if the key is not what its prefix says, or the regular expression is not one.
    """

    def __init__(self, key: str | None, grep: str | None, typed: Collection[str]) -> None:
        from kolumn.readers.selection import bytes_of

        self._key = None if key is None else bytes_of(key)
        self._grep = grep
        self._names = {name: f"{name}Raw" if name in typed else name for name in ("key", "value")}
        if grep is not None:
            import pyarrow as pa
            import pyarrow.compute as pc

            try:
                pc.match_substring_regex(pa.array([b""]), grep)
            except pa.ArrowInvalid as error:
                raise ArgumentError(f"--grep {grep}: not a regular expression: {error}") from error

    @property
    def columns(self) -> list[str]:
        if self._grep is not None:
            return list(self._names.values())
        return [] if self._key is None else [self._names["key"]]

    def of(self, batches: "Iterable[pa.RecordBatch]", printed: Collection[str] | None) -> "Iterator[pa.RecordBatch]":
        """The chosen records, without the columns that are there only to choose them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.columns:
            yield from batches
            return
        kept = set(self._names.values() if printed is None else printed)
        for batch in batches:
            # Values of a topic without a schema stay bytes, in the column "value".
            there = {name: own if own in batch.schema.names else name for name, own in self._names.items()}
            extra = [name for name in there.values() if name in batch.schema.names and not {name, f"{name}Raw"} & kept]
            mask = pa.scalar(True)
            if self._key is not None:
                mask = pc.equal(batch[there["key"]], pa.scalar(self._key, pa.binary()))
            if self._grep is not None:
                matches = [pc.fill_null(pc.match_substring_regex(batch[name], self._grep), False) for name in there.values()]
                mask = pc.and_(mask, pc.or_(*matches))
            batch = batch.filter(mask)
            yield batch.drop_columns(extra) if extra else batch


def _counting_unknown(batches: "Iterable[pa.RecordBatch]", unknown: "Counter[str]") -> "Iterator[pa.RecordBatch]":
    from kolumn.values.internal.messages import unknown_messages

    for batch in batches:
        unknown.update(unknown_messages(batch))
        yield batch


@command
@with_read_options("include_headers", "isolation_level", "open_transactions", *TRANSLATED, "private_keys", *PAYLOADS)
def sql(
    sources: Annotated[list[str] | None, typer.Argument(metavar="SOURCE...", help=f"{arguments.SOURCES}.")] = None,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="A query in DuckDB's SQL; each topic is a table of its name.")
    ] = None,
    json: JsonInPipes = None,
    columns: Annotated[str | None, typer.Option(help="Columns of the tables, comma-separated; `kolumn columns` lists them.")] = None,
    allow_files: Annotated[
        bool, typer.Option("--allow-files", help="The query may use all of DuckDB: read and write files, load extensions, use the network.")
    ] = False,
    **options: OptionValue,
) -> int:
    """Query topics in SQL, with DuckDB and Polars. Each topic is a table; only the columns and ranges that a query names are read.

    Keys and values are BLOBs: `decode(key)` is text. `offset` is a keyword of SQL: write it as `"offset"`. A deletion has a null value:
    `where value is null`. With `--value-format json` or another format, values are structs, by the schema of their topic. The options apply
    to all topics that the query names, and to no others. On a terminal the result is a table, elsewhere it is JSON lines as in `kolumn cat
    --json`. A query sees only the topics, and no files or network, unless `--allow-files` is given.

    Example: `kolumn sql disk "select decode(key), count(*) from orders group by 1"`
    """
    from kolumn.damage.findings import Skipped
    from kolumn.options import Options, column_list
    from kolumn.readers.polars import Topics

    if not sources or query is None:
        is_source = query is not None and (" " not in query or os.path.lexists(query))
        source, text = (quoted(query), _QUERY) if query and is_source else ("SOURCE", query or _QUERY)
        missing = "query" if is_source else "source"
        raise ArgumentError(f'the {missing} is missing: kolumn sql {source} "{text}"')
    chosen = Options.of(columns=None if columns is None else column_list(columns), **options)
    skipped, as_json = Skipped(), is_json(json)
    names: list[str] = []
    rows: list[list[object]] = []
    # On a terminal a bar would overwrite the lines.
    with nullcontext() if as_json and sys.stdout.isatty() else progress("reading", None) as advance:
        topics = Topics(sources, replace(chosen, on_progress=advance), skipped, allow_files)
        try:
            if as_json:
                from kolumn.cli.lines import blocks, data_of, json_lines

                for block in (block for batch in topics.ask(query) for block in blocks(batch)):
                    sys.stdout.buffer.write(data_of(json_lines(block), block.num_rows))
            else:
                for batch in topics.ask(query):
                    names = batch.schema.names
                    found = zip(*map(_cells, batch.slice(0, _MOST_ROWS - len(rows))), strict=True)
                    rows += [["null" if cell is None else cell for cell in row] for row in found]
                    if len(rows) >= _MOST_ROWS:
                        break
        finally:
            topics.close()
    if not as_json:
        print_table("", names, rows)
        if len(rows) >= _MOST_ROWS:
            print(f"the first {_MOST_ROWS} rows; with --json or in a pipe all are printed")
    return say(skipped)


def _cells(column: "pa.Array") -> list[object]:
    import pyarrow as pa

    type = column.type
    if isinstance(type, pa.ExtensionType) or pa.types.is_nested(type) or (pa.types.is_temporal(type) and not pa.types.is_duration(type)):
        # As `kolumn cat` shows them: Python has no times outside of the years 1 to 9999, and none of nanoseconds.
        from kolumn.cli.lines import value_text

        return value_text(column)
    return list(map(_cell, column.to_pylist()))


def _cell(value: object) -> object:
    """Bytes as `kolumn cat` shows them."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"{_BASE64}{base64.b64encode(value).decode('ascii')}"
    return value if isinstance(value, int | float | None) else str(value)


@command
@with_read_options(*SELECTION, *TRANSLATED, *PAYLOADS)
def explain(sources: Sources, json: JsonInPipes = None, **options: Any) -> int:
    """Show the plan of a read without reading a payload: partitions and their copies, which bytes are read and why, and every file
    and folder that is left out, with the reason.

    Example: `kolumn explain --since 2026-01-31 /var/lib/kafka/data/orders-0`
    """
    from kolumn.readers.explain import explain as planned

    plan = planned(sources, **options)
    if is_json(json):
        for name, table in (("partition", plan.partitions), ("range", plan.ranges), ("leftOut", plan.left_out)):
            for row in table.to_pylist():
                print_json({"kind": name, **{key: shown(value) if isinstance(value, str) else value for key, value in row.items()}})
        return OK
    print(f"columns: {', '.join(plan.schema.names)}; decoded on the {plan.backend.upper()} by {plan.threads} threads")
    left_out = ("Left out (name a path to read it anyway)", plan.left_out)
    for title, table in (("Partitions", plan.partitions), ("Ranges", plan.ranges), left_out):
        if table.num_rows:
            print()
            print_rows(title, table.to_pylist())
    return OK
