"""``kolumn compact`` and ``kolumn clean``: what a broker's cleaners would leave."""

from typing import Annotated

import typer

from kolumn.cli.common import CheckCrcs, Errors, Format, Json, Partition, Topic, command, print_json
from kolumn.cli.convert import Paths

Now = Annotated[int | None, typer.Option(help="Time of the round, ms since 1970; by default the present.")]
_TOO_FEW = "name at least one source, and the target folder last"


@command
def compact(
    paths: Paths,
    delete_retention_ms: Annotated[int, typer.Option(min=0, help="How long tombstones stay: delete.retention.ms.")] = 86_400_000,
    now: Now = None,
    first_dirty_offset: Annotated[int, typer.Option(min=0, help="Where the last round ended.")] = 0,
    include_active: Annotated[bool, typer.Option("--include-active", help="Clean the last segment too.")] = False,
    merge_bytes: Annotated[int | None, typer.Option(help="Put compressed message sets together up to this size.")] = None,
    json: Json = False,
    errors: Errors = "raise",
    check_crcs: CheckCrcs = True,
    format: Format = "kafka",
    topic: Topic = None,
    partition: Partition = None,
) -> None:
    """Compact topic-partitions as Kafka's log cleaner does: the last record of each key stays.

    Example: `kolumn compact --include-active /mnt/dead-broker/accounts-* compacted/`
    """
    if len(paths) < 2:
        raise typer.BadParameter(_TOO_FEW)
    import kolumn

    done = kolumn.compact(
        paths[:-1], paths[-1], format=format, delete_retention_ms=delete_retention_ms, now=now, first_dirty_offset=first_dirty_offset,
        include_active=include_active, merge_bytes=merge_bytes, errors=errors, check_crcs=check_crcs, topic=topic, partition=partition,
    )  # fmt: skip
    if json:
        counts = {"records": done.records, "retained": done.retained, "bytes": done.bytes, "retainedBytes": done.retained_bytes}
        print_json({"segments": done.segments, **counts, "damaged": len(done.damage)})
        return
    for error in done.damage:
        typer.echo(f"left out: {error}", err=True)
    typer.echo(f"{done.retained} of {done.records} records stay, {done.retained_bytes} of {done.bytes} bytes", err=True)


@command
def clean(
    paths: Paths,
    retention_ms: Annotated[int, typer.Option(min=0, help="How long records stay: retention.ms.")],
    now: Now = None,
    json: Json = False,
    format: Format = "kafka",
    topic: Topic = None,
    partition: Partition = None,
) -> None:
    """Drop old records from the head of topic-partitions: whole segments, and the head of the first one that stays.

    Example: `kolumn clean --retention-ms 604800000 /mnt/dead-broker/clicks-0 week/`
    """
    if len(paths) < 2:
        raise typer.BadParameter(_TOO_FEW)
    import kolumn

    done = kolumn.clean(paths[:-1], paths[-1], retention_ms=retention_ms, now=now, format=format, topic=topic, partition=partition)
    if json:
        print_json({"segments": done.segments, "dropped": done.dropped, "cut": done.cut})
        return
    for path in done.dropped:
        typer.echo(f"dropped: {path}", err=True)
    for path, size in done.cut.items():
        typer.echo(f"cut: {path}: {size} bytes", err=True)
    typer.echo(f"{len(done.segments)} segments stay", err=True)
