"""``kolumn convert``: segments in another format."""

from typing import Annotated

import typer

from kolumn.cli.common import (
    CodecName,
    FormatName,
    Json,
    Output,
    Paths,
    command,
    counted,
    counts_of,
    print_json,
    say_of,
    size_of,
    sources_and_target,
)
from kolumn.cli.completion import among
from kolumn.cli.ending import progress
from kolumn.cli.read_options import READING, OptionValue, with_read_options
from kolumn.cli.tables import note
from kolumn.core.keywords import Codec, Format


@command
@with_read_options(*(name for name in READING if name != "format"))
def convert(
    paths: Paths,
    output: Output = None,
    to: Annotated[
        FormatName,
        typer.Option(autocompletion=among(Format), help="Format to write: 'kafka', 'enriched', 'kip98-draft', 'v3-compact' or 'kip87'."),
    ] = "kafka",
    magic: Annotated[int | None, typer.Option(help="Of 'kafka' 0, 1 or 2 (the default); of a draft its own by default.")] = None,
    codec: Annotated[
        CodecName | None,
        typer.Option(autocompletion=among(Codec), help="none, gzip, snappy, lz4 or zstd; by default each batch keeps its own."),
    ] = None,
    level: Annotated[int | None, typer.Option(help="Of gzip (0 to 9) or zstd.")] = None,
    source_format: Annotated[FormatName, typer.Option(help="Format of the source, likewise.")] = "kafka",
    timestamp: Annotated[int | None, typer.Option(help="LogAppendTime in ms for records that have no timestamp.")] = None,
    drop_transactions: Annotated[
        bool, typer.Option("--drop-transactions", help="Convert records of committed transactions to plain records, leave out the others.")
    ] = False,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Rewrite segments in another format, offsets kept; print first what may be lost, and at the end what was lost.

    The target is a `*.log` file for one segment, else a folder, in which a segment becomes several if one has no room. Nothing is
    overwritten; the segments appear together at the end.

    Example: `kolumn convert --magic 1 --codec lz4 --drop-transactions /data/orders-3 old/`
    """
    sources, target = sources_and_target(paths, output)
    import kolumn

    may = kolumn.losses(source_format, to, magic)
    if may and not json:
        note(f"This format cannot store: {', '.join(may)}.")
    with progress("converting", lambda: size_of(sources)) as advance:
        done = kolumn.convert(
            sources, target, format=to, magic=magic, codec=codec, level=level, source_format=source_format, timestamp=timestamp,
            drop_transactions=drop_transactions, on_progress=advance, **options,
        )  # fmt: skip
    if json:
        counts = {"batches": done.batches, "records": done.records, "copied": done.copied, **counts_of(done)}
        print_json({"segments": done.segments, **counts, "mayLose": may, "lost": dict(done.lost)})
        return say_of(done)
    for name, count in sorted(done.lost.items()):
        note(f"lost: {name}: {count}")
    batches = counted(done.batches, "batch")
    segments = counted(len(done.segments), "segment")
    note(f"{counted(done.records, 'record')} in {batches}, {done.copied} of them byte for byte, {segments}")
    return say_of(done)
