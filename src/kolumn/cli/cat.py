"""``kolumn cat``: the records of segments."""

import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    Json,
    MaxBatchBytes,
    MaxRatio,
    Partition,
    Replicas,
    Sources,
    StartOffset,
    StartTimestamp,
    Topic,
    command,
    limits,
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


@command
@with_payloads
def cat(
    sources: Sources,
    json: Json = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Stop after so many records.")] = None,
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
    decode: Annotated[
        DecodeName | None, typer.Option(help="'internal': keys and values of internal topics and control records, as JSON.")
    ] = None,
    include_snapshots: Annotated[bool, typer.Option("--include-snapshots", help="KRaft snapshots beside the log too.")] = False,
    **payloads: Any,
) -> int:
    """Print records, as text or as JSON lines.

    Keys, values and header values are shown as UTF-8 if they are valid UTF-8, else as base64. The output shows which: JSON has
    `valueEncoding` next to `value`, and base64 in text begins with `base64:`. A null stays a null. With `--value-format` values are
    decoded and shown as JSON; bytes in them are base64. With `--decode internal` they are the messages of a cluster's own topics.

    Example: `kolumn cat --json --start-timestamp 2026-01-31T12:00 orders-3 | jq .value`
    """
    import kolumn
    from kolumn.cli.json_lines import json_lines
    from kolumn.cli.text_lines import text_lines
    from kolumn.options import column_list

    skipped = kolumn.Skipped()
    # On a terminal a bar would overwrite the records.
    with progress("printing", lambda: size_of(sources)) if not sys.stdout.isatty() else nullcontext() as advance:
        reader = kolumn.scan(
            sources, columns=None if columns is None else column_list(columns), include_headers=include_headers,
            include_control=include_control, start_offset=start_offset, end_offset=end_offset, start_timestamp=start_timestamp,
            end_timestamp=end_timestamp, isolation_level=isolation_level, errors=errors, replicas=replicas, check_crcs=check_crcs,
            format=format, topic=topic, partition=partition, on_damage=skipped, on_progress=advance, **limits(max_batch_bytes, max_ratio),
            decode=decode, include_snapshots=include_snapshots, **payload_options(payloads),
        )  # fmt: skip
        unknown: Counter[str] = Counter()
        batches = reader if limit is None else _first(reader, limit)
        for lines in _lines(batches if decode is None else _decoded(batches, unknown), json_lines if json else text_lines):
            sys.stdout.buffer.write(lines)
    say_unknown(unknown)
    return say(skipped)


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

    def work(block: "pa.RecordBatch") -> Any:
        return data_of(lines_of(block), block.num_rows)

    threads = len(os.sched_getaffinity(0))
    pending: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="kolumn-cat") as pool:
        try:
            for batch in batches:
                for block in blocks(batch):
                    pending.append(pool.submit(work, block))
                    if len(pending) > _AHEAD * threads:
                        yield pending.popleft().result()
        except Exception:
            # Records before the damage are printed before the damage is reported.
            yield from (future.result() for future in pending)
            raise
        yield from (future.result() for future in pending)
