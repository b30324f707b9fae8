"""``kolumn transactions``: transactions that are open or hanging."""

from typing import Annotated

import typer

from kolumn.cli.common import JsonInPipes, Sources, command, is_json, print_json, print_table
from kolumn.cli.left_out import say
from kolumn.cli.progress import progress

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
