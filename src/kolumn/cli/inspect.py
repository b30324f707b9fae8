"""``kolumn inspect``: the batches of segments."""

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.common import (
    DAMAGE,
    OK,
    JsonInPipes,
    Segments,
    command,
    is_json,
    or_standard_input,
    print_json,
    print_table,
    say,
    short_name,
    size_of,
)
from kolumn.cli.ending import progress
from kolumn.cli.read_options import OptionValue, with_read_options
from kolumn.cli.tables import fits, terminal_width

if TYPE_CHECKING:
    from kolumn.damage.findings import Damage

_NAMES = ["segment", "position", "size", "offsets", "count", "magic", "codec", "crc", "producer", "sequence", "epoch", "flags"]
_OFTEN_SAME = ("magic", "codec", "epoch")


@command
@with_read_options("check_crcs", "errors", "replicas", "format", "topic", "partition", "keys", errors="skip")
def inspect(
    sources: Segments,
    json: JsonInPipes = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Stop after so many batches.")] = None,
    **options: OptionValue,
) -> int:
    """List the batches (formats 0 and 1: the outermost messages) without decoding their records.

    With `--no-check-crcs` only headers are read, which is fast on segments of any size. Flags: T transactional, C control,
    H delete horizon, L LogAppendTime. The checksum of a damaged batch is shown as WRONG; a stretch in which no batch was found is
    shown as `skipped`, and has the reason in `damage` in JSON.

    Example: `kolumn inspect --json orders-3 | jq 'select(.producerId == 4001)'`
    """
    import kolumn

    skipped = kolumn.Skipped()
    given = or_standard_input(sources)
    with progress("reading", lambda: size_of(given)) as advance:
        table = kolumn.batches(given, on_damage=skipped, on_progress=advance, **options)
    found = table.to_pylist()
    wrong = any(row["crcValid"] is False for row in found)
    rows = _with_stretches(found, skipped.damage)[:limit]
    if is_json(json):
        for row in rows:
            print_json(row)
    else:
        _print([_line(row) for row in rows])
    return say(skipped) or (DAMAGE if wrong else OK)


def _with_stretches(rows: list[dict[str, Any]], damage: "list[Damage]") -> list[dict[str, Any]]:
    """Batches, and between them the stretches without batches, in the order of the segments."""
    there = {(row["segment"], row["position"], row["size"]) for row in rows}
    stretches = [
        {
            "segment": piece.segment, "position": piece.position, "size": piece.size, "baseOffset": piece.base_offset,
            "lastOffset": piece.last_offset, "recordsLost": piece.records_lost, "damage": piece.reason,
        }
        for piece in damage
        if (piece.segment, piece.position, piece.size) not in there
    ]  # fmt: skip
    order: dict[str, int] = {}
    for row in (*rows, *stretches):
        order.setdefault(row["segment"], len(order))
    return sorted(rows + stretches, key=lambda row: (order[row["segment"]], row["position"]))


def _print(lines: list[list[Any]]) -> None:
    """Print one table, or one for each segment if a common table is too wide."""
    width = terminal_width()
    if fits(_NAMES, lines, width):
        print_table("", _NAMES, lines)
        return
    for number, (segment, own) in enumerate(groupby(lines, key=lambda line: line[0])):
        if number:
            print()
        cells = list(own)
        values = {i: {line[i] for line in cells if line[i] not in ("", None)} for i in range(1, len(_NAMES))}
        same = [i for i, found in values.items() if _NAMES[i] in _OFTEN_SAME and len(found) == 1]
        rest = [i for i, found in values.items() if found and i not in same]
        title = ", ".join([segment, *(f"{_NAMES[i]} {next(iter(values[i]))}" for i in same)])
        print_table(title, [_NAMES[i] for i in rest], [[line[i] for i in rest] for line in cells])


def _line(row: dict[str, Any]) -> list[Any]:
    first = "?" if row["baseOffset"] is None else row["baseOffset"]
    segment, place = short_name(row["segment"]), [row["position"], row["size"]]
    if "damage" in row:
        offsets = f"{first}..{'?' if row['lastOffset'] is None else row['lastOffset']}"
        return [segment, *place, offsets, row["recordsLost"], None, "", "skipped", "", "", "", ""]
    marks = ("isTransactional", "T"), ("isControl", "C")
    flags = "".join(mark for name, mark in marks if row[name])
    flags += ("H" if row["deleteHorizonMs"] is not None else "") + ("L" if row["timestampType"] == 1 else "")
    crc = {True: "ok", False: "WRONG", None: ""}[row["crcValid"]]
    producer = "" if row["producerId"] == -1 else f"{row['producerId']}/{row['producerEpoch']}"
    sequence = "" if row["baseSequence"] == -1 else row["baseSequence"]
    fixed = [segment, *place, f"{first}..{row['lastOffset']}", row["count"], row["magic"], row["codec"]]
    return [*fixed, crc, producer, sequence, "" if row["leaderEpoch"] == -1 else row["leaderEpoch"], flags]
