"""``kolumn sql``: a query over topics."""

import base64
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from kolumn.cli.common import JsonInPipes, Sources, command, is_json, print_table, say
from kolumn.cli.ending import progress
from kolumn.cli.read_options import PAYLOADS, READING, OptionValue, with_read_options

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1000


@command
@with_read_options("include_headers", "isolation_level", *READING, "keys", *PAYLOADS)
def sql(
    sources: Sources,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A query in DuckDB's SQL; each topic is a table of its name.")],
    json: JsonInPipes = None,
    columns: Annotated[str | None, typer.Option(help="Columns of the tables, comma-separated; `kolumn columns` lists them.")] = None,
    allow_files: Annotated[
        bool,
        typer.Option("--allow-files", help="The query may use all of DuckDB: read and write files, load extensions, use the network."),
    ] = False,
    **options: OptionValue,
) -> int:
    """Ask topics in SQL, by DuckDB (kolumn[sql]). Each topic is a table; only the columns and ranges that a query names are read.

    Keys and values are BLOBs: `decode(key)` is text, and with `--value-format json` or another format values are structs. On a terminal
    the result is a table, elsewhere it is JSON lines as in `kolumn cat --json`. A query sees the topics alone, no files and no network,
    unless `--allow-files` is given.

    Example: `kolumn sql /mnt/dead-broker "select decode(key) k, count(*) n from orders group by k order by n desc limit 5"`
    """
    from kolumn.damage.findings import Skipped
    from kolumn.options import Options, column_list
    from kolumn.readers.sql import Topics

    chosen = Options.of(columns=None if columns is None else column_list(columns), **options)
    skipped, as_json = Skipped(), is_json(json)
    names: list[str] = []
    rows: list[list[object]] = []
    # On a terminal a bar would overwrite the lines.
    with nullcontext() if as_json and sys.stdout.isatty() else progress("reading", None) as advance:
        topics = Topics(sources, replace(chosen, on_progress=advance), skipped, allow_files)
        try:
            if as_json:
                _print_lines(topics.ask(query))
            else:
                names, rows = _first_rows(topics.ask(query))
        finally:
            topics.close()
    if not as_json:
        print_table("", names, rows)
        if len(rows) >= _ROWS:
            print(f"the first {_ROWS} rows; with --json or in a pipe all are printed")
    return say(skipped)


def _print_lines(found: "Iterator[pa.RecordBatch]") -> None:
    from kolumn.cli.lines import json_lines
    from kolumn.cli.shown import blocks, data_of

    for batch in found:
        for block in blocks(batch):
            sys.stdout.buffer.write(data_of(json_lines(block), block.num_rows))


def _first_rows(found: "Iterator[pa.RecordBatch]") -> tuple[list[str], list[list[object]]]:
    names: list[str] = []
    rows: list[list[object]] = []
    for batch in found:
        names = batch.schema.names
        rows += map(list, zip(*map(_cells, batch.slice(0, _ROWS - len(rows))), strict=True))
        if len(rows) >= _ROWS:
            break
    return names, rows


def _cells(column: "pa.Array") -> list[object]:
    try:
        return list(map(_cell, column.to_pylist()))
    except (OverflowError, ValueError):
        # Python has no times outside of the years 1 to 9999.
        from kolumn.cli.lines import value_text

        return value_text(column)


def _cell(value: object) -> object:
    """Bytes as `kolumn cat` shows them; times in ISO 8601."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"base64:{base64.b64encode(value).decode('ascii')}"
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value if isinstance(value, int | float | None) else str(value)
