"""``kolumn convert``: segments in another format."""

from typing import Annotated

import typer

from kolumn.cli.common import CheckCrcs, Errors, Json, Partition, Topic, command, print_json

Paths = Annotated[list[str], typer.Argument(metavar="SOURCE... TARGET", help="Sources as elsewhere; the last one is the target.")]


@command
def convert(
    paths: Paths,
    to: Annotated[str, typer.Option(help="Format to write: 'kafka', 'enriched', 'kip98-draft', 'v3-compact' or 'kip87'.")] = "kafka",
    magic: Annotated[int | None, typer.Option(help="Of 'kafka' 0, 1 or 2 (the default); of a draft its own by default.")] = None,
    codec: Annotated[str | None, typer.Option(help="none, gzip, snappy, lz4 or zstd; by default each batch keeps its own.")] = None,
    level: Annotated[int | None, typer.Option(help="Of gzip (0 to 9) or zstd.")] = None,
    source_format: Annotated[str, typer.Option(help="Format of the source, likewise.")] = "kafka",
    timestamp: Annotated[int | None, typer.Option(help="LogAppendTime in ms for records that have no timestamp.")] = None,
    drop_transactions: Annotated[
        bool, typer.Option("--drop-transactions", help="Make plain records of committed transactions, leave out the others.")
    ] = False,
    json: Json = False,
    errors: Errors = "raise",
    check_crcs: CheckCrcs = True,
    topic: Topic = None,
    partition: Partition = None,
) -> None:
    """Rewrite segments in another format, one for each, offsets kept; say before what that may lose, and after what it lost.

    The target is a `*.log` file for one segment, else a folder. Nothing is written over.

    Example: `kolumn convert --magic 1 --codec lz4 --drop-transactions /data/orders-3 old/`
    """
    if len(paths) < 2:
        raise typer.BadParameter("name at least one source, and the target last")
    import kolumn

    may = kolumn.losses(source_format, to, magic)
    if may and not json:
        typer.echo(f"This format has no room for: {', '.join(may)}.", err=True)
    done = kolumn.convert(
        paths[:-1], paths[-1], format=to, magic=magic, codec=codec, level=level, source_format=source_format, timestamp=timestamp,
        drop_transactions=drop_transactions, errors=errors, check_crcs=check_crcs, topic=topic, partition=partition,
    )  # fmt: skip
    if json:
        counts = {"batches": done.batches, "records": done.records, "copied": done.copied, "damaged": len(done.damage)}
        print_json({"segments": done.segments, **counts, "mayLose": may, "lost": dict(done.lost)})
        return
    for error in done.damage:
        typer.echo(f"left out: {error}", err=True)
    for name, count in sorted(done.lost.items()):
        typer.echo(f"lost: {name}: {count}", err=True)
    typer.echo(
        f"{done.records} records in {done.batches} batches, {done.copied} of them byte for byte, {len(done.segments)} segments", err=True
    )
