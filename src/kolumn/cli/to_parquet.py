"""``kolumn to-parquet``: segments become Parquet files."""

from typing import Annotated

import typer

from kolumn.cli.common import DecodeName, Output, Paths, command, counted, say, size_of, sources_and_target
from kolumn.cli.completion import among
from kolumn.cli.ending import progress
from kolumn.cli.read_options import PAYLOADS, READING, SELECTION, OptionValue, with_read_options
from kolumn.cli.tables import note
from kolumn.core.keywords import ROW_GROUP_ROWS, Compression


@command
@with_read_options(*SELECTION, *READING, "keys", *PAYLOADS)
def to_parquet(
    paths: Paths,
    output: Output = None,
    row_group_rows: Annotated[int, typer.Option(min=1, help="Maximum number of records in a row group.")] = ROW_GROUP_ROWS,
    compression: Annotated[
        str, typer.Option(autocompletion=among(Compression), help="Parquet codec: zstd, snappy, gzip, lz4, brotli or none.")
    ] = "zstd",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files of the same name.")] = False,
    decode: Annotated[DecodeName | None, typer.Option(help="'internal': messages of a cluster's own topics, as columns.")] = None,
    **options: OptionValue,
) -> int:
    """Write one Parquet file for each segment, below `topic=…/partition=…/` of the target folder.

    Files get their names together, when all are complete and on disk: even if the run is killed, no incomplete file is left.

    Example: `kolumn to-parquet --include-headers /var/lib/kafka/data/orders-* lake/`
    """
    sources, target = sources_and_target(paths, output)
    from kolumn.damage.findings import Skipped
    from kolumn.options import Options
    from kolumn.readers.plan import plan_read
    from kolumn.tools.parquet import write_parquet

    skipped = Skipped()
    with progress("writing", lambda: size_of(sources)) as advance:
        chosen = Options.of(decode=decode, on_progress=advance, **options)
        plan = plan_read(sources, chosen)
        written = [rows for _, rows in write_parquet(plan.ranges, target, plan.options, row_group_rows, compression, overwrite, skipped)]
    files = counted(sum(rows > 0 for rows in written), "file")
    note(f"{counted(sum(written), 'record')} in {files} below {target}")
    return say(skipped)
