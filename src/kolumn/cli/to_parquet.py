"""``kolumn to-parquet``: segments become Parquet files."""

from typing import Annotated

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
    Partition,
    StartOffset,
    StartTimestamp,
    Topic,
    command,
    moment,
    progress,
)


@command
def to_parquet(
    paths: Annotated[
        list[str], typer.Argument(metavar="SOURCE... TARGET", help="Sources as elsewhere; the last one is the target folder.")
    ],
    row_group_rows: Annotated[int, typer.Option(min=1, help="Records in a row group at most.")] = 1 << 20,
    compression: Annotated[str, typer.Option(help="Parquet codec: zstd, snappy, gzip, lz4, brotli or none.")] = "zstd",
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
    check_crcs: CheckCrcs = True,
    format: Format = "kafka",
    topic: Topic = None,
    partition: Partition = None,
) -> None:
    """Write one Parquet file for each segment, below `topic=…/partition=…/` of the target folder.

    A file gets its name when it is complete and on disk, never before: whatever stops the run, no half file is left.

    Example: `kolumn to-parquet --include-headers /var/lib/kafka/data/orders-* lake/`
    """
    if len(paths) < 2:
        raise typer.BadParameter("name at least one source, and the target folder last")
    from kolumn.api import segments_of
    from kolumn.find_transactions import with_transactions
    from kolumn.options import Options, column_list
    from kolumn.parquet import write_parquet
    from kolumn.seek import select_ranges

    options = Options.of(
        columns=None if columns is None else column_list(columns),
        include_headers=include_headers,
        include_control=include_control,
        start_offset=start_offset,
        end_offset=end_offset,
        start_timestamp=moment(start_timestamp),
        end_timestamp=moment(end_timestamp),
        isolation_level=isolation_level,
        errors=errors,
        check_crcs=check_crcs,
        format=format,
        topic=topic,
        partition=partition,
    )
    ranges = with_transactions(select_ranges(segments_of(paths[:-1], options), options), options)
    records = files = 0
    with progress("writing", sum(one.end - one.start for one in ranges)) as advance:
        for one, rows in write_parquet(ranges, paths[-1], options, row_group_rows, compression, overwrite):
            advance(one.end - one.start)
            records, files = records + rows, files + bool(rows)
    typer.echo(f"{records} records in {files} files below {paths[-1]}", err=True)
