"""Output that the commands share: JSON, and what was left out; tables are in `tables.py`, exit codes and errors in `ending.py`."""

import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from kolumn.cli.ending import DAMAGE, LIMIT, OK
from kolumn.core.errors import MEANING, ArgumentError, Code, shown
from kolumn.core.results import counted as counted

if TYPE_CHECKING:
    import pyarrow as pa

    from kolumn.damage.findings import Skipped
    from kolumn.source.segments import InMemory

_MOST_POSITIONS = 6


def note(text: str) -> None:
    typer.echo(shown(text), err=True)


def is_json(given: bool | None) -> bool:
    """Whether to print JSON: as ``--json`` or ``--text`` says, else as KOLUMN_OUTPUT does, else if standard output is no terminal."""
    if given is not None:
        return given
    wanted = os.environ.get("KOLUMN_OUTPUT", "")
    if wanted not in ("", "text", "json"):
        raise ArgumentError(f"KOLUMN_OUTPUT={wanted!r}: expected text or json")
    return wanted == "json" if wanted else not sys.stdout.isatty()


def print_json(*values: object) -> None:
    from kolumn.cli.lines import json_text

    for value in values:
        sys.stdout.write(json_text(value) + "\n")


def rows_of(table: "pa.Table") -> list[dict[str, Any]]:
    """Rows of a table, with moments as text."""
    from kolumn.core import times

    return times.rows_of(table)


def size_of(sources: "list[str] | InMemory") -> int:
    from kolumn.source.segments import find_segments

    return sum(segment.size for segment in find_segments(sources, faults=True))


def short_name(path: str) -> str:
    return "/".join(path.rstrip("/").split("/")[-2:])


def foreign(reason: str) -> str | None:
    """What a file is that is no segment, if that is the reason of some damage."""
    name, expected = MEANING[Code.NOT_A_SEGMENT]
    return reason.rpartition("found ")[2] if reason.startswith(f"{name}: expected {expected}") else None


PAST_IT = "--open-transactions skip reads past it; `kolumn transactions` lists it"


def say(skipped: "Skipped", advice: str = PAST_IT) -> int:
    """Print on standard error where a read has stopped, with advice; whether values lost something, which files are no segments, and
    whether something was left out. Returns the exit code, which the last two of these decide.
    """
    from kolumn.damage.stopped import lines

    for line in lines(skipped.stopped, advice):
        note(line)
    if skipped.values.values:
        note(skipped.values.said)
    files = [(piece.segment, found) for piece in skipped.pieces if (found := foreign(piece.reason)) is not None]
    for name, found in files[:_MOST_POSITIONS]:
        note(f"{name}: not a Kafka log segment: {found}")
    if not skipped.pieces or len(skipped.pieces) == len(files) <= _MOST_POSITIONS:
        return DAMAGE if files else OK
    positions: dict[str, list[str]] = {}
    for piece in skipped.pieces[:_MOST_POSITIONS]:
        positions.setdefault(short_name(piece.segment), []).append(str(piece.position))
    parts = [f"{name} at {', '.join(own)}" for name, own in positions.items()]
    if len(skipped.pieces) > _MOST_POSITIONS:
        parts.append(f"and {len(skipped.pieces) - _MOST_POSITIONS} more")
    note(f"{skipped.left_out} ({'; '.join(parts)}); `kolumn verify` lists {'it' if len(skipped.pieces) == 1 else 'them'}")
    return DAMAGE if skipped.damage else LIMIT


def say_none(sources: "list[str] | InMemory", skipped: "Skipped", options: dict[str, Any]) -> None:
    """Print on standard error, of a command that returns no record, what there is: by headers, so it is quick. If something was left out,
    that is the reason.
    """
    if skipped.pieces or skipped.stopped:
        return
    from kolumn.core.times import moment
    from kolumn.tools.statistics import overview

    seen = overview(
        sources, **{name: options[name] for name in ("format", "topic", "partition", "private_keys") if name in options}
    ).partitions
    records = sum(own.records for own in seen)
    about = "about " if any(own.is_estimate for own in seen) else ""
    if not records:
        note("the source has no records")
        return
    text = f"no record matches; the source has {about}{counted(records, 'record')}"
    times = [ms for own in seen for ms in (own.first_ms, own.last_ms) if ms is not None]
    if times:
        text += f", from {moment(min(times))} to {moment(max(times))}"
    if len(seen) == 1:
        text += f", at offsets {seen[0].first_offset} to {seen[0].last_offset}"
    note(text)


def counts(skipped: "Skipped") -> dict[str, int]:
    """Counts for summaries in JSON. ``recordsLost`` includes only stretches whose number of records is known."""
    return {
        "damagedStretches": skipped.stretches, "damagedBytes": skipped.bytes, "recordsLost": skipped.records,
        "batchesOverLimit": len(skipped.limits),
    }  # fmt: skip


def say_of(done: Any) -> int:
    """Print one line for each stretch that a conversion or compaction left out, then the summary. Returns the exit code."""
    for piece in done.skipped.pieces:
        note(f"left out: {piece.segment}: position {piece.position}: {piece.reason}")
    return say(done.skipped)


def counts_of(done: Any) -> dict[str, int]:
    return {"damaged": len(done.damage)} | counts(done.skipped)
