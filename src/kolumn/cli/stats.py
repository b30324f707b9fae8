"""``kolumn stats``: what partitions hold."""

from typing import Any

from kolumn.cli.common import CheckCrcs, Errors, Format, Json, Partition, Sources, Topic, command, print_json, print_table, progress


@command
def stats(
    sources: Sources,
    json: Json = False,
    errors: Errors = "skip",
    check_crcs: CheckCrcs = True,
    format: Format = "kafka",
    topic: Topic = None,
    partition: Partition = None,
) -> None:
    """Count what each partition holds: records, offsets, times, sizes, codecs, formats, producers.

    Control records are not counted. Damaged batches are left out (`kolumn verify` lists them).

    Example: `kolumn stats /var/lib/kafka/data`
    """
    from kolumn.statistics import collect

    options = {"errors": errors, "check_crcs": check_crcs, "format": format}
    with progress("decoding", _size(sources)) as advance:
        rows = collect(sources, topic, partition, advance, **options)
    if json:
        for row in rows:
            print_json(row)
        return
    names = list(rows[0]) if rows else []
    print_table("", names, [[_cell(row[name]) for name in names] for row in rows])


def _size(sources: list[str]) -> int:
    from kolumn.source import find_segments

    return sum(segment.size for segment in find_segments(sources))


def _cell(value: Any) -> Any:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
