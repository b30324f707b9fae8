"""``kolumn cat``: the records of segments."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.chosen import RecordFilter
from kolumn.cli.common import (
    CheckCrcs,
    Columns,
    EndOffset,
    EndTimestamp,
    Errors,
    Format,
    IncludeControl,
    IncludeHeaders,
    IsolationLevel,
    JsonInPipes,
    KeyFile,
    MaxBatchBytes,
    MaxRatio,
    Partition,
    Replicas,
    Segments,
    StartOffset,
    StartTimestamp,
    Topic,
    command,
    is_json,
    key_files,
    limits,
    or_standard_input,
    size_of,
)
from kolumn.cli.left_out import say, say_unknown
from kolumn.cli.payloads import payload_options, with_payloads
from kolumn.cli.progress import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from kolumn.keywords import Decode as DecodeName
else:
    # The library checks the choice, as in `kolumn.cli.common`.
    DecodeName = str

_AHEAD = 2
"""Blocks that are queued for each thread."""


IncludeSnapshots = Annotated[bool, typer.Option("--include-snapshots", help="KRaft snapshots beside the log too.")]
IncludeDeletedRecords = Annotated[
    bool | None,
    typer.Option(
        help="Records below the log start offset (DeleteRecords), which no consumer gets. The default: those of a folder, not of a tier."
    ),
]


@command
@with_payloads
def cat(
    sources: Segments,
    json: JsonInPipes = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Stop after so many records.")] = None,
    key: Annotated[str | None, typer.Option(help="Only records with this key: text, or `base64:` and base64.")] = None,
    grep: Annotated[str | None, typer.Option(help="Only records with this regular expression (RE2) in key or value.")] = None,
    template: Annotated[
        str | None, typer.Option("--template", "-f", help="As kcat's -f: %t %p %o %k %s %T %h %K %S %R, with \\n, \\t, \\x41.")
    ] = None,
    columns: Columns = None,
    include_headers: IncludeHeaders = False,
    include_control: IncludeControl = False,
    start_offset: StartOffset = None,
    end_offset: EndOffset = None,
    start_timestamp: StartTimestamp = None,
    end_timestamp: EndTimestamp = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    errors: Errors = "raise",
    replicas: Replicas = "raise",
    check_crcs: CheckCrcs = True,
    max_batch_bytes: MaxBatchBytes = None,
    max_ratio: MaxRatio = None,
    format: Format = "kafka",
    topic: Topic = None,
    partition: Partition = None,
    key_file: KeyFile = None,
    decode: Annotated[
        DecodeName | None, typer.Option(help="'internal': keys and values of internal topics and control records, as JSON.")
    ] = None,
    include_snapshots: IncludeSnapshots = False,
    include_deleted_records: IncludeDeletedRecords = None,
    **payloads: Any,
) -> int:
    """Print records: as text on a terminal, and as JSON lines in a pipe.

    Keys, values and header values are shown as UTF-8 if they are valid UTF-8, else as base64. The output shows which: JSON has
    `valueEncoding` next to `value`, and base64 in text begins with `base64:`. A null stays a null. With `--value-format` values are
    decoded and shown as JSON; bytes in them are base64. With `--decode internal` they are the messages of a cluster's own topics.

    Example: `kolumn cat --since 2026-01-31T12:00 --key customer-7 --json orders-3 | jq .value`
    """
    import kolumn

    options = payload_options(payloads)
    chosen = RecordFilter(key, grep, [name for name in ("key", "value") if f"{name}_format" in options])
    lines_of, printed = _form(json, template, columns, include_headers, chosen, options)
    read = None if printed is None else [*printed, *(name for name in chosen.columns if name not in printed)]
    skipped = kolumn.Skipped()
    given = or_standard_input(sources)
    # On a terminal a bar would overwrite the records.
    with progress("printing", lambda: size_of(given)) if not sys.stdout.isatty() else nullcontext() as advance:
        reader = kolumn.scan(
            given, columns=read, include_headers=include_headers and template is None, include_control=include_control,
            start_offset=start_offset, end_offset=end_offset, start_timestamp=start_timestamp, end_timestamp=end_timestamp,
            isolation_level=isolation_level, errors=errors, replicas=replicas, check_crcs=check_crcs, format=format, topic=topic,
            partition=partition, on_damage=skipped, on_progress=advance, keys=key_files(key_file), decode=decode,
            include_snapshots=include_snapshots, include_deleted_records=include_deleted_records,
            **limits(max_batch_bytes, max_ratio), **options,
        )  # fmt: skip
        unknown: Counter[str] = Counter()
        records = chosen.of(reader, printed)
        if decode is not None:
            records = _decoded(records, unknown)
        for lines in _lines(records if limit is None else _first(records, limit), lines_of):
            sys.stdout.buffer.write(lines)
    say_unknown(unknown)
    return say(skipped)


def _form(
    json: bool | None, template: str | None, columns: str | None, include_headers: bool, chosen: RecordFilter, options: dict[str, Any]
) -> tuple[Callable[..., Any], list[str] | None]:
    """What makes lines of records, and the columns that it prints; None for the default ones."""
    from kolumn.cli.json_lines import json_lines
    from kolumn.cli.templates import Template
    from kolumn.cli.text_lines import text_lines
    from kolumn.errors import ArgumentError
    from kolumn.options import Options, column_list

    if template is not None:
        if json or columns is not None:
            raise ArgumentError("--template says what is printed: it does not go with --json or --columns")
        made = Template(template)
        return made, made.columns or ["offset"]
    printed = None if columns is None else column_list(columns)
    if chosen.columns:
        # With a typed key or value, its stored bytes are no default column.
        printed = list(Options.of(columns=printed, include_headers=include_headers, **options).columns)
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
    from kolumn.threads import CAT, workers

    def work(block: "pa.RecordBatch") -> Any:
        return data_of(lines_of(block), block.num_rows)

    threads = len(os.sched_getaffinity(0))
    # Records before damage are printed before the damage is reported.
    with workers(CAT, threads) as pool:
        yield from pool.ahead(work, (block for batch in batches for block in blocks(batch)), _AHEAD * threads)
