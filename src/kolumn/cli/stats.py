"""``kolumn stats``: totals of partitions.

``kolumn columns``: the record columns and their types.
"""

from typing import Any

from kolumn.cli.common import JsonInPipes, Segments, command, is_json, or_standard_input, print_json, print_table, say, size_of
from kolumn.cli.ending import progress
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
    from kolumn.damage.findings import Skipped
    from kolumn.tools.statistics import collect

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


@command
def columns(json: JsonInPipes = None) -> None:
    """List the record columns that `--columns` takes, and their Arrow types."""
    from kolumn.core.schema import DEFAULT_COLUMNS, RECORD_COLUMNS

    if is_json(json):
        for name, kind in RECORD_COLUMNS.items():
            print_json({"name": name, "type": str(kind), "default": name in DEFAULT_COLUMNS})
        return
    rows = [[name, str(kind), "yes" if name in DEFAULT_COLUMNS else ""] for name, kind in RECORD_COLUMNS.items()]
    print_table("", ["column", "type", "default"], rows)
