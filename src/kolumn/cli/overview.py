"""``kolumn PATH``: what is there, on one screen."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kolumn.cli.common import DAMAGE, OK, Json, Sources, command, counted, print_json, print_table, short_name, size_of
from kolumn.cli.ending import progress, quoted
from kolumn.cli.read_options import OptionValue, with_read_options
from kolumn.cli.tables import fits, terminal_width
from kolumn.core.errors import escaped

if TYPE_CHECKING:
    from kolumn.damage.findings import Damage
    from kolumn.tools.overview import Overview, Seen

_MOST_ROWS = 10
_MOST_DAMAGE = 4


@command
@with_read_options("format", "topic", "partition", "keys")
def overview(
    sources: Sources,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Show what is there on one screen, and what to run next: the same as `kolumn PATH`.

    Headers of batches alone are read, so this is quick: no checksum is compared, and no record is decoded. The exit code is 1 if
    headers show damage.

    Example: `kolumn /var/lib/kafka/data`
    """
    from kolumn.tools.overview import overview as look

    with progress("reading headers", lambda: size_of(sources)) as advance:
        found = look(sources, on_progress=advance, **options)
    if json:
        print_json(_as_json(found))
    else:
        _print(found, sources)
    return DAMAGE if found.damage else OK


def _print(found: "Overview", sources: list[str]) -> None:
    seen = found.partitions
    parts = [
        counted(len({one.topic for one in seen}), "topic"), counted(len(seen), "partition"),
        counted(sum(one.segments for one in seen), "segment"), _size(sum(one.bytes for one in seen)), _records(seen),
    ]  # fmt: skip
    print(f"{', '.join(map(escaped, sources))}: {', '.join(parts)}")
    for line in _health(found):
        print(line)
    print()
    _table(seen)
    print()
    print("Next:")
    steps = _next(found, sources)
    for line in _shown(steps, terminal_width()):
        print(line)


def _shown(steps: list[tuple[str, str]], screen: int | None) -> list[str]:
    """Commands with their reasons: in two columns, or else side by side, or else one above the other. A command is never folded."""
    width = max(len(line) for line, _ in steps)
    for made in ([f"  {line:{width}}  # {why}" for line, why in steps], [f"  {line}  # {why}" for line, why in steps]):
        if screen is None or max(map(len, made)) <= screen:
            return made
    return [text for line, why in steps for text in (f"  # {why}", f"  {line}")]


def _records(seen: "list[Seen]") -> str:
    about = "about " if any(one.is_estimate for one in seen) else ""
    return about + counted(sum(one.records for one in seen), "record")


def _health(found: "Overview") -> list[str]:
    unread = "checksums and records are not checked here"
    lines = [f"No damage in the headers; {unread}."]
    if found.damage:
        lines = [f"DAMAGED: {counted(len(found.damage), 'damaged stretch')} in the headers; {unread}."]
        lines += [f"  {_damage(one)}" for one in found.damage[:_MOST_DAMAGE]]
        if len(found.damage) > _MOST_DAMAGE:
            lines.append(f"  and {len(found.damage) - _MOST_DAMAGE} more")
    if found.copies:
        lines.append(f"Copies: {found.copies[0]}; `--replicas merge` reads each offset once.")
    if found.remarks:
        one = found.remarks[0]
        more = f", and {counted(len(found.remarks) - 1, 'more remark')}" if len(found.remarks) > 1 else ""
        lines.append(f"Remark: {short_name(one.segment)}: {one.remark}{more}")
    if found.left_out:
        lines.append("Left out, since no part of the log; what is named is read:")
        lines += [f"  {_left_out(one)}" for one in found.left_out[:_MOST_DAMAGE]]
        if len(found.left_out) > _MOST_DAMAGE:
            lines.append(f"  and {len(found.left_out) - _MOST_DAMAGE} more, which `kolumn verify` lists")
    return list(map(escaped, lines))


def _left_out(one: dict[str, Any]) -> str:
    sizes = [counted(one[name], name[:-1]) for name in ("files", "bytes", "records") if one[name] is not None]
    return f"{short_name(one['path'])}: {', '.join([one['kind'], *sizes])}: {one['reason']}"


def _damage(one: "Damage") -> str:
    # Without the last one the first one is a guess.
    offsets = "" if one.last_offset is None else f", offsets {one.base_offset}..{one.last_offset}"
    return f"{short_name(one.segment)} at {one.position}, {counted(one.size, 'byte')}{offsets}: {one.reason}"


def _table(seen: "list[Seen]") -> None:
    """A row for each topic, or of a single topic for each partition; without the last columns if they do not fit."""
    topics: dict[str | None, list[Seen]] = {}
    for one in seen:
        topics.setdefault(one.topic, []).append(one)
    alone = len(topics) == 1
    rows = [_row(name, own) for name, own in ((None, [one]) for one in seen)] if alone else [_row(*item) for item in topics.items()]
    names = ["partition" if alone else "topic", "parts", "records", "size", "first", "last", "codecs", "formats", "offsets"]
    has_parts = not alone and any(row[1] > 1 for row in rows)
    chosen = [i for i, name in enumerate(names) if name != "parts" or has_parts]
    shown, width = rows[:_MOST_ROWS], terminal_width()
    # Where not all fits, days are enough of a time, and the last columns are left out.
    if not _fits(names, chosen, shown, width):
        shown = [[cell[:10] if names[i] in ("first", "last") else cell for i, cell in enumerate(row)] for row in shown]
    while len(chosen) > 4 and not _fits(names, chosen, shown, width):
        chosen.pop()
    if alone:
        title = "topic ?" if seen[0].topic is None else f"topic {escaped(seen[0].topic)}"
        shown = [[one.partition, *row[1:]] for one, row in zip(seen, shown, strict=False)]
    else:
        title = ""
    print_table(title, [names[i] for i in chosen], [[row[i] for i in chosen] for row in shown])
    if len(rows) > _MOST_ROWS:
        print(f"and {counted(len(rows) - _MOST_ROWS, 'more partition' if alone else 'more topic')}")


def _fits(names: list[str], chosen: list[int], rows: list[list[Any]], width: int | None) -> bool:
    return fits([names[i] for i in chosen], [[row[i] for i in chosen] for row in rows], width)


def _row(topic: str | None, own: "list[Seen]") -> list[Any]:
    codecs: Counter[str] = sum((one.codecs for one in own), Counter())
    magics: Counter[int] = sum((one.magics for one in own), Counter())
    first = min((one.first_ms for one in own if one.first_ms is not None), default=None)
    last = max((one.last_ms for one in own if one.last_ms is not None), default=None)
    about = "~" if any(one.is_estimate for one in own) else ""
    records = sum(one.records for one in own)
    offsets = f"{own[0].first_offset}..{own[0].last_offset}" if len(own) == 1 and own[0].last_offset is not None else ""
    return [
        "?" if topic is None else topic, len(own), f"{about}{records}" if about else records, _size(sum(one.bytes for one in own)),
        _time(first), _time(last), ", ".join(sorted(codecs)), ", ".join(f"v{magic}" for magic in sorted(magics)), offsets,
    ]  # fmt: skip


def _time(ms: int | None) -> str:
    if ms is None:
        return ""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def _size(size: int) -> str:
    from rich.filesize import decimal

    return decimal(size)


def _next(found: "Overview", sources: Iterable[str]) -> list[tuple[str, str]]:
    source = " ".join(map(quoted, sources))
    seen = found.partitions
    largest = max(seen, key=lambda one: one.records)
    one = quoted(min(largest.folders)) if len(seen) > 1 and largest.folders else source
    skip = " --errors skip" if found.damage else ""
    committed = " --isolation-level read_committed" if any(one.control for one in seen) else ""
    steps = [(f"kolumn verify {source}", "check everything")]
    steps.append((f"kolumn cat -n 5{skip} {one}", "the first records"))
    if any(one.topic == "_schemas" for one in seen):
        steps.append((f"kolumn schemas {source}", "the schemas"))
    steps.append((f"kolumn to-parquet{skip}{committed} {source} -o parquet", "Parquet files"))
    return [*steps, (f"kolumn report {source} -o report.html", "pictures")]


def _as_json(found: "Overview") -> dict[str, Any]:
    from dataclasses import asdict

    partitions = [
        {
            "topic": one.topic, "partition": one.partition, "segments": one.segments, "bytes": one.bytes, "batches": one.batches,
            "records": one.records, "recordsEstimated": one.is_estimate, "firstOffset": one.first_offset, "lastOffset": one.last_offset,
            "firstTimestampMs": one.first_ms, "lastTimestampMs": one.last_ms, "codecs": dict(sorted(one.codecs.items())),
            "magic": {str(k): v for k, v in sorted(one.magics.items())}, "controlBatches": one.control,
        }
        for one in found.partitions
    ]  # fmt: skip
    damage = [
        {"segment": one.segment, "position": one.position, "size": one.size, "reason": one.reason, "recordsLost": one.records_lost}
        for one in found.damage
    ]
    remarks = [asdict(one) for one in found.remarks]
    told = {"damage": damage, "remarks": remarks, "copies": list(map(str, found.copies)), "leftOut": found.left_out}
    return {"checked": "headers", "partitions": partitions, **told}
