"""``kolumn PATH``: what is there, on one screen; and ``kolumn report``: a page about a log."""

from collections import Counter
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.arguments import DECODED, READING, Json, OptionValue, Sources, with_read_options
from kolumn.cli.common import counted, foreign, note, print_json, say, short_name, size_of
from kolumn.cli.ending import DAMAGE, OK, command, progress, quoted
from kolumn.cli.tables import LEFT_OUT, fits, print_table, terminal_width
from kolumn.core.amounts import size
from kolumn.core.errors import KolumnError, escaped

if TYPE_CHECKING:
    from kolumn.damage.findings import Damage
    from kolumn.tools.statistics import Overview, Seen

_MOST_ROWS = 10
_MOST_LINES = 4


@command
@with_read_options("format", "topic", "partition", "private_keys")
def overview(sources: Sources, json: Json = False, **options: OptionValue) -> int:
    """Show what is there on one screen, and what to run next: the same as `kolumn PATH`.

    Only batch headers are read, so this is quick: no checksum is compared, and no record is decoded. It prints text, in a pipe too,
    unless `--json` is given. The exit code is 1 if headers show damage.

    Example: `kolumn /var/lib/kafka/data`
    """
    from kolumn.tools.statistics import overview as look

    with progress("reading headers", lambda: size_of(sources)) as advance:
        summary = look(sources, on_progress=advance, **options)
    if json:
        print_json(_as_json(summary))
    else:
        _print(summary, sources, options)
    return DAMAGE if summary.damage else OK


@command
@with_read_options(*READING[1:], "private_keys", *DECODED)
def report(
    sources: Sources,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The page; an earlier page of that name is replaced.")
    ] = "report.html",
    **options: OptionValue,
) -> int:
    """Write a page with pictures: what is in here, is it healthy, where does the space go (drawn by matplotlib).

    The page is one file that loads nothing, for a browser, a phone or a screen reader: damage, what `kolumn audit` finds, records over
    time, batches, codecs and what others would save, keys, order of timestamps, absent offsets, transactions, producers. Memory does not
    depend on the size of the source. With --value-format, values are decoded, and the page lists fields that cannot be decoded. The exit
    code is 1 if anything is damaged.

    Example: `kolumn report /mnt/dead-broker -o report.html`
    """
    from kolumn.tools.report.page import write_report

    with progress("reading", lambda: size_of(sources)) as advance:
        title = ", ".join(escaped(short_name(source)) for source in sources)
        findings = write_report(sources, output, title, on_progress=advance, **options)
    note(f"report: {output}")
    return say(findings.skipped)


def _print(summary: "Overview", sources: list[str], options: dict[str, Any]) -> None:
    seen = summary.partitions
    about = "about " if any(own.is_estimate for own in seen) else ""
    parts = [
        counted(len({own.topic for own in seen}), "topic"), counted(len(seen), "partition"),
        counted(sum(own.segments for own in seen), "segment"), size(sum(own.bytes for own in seen)),
        about + counted(sum(own.records for own in seen), "record"),
    ]  # fmt: skip
    print(f"{', '.join(map(escaped, sources))}: {', '.join(parts)}", *_health(summary), "", sep="\n")
    if any(own.batches for own in seen):
        _table(seen)
        print()
    print("Next (exit code 1 means that damage was found):", *_shown(_next(summary, sources, options), terminal_width()), sep="\n")


def _shown(steps: list[tuple[str, str]], screen: int | None) -> list[str]:
    """Commands with their reasons: in two columns, or else side by side, or else one above the other. A command is never folded."""
    width = max(len(line) for line, _ in steps)
    for lines in ([f"  {line:{width}}  # {why}" for line, why in steps], [f"  {line}  # {why}" for line, why in steps]):
        if screen is None or max(map(len, lines)) <= screen:
            return lines
    return [text for line, why in steps for text in (f"  # {why}", f"  {line}")]


def _health(summary: "Overview") -> list[str]:
    from kolumn.source.names import log_name

    unread = "checksums and records are not checked here"
    files = [piece for piece in summary.damage if foreign(piece.reason)]
    damage = [piece for piece in summary.damage if piece not in files]
    lines = [f"DAMAGED: {counted(len(damage), 'damaged stretch')} in the headers; {unread}."] if damage else []
    if not summary.damage and any(own.batches for own in summary.partitions):
        lines = [f"No damage in the headers; {unread}."]
    lines += _some([f"  {_damage(piece)}" for piece in damage])
    lines += _some([f"Not a Kafka log segment: {short_name(piece.segment)}: {foreign(piece.reason)}" for piece in files])
    if empty := sum(own.empty for own in summary.partitions):
        segments = sum(own.segments for own in summary.partitions)
        some = f"{f'{empty} of ' if empty < segments else ''}{counted(segments, 'segment')}"
        lines.append(f"EMPTY: {some} {'has' if empty == 1 else 'have'} no bytes.")
    if summary.copies:
        one, number = summary.copies[0], len({(own.topic, own.partition) for own in summary.copies})
        several = f"{counted(number, 'partition')} {'is' if number == 1 else 'are'} in several folders"
        lines.append(f"Copies: {several}, {one.topic}-{one.partition} in {' and '.join(one.folders)}; each offset is read once below.")
    open_in = [own for own in summary.partitions if own.open]
    stopped = [f"{log_name(own.topic, own.partition, min(own.folders))} at offset {min(own.open.values())}" for own in open_in]
    if stopped:
        more = f", and {counted(len(stopped) - 1, 'more partition')}" if len(stopped) > 1 else ""
        lines.append(f"Open transactions, where a committed read stops: {stopped[0]}{more}; `--open-transactions skip` reads past them.")
    if summary.remarks:
        remark = summary.remarks[0]
        more = f", and {counted(len(summary.remarks) - 1, 'more remark')}" if len(summary.remarks) > 1 else ""
        lines.append(f"Remark: {short_name(remark.segment)}: {remark.remark}{more}")
    if summary.left_out:
        lines += [f"{LEFT_OUT}:", *_some([f"  {_left_out(row)}" for row in summary.left_out])]
    return list(map(escaped, lines))


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST_LINES
    return lines[:_MOST_LINES] + ([f"  and {more} more, which `kolumn verify` lists"] if more > 0 else [])


def _left_out(row: dict[str, Any]) -> str:
    counts = ["" if row[name] is None else counted(row[name], name[:-1]) for name in ("files", "records")]
    parts = filter(None, (row["kind"], counts[0], "" if row["bytes"] is None else size(row["bytes"]), counts[1]))
    return f"{short_name(row['path'])}: {', '.join(parts)}: {row['reason']}"


def _damage(piece: "Damage") -> str:
    # Without the last offset the first one is a guess.
    offsets = "" if piece.last_offset is None else f", offsets {piece.base_offset}..{piece.last_offset}"
    return f"{short_name(piece.segment)} at {piece.position}, {counted(piece.size, 'byte')}{offsets}: {piece.reason}"


def _table(seen: "list[Seen]") -> None:
    """A row for each topic, or of a single topic for each partition; without the last columns if they do not fit."""
    topics: dict[str | None, list[Seen]] = {}
    for own in seen:
        topics.setdefault(own.topic, []).append(own)
    alone = len(topics) == 1
    rows = [_row(None, [own]) for own in seen] if alone else [_row(*item) for item in topics.items()]
    names = ["partition" if alone else "topic", "parts", "records", "size", "first", "last", "codecs", "formats", "offsets"]
    has_parts = not alone and any(row[1] > 1 for row in rows)
    chosen = [i for i, name in enumerate(names) if name != "parts" or has_parts]
    shown = rows[:_MOST_ROWS]

    def picked(rows: list[list[Any]]) -> tuple[list[str], list[list[Any]]]:
        return [names[i] for i in chosen], [[row[i] for i in chosen] for row in rows]

    # Where not all fits, days are enough of a time, and the last columns are left out.
    if not fits(*picked(shown)):
        shown = [[cell.partition("T")[0] if names[i] in ("first", "last") else cell for i, cell in enumerate(row)] for row in shown]
    while len(chosen) > 4 and not fits(*picked(shown)):
        chosen.pop()
    if alone:
        title = "topic ?" if seen[0].topic is None else f"topic {escaped(seen[0].topic)}"
        shown = [[own.partition, *row[1:]] for own, row in zip(seen, shown, strict=False)]
    else:
        title = ""
    print_table(title, *picked(shown))
    if len(rows) > _MOST_ROWS:
        print(f"and {counted(len(rows) - _MOST_ROWS, 'more partition' if alone else 'more topic')}")


def _row(topic: str | None, own: "list[Seen]") -> list[Any]:
    from kolumn.core.times import moment

    codecs: Counter[str] = sum((seen.codecs for seen in own), Counter())
    magics: Counter[int] = sum((seen.magics for seen in own), Counter())
    first = min((seen.first_ms for seen in own if seen.first_ms is not None), default=None)
    last = max((seen.last_ms for seen in own if seen.last_ms is not None), default=None)
    records = sum(seen.records for seen in own)
    offsets = f"{own[0].first_offset}..{own[0].last_offset}" if len(own) == 1 and own[0].last_offset is not None else ""
    return [
        "?" if topic is None else topic, len(own), f"~{records}" if any(seen.is_estimate for seen in own) else records,
        size(sum(seen.bytes for seen in own)), "" if first is None else moment(first), "" if last is None else moment(last),
        ", ".join(sorted(codecs)),
        ", ".join(f"v{magic}" for magic in sorted(magics)), offsets,
    ]  # fmt: skip


def _next(summary: "Overview", sources: list[str], options: dict[str, Any]) -> list[tuple[str, str]]:
    """Commands that go on from here, and what they are for."""
    from kolumn.source.storage import as_typed

    source, seen = " ".join(map(quoted, sources)), summary.partitions
    keys = [f" --key-file {quoted(f'{name}={path}')}" for name, path in options.get("private_keys", {}).items()]
    chosen = "".join([f" --{name} {quoted(str(options[name]))}" for name in ("topic", "partition") if name in options] + keys)
    is_kafka = options["format"] == "kafka" and not any(own.is_redpanda for own in seen)
    reading = chosen if options["format"] == "kafka" else f" --format {options['format']}{chosen}"
    steps = [(f"kolumn verify{reading} {source}", "check everything")]
    if not any(own.batches for own in seen):
        return steps
    merge = " --replicas merge" if summary.copies else ""
    if merge and is_kafka:
        steps.append((f"kolumn recover{chosen} {source} -o whole", "one whole log from the copies"))
    typed = _typed(seen, sources)
    shown = max(seen, key=lambda own: (own.topic in typed, not (own.topic or "").startswith("_"), own.records))
    internal = " --decode internal" if (shown.topic or "").startswith("__") else ""
    how = f"{' --value-format registry' if shown.topic in typed else ''}{reading}"
    folder = quoted(as_typed(max(shown.folders, key=lambda folder: shown.folders[folder])))
    first = f"{how}{merge} {source}" if len(seen) == 1 else f"{how} {folder}"
    steps.append((f"kolumn cat -n 5{internal}{' --errors skip' if summary.damage else ''}{first}", "the first records"))
    if shown.topic is not None and not internal and find_spec("duckdb"):
        # Quoted, since a topic may have the name of a keyword.
        query = 'select * from "{}" limit 5'.format(shown.topic.replace('"', '""'))
        steps.append((f"kolumn sql --errors skip{how}{merge} {source} {quoted(query)}", "any query"))
    topics = {own.topic for own in seen}
    if "_schemas" in topics:
        own = next(folder for own in seen if own.topic == "_schemas" for folder in own.folders)
        steps.append((f"kolumn schemas {quoted(as_typed(own)) if len(sources) > 1 else source}", "the schemas"))
    if "__consumer_offsets" in topics:
        steps.append((f"kolumn groups {source}", "consumer groups, and how far they lag"))
    registry = " --value-format registry" if typed else ""
    committed = " --isolation-level read_committed" if any(own.control or own.open for own in seen) else ""
    committed += " --open-transactions skip" if any(own.open for own in seen) else ""
    steps.append((f"kolumn to-parquet --errors skip{registry}{committed}{reading}{merge} {source} -o parquet", "Parquet files"))
    return [*steps, (f"kolumn report{reading}{merge} {source} -o report.html", "pictures")]


def _typed(seen: "list[Seen]", sources: list[str]) -> set[str | None]:
    """Topics whose values have a schema in `_schemas`, which is in the sources or beside them."""
    from kolumn.readers.schemas import schemas_of

    folder = next((folder for own in seen if own.topic == "_schemas" for folder in own.folders), None)
    try:
        subjects = {own.subject for own in schemas_of(folder, sources).registered()}
    except KolumnError:
        return set()
    return {own.topic for own in seen if f"{own.topic}-value" in subjects}


def _as_json(summary: "Overview") -> dict[str, Any]:
    partitions = [
        {
            "topic": own.topic, "partition": own.partition, "segments": own.segments, "emptySegments": own.empty, "bytes": own.bytes,
            "batches": own.batches, "records": own.records, "recordsEstimated": own.is_estimate, "firstOffset": own.first_offset,
            "lastOffset": own.last_offset, "firstTimestampMs": own.first_ms, "lastTimestampMs": own.last_ms,
            "codecs": dict(sorted(own.codecs.items())), "magic": {str(k): v for k, v in sorted(own.magics.items())},
            "controlBatches": own.control, "openTransactions": len(own.open),
        }
        for own in summary.partitions
    ]  # fmt: skip
    names = {"segment": "segment", "position": "position", "size": "size", "reason": "reason", "recordsLost": "records_lost"}
    damage = [{name: getattr(piece, attribute) for name, attribute in names.items()} for piece in summary.damage]
    remarks, copies = list(map(asdict, summary.remarks)), list(map(str, summary.copies))
    about = {"damage": damage, "remarks": remarks, "copies": copies, "leftOut": summary.left_out}
    return {"checked": "headers", "partitions": partitions, **about}
