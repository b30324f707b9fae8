"""``kolumn to-parquet``: segments become Parquet files."""

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
    KeyFile,
    MaxBatchBytes,
    MaxRatio,
    Output,
    Partition,
    Paths,
    Replicas,
    StartOffset,
    StartTimestamp,
    Topic,
    command,
    counted,
    key_files,
    limits,
    size_of,
    sources_and_target,
)
from kolumn.cli.completion import among
from kolumn.cli.left_out import say
from kolumn.cli.payloads import payload_options, with_payloads
from kolumn.cli.progress import progress
from kolumn.cli.tables import note

if TYPE_CHECKING:
    from kolumn.keywords import Decode as DecodeName
else:
    # The library checks the choice, as in `kolumn.cli.common`.
    DecodeName = str


@command
@with_payloads
def to_parquet(
    paths: Paths,
    output: Output = None,
    row_group_rows: Annotated[int, typer.Option(min=1, help="Maximum number of records in a row group.")] = 1 << 20,
    compression: Annotated[
        str, typer.Option(autocompletion=among("Compression"), help="Parquet codec: zstd, snappy, gzip, lz4, brotli or none.")
    ] = "zstd",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files of the same name.")] = False,
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
    decode: Annotated[DecodeName | None, typer.Option(help="'internal': messages of a cluster's own topics, as columns.")] = None,
    **payloads: Any,
) -> int:
    """Write one Parquet file for each segment, below `topic=…/partition=…/` of the target folder.

    Files get their names together, when all are complete and on disk: even if the run is killed, no incomplete file is left.

    Example: `kolumn to-parquet --include-headers /var/lib/kafka/data/orders-* lake/`
    """
    sources, target = sources_and_target(paths, output)
    from kolumn.api import live_segments
    from kolumn.damage.findings import Skipped
    from kolumn.log.transactions import with_transactions
    from kolumn.options import Options, column_list
    from kolumn.parquet import write_parquet
    from kolumn.reader_types import with_types
    from kolumn.replicas.ranges import log_ranges

    skipped = Skipped()
    with progress("writing", lambda: size_of(sources)) as advance:
        options = Options.of(
            columns=None if columns is None else column_list(columns), include_headers=include_headers, include_control=include_control,
            start_offset=start_offset, end_offset=end_offset, start_timestamp=start_timestamp, end_timestamp=end_timestamp,
            isolation_level=isolation_level, errors=errors, replicas=replicas, check_crcs=check_crcs, format=format, topic=topic,
            partition=partition, on_progress=advance,
            keys=key_files(key_file), decode=decode, **limits(max_batch_bytes, max_ratio), **payload_options(payloads),
        )  # fmt: skip
        ranges = with_transactions(log_ranges(live_segments(sources, options), options), options)
        options = with_types(options, sources, ranges)
        written = [rows for _, rows in write_parquet(ranges, target, options, row_group_rows, compression, overwrite, skipped)]
    files = counted(sum(rows > 0 for rows in written), "file")
    note(f"{counted(sum(written), 'record')} in {files} below {target}")
    return say(skipped)
