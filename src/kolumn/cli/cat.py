"""``kolumn cat``: the records of segments."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.common import (
    DecodeName,
    JsonInPipes,
    RecordFilter,
    Segments,
    command,
    is_json,
    or_standard_input,
    say,
    say_unknown,
    size_of,
)
from kolumn.cli.ending import progress
from kolumn.cli.read_options import PAYLOADS, READING, SELECTION, OptionValue, with_read_options

if TYPE_CHECKING:
    import pyarrow as pa

_AHEAD = 2
"""Blocks that are queued for each thread."""


@command
@with_read_options(*SELECTION, *READING, "keys", "include_snapshots", "include_deleted_records", *PAYLOADS)
def cat(
    sources: Segments,
    json: JsonInPipes = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Stop after so many records.")] = None,
    key: Annotated[str | None, typer.Option(help="Only records with this key: text, or `base64:` and base64.")] = None,
    grep: Annotated[str | None, typer.Option(help="Only records with this regular expression (RE2) in key or value.")] = None,
    template: Annotated[
        str | None, typer.Option("--template", "-f", help="As kcat's -f: %t %p %o %k %s %T %h %K %S %R, with \\n, \\t, \\x41.")
    ] = None,
    decode: Annotated[
        DecodeName | None, typer.Option(help="'internal': keys and values of internal topics and control records, as JSON.")
    ] = None,
    **options: OptionValue,
) -> int:
    """Print records: as text on a terminal, and as JSON lines in a pipe.

    Keys, values and header values are shown as UTF-8 if they are valid UTF-8, else as base64. The output shows which: JSON has
    `valueEncoding` next to `value`, and base64 in text begins with `base64:`. A null stays a null. With `--value-format` values are
    decoded and shown as JSON; bytes in them are base64. With `--decode internal` they are the messages of a cluster's own topics.

    Example: `kolumn cat --since 2026-01-31T12:00 --key customer-7 --json orders-3 | jq .value`
    """
    import kolumn

    chosen = RecordFilter(key, grep, [name for name in ("key", "value") if f"{name}_format" in options])
    lines_of, printed = _form(json, template, chosen, options)
    read = None if printed is None else [*printed, *(name for name in chosen.columns if name not in printed)]
    skipped = kolumn.Skipped()
    given = or_standard_input(sources)
    # On a terminal a bar would overwrite the records.
    with progress("printing", lambda: size_of(given)) if not sys.stdout.isatty() else nullcontext() as advance:
        options |= {"columns": read, "include_headers": options["include_headers"] and template is None}
        reader = kolumn.scan(given, on_damage=skipped, on_progress=advance, decode=decode, **options)
        unknown: Counter[str] = Counter()
        records = chosen.of(reader, printed)
        if decode is not None:
            records = _decoded(records, unknown)
        for lines in _lines(records if limit is None else _first(records, limit), lines_of):
            sys.stdout.buffer.write(lines)
    say_unknown(unknown)
    return say(skipped)


def _form(
    json: bool | None, template: str | None, chosen: RecordFilter, options: dict[str, Any]
) -> tuple[Callable[..., Any], list[str] | None]:
    """What makes lines of records, and the columns that it prints; None for the default ones."""
    from kolumn.cli.lines import json_lines, text_lines
    from kolumn.cli.templates import Template
    from kolumn.core.errors import ArgumentError
    from kolumn.options import Options

    if template is not None:
        if json or "columns" in options:
            raise ArgumentError("--template says what is printed: it does not go with --json or --columns")
        made = Template(template)
        return made, made.columns or ["offset"]
    printed = options.get("columns")
    if chosen.columns:
        # With a typed key or value, its stored bytes are no default column.
        printed = list(Options.of(**options).columns)
    return json_lines if is_json(json) else text_lines, printed


def _decoded(batches: "Iterable[pa.RecordBatch]", unknown: "Counter[str]") -> "Iterator[pa.RecordBatch]":
    """The same batches; counts the messages that are not known."""
    from kolumn.values.internal.decoder import unknown_messages

    for batch in batches:
        unknown.update(unknown_messages(batch))
        yield batch


def _first(batches: "Iterable[pa.RecordBatch]", limit: int) -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= min(limit, batch.num_rows)
        if not limit:
            return


def _lines(batches: "Iterable[pa.RecordBatch]", lines_of: Callable[..., Any]) -> Iterator[Any]:
    """Records as lines; blocks are converted in parallel threads, since converting columns to text releases the GIL."""
    from kolumn.cli.shown import blocks, data_of
    from kolumn.core.threads import CAT, workers

    def work(block: "pa.RecordBatch") -> Any:
        return data_of(lines_of(block), block.num_rows)

    threads = len(os.sched_getaffinity(0))
    # Records before damage are printed before the damage is reported.
    with workers(CAT, threads) as pool:
        yield from pool.ahead(work, (block for batch in batches for block in blocks(batch)), _AHEAD * threads)
