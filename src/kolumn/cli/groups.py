"""``kolumn groups``: committed offsets and lag of consumer groups."""

from kolumn.cli.common import JsonInPipes, Sources, command, is_json, print_json, print_table
from kolumn.cli.left_out import say
from kolumn.cli.progress import progress

_SHOWN = ("group", "kind", "state", "topic", "partition", "committedOffset", "logEndOffset", "lag", "commitTimestamp", "metadata")


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
        print_table("", list(_SHOWN), [[_cell(row[name]) for name in _SHOWN] for row in found])
    return say(skipped)


def _cell(value: object) -> object:
    return value.isoformat(sep=" ", timespec="milliseconds")[:23] if hasattr(value, "isoformat") else value
