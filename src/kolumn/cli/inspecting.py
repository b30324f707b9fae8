"""Commands that tell what is in segments: batches, totals and sizes of partitions, groups and transactions, schemas, and damage."""

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli import arguments, common, tables
from kolumn.cli.arguments import TRANSLATED, JsonInPipes, OptionValue, Segments, Sources, or_standard_input, with_read_options
from kolumn.cli.common import counted, foreign, is_json, note, print_json, rows_of, say, short_name, size_of
from kolumn.cli.ending import DAMAGE, LIMIT, OK, command, in_shell_words, progress
from kolumn.cli.tables import fits, print_left_out, print_rows, print_some, print_table
from kolumn.core.amounts import age, size
from kolumn.core.errors import ArgumentError, escaped
from kolumn.core.keywords import Codec

if TYPE_CHECKING:
    from kolumn.damage.findings import Damage
    from kolumn.readers.verified import Report
    from kolumn.tools.sizes import Space
    from kolumn.values.schemas.schema import Registered, Schema

_BATCH_NAMES = ["segment", "position", "size", "offsets", "count", "magic", "codec", "crc", "producer", "sequence", "epoch", "flags"]
_OFTEN_SAME = ("magic", "codec", "epoch")


@command
@with_read_options("check_crcs", "errors", "replicas", "format", "topic", "partition", "private_keys", errors="skip")
def inspect(
    sources: Segments,
    json: JsonInPipes = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Stop after so many batches.")] = None,
    **options: OptionValue,
) -> int:
    """List the batches (formats 0 and 1: the outermost messages) without decoding their records.

    With `--no-check-crcs` only headers are read, which is fast on segments of any size. Flags: T transactional, C control,
    H delete horizon, L LogAppendTime. The checksum of a damaged batch is shown as WRONG; a stretch in which no batch was found is
    shown as `skipped`, and in JSON `damage` has the reason. Redpanda's own batches have their type in place of the magic.

    Example: `kolumn inspect --json orders-3 | jq 'select(.producerId == 4001)'`
    """
    import kolumn

    skipped, given = kolumn.Skipped(), or_standard_input(sources)
    with progress("reading", lambda: size_of(given)) as advance:
        table = kolumn.batches(given, on_damage=skipped, on_progress=advance, **options)
    batches = table.to_pylist()
    wrong = any(row["crcValid"] is False for row in batches)
    rows = _with_stretches(batches, skipped.damage)[:limit]
    if is_json(json):
        print_json(*rows)
    else:
        _print_batches([_batch_cells(row) for row in rows])
    return say(skipped) or (DAMAGE if wrong else OK)


def _with_stretches(rows: tables.Rows, damage: "list[Damage]") -> tables.Rows:
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


def _print_batches(lines: list[list[Any]]) -> None:
    """Print one table, or one for each segment if a common table is too wide."""
    names = _BATCH_NAMES
    if fits(names, lines):
        print_table("", names, lines)
        return
    for number, (segment, own) in enumerate(groupby(lines, key=lambda line: line[0])):
        if number:
            print()
        cells = list(own)
        values = {i: {line[i] for line in cells if line[i] not in ("", None)} for i in range(1, len(names))}
        same = [i for i, known in values.items() if names[i] in _OFTEN_SAME and len(known) == 1]
        rest = [i for i, known in values.items() if known and i not in same]
        title = ", ".join([segment, *(f"{names[i]} {next(iter(values[i]))}" for i in same)])
        print_table(title, [names[i] for i in rest], [[line[i] for i in rest] for line in cells])


def _batch_cells(row: dict[str, Any]) -> list[Any]:
    first = "?" if row["baseOffset"] is None else row["baseOffset"]
    start = [short_name(row["segment"]), row["position"], row["size"]]
    if "damage" in row:
        offsets = f"{first}..{'?' if row['lastOffset'] is None else row['lastOffset']}"
        return [*start, offsets, row["recordsLost"], None, "", "skipped", "", "", "", ""]
    marks = {"T": row["isTransactional"], "C": row["isControl"], "H": row["deleteHorizonMs"] is not None, "L": row["timestampType"] == 1}
    flags = "".join(mark for mark, is_set in marks.items() if is_set)
    crc = {True: "ok", False: "WRONG", None: ""}[row["crcValid"]]
    producer = "" if row["producerId"] == -1 else f"{row['producerId']}/{row['producerEpoch']}"
    sequence, epoch = ("" if row[name] == -1 else row[name] for name in ("baseSequence", "leaderEpoch"))
    # Batches of Redpanda's own have another type than 1, that of records.
    magic = row["magic"] if row["batchType"] in (None, 1) else f"type {row['batchType']}"
    fixed = [*start, f"{first}..{row['lastOffset']}", row["count"], magic, row["codec"]]
    return [*fixed, crc, producer, sequence, epoch, flags]


@command
@with_read_options(*TRANSLATED, "private_keys", errors="skip")
def stats(sources: Segments, json: JsonInPipes = None, **options: OptionValue) -> int:
    """Report the totals of each partition: records, offsets, times, sizes, codecs, formats, producers.

    Control records are not counted. Damaged batches are left out (`kolumn verify` lists them).

    Example: `kolumn stats /var/lib/kafka/data`
    """
    from kolumn.damage.findings import Skipped
    from kolumn.tools.statistics import collect

    skipped, given = Skipped(), or_standard_input(sources)
    with progress("decoding", lambda: size_of(given)) as advance:
        rows = collect(given, skipped, on_progress=advance, **options)
    if is_json(json):
        print_json(*rows)
    else:
        print_rows("", [row | {"magic": _tally(row["magic"], "v"), "codec": _tally(row["codec"])} for row in rows], _TOTALS)
    return say(skipped)


_TOTALS = (
    *("topic", "partition", "segments", "bytes", "batches", "records", "firstOffset", "lastOffset", "damaged", "firstTimestamp"),
    *("lastTimestamp", "magic", "codec", "nullKeys", "nullValues", "meanKeyBytes", "meanValueBytes", "producers"),
)


def _tally(counts: dict[str, int], mark: str = "") -> str:
    """Records of each kind, without their number if there is one kind."""
    return ", ".join(f"{mark}{name}: {count}" if len(counts) > 1 else f"{mark}{name}" for name, count in counts.items())


@command
def columns(json: JsonInPipes = None) -> None:
    """List the record columns that `--columns` takes, and their Arrow types."""
    from kolumn.core.schema import DEFAULT_COLUMNS, RECORD_COLUMNS

    if is_json(json):
        print_json(*({"name": name, "type": str(type), "default": name in DEFAULT_COLUMNS} for name, type in RECORD_COLUMNS.items()))
        return
    rows = [[name, str(type), "yes" if name in DEFAULT_COLUMNS else ""] for name, type in RECORD_COLUMNS.items()]
    print_table("", ["column", "type", "default"], rows)


@command
@with_read_options(*arguments.READING_KAFKA, "private_keys", errors="skip")
def space(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE...]", help="Sources as elsewhere; without any, the table of the KIP-98 draft.")
    ] = None,
    json: JsonInPipes = None,
    picture: Annotated[str | None, typer.Option(help="Draw it too: a file ending in .svg, .png or .pdf (by matplotlib).")] = None,
    codec: Annotated[
        arguments.CodecName | None,
        typer.Option(autocompletion=arguments.among(Codec), help="Codec of all formats; by default each batch keeps its own."),
    ] = None,
    source_format: Annotated[arguments.FormatName, typer.Option(help="'kafka', or the draft that the source has.")] = "kafka",
    **options: OptionValue,
) -> int:
    """Report the size of segments as they are and in each format, and what the bytes are used for. No segment is written.

    Without a source: the overhead of messages of 1 KiB with keys of 100 bytes, in format 1 and in the sets of the KIP-98
    draft, from encoded bytes.

    Example: `kolumn space --picture orders.svg /var/lib/kafka/data/orders-3`
    """
    from kolumn.tools.sizes import PARTS, draft_table, draw

    if not sources:
        if is_json(json):
            print_json(*draft_table())
        else:
            print_rows("Bytes beyond the messages' own", draft_table())
        return OK
    import kolumn

    skipped = kolumn.Skipped()
    with progress("accounting", lambda: size_of(sources)) as advance:
        formats = kolumn.space(sources, codec=codec, source_format=source_format, on_damage=skipped, on_progress=advance, **options)
    if picture is not None:
        draw(formats, picture, ", ".join(map(short_name, sources)))
    if is_json(json):
        print_json(*(_space_row(own) | {"estimated": own.estimated, "lost": dict(own.lost)} | common.counts(skipped) for own in formats))
        return say(skipped)
    if any(own.estimated for own in formats):
        note("sizes with a codec are estimated from a part of the batches: see 'estimated' with --json")
    print_rows("", [_space_row(own) | {name: size(own.parts[name]) for name in PARTS} for own in formats])
    return say(skipped)


def _space_row(own: "Space") -> dict[str, Any]:
    from kolumn.tools.sizes import PARTS

    about = {"format": own.format, "magic": own.magic, "codec": own.codec or None, "records": own.records, "bytes": own.bytes}
    return about | {name: own.parts[name] for name in PARTS}


_TRANSACTION_NAMES = (
    *("topic", "partition", "producerId", "producerEpoch", "transactionalId", "firstOffset", "firstTimestamp", "ageMs"),
    *("isHanging", "coordinatorState"),
)
_GROUP_NAMES = ("group", "topic", "partition", "committedOffset", "logEndOffset", "lag", "commitTimestamp", "metadata")
_MOST_ABSENT = 5


@command
def transactions(
    sources: Sources,
    now: arguments.Now = None,
    json: JsonInPipes = None,
) -> int:
    """List transactions that no marker has ended, with their producer, their first offset and their age.

    The sources are log directories of brokers; copies of a partition are merged. If `__transaction_state` is among them, the
    coordinator's view is printed too. A transaction hangs if no coordinator will end it: readers of committed records wait at its first
    offset forever. Damage is left out, and is counted on standard error.

    Example: `kolumn transactions --now 2026-01-31T12:00 /mnt/broker-1/data`
    """
    import kolumn

    skipped = kolumn.Skipped()
    with progress("reading", None) as advance:
        rows = rows_of(kolumn.open_transactions(sources, now=now, errors="skip", on_damage=skipped, on_progress=advance))
    verdict = _of_open(rows) if rows else f"no open transactions{' in what can be read' if skipped.damage else ''}"
    if is_json(json):
        print_json(*rows)
        if not rows:
            note(verdict)
        return say(skipped)
    print(verdict)
    print_some("", rows, _TRANSACTION_NAMES)
    return say(skipped)


def _of_open(rows: tables.Rows) -> str:
    ages = [row["ageMs"] for row in rows if row["ageMs"] is not None]
    hanging = sum(bool(row["isHanging"]) for row in rows)
    hangs = (
        f"; {hanging} {'hangs' if hanging == 1 else 'hang'}: no coordinator will end {'it' if hanging == 1 else 'them'}" if hanging else ""
    )
    return f"{counted(len(rows), 'open transaction')}{f', the oldest {age(max(ages))} old' if ages else ''}{hangs}"


@command
def groups(sources: Sources, json: JsonInPipes = None) -> int:
    """List groups: the last committed offset of each partition, and the lag against the log beside it.

    The sources are log directories of brokers, with partitions of `__consumer_offsets` and of the topics that are consumed. Several
    brokers' directories can be named: copies of a partition are merged. If a partition's log is not there, its lag is unknown, and a line
    says which logs are missing. The group that lags most comes first. Damage in `__consumer_offsets` is left out, and is counted on
    standard error. With --json, members and their partitions are printed too.

    Example: `kolumn groups /mnt/broker-1/data /mnt/broker-2/data`
    """
    import kolumn

    skipped = kolumn.Skipped()
    with progress("reading", None) as advance:
        rows = rows_of(kolumn.groups(sources, errors="skip", on_damage=skipped, on_progress=advance))
    own = sorted((row for row in rows if row["topic"] is not None), key=_most_behind)
    why = _why_unknown(own)
    if is_json(json):
        print_json(*rows)
        for line in why:
            note(line)
        return say(skipped)
    totals = sorted((_total(list(some)) for _, some in groupby(rows, key=lambda row: row["group"])), key=_most_behind)
    lag = [total["lag"] for total in totals if total["lag"] is not None]
    behind = f": lag {sum(lag)} in all" if lag else ""
    print(f"{counted(len(totals), 'group')}, {counted(len(own), 'partition')} with committed offsets{behind}", *map(escaped, why), sep="\n")
    print_some("Groups", totals)
    print_some("Partitions", own, _GROUP_NAMES)
    return say(skipped)


def _most_behind(row: dict[str, Any]) -> tuple[bool, int]:
    return row["lag"] is None, -(row["lag"] or 0)


def _total(rows: tables.Rows) -> dict[str, Any]:
    """A group, from its rows; its lag is that of the partitions whose logs are there."""
    own = [row for row in rows if row["topic"] is not None]
    lag = [row["lag"] for row in own if row["lag"] is not None]
    about = {name: rows[0][name] for name in ("group", "kind", "state")}
    return about | {"partitions": len(own), "lag": sum(lag) if lag else None, "lagUnknown": (len(own) - len(lag)) or None}


def _why_unknown(rows: tables.Rows) -> list[str]:
    """A line that says which logs are not there, if any are not. The topic stands for all partitions of it."""
    known = {row["topic"] for row in rows if row["lag"] is not None}
    absent = {f"{row['topic']}-{row['partition']}" if row["topic"] in known else row["topic"] for row in rows if row["lag"] is None}
    if not absent:
        return []
    some = ", ".join(sorted(absent)[:_MOST_ABSENT])
    more = f" and {len(absent) - _MOST_ABSENT} more" if len(absent) > _MOST_ABSENT else ""
    return [f"lag unknown: no log of {some}{more} in this source; name the other disks too"]


@command
@with_read_options(
    *("topic", "partition", "start_offset", "end_offset", "start_timestamp", "end_timestamp", "value_framing", "value_skip", "value_sample")
)
def schemas(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A log directory with `_schemas-0`, that directory, a folder of .avsc, .proto or .json files, or a URL; with --infer "
            "segments, as elsewhere.",
        ),
    ],
    id: Annotated[int | None, typer.Option(help="Print the text of the schema with this id.")] = None,
    as_of: arguments.AsOf = None,
    infer: Annotated[bool, typer.Option("--infer", help="Print a schema of the JSON values in segments, for --value-schema.")] = False,
    key: Annotated[bool, typer.Option("--key", help="With --infer: the schema of the keys, for --key-schema.")] = False,
    json: JsonInPipes = None,
    **options: OptionValue,
) -> int:
    """List schemas: subject, version, id, type, what they refer to, and whether they are deleted.

    The topic `_schemas` of a cluster is read from disk; no registry has to run. What a registry deleted permanently is listed as long
    as its record is there. `/contexts/.name` after the path lists one context. Damaged and malformed records are left out, and are
    counted on standard error.

    With `--infer`, the type is inferred from the first values of a topic. It is printed as JSON for you to edit; standard error has a
    table of what was seen of each field, and why a type is wider than the values. The options after `--json` go with it. With `--key`,
    options about values apply to keys.

    Example: `kolumn schemas /var/lib/kafka --id 7 > orders.avsc`
    """
    if infer:
        if id is not None or as_of is not None:
            raise ArgumentError("--infer finds a type by values, --id and --as-of are about registered schemas: leave one out")
        return _infer(source, "key" if key else "value", bool(json), options)
    if key or options:
        named = "key" if key else next(iter(options))
        raise ArgumentError(f"--{named.replace('_', '-')} goes with --infer, which finds the type of JSON values in segments")
    from kolumn.options import milliseconds
    from kolumn.readers.schemas import UNKNOWN_KEY, TopicSchemas, schemas_of
    from kolumn.values.schemas.collections import ListedSchemas

    known = schemas_of(source, as_of=None if as_of is None else milliseconds("as_of", as_of))
    if id is not None:
        schema = known.by_id(id)
        contexts = [f".{name}" for name in known.contexts_of(id)] if isinstance(known, ListedSchemas) else []
        if schema is None:
            several = f"the contexts {', '.join(contexts)} have other schemas with the id {id}: name one, as in {source}/contexts/"
            raise ArgumentError(f"{several}{contexts[0]}" if contexts else f"{source}: no schema has the id {id}")
        if len(contexts) > 1:
            note(f"the contexts {', '.join(contexts)} have the id {id}: {source}/contexts/{contexts[-1]} is one of them")
        if json:
            print_json(_schema_row(None, None, schema, None))
        else:
            typer.echo(schema.text)
    elif is_json(json):
        print_json(*(_schema_row(own.subject, own.version, own.schema, own.is_deleted, own.is_gone) for own in known.registered()))
    else:
        print_table("", ["subject", "version", "id", "type", "references", "deleted"], [_schema_cells(own) for own in known.registered()])
    if not isinstance(known, TopicSchemas):
        return OK
    if known.aliases:
        note(f"aliases: {', '.join(f'{name} → {other}' for name, other in sorted(known.aliases.items()))}")
    for why, count in known.left_out.items():
        note(f"left out: {counted(count, 'record')} with {why}")
    return say(known.skipped) or (DAMAGE if known.left_out.keys() - {UNKNOWN_KEY} else OK)


def _infer(source: str, column: str, json: bool, options: dict[str, Any]) -> int:
    """Print the type that the first payloads of a column have in common."""
    import kolumn
    from kolumn.readers.inferred import infer
    from kolumn.values.json_inference import spelled, type_text

    skipped = kolumn.Skipped()
    own = {name.replace("value_", f"{column}_"): value for name, value in options.items()}
    found = infer(source, column, skipped, f"--{column}-schema", **own)
    fields = found.fields
    if json:
        rows = [{"path": one.path, "type": type_text(one.type), "seen": dict(one.seen), "why": one.why} for one in fields]
        print_json({"schema": spelled(found.type), "values": found.values, "fields": rows})
        return say(skipped)
    schema = spelled(found.type)
    typer.echo(schema if isinstance(schema, str) else tables.json_lines(schema))
    counts = [", ".join(f"{kind} {count}" for kind, count in one.seen.items()) for one in fields]
    cells = [[one.path, type_text(one.type), seen, one.why] for one, seen in zip(fields, counts, strict=True)]
    title = f"Of {counted(found.values, column)}:"
    typer.echo("\n".join(tables.layout(title, ["field", "type", "seen", "widened"], cells, tables.terminal_width(), False)), err=True)
    return say(skipped)


def _schema_cells(own: "Registered") -> list[Any]:
    references = ", ".join(f"{ref.name} ({ref.subject} {ref.version})" for ref in own.schema.references)
    name = own.subject if own.subject is not None else "" if own.schema.id is not None else str(own.schema.guid or "")
    return [name, own.version, own.schema.id, own.schema.kind, references, "for good" if own.is_gone else "yes" if own.is_deleted else ""]


def _schema_row(
    subject: str | None, version: int | None, schema: "Schema", is_deleted: bool | None, is_gone: bool = False
) -> dict[str, Any]:
    row = {
        "subject": subject, "version": version, "id": schema.id, "guid": None if schema.guid is None else str(schema.guid),
        "schemaType": schema.kind,
        "references": [{"name": ref.name, "subject": ref.subject, "version": ref.version} for ref in schema.references],
        "schema": schema.text, "deleted": is_deleted, "deletedForGood": is_gone or None,
    }  # fmt: skip
    return {name: value for name, value in row.items() if value is not None or name in ("id", "guid")}


@command
@with_read_options(
    "check_crcs", "format", "max_batch_bytes", "max_ratio", "topic", "partition", "private_keys", "start_delta", *arguments.DECODED
)
def verify(sources: Segments, json: JsonInPipes = None, **options: OptionValue) -> int:
    """Check every checksum and every record, and list the damage.

    A truncated last entry and a zero-filled tail are normal for an active segment, the last one of its directory: they are
    reported, but are not damage. In any other segment they are damage. Remarks list absent offsets that may have a good reason:
    compaction, retention. Files and folders that are not part of the log are listed with the reason. The exit code is 1 if anything
    is damaged or is not a segment, and otherwise 4 if an intact batch is larger than the limits allow, so that its records were not
    checked. With --value-format or --key-format, values or keys are decoded too: fields that cannot be decoded are listed with their
    counts, and do not change the exit code.

    Example: `kolumn verify /mnt/dead-broker/orders-3`
    """
    import kolumn

    given = or_standard_input(sources)
    with progress("verifying", lambda: size_of(given)) as advance:
        report = kolumn.verify(given, on_progress=advance, **options)
    found = report.segments, report.damage, report.limits, report.remarks, report.values, report.left_out
    segments, damage, large, remarks, values, left_out = map(rows_of, found)
    code = OK if report.ok else DAMAGE if damage else LIMIT
    if is_json(json):
        totals = {"ok": report.ok, "batches": report.batches, "records": report.records, "bytes": report.bytes}
        totals |= {"controlRecords": report.control_records, "inflatedByCpu": report.inflated_by_cpu}
        print_json(
            {**totals, "segments": segments, "damage": damage, "limits": large, "remarks": remarks, "values": values, "leftOut": left_out}
        )
        return code
    files = [(row["segment"], other) for row in damage if (other := foreign(row["reason"])) is not None]
    damage = [row for row in damage if foreign(row["reason"]) is None]
    for name, other in files:
        print(f"{escaped(name)}: not a Kafka log segment: {other}")
    if len(files) < len(segments):
        control = f" ({report.control_records} of them control records)" if report.control_records else ""
        read = f"{counted(report.batches, 'intact batch')}, {counted(report.records, 'record')}{control}, {size(report.bytes)}"
        by_cpu = f", {report.inflated_by_cpu} payloads decompressed by the CPU for the GPU" if report.inflated_by_cpu else ""
        print(f"{_verdict(report, len(damage), len(files))}: {counted(len(segments), 'segment')}, {read}{by_cpu}")
    if report.suffices:
        enough = " and ".join(f"{name}={value}" for name, value in report.suffices.items())
        print(in_shell_words(f"If the data are trusted and memory is there, {enough} reads what is over a limit", report.suffices))
    stretch = ("segment", "position", "size", "baseOffset", "lastOffset", "recordsLost", "reason")
    print_some("Damage", damage, stretch)
    print_some("Over a limit (no damage)", large, stretch)
    print_some("Tails of active segments (no damage)", [row for row in segments if row["tail"]], ("segment", "tail", "tailBytes"))
    print_some("Remarks (no damage)", remarks, ("segment", "position", "kind", "remark", "evidence"))
    print_some("Fields that could not be decoded (no damage)", values)
    print_left_out(left_out)
    return code


def _verdict(report: "Report", damaged: int, foreign: int) -> str:
    parts = []
    if damaged:
        parts.append(counted(damaged, "damaged stretch"))
    if foreign:
        parts.append(f"{counted(foreign, 'file')} that {'is not a segment' if foreign == 1 else 'are not segments'}")
    if report.limits.num_rows:
        parts.append(f"{counted(report.limits.num_rows, 'intact batch')} over a limit")
    if parts:
        return " and ".join(parts)
    verdict = "EMPTY" if not report.bytes else "OK" if report.batches else "NO BATCH"
    return f"{verdict}, with {counted(report.remarks.num_rows, 'remark')}" if report.remarks.num_rows else verdict
