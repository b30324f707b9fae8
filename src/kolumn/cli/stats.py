"""``kolumn stats``: totals of partitions."""

from typing import Any

from kolumn.cli.common import (
    CheckCrcs,
    Errors,
    Format,
    JsonInPipes,
    KeyFile,
    MaxBatchBytes,
    MaxRatio,
    Partition,
    Replicas,
    Segments,
    Topic,
    command,
    is_json,
    key_files,
    limits,
    or_standard_input,
    print_json,
    print_table,
    size_of,
)
from kolumn.cli.left_out import say
from kolumn.cli.progress import progress

_IN_JSON_ALONE = ("damagedStretches", "damagedBytes", "recordsLost")


@command
def stats(
    sources: Segments,
    json: JsonInPipes = None,
    errors: Errors = "skip",
    replicas: Replicas = "raise",
    check_crcs: CheckCrcs = True,
    max_batch_bytes: MaxBatchBytes = None,
    max_ratio: MaxRatio = None,
    format: Format = "kafka",
    topic: Topic = None,
    partition: Partition = None,
    key_file: KeyFile = None,
) -> int:
    """Report the totals of each partition: records, offsets, times, sizes, codecs, formats, producers.

    Control records are not counted. Damaged batches are left out (`kolumn verify` lists them).

    Example: `kolumn stats /var/lib/kafka/data`
    """
    from kolumn.accounting.statistics import collect
    from kolumn.damage.findings import Skipped

    skipped = Skipped()
    given = or_standard_input(sources)
    with progress("decoding", lambda: size_of(given)) as advance:
        rows = collect(
            given, topic, partition, skipped, errors=errors, replicas=replicas, check_crcs=check_crcs, format=format, on_progress=advance,
            keys=key_files(key_file),
            **limits(max_batch_bytes, max_ratio),
        )  # fmt: skip
    if is_json(json):
        for row in rows:
            print_json(row)
        return say(skipped)
    names = [name for name in rows[0] if name not in _IN_JSON_ALONE] if rows else []
    print_table("", names, [[_cell(name, row[name]) for name in names] for row in rows])
    return say(skipped)


def _cell(name: str, value: object) -> Any:
    if not isinstance(value, dict):
        return value
    return ", ".join(f"{'v' if name == 'magic' else ''}{key}: {count}" for key, count in value.items())
