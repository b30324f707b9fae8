"""Commands that write: segments in other formats, Parquet files, compacted logs, and what can be recovered or rebuilt."""

import os
from dataclasses import asdict
from json import loads
from typing import TYPE_CHECKING, Annotated

import typer

from kolumn.cli import arguments
from kolumn.cli.arguments import (
    PAYLOADS,
    READING,
    SELECTION,
    TRANSLATED,
    Json,
    Now,
    OptionValue,
    Output,
    Paths,
    sources_and_target,
    with_read_options,
)
from kolumn.cli.common import counted, counts_of, note, print_json, rows_of, say, say_none, say_of, size_of
from kolumn.cli.ending import DAMAGE, FAILED, LIMIT, OK, command, progress
from kolumn.cli.help import VALUES
from kolumn.cli.tables import print_left_out, print_some
from kolumn.core.amounts import size
from kolumn.core.errors import escaped
from kolumn.core.keywords import ROW_GROUP_ROWS, Codec, Compression, Format

if TYPE_CHECKING:
    from kolumn.writers.rewriting.compact import Compaction


@command
@with_read_options(*arguments.READING_KAFKA, "start_delta")
def convert(
    paths: Paths,
    output: Output = None,
    to: Annotated[
        arguments.FormatName,
        typer.Option(
            autocompletion=arguments.among(Format),
            help="Format to write: 'kafka', 'redpanda', 'enriched', 'kip98-draft', 'v3-compact' or 'kip87'.",
        ),
    ] = "kafka",
    magic: Annotated[int | None, typer.Option(help="For 'kafka' 0, 1 or 2 (the default); a draft has its own default.")] = None,
    codec: Annotated[
        arguments.CodecName | None,
        typer.Option(autocompletion=arguments.among(Codec), help="none, gzip, snappy, lz4 or zstd; by default each batch keeps its own."),
    ] = None,
    level: Annotated[int | None, typer.Option(help="Compression level of gzip (0 to 9) or zstd.")] = None,
    source_format: Annotated[arguments.FormatName, typer.Option(help="Format of the source, with the same names.")] = "kafka",
    timestamp: Annotated[int | None, typer.Option(help="LogAppendTime in ms for records that have no timestamp.")] = None,
    drop_transactions: Annotated[
        bool, typer.Option("--drop-transactions", help="Convert records of committed transactions to plain records, and drop the others.")
    ] = False,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Rewrite segments in another format, offsets kept; print what was lost, and what else the format cannot store.

    The target is a `*.log` file for one segment, otherwise a folder, in which a segment is split if it becomes too large. Nothing is
    overwritten, and the segments appear together at the end.

    Example: `kolumn convert --magic 1 --drop-transactions /data/orders-3 old/`
    """
    sources, target = sources_and_target(paths, output)
    import kolumn

    may = kolumn.losses(source_format, to, magic)
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
    if others := [name for name in may if not done.lost.get(name)]:
        note(f"Not in the source, and this format could not store: {', '.join(others)}.")
    batches, segments = counted(done.batches, "batch"), counted(len(done.segments), "segment")
    note(f"{counted(done.records, 'record')} in {batches}, {done.copied} of them byte for byte, {segments}")
    return say_of(done)


@command
@with_read_options(*SELECTION, *TRANSLATED, "private_keys", *PAYLOADS)
def to_parquet(
    paths: Paths,
    output: Output = None,
    row_group_rows: Annotated[int, typer.Option(min=1, help="Maximum number of records in a row group.")] = ROW_GROUP_ROWS,
    compression: Annotated[
        str, typer.Option(autocompletion=arguments.among(Compression), help="Parquet codec: zstd, snappy, gzip, lz4, brotli or none.")
    ] = "zstd",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files of the same name.")] = False,
    decode: Annotated[
        arguments.DecodeName | None,
        typer.Option(rich_help_panel=VALUES, help="'internal': messages of a cluster's own topics, as columns."),
    ] = None,
    **options: OptionValue,
) -> int:
    """Write one Parquet file for each segment, below `topic=…/partition=…/` of the target folder.

    Files get their names together, when all are complete and on disk: even if the run is killed, no incomplete file is left. With
    `--value-format` each topic has the type of its own schema, and values of a topic without one stay bytes.

    Example: `kolumn to-parquet --include-headers /mnt/dead-broker/orders-* lake/`
    """
    sources, target = sources_and_target(paths, output)
    from kolumn.damage.findings import Skipped
    from kolumn.options import Options
    from kolumn.readers.topics import plan_topics
    from kolumn.tools.parquet import write_parquet

    skipped = Skipped()
    with progress("writing", lambda: size_of(sources)) as advance:
        plans = plan_topics(sources, Options.of(decode=decode, on_progress=advance, **options))
        written = [rows for _, rows in write_parquet(plans, target, row_group_rows, compression, overwrite, skipped)]
    note(f"{counted(sum(written), 'record')} in {counted(sum(rows > 0 for rows in written), 'file')} below {target}")
    if not sum(written):
        say_none(sources, skipped, options)
    return say(skipped)


_APPENDED = (
    *("columns", "include_headers", "include_control", "isolation_level"),
    *(*TRANSLATED, "private_keys", *PAYLOADS),
)  # fmt: skip
StartOffsets = Annotated[
    str | None,
    typer.Option(
        help="Where to begin in a table with rows written by other tools, as JSON: '{\"orders\": {\"0\": 5000}}'; '{}' is the log start."
    ),
]
ByDay = Annotated[bool, typer.Option("--by-day", help="Also partition a new table by the day of the timestamp.")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="catalog.namespace.table; pyiceberg's configuration knows the catalog.")]
Uri = Annotated[str, typer.Argument(metavar="URI", help="Folder or URI of the table.")]


@command
@with_read_options(*_APPENDED)
def to_iceberg(
    path: Annotated[str, typer.Argument(metavar="DIR", help="A topic-partition directory, or a log directory of many.")],
    table: Table,
    start_offsets: StartOffsets = None,
    by_day: ByDay = False,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Append the records that an Iceberg table does not have yet, and create the table if it does not exist.

    The table's own commit records how far it has come, so you may kill the command, repeat it, and run it twice at once.

    Example: `kolumn to-iceberg /mnt/dead-broker lake.kafka.records`
    """
    from kolumn.tools.iceberg import IcebergTarget

    return _append(path, IcebergTarget(table), start_offsets, by_day, json, options)


@command
@with_read_options(*_APPENDED)
def to_delta(
    path: Annotated[str, typer.Argument(metavar="DIR", help="A topic-partition directory, or a log directory of many.")],
    uri: Uri,
    start_offsets: StartOffsets = None,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Append the records that a Delta table does not have yet, and create the table if it does not exist.

    The table's own commit records how far it has come, so you may kill the command, repeat it, and run it twice at once.

    Example: `kolumn to-delta /mnt/dead-broker s3://lake/records`
    """
    return _append(path, uri, start_offsets, False, json, options)


def _append(path: str, table: object, start: str | None, by_day: bool, json: bool, options: dict[str, OptionValue]) -> int:
    import kolumn
    from kolumn.damage.findings import Skipped
    from kolumn.tools.append import LATER

    try:
        starts = None if start is None else loads(start)
    except ValueError as error:
        raise typer.BadParameter(f"--start-offsets: expected JSON, found {start!r}") from error
    skipped = Skipped()
    with progress("appending", lambda: size_of([path])) as advance:
        done = kolumn.append(path, table, start_offsets=starts, by_day=by_day, on_damage=skipped, on_progress=advance, **options)
    if json:
        print_json({"rows": done.rows, "files": done.files, "next": done.next, "lost": done.lost})
        return say(skipped, LATER)
    for topic, partition, first, end in done.lost:
        note(f"lost: {topic}-{partition}: offsets {first} to {end - 1} were deleted before they were appended")
    note(f"{counted(done.rows, 'record')} in {counted(len(done.files), 'file')} appended")
    return say(skipped, LATER)


@command
@with_read_options(*READING)
def compact(
    paths: Paths,
    output: Output = None,
    delete_retention_ms: Annotated[str, typer.Option(help="How long tombstones stay, such as 12h, or ms: delete.retention.ms.")] = "1d",
    now: Now = None,
    first_dirty_offset: Annotated[int, typer.Option(min=0, help="Where the last round ended.")] = 0,
    include_active: Annotated[bool, typer.Option("--include-active", help="Clean the last segment too.")] = False,
    merge_bytes: Annotated[int | None, typer.Option(help="Merge compressed message sets up to this size.")] = None,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Compact topic-partitions as Kafka's log cleaner does: the last record of each key stays.

    Active segments are copied as they are. Damage in them is copied too: it is listed on standard error, and the exit code is 1.

    Example: `kolumn compact --include-active /mnt/disk/accounts-* compacted/`
    """
    sources, target = sources_and_target(paths, output)
    import kolumn

    # Each segment is read twice: for the last record of each key, and to be written.
    with progress("compacting", lambda: 2 * size_of(sources)) as advance:
        done = kolumn.compact(
            sources, target, delete_retention_ms=delete_retention_ms, now=now, first_dirty_offset=first_dirty_offset,
            include_active=include_active, merge_bytes=merge_bytes, on_progress=advance, **options,
        )  # fmt: skip
    if json:
        counts = {"records": done.records, "retained": done.retained, "bytes": done.bytes, "retainedBytes": done.retained_bytes}
        print_json(
            {"segments": done.segments, **counts, **counts_of(done), "copied": done.copied, "copiedDamage": done.copied_damage.stretches}
        )
        return _say_compacted(done)
    if done.copied:
        note(_copied(done, include_active))
    if len(done.segments) > done.copied:
        note(f"{done.retained} of {counted(done.records, 'record')} stay, {size(done.retained_bytes)} of {size(done.bytes)}")
    return _say_compacted(done)


def _say_compacted(done: "Compaction") -> int:
    for piece in done.copied_damage.damage:
        note(f"copied with its damage: {piece.segment}: position {piece.position}: {piece.reason}")
    return say_of(done) or (DAMAGE if done.copied_damage.damage else OK)


def _copied(done: "Compaction", include_active: bool) -> str:
    number = done.copied
    active = 0 if include_active else len({os.path.dirname(path) for path in done.segments})
    text = f"{counted(number, 'active segment' if number <= active else 'segment')} copied as {'it is' if number == 1 else 'they are'}"
    if number > active:
        return f"{text}: {'transactions in them' if include_active else 'they are active, or transactions in them'} are not decided yet"
    return f"{text}; --include-active compacts {'it' if number == 1 else 'them'}"


@command
@with_read_options("replicas", "format", "topic", "partition")
def apply_retention(
    paths: Paths,
    retention_ms: Annotated[str, typer.Option(help="How long records stay, such as 7d or 12h, or ms: retention.ms.")],
    output: Output = None,
    now: Now = None,
    json: Json = False,
    **options: OptionValue,
) -> None:
    """Drop old records from the head of topic-partitions: whole segments, and the head of the first remaining one.

    Example: `kolumn apply-retention --retention-ms 7d /mnt/disk/clicks-0 week/`
    """
    sources, target = sources_and_target(paths, output)
    import kolumn

    with progress("cleaning", None):
        done = kolumn.apply_retention(sources, target, retention_ms=retention_ms, now=now, **options)
    if json:
        print_json({"segments": done.segments, "dropped": done.dropped, "cut": done.cut})
        return
    for path in done.dropped:
        note(f"dropped: {path}")
    for path, cut in done.cut.items():
        note(f"cut: {path}: {counted(cut, 'byte')}")
    note(f"{counted(len(done.segments), 'segment')} {'stays' if len(done.segments) == 1 else 'stay'}")


_WRITTEN = ("topic", "partition", "segments", "batches", "records", "bytes", "firstOffset", "lastOffset")


@command
@with_read_options("topic", "partition", "private_keys")
def recover(
    paths: Paths, output: Output = None, index_interval_bytes: arguments.IndexInterval = 4096, json: Json = False, **options: OptionValue
) -> int:
    """Write every intact batch of damaged copies into folders that a broker starts on, with indexes and leader epochs.

    Batches are copied byte for byte, each offset once; damage of one replica is filled from the others. The tables say which offsets
    came from where, what is in no copy, and how certain the number of lost records is. The exit code is 1 if anything is lost, and
    otherwise 4 if a batch is over a limit: it is copied like the others, but its records were not counted.

    Example: `kolumn recover /mnt/disk-1/orders-3 /mnt/disk-2/orders-3 recovered/`
    """
    sources, target = sources_and_target(paths, output)
    import kolumn

    with progress("recovering", lambda: size_of(sources)) as advance:
        done = kolumn.recover(sources, target, index_interval_bytes=index_interval_bytes, on_progress=advance, **options)
    tables = {"partitions": done.partitions, "kept": done.kept, "lost": done.lost, "remarks": done.remarks, "leftOut": done.left_out}
    rows = {name: rows_of(table) for name, table in tables.items()}
    large = [row for row in rows["lost"] if row["kind"] == "limit"]
    code = DAMAGE if not done.ok else LIMIT if large else OK
    if json:
        print_json({"ok": done.ok, **rows, "divergences": list(done.divergences)})
        return code
    numbers = [row["records"] for row in rows["partitions"]]
    records = "an unknown number of records" if None in numbers else counted(sum(numbers), "record")
    written = f"{records} in {counted(len(numbers), 'partition')}"
    if large:
        written += f"; {counted(len(large), 'batch')} over a limit: kept, and {'its' if len(large) == 1 else 'their'} records not counted"
    lost = sum(row["kind"] not in ("tail", "limit") for row in rows["lost"])
    print(f"{'OK' if done.ok else counted(lost, 'stretch') + ' lost'}: {written}")
    for text in done.divergences:
        print(f"Different records: {escaped(text)}")
    if open_transactions := sum(row["openTransactions"] for row in rows["partitions"]):
        print(f"{counted(open_transactions, 'transaction')} without a marker: `kolumn transactions` lists what a broker would wait for")
    print_some("Lost", [row for row in rows["lost"] if row["kind"] != "limit"])
    print_some("Over a limit: kept, records not counted (no damage)", large)
    print_some(f"Written below {escaped(target)}", rows["partitions"], _WRITTEN)
    print_some("Where it comes from", rows["kept"])
    print_some("Remarks (no damage)", rows["remarks"])
    print_left_out(rows["leftOut"])
    return code


@command
@with_read_options("errors")
def rebuild_index(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A topic-partition directory, or a log directory of many.")],
    index_interval_bytes: arguments.IndexInterval = 4096,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Write .index, .timeindex and .txnindex beside each segment, into the source itself, as a broker does when it recovers.

    The log is only read. Index files that are there are replaced, all of them or none. No broker may be running on the directory. With
    --errors skip damaged batches get no entries, and are counted on standard error.

    Example: `kolumn rebuild-index /mnt/dead-broker/orders-3`
    """
    import kolumn

    with progress("indexing", None) as advance:
        done = kolumn.rebuild_index(folder, index_interval_bytes=index_interval_bytes, on_progress=advance, **options)
    if json:
        counts = {"offsetEntries": done.offset_entries, "timeEntries": done.time_entries, "transactionEntries": done.transaction_entries}
        print_json({"files": list(done.files), "removed": list(done.removed), **counts})
    else:
        removed = f", {counted(len(done.removed), 'file')} without entries removed" if done.removed else ""
        entries = done.offset_entries + done.time_entries + done.transaction_entries
        print(f"{counted(len(done.files), 'index file')} with {entries} entries{removed}")
    return say_of(done)


@command
def tidy(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The target of a writer: a folder, or its URL.")],
    older_than_hours: Annotated[
        float | None,
        typer.Option(
            min=0, help="Age at which staged files are removed if it is unknown whether their run is alive, as at URLs; by default 24."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be done.")] = False,
    json: Json = False,
) -> int:
    """Complete interrupted runs in a target and its topic-partition folders, or remove what they staged.

    Every writer does this for its own target when it runs again. Only files that Kolumn wrote are changed, and files that live
    runs have staged are left alone. The exit code is 3 if something could not be done.

    Example: `kolumn tidy s3://backup/kafka`
    """
    import kolumn

    age = {} if older_than_hours is None else {"older_than_hours": older_than_hours}
    leftovers = kolumn.tidy(target, dry_run=dry_run, **age)
    for leftover in leftovers:
        if json:
            print_json(asdict(leftover))
        else:
            typer.echo(escaped(f"would be {leftover}" if dry_run and leftover.action not in ("left", "failed") else str(leftover)))
    if not leftovers and not json:
        typer.echo("nothing to tidy")
    return FAILED if any(leftover.action == "failed" for leftover in leftovers) else OK
