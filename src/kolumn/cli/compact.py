"""``kolumn compact`` and ``kolumn clean``: the results of a broker's log cleaner and of retention.

``kolumn tidy``: completes interrupted runs below a target, or removes what they staged.
"""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kolumn.cli.common import FAILED, OK, Json, Output, Paths, command, counted, counts_of, print_json, say_of, size_of, sources_and_target
from kolumn.cli.ending import progress
from kolumn.cli.read_options import READING, OptionValue, with_read_options
from kolumn.cli.tables import note
from kolumn.core.errors import escaped

if TYPE_CHECKING:
    from kolumn.writers.compaction.compact import Compaction


Now = Annotated[int | None, typer.Option(help="Time of the round, ms since 1970; by default the present.")]


@command
@with_read_options(*READING)
def compact(
    paths: Paths,
    output: Output = None,
    delete_retention_ms: Annotated[int, typer.Option(min=0, help="How long tombstones stay: delete.retention.ms.")] = 86_400_000,
    now: Now = None,
    first_dirty_offset: Annotated[int, typer.Option(min=0, help="Where the last round ended.")] = 0,
    include_active: Annotated[bool, typer.Option("--include-active", help="Clean the last segment too.")] = False,
    merge_bytes: Annotated[int | None, typer.Option(help="Merge compressed message sets up to this size.")] = None,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Compact topic-partitions as Kafka's log cleaner does: the last record of each key stays.

    Example: `kolumn compact --include-active /mnt/dead-broker/accounts-* compacted/`
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
        print_json({"segments": done.segments, **counts, **counts_of(done), "copied": done.copied})
        return say_of(done)
    if done.copied:
        note(_copied(done, include_active))
    if len(done.segments) > done.copied:
        note(f"{done.retained} of {done.records} records stay, {done.retained_bytes} of {done.bytes} bytes")
    return say_of(done)


def _copied(done: "Compaction", include_active: bool) -> str:
    number = done.copied
    active = 0 if include_active else len({os.path.dirname(path) for path in done.segments})
    said = f"{counted(number, 'active segment' if number <= active else 'segment')} copied as {'it is' if number == 1 else 'they are'}"
    if number > active:
        return f"{said}: {'transactions in them' if include_active else 'they are active, or transactions in them'} are not decided yet"
    return f"{said}; --include-active compacts {'it' if number == 1 else 'them'}"


@command
@with_read_options("replicas", "format", "topic", "partition")
def clean(
    paths: Paths,
    retention_ms: Annotated[int, typer.Option(min=0, help="How long records stay: retention.ms.")],
    output: Output = None,
    now: Now = None,
    json: Json = False,
    **options: OptionValue,
) -> None:
    """Drop old records from the head of topic-partitions: whole segments, and the head of the first one that stays.

    Example: `kolumn clean --retention-ms 604800000 /mnt/dead-broker/clicks-0 week/`
    """
    sources, target = sources_and_target(paths, output)
    import kolumn

    with progress("cleaning", None):
        done = kolumn.clean(sources, target, retention_ms=retention_ms, now=now, **options)
    if json:
        print_json({"segments": done.segments, "dropped": done.dropped, "cut": done.cut})
        return
    for path in done.dropped:
        note(f"dropped: {path}")
    for path, size in done.cut.items():
        note(f"cut: {path}: {counted(size, 'byte')}")
    stay = "stays" if len(done.segments) == 1 else "stay"
    note(f"{counted(len(done.segments), 'segment')} {stay}")


@command
def tidy(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The target of a writer: a folder, or its URL.")],
    older_than_hours: Annotated[
        float | None,
        typer.Option(
            min=0, help="Age from which staged files are removed if it is not known whether their run lives, as at URLs; by default 24."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be done.")] = False,
    json: Json = False,
) -> int:
    """Complete interrupted runs, or remove what they staged, in a target and in the topic-partition folders in it.

    Every writer does that for its own target when it runs again. Only files that Kolumn wrote are changed, and files staged by
    live runs are left. The exit code is 3 if something could not be done.

    Example: `kolumn tidy s3://backup/kafka`
    """
    import kolumn

    age = {} if older_than_hours is None else {"older_than_hours": older_than_hours}
    found = kolumn.tidy(target, dry_run=dry_run, **age)
    for one in found:
        if json:
            print_json(asdict(one))
        else:
            typer.echo(escaped(f"would be {one}" if dry_run and one.action not in ("left", "failed") else str(one)))
    if not found and not json:
        typer.echo("nothing to tidy")
    return FAILED if any(one.action == "failed" for one in found) else OK
