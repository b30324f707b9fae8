"""``kolumn transactions``: transactions that are open or hanging.

``kolumn groups``: committed offsets and lag of consumer groups.
"""

from typing import Annotated

import typer

from kolumn.cli.common import JsonInPipes, Sources, command, is_json, print_json, print_table, say
from kolumn.cli.ending import progress

_SHOWN = (
    *("producerId", "producerEpoch", "transactionalId", "topic", "partition", "firstOffset", "firstTimestamp", "ageMs"),
    *("isHanging", "coordinatorState"),
)


@command
def transactions(
    sources: Sources,
    now: Annotated[
        str | None, typer.Option(help="Moment at which ages end: ms since 1970, or ISO 8601 (UTC unless it has a time zone).")
    ] = None,
    json: JsonInPipes = None,
) -> int:
    """List transactions that no marker has ended, with their producer, their first offset and their age.

    The sources are log directories of brokers; copies of a partition are merged. Where `__transaction_state` is among them, the
    coordinator's view is printed too. A transaction hangs if no coordinator will end it: readers of committed records wait at its first
    offset for ever. Damage is left out, and is counted on standard error.

    Example: `kolumn transactions --now 2026-01-31T12:00 /mnt/broker-1/data`
    """
    import kolumn

    skipped = kolumn.Skipped()
    with progress("reading", None) as advance:
        found = kolumn.open_transactions(sources, now=now, errors="skip", on_damage=skipped, on_progress=advance).to_pylist()
    if is_json(json):
        for row in found:
            print_json(row)
    else:
        print_table("", list(_SHOWN), [[_cell(row[name]) for name in _SHOWN] for row in found])
    return say(skipped)


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value.isoformat(sep=" ", timespec="milliseconds")[:23] if hasattr(value, "isoformat") else value


_GROUPS_SHOWN = ("group", "kind", "state", "topic", "partition", "committedOffset", "logEndOffset", "lag", "commitTimestamp", "metadata")


@command
def groups(sources: Sources, json: JsonInPipes = None) -> int:
    """List groups: the last committed offset of each partition, and the lag against the log beside it.

    The sources are log directories of brokers, with partitions of `__consumer_offsets` and of the topics that are consumed. Several
    brokers' directories can be named: copies of a partition are merged. Where a partition's log is not there, its lag is empty. Damage
    of `__consumer_offsets` is left out, and is counted on standard error. With --json members and their partitions are printed too.

    Example: `kolumn groups /mnt/broker-1/data /mnt/broker-2/data`
    """
    import kolumn

    skipped = kolumn.Skipped()
    with progress("reading", None) as advance:
        found = kolumn.groups(sources, errors="skip", on_damage=skipped, on_progress=advance).to_pylist()
    if is_json(json):
        for row in found:
            print_json(row)
    else:
        print_table("", list(_GROUPS_SHOWN), [[_groups_cell(row[name]) for name in _GROUPS_SHOWN] for row in found])
    return say(skipped)


def _groups_cell(value: object) -> object:
    return value.isoformat(sep=" ", timespec="milliseconds")[:23] if hasattr(value, "isoformat") else value
