"""Reports of commands about what they left out: damage, and files and folders that are no part of the log."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kolumn.cli.common import DAMAGE, LIMIT, OK, print_table
from kolumn.cli.tables import note

if TYPE_CHECKING:
    from kolumn.damage.findings import Skipped

_PLACES = 6


def say(skipped: "Skipped") -> int:
    """Print one line on standard error if something was left out. Returns the exit code."""
    if not skipped.pieces:
        return OK
    note(f"{skipped} ({_places(skipped)}); `kolumn verify` lists {'it' if len(skipped.pieces) == 1 else 'them'}")
    return DAMAGE if skipped.damage else LIMIT


def print_left_out(rows: list[dict[str, Any]]) -> None:
    """Print the files and folders that a read does not return, if there are any."""
    if rows:
        print_table("Left out, since no part of the log; what is named is read", list(rows[0]), [list(row.values()) for row in rows])
        print()


def say_unknown(unknown: Mapping[str, int]) -> None:
    """Print one line on standard error for each kind of message that was not decoded."""
    for name, count in sorted(unknown.items()):
        note(f"not decoded, kept as bytes: {count} of {name}")


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
    """Summary of a conversion or compaction."""
    return {"damaged": len(done.damage)} | counts(done.skipped)


def short_name(path: str) -> str:
    """Name of a segment and of its folder."""
    return "/".join(path.rstrip("/").split("/")[-2:])


def _places(skipped: "Skipped") -> str:
    found: dict[str, list[str]] = {}
    for piece in skipped.pieces[:_PLACES]:
        found.setdefault(short_name(piece.segment), []).append(str(piece.position))
    more = [f"and {len(skipped.pieces) - _PLACES} more"] if len(skipped.pieces) > _PLACES else []
    return "; ".join([f"{name} at {', '.join(positions)}" for name, positions in found.items()] + more)
