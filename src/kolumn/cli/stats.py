"""``kolumn stats``: totals of partitions."""

from typing import Any

from kolumn.cli.common import JsonInPipes, Segments, command, is_json, or_standard_input, print_json, print_table, size_of
from kolumn.cli.left_out import say
from kolumn.cli.progress import progress
from kolumn.cli.read_options import READING, OptionValue, with_read_options

_IN_JSON_ALONE = ("damagedStretches", "damagedBytes", "recordsLost")


@command
@with_read_options(*READING, "keys", errors="skip")
def stats(
    sources: Segments,
    json: JsonInPipes = None,
    **options: OptionValue,
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
        rows = collect(given, skipped, on_progress=advance, **options)
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
